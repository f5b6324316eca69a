"""Secrets: which variables hold one, how values are found however they are written, and that no run leaves one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import aclosing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from helpers_run import assert_paired, call, calls, say
from hypothesis import given, settings
from hypothesis import strategies as st

import opensage
from opensage import tool
from opensage.approval import Decision
from opensage.config import load_settings
from opensage.errors import ConfigError, ModelError
from opensage.log.store import SessionStore
from opensage.messages import Reply, ToolCall
from opensage.models import ScriptedModel
from opensage.secrets import Mask, MaskedStream, is_secret

KEY = "sk-live-4f.9+(a|b)[c]*$"
NASTY = 'p"a\\ss wörd {x}$^'


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("OPENAI_API_KEY", "sk-12345678", True),
        ("GOOGLE_API_KEY", "AIza12345", True),
        ("openai_api_key", "sk-12345678", True),
        ("GITHUB_TOKEN", "ghp_12345678", True),
        ("PGPASSWORD", "correct horse", True),
        ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI", True),
        ("DJANGO_SECRET_KEY", "django-insecure", True),
        ("GH_PAT", "github_pat_1234", True),
        ("MYSQL_PWD", "longpassword", True),
        ("STORAGE_ACCOUNT_KEY", "abcdefghij", True),
        ("SHORT_TOKEN", "1234567", False),
        ("API_KEY", "        a        ", False),
        ("PWD", "/home/somebody/project", False),
        ("OLDPWD", "/home/somebody/project", False),
        ("TOKENIZERS_PARALLELISM", "false-false", False),
        ("MAX_TOKENS", "100000000", False),
        ("SORT_KEY", "created_at", False),
        ("SSH_AUTH_SOCK", "/run/agent.sock", False),
        ("API_KEY_FILE", "some/where/key", False),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/etc/hostname", False),
        ("REQUIRE_PASSWORD", "disabled", False),
        ("PATH", "/usr/bin:/bin", False),
    ],
)
def test_which_variables_are_secrets(name: str, value: str, secret: bool) -> None:
    assert is_secret(name, value) is secret


def test_values_with_signs_of_regular_expressions_and_one_inside_another() -> None:
    mask = Mask({"A_KEY": KEY, "B_KEY": KEY + "-more", "C": "short"})
    assert mask.text(f"<{KEY}> <{KEY}-more> short") == "<[masked A_KEY]> <[masked B_KEY]> short"
    assert mask.text(mask.text(f"x{KEY}")) == "x[masked A_KEY]"
    assert not Mask({"C": "short"})
    assert KEY not in repr(mask)


def test_a_name_that_is_its_own_value_does_not_grow() -> None:
    mask = Mask({"OPENAI_API_KEY": "OPENAI_API_KEY"}, ["masked"])
    once = mask.text("it is OPENAI_API_KEY, masked")
    assert mask.text(once) == once == "it is [masked OPENAI_API_KEY], [masked pattern]"


@pytest.mark.parametrize("ascii_only", [True, False])
def test_values_in_json_in_json(ascii_only: bool) -> None:
    mask = Mask({"K": NASTY})
    inner = json.dumps({"a": [NASTY]}, ensure_ascii=ascii_only)
    outer = json.dumps({"arguments": inner}, ensure_ascii=ascii_only)
    assert json.loads(mask.text(inner)) == {"a": ["[masked K]"]}
    assert json.loads(json.loads(mask.text(outer))["arguments"]) == {"a": ["[masked K]"]}


def test_escapes_of_a_models_own_are_seen_through() -> None:
    raw = '{"x": "\\u0073k-live\\/9876", "y": "line\\n"}'
    clean = Mask({"K": "sk-live/9876"}).reply(Reply("", (ToolCall("1", "f", raw),)))
    assert json.loads(clean.calls[0].arguments) == {"x": "[masked K]", "y": "line\n"}


def test_a_key_of_several_lines_is_found_line_by_line() -> None:
    pem = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG\nhkiG9w0BAQEFAASCBKc\n-----END PRIVATE KEY-----\n"
    mask = Mask({"PEM": pem})
    assert mask.text(pem) == "[masked PEM]\n"
    assert mask.text("   1  MIIEvQIBADANBgkqhkiG") == "   1  [masked PEM]"
    assert mask.text("-----BEGIN PRIVATE KEY-----") == "-----BEGIN PRIVATE KEY-----"


def test_what_a_provider_wants_back_unchanged_is_left() -> None:
    extra = {"provider": "p", "thinking_blocks": [{"thinking": f"it is {KEY}", "signature": KEY}]}
    clean = Mask({"K": KEY}).reply(Reply("", (), extra=extra))
    assert clean.extra == {"provider": "p", "thinking_blocks": [{"thinking": "it is [masked K]", "signature": KEY}]}


@given(
    st.lists(st.text("ab", min_size=8, max_size=11), min_size=1, max_size=3),
    st.text("ab", max_size=60),
    st.lists(st.integers(0, 60), max_size=8),
)
@settings(deadline=None)
def test_pieces_show_what_the_whole_would(values: list[str], text: str, cuts: list[int]) -> None:
    mask = Mask({f"K{n}": value for n, value in enumerate(values)})
    places = [0, *sorted(cuts), len(text)]
    stream = MaskedStream(mask)
    shown = "".join(stream.feed(text[a:b]) for a, b in pairwise(places)) + stream.end()
    assert shown == mask.text(text)
    assert not any(value in shown for value in values)


def test_patterns_in_a_stream_wait_for_the_end_of_the_line() -> None:
    stream = MaskedStream(Mask(patterns=[r"acct-\d+"]))
    assert [stream.feed(part) for part in ("no acct-1", "23", "4 yes\nand", " more")] == [
        "",
        "",
        "no [masked pattern] yes\n",
        "",
    ]
    assert stream.end() == "and more"


@pytest.mark.parametrize("pattern", ["(", "a*", "", r"\b", "x?", "^", "(?=a)"])
def test_a_pattern_that_cannot_be_used_is_named(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "opensage.toml").write_text(f"[secrets]\npatterns = ['fine', '{pattern}']\n")
    with pytest.raises(ConfigError, match=r"secrets\.patterns.*(mend|write)"):
        load_settings(tmp_path, env={"OPENSAGE_HOME": str(tmp_path)})


def test_patterns_of_user_and_project_add_up(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[secrets]\npatterns = ['one']\n")
    (tmp_path / "opensage.toml").write_text("[secrets]\npatterns = ['two']\n")
    found = load_settings(tmp_path, overrides=['secrets.patterns=["three"]'], env={"OPENSAGE_HOME": str(tmp_path)})
    assert found.secrets.patterns == ("one", "two", "three")
    with pytest.raises(ConfigError, match="did you mean 'patterns'"):
        load_settings(tmp_path, overrides=["secrets.pattern=1"], env={"OPENSAGE_HOME": str(tmp_path)})


def leaks(folder: Path, value: str, but: tuple[str, ...] = ()) -> list[str]:
    """The files below a folder that hold the value, in any of its written forms."""
    forms = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in but:
            data = path.read_bytes()
            found += [str(path) for form in forms if form.encode() in data]
    return found


def halves(value: str) -> list[dict[str, Any]]:
    at = len(value) // 2
    return [{"content": f"The key is {value[:at]}"}, {"content": f"{value[at:]}, I think."}]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("work", "home", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path


@tool
def tells(what: str) -> dict[str, list[str]]:
    """Return it."""
    return {"told": [os.environ["DEMO_API_KEY"], what]}


@tool
def breaks() -> str:
    """Fail."""
    raise RuntimeError(f"cannot log in with {os.environ['DEMO_API_KEY']}")


@tool(approval="ask")
def asked(text: str) -> str:
    """Say how long it is."""
    return str(len(text))


@pytest.mark.parametrize("value", [KEY, NASTY])
def test_no_file_event_or_request_of_a_run_holds_the_value(
    value: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMO_API_KEY", value)
    work = home / "work"
    env_file = f"A=1\nDEMO_API_KEY={value}\nMODE=old\n"
    (work / ".env").write_text(env_file)
    (work / "AGENTS.md").write_text(f"Log in with {value}.\n")
    flood = 'yes "$(cat .env)" | head -n 3000'
    slowly = "head -c 20 .env; sleep 0.4; tail -c +21 .env"
    model = ScriptedModel(
        [
            {
                "chunks": [
                    *halves(value),
                    {"tool_calls": [{"index": 0, "id": "a", **function("shell", command="cat .env")}]},
                ]
            },
            calls(
                call("read", {"path": ".env"}), call("shell", {"command": flood}), call("search", {"pattern": "KEY"})
            ),
            calls(call("shell", {"command": slowly, "background": True})),
            calls(call("shell", {"command": "sleep 0.2"}), call("task_output", {"id": "t1"})),
            calls(call("task_wait", {"id": "t1", "timeout": 9}), call("task_output", {"id": "t1"})),
            calls(call("edit", {"path": ".env", "old": "MODE=old", "new": "MODE=new"})),
            calls(call("edit", {"path": ".env", "old": f"{value}\n", "new": "x\n"})),
            calls(call("write", {"path": "copy", "content": "K=[masked DEMO_API_KEY]"})),
            calls(call("tells", {"what": value}), call("breaks"), call("no_such", {"x": value})),
            calls({"id": "z", "name": "asked", "arguments": json.dumps({"text": value})[:-1]}),
            calls(call("asked", {"text": value})),
            calls(call("shell", {"command": f"echo '{value}' > other"})),
            {"chunks": halves(value)},
        ]
    )
    seen: list[str] = []

    async def approve(wanted: ToolCall) -> Decision:
        seen.append(wanted.arguments)
        return Decision(True, arguments={"text": value})

    async def go() -> opensage.log.events.RunFinished:  # type: ignore[name-defined]
        options: Any = {"sandbox": "bubblewrap", "workdir": work, "tools": [tells, breaks, asked], "approve": approve}
        async for event in opensage.stream(f"use {value}", model=model, **options):
            seen.append(json.dumps(event.to_dict(full=True), ensure_ascii=False))
            last = event
        return last

    finished = asyncio.run(go())
    assert finished.status == "done"
    assert finished.text == "The key is [masked DEMO_API_KEY], I think."
    assert_paired(model)
    everything = "\n".join([*seen, json.dumps(model.requests, ensure_ascii=False), json.dumps(model.requests)])
    mask = Mask({"K": value})
    assert mask.text(everything) == everything
    assert len(value) >= 16
    assert leaks(home, value, but=(".env", "AGENTS.md")) == []
    assert (work / ".env").read_text() == env_file.replace("old", "new")
    results = {e["id"]: e for e in map(json.loads, (s for s in seen if '"tool.result"' in s))}
    texts = [e["text"] for e in results.values()]
    assert any("stands for a secret" in text for text in texts)
    assert not (work / "copy").exists()
    assert not (work / "other").exists()
    assert str(len(value)) in texts[-2]  # the person's own words reach the tool as they are
    shown = "".join(e["text"] for e in map(json.loads, (s for s in seen if '"text.delta"' in s)))
    assert shown.count("The key is [masked DEMO_API_KEY], I think.") == 2
    blobs = [path for path in (work / ".opensage").rglob("*.blobs/*") if path.is_file()]
    assert blobs
    assert b"[masked DEMO_API_KEY]" in blobs[0].read_bytes()


def function(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def test_a_long_output_is_not_cut_inside_a_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    value = "s3cr3t-" + "0123456789abcdef" * 4
    monkeypatch.setenv("DEMO_TOKEN", value)
    (home / "work" / "f").write_text(f"{value}\n" * 30_000)
    model = ScriptedModel([calls(call("shell", {"command": "cat f"})), say("done")])
    result = opensage.run("x", model=model, sandbox="bubblewrap", workdir=home / "work")
    blob = next(e.blob for e in result.events if e.type == "tool.result")  # type: ignore[attr-defined]
    text = (home / "work/.opensage/sessions" / f"{result.session_id}.blobs" / blob).read_text()
    assert "bytes cut" in text
    assert "456789abcdef" not in text


def test_an_error_that_leaves_the_run_holds_no_secret(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_API_KEY", KEY)
    model = ScriptedModel([{"error": {"status": 400, "message": f"key {KEY} is wrong"}}])
    with pytest.raises(ModelError) as caught:
        opensage.run("x", model=model, workdir=home / "work", sandbox="local")
    assert "[masked DEMO_API_KEY]" in str(caught.value)
    assert KEY not in str(caught.value)
    assert leaks(home, KEY) == []


def test_the_key_given_to_a_model_is_a_secret_too(home: Path) -> None:
    class Keyed(ScriptedModel):
        secrets = {"api_key": KEY}  # noqa: RUF012

    result = opensage.run("x", model=Keyed([say(f"it is {KEY}")]), workdir=home / "work", sandbox="local")
    assert result.text == "it is [masked api_key]"


def test_a_persons_edit_with_a_secret_is_not_run_with_the_placeholder_after_a_crash(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEMO_API_KEY", KEY)
    work = home / "work"

    async def answered() -> str:
        options: Any = {"sandbox": "local", "workdir": work, "approve": lambda _call: {"path": "f", "content": KEY}}
        model = ScriptedModel([calls(call("write", {"path": "f", "content": "x"}))])
        async with aclosing(opensage.stream("x", model=model, **options)) as events:  # type: ignore[type-var]
            async for event in events:
                if event.type == "approval.decided":
                    return next((work / ".opensage/sessions").glob("*.jsonl")).read_text()
        return ""

    kept = asyncio.run(answered())
    log = next((work / ".opensage/sessions").glob("*.jsonl"))
    log.write_text(kept[: kept.index("\n", kept.index('"approval.decided"')) + 1])  # the process ended here
    (work / "f").unlink(missing_ok=True)
    model = ScriptedModel([say("done")])
    opensage.run(None, model=model, sandbox="local", workdir=work, session=log.stem)
    assert "stands for a secret" in json.dumps(model.requests)
    assert not (work / "f").exists()


def test_a_mask_of_ones_own_and_none_at_all(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_API_KEY", KEY)
    options: Any = {"workdir": home / "work", "sandbox": "local"}
    result = opensage.run("x", model=ScriptedModel([say("id-77 x")]), mask=Mask(patterns=[r"id-\d+"]), **options)
    assert result.text == "[masked pattern] x"
    assert opensage.run("x", model=ScriptedModel([say(KEY)]), mask=Mask(), **options).text == KEY


def test_an_old_log_is_masked_when_it_is_read(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: Any = {"workdir": home / "work", "sandbox": "local"}
    first = opensage.run(f"remember {KEY}", model=ScriptedModel([say(KEY)]), **options)
    assert first.text == KEY
    monkeypatch.setenv("DEMO_API_KEY", KEY)
    model = ScriptedModel([say("again")])
    opensage.run("and now", model=model, session=first.session_id, **options)
    assert KEY not in json.dumps(model.requests)
    store = SessionStore(home / "work/.opensage/sessions", Mask.of(os.environ))
    assert KEY not in store.export(first.session_id) + store.export(first.session_id, "messages")
    fork = store.fork(first.session_id)
    assert KEY not in store.path(fork).read_text()


ROOT = Path(__file__).parents[2]


def cli(home: Path, *words: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    folders = [ROOT, *(ROOT / name for name in ("memory", "toolkits", "agents", "benchmarks"))]
    extra = {"PYTHONPATH": os.pathsep.join(map(str, folders)), **env}
    return subprocess.run(
        [sys.executable, "-m", "opensage", *words],
        cwd=home / "work",
        env={**os.environ, **extra},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_command_line_prints_no_secret(home: Path) -> None:
    turns = [
        {"chunks": [*halves(KEY), {"tool_calls": [{"index": 0, "id": "a", **function("shell", command="cat .env")}]}]},
        say(f"It is {KEY} of acct-123."),
        {"error": {"status": 400, "message": f"refused {KEY} of acct-123"}},
    ]
    (home / "work" / ".env").write_text(f"KEY={KEY} acct-123\n")
    (home / "script.json").write_text(json.dumps([*turns, *turns]))
    (home / "work" / "opensage.toml").write_text("[secrets]\npatterns = ['acct-[0-9]+']\n")
    model, env = f"record:{home}/tape:script:{home}/script.json", {"DEMO_API_KEY": KEY}
    done = cli(home, "--debug", "chat", "-m", model, stdin=f"my key is {KEY}\n/diff\nagain {KEY}\n", **env)
    assert done.stdout.count("[masked DEMO_API_KEY]") >= 5, done.stdout + done.stderr
    said = [done]
    said.append(cli(home, "run", f"say {KEY}", "-m", model, "--json", **env))
    said.append(cli(home, "--debug", "resume", "last", "more", "-m", model, **env))
    for form in ("jsonl", "messages", "svg"):
        said.append(cli(home, "sessions", "export", "last", "--format", form, **env))
    said += [cli(home, "sessions", command, *more, **env) for command, more in (("list", ()), ("show", ("last",)))]
    said.append(cli(home, "run", "x", "-m", f"{KEY}/x", **env))
    said.append(cli(home, "run", "x", f"--{KEY}", **env))
    said.append(cli(home, "run", "x", "-c", f"max_turns={KEY}", **env))
    for done in said:
        assert KEY not in done.stdout + done.stderr
        assert "acct-123" not in done.stdout + done.stderr
    assert "masked DEMO_API_KEY" in said[-1].stderr
    assert len(list((home / "tape").iterdir())) >= 3
    assert leaks(home, KEY, but=(".env", "script.json")) == []
    assert leaks(home, "acct-123", but=(".env", "script.json")) == []
