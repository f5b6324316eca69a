"""A project's opensage.toml: what it may loosen before a person trusts it, which is nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from test_cli import SHELL, one_line, opensage, script

from opensage.config import Settings, load_settings, read_layers
from opensage.trust import is_trusted, trust

HOST = "sandbox = 'local'\n[permissions]\nallow = ['*']\n"


def settings(folder: Path, text: str, own: str = "", **env: str) -> Settings:
    (folder / "home").mkdir(exist_ok=True)
    (folder / "home/config.toml").write_text(own)
    (folder / "opensage.toml").write_text(text)
    return load_settings(folder, env={"OPENSAGE_HOME": str(folder / "home"), **env})


def test_a_cloned_folder_does_not_switch_the_sandbox_off(tmp_path: Path) -> None:
    (tmp_path / "opensage.toml").write_text(HOST)
    for words in ((), ("--yes",), ("--json",)):
        done = opensage("run", "x", "-m", script(tmp_path, SHELL, {"text": "ok"}), *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        (line,) = done.stderr.splitlines()
        assert 'left out: sandbox = "local"' in line
        assert f"opensage trust -w {tmp_path}" in line
        log = opensage("sessions", "export", "last", cwd=tmp_path).stdout
        assert json.loads(log.splitlines()[1])["sandbox"] != "local"


def test_allow_rules_of_a_project_do_not_count_on_the_host(tmp_path: Path) -> None:
    (tmp_path / "opensage.toml").write_text(HOST)
    command = ("run", "x", "-m", script(tmp_path, SHELL, {"text": "ok"}), "--sandbox", "local")
    done = opensage(*command, cwd=tmp_path)
    assert 'left out: permissions.allow = ["*"]' in done.stderr
    assert not (tmp_path / "made.txt").exists()
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home/config.toml").write_text("[permissions]\nallow = ['shell(echo *)', 'shell(cat *)', 'write']\n")
    assert opensage(*command, cwd=tmp_path).returncode == 0
    assert (tmp_path / "made.txt").exists()  # the person's own rules do


def test_a_trusted_file_counts_until_it_is_changed(tmp_path: Path) -> None:
    (tmp_path / "opensage.toml").write_text(HOST)
    command = ("run", "x", "-m", script(tmp_path, SHELL, {"text": "ok"}))
    said = opensage("trust", cwd=tmp_path).stdout
    assert 'sandbox = "local"' in said
    assert 'permissions.allow = ["*"]' in said
    done = opensage(*command, cwd=tmp_path)
    assert done.stderr == ""
    assert '"sandbox":"local"' in opensage("sessions", "export", "last", cwd=tmp_path).stdout.replace(" ", "")
    (tmp_path / "opensage.toml").write_text(HOST + "# one more line\n")
    assert "is not trusted" in opensage(*command, cwd=tmp_path).stderr
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy/opensage.toml").write_text(HOST)
    assert not is_trusted(tmp_path / "copy", read_layers(tmp_path / "copy", env={}).digest)


def test_trust_without_a_file_or_with_a_harmless_one(tmp_path: Path) -> None:
    assert "nothing to trust" in opensage("trust", cwd=tmp_path).stdout
    (tmp_path / "opensage.toml").write_text("max_turns = 3\n")
    assert "nothing that loosens" in opensage("trust", cwd=tmp_path).stdout
    (tmp_path / "opensage.toml").write_text("max_turns = ")
    assert "not valid TOML" in one_line(opensage("trust", cwd=tmp_path))


def test_a_file_that_appeared_during_a_run_can_be_trusted(tmp_path: Path) -> None:
    write = {"tool_calls": [{"name": "write", "arguments": {"path": "opensage.toml", "content": HOST}}]}
    model = script(tmp_path, write, {"text": "ok"})
    assert "not trusted" in opensage("run", "x", "-m", model, cwd=tmp_path).stderr
    refused = one_line(opensage("run", "x", "-m", model, cwd=tmp_path))
    assert f"opensage trust -w {tmp_path}" in refused
    assert opensage("trust", cwd=tmp_path).returncode == 0
    assert opensage("run", "x", "-m", script(tmp_path, {"text": "ok"}), cwd=tmp_path).stderr == ""


def test_an_agent_cannot_plant_a_file_for_a_later_workspace(tmp_path: Path) -> None:
    write = {"tool_calls": [{"name": "write", "arguments": {"path": "sub/opensage.toml", "content": HOST}}]}
    model = script(tmp_path, write, {"text": "ok"})
    assert opensage("run", "x", "-m", model, cwd=tmp_path).returncode == 0
    done = opensage("run", "x", "-m", script(tmp_path, SHELL, {"text": "ok"}), "-w", "sub", "--yes", cwd=tmp_path)
    assert "left out: sandbox" in done.stderr
    assert "bubblewrap" in (tmp_path / "sub/.opensage/sessions").glob("*.jsonl").__next__().read_text()


@pytest.mark.parametrize(
    "model",
    ["script:reply.py", " script:reply.py", "replay:x", "record:/x:local/qwen2.5-coder-1.5b", "local//tmp/x.gguf",
     "local/../x.gguf", "local/~/x.gguf", "huggingface/https://example.org/x", "openai/x", "ollama/x", "nonsense"],
)  # fmt: skip
def test_a_project_sends_the_conversation_nowhere_new(tmp_path: Path, model: str) -> None:
    own = "model = 'anthropic/claude-sonnet-latest'\n"
    found = settings(tmp_path, f"model = '{model}'\nfallback = ['{model}']\n", own)
    assert found.model == "anthropic/claude-sonnet-latest"
    assert found.fallback == ()


@pytest.mark.parametrize("model", ["anthropic/claude-opus", "local/qwen2.5-coder-0.5b"])
def test_a_project_may_name_another_model_of_the_same_provider(tmp_path: Path, model: str) -> None:
    assert settings(tmp_path, f"model = '{model}'\n", ANTHROPIC_API_KEY="x").model == model
    assert settings(tmp_path, f"fallback = ['{model}']\n", ANTHROPIC_API_KEY="x").fallback == (model,)


def test_a_project_keeps_a_local_conversation_here(tmp_path: Path) -> None:
    own = "model = 'local/qwen2.5-coder-1.5b'\n"
    assert settings(tmp_path, "model = 'openai/x'\n", own, OPENAI_API_KEY="x").model == "local/qwen2.5-coder-1.5b"


@pytest.mark.parametrize("model", ["openai/x", "script:turns.json", "replay:tape", "local/qwen2.5-coder-0.5b"])
def test_a_project_fills_in_the_model_that_was_left_open(tmp_path: Path, model: str) -> None:
    assert settings(tmp_path, f"model = '{model}'\n").model == model


@pytest.mark.parametrize(
    "model",
    [
        "script:reply.py",
        " script:reply.py ",
        "script:reply.py/",
        "script:reply.py/.",
        "script:x",
        "record:/x:openai/x",
        "openai/x://y",
        "local/../x",
    ],
)
def test_but_no_model_that_runs_code_writes_files_or_names_an_address(tmp_path: Path, model: str) -> None:
    assert settings(tmp_path, f"model = '{model}'\n").model is None


@pytest.mark.parametrize(
    ("own", "theirs", "holds"),
    [("auto", "local", "auto"), ("auto", "bubblewrap", "bubblewrap"), ("bubblewrap", "auto", "bubblewrap"),
     ("bubblewrap", "local", "bubblewrap"), ("local", "auto", "auto"), ("local", "bubblewrap", "bubblewrap")],
)  # fmt: skip
def test_a_project_may_choose_only_what_isolates_at_least_as_well(
    tmp_path: Path, own: str, theirs: str, holds: str
) -> None:
    assert settings(tmp_path, f"sandbox = '{theirs}'\n", f"sandbox = '{own}'\n").sandbox == holds


def test_a_project_lowers_limits_and_adds_rules(tmp_path: Path) -> None:
    own = "max_cost = 1.0\nmax_seconds = 9\n[permissions]\ndeny = ['shell(rm *)']\nask = ['write']\n"
    text = (
        "max_cost = 1e6\nmax_seconds = 5\nmax_tokens = 7\nmax_turns = 101\n[permissions]\ndeny = []\nask = ['edit']\n"
    )
    found = settings(tmp_path, text, own)
    assert (found.max_cost, found.max_seconds, found.max_tokens, found.max_turns) == (1.0, 5, 7, 101)
    assert found.permissions.deny == ("shell(rm *)",)
    assert found.permissions.ask == ("write", "edit")


def test_what_the_person_gave_for_this_start_needs_no_trust(tmp_path: Path) -> None:
    (tmp_path / "opensage.toml").write_text("sandbox = 'local'\nmodel = 'script:x'\nmax_cost = 5.0\n")
    flags = {"sandbox": "local", "model": "script:x"}
    layers = read_layers(tmp_path, flags=flags, overrides=["max_cost=5"], env={"OPENSAGE_HOME": str(tmp_path / "no")})
    assert layers.loosening(lambda _kind: False) == {}


def test_every_setting_is_judged(tmp_path: Path) -> None:
    """A new key loosens until somebody decides that it does not."""
    values = {
        "model": "openai/x", "fallback": ["script:x"], "sandbox": "local", "max_turns": 10**6, "max_cost": 2.0,
        "max_tokens": 2, "max_tool_calls": 2, "max_seconds": 2.0, "permissions": {"allow": ["*"], "ask": ["a"], "deny": ["b"]},
        "secrets": {"patterns": ["x+"]}, "mcp": {"a": {"command": "b"}}, "tracing": "content",
        "models": ["script:x.py"],
        "memory": {"enabled": True, "store": "neo4j://elsewhere", "embedder": "hashed", "budget_tokens": 5}, "toolkits": {"allowed": ["x"]}, "max_agents": 10**6, "max_live_agents": 10**6, "max_depth": 10**6,
    }  # fmt: skip
    assert values.keys() == Settings.model_fields.keys()
    own = dict.fromkeys(("max_cost", "max_tokens", "max_tool_calls", "max_seconds"), 1)
    (tmp_path / "config.toml").write_text("".join(f"{name} = {value}\n" for name, value in own.items()))
    layers = read_layers(tmp_path, env={"OPENSAGE_HOME": str(tmp_path)})
    object.__setattr__(layers, "project", values)
    tightening = {"permissions", "secrets"}
    filled_in = {"model", "max_turns", "max_agents", "max_live_agents", "max_depth"}  # the person named none
    parts = {"mcp": "mcp.a", "toolkits": "toolkits.allowed", "memory": "memory.store"}
    judged = {*(parts.get(key, key) for key in values.keys() - tightening - filled_in), "permissions.allow"}
    judged |= {"memory.embedder"}
    assert set(layers.loosening(lambda _kind: False)) == judged


@pytest.mark.parametrize("record", ["", "[]", "{", '{"x": 1}', "[" * 100_000])
def test_a_damaged_record_trusts_nothing(tmp_path: Path, record: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "home/trusted.json").write_text(record)
    assert not is_trusted(tmp_path, "00")
    trust(tmp_path, "00")
    assert is_trusted(tmp_path, "00")
    assert not is_trusted(tmp_path, "")
    assert os.listdir(tmp_path / "home") == ["trusted.json"]
