"""The command line as a program: exit codes, errors of one line, pipes, odd encodings."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


def opensage(*words: str, cwd: Path, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.endswith("_API_KEY") and not k.startswith("OPENSAGE_")}
    folders = os.pathsep.join(str(ROOT / name) for name in ("", "memory"))
    return subprocess.run(
        [sys.executable, "-m", "opensage", *words],
        cwd=cwd,
        input=stdin,
        env={**clean, "PYTHONPATH": folders, "OPENSAGE_HOME": str(cwd / "home"), **env},
        capture_output=True,
        text=True,
        encoding=env.get("PYTHONIOENCODING", "utf-8"),
        timeout=120,
    )


def script(folder: Path, *turns: object) -> str:
    (folder / "s.json").write_text(json.dumps(turns))
    return "script:s.json"


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stdout + done.stderr
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


SHELL = {"tool_calls": [{"name": "shell", "arguments": {"command": "echo hello > made.txt; cat made.txt"}}]}


def test_run_works_in_a_real_sandbox(tmp_path: Path) -> None:
    done = opensage("run", "make a file", "-m", script(tmp_path, SHELL, {"text": "made it"}), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "made it" in done.stdout
    assert (tmp_path / "made.txt").read_text() == "hello\n"


def test_run_json_is_one_event_a_line(tmp_path: Path) -> None:
    done = opensage("run", "x", "-m", script(tmp_path, SHELL, {"text": "ok"}), "--json", cwd=tmp_path)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["type"] == "run.started"
    assert events[0]["session"]
    assert events[-1]["type"] == "run.finished"
    assert (events[-1]["status"], events[-1]["text"]) == ("done", "ok")


def test_a_stopped_run_exits_with_1_and_says_why(tmp_path: Path) -> None:
    done = opensage("run", "x", "-m", script(tmp_path, SHELL, SHELL), "--max-turns", "1", cwd=tmp_path)
    assert done.returncode == 1
    assert "max_turns" in done.stderr


def test_resume_show_list_export_fork_rm(tmp_path: Path) -> None:
    model = script(tmp_path, {"text": "one"})
    assert opensage("run", "first task", "-m", model, cwd=tmp_path).returncode == 0
    done = opensage("resume", "last", "and more", "-m", model, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "first task" in opensage("sessions", "list", cwd=tmp_path).stdout
    assert "and more" in opensage("sessions", "show", "last", cwd=tmp_path).stdout
    messages = json.loads(opensage("sessions", "export", "last", "--format", "messages", cwd=tmp_path).stdout)
    assert [m["role"] for m in messages] == ["system", "user", "assistant", "user", "assistant"]
    fork = opensage("fork", "last", "--at", "3", cwd=tmp_path).stdout.strip()
    assert opensage("sessions", "rm", fork, cwd=tmp_path).returncode == 0


def test_chat_answers_each_line_of_a_pipe(tmp_path: Path) -> None:
    model = script(tmp_path, {"text": "first answer"}, {"text": "second answer"})
    done = opensage("chat", "-m", model, cwd=tmp_path, stdin="hi\n/cost\n\nagain\n")
    assert done.returncode == 0, done.stderr
    assert "first answer" in done.stdout
    assert "second answer" in done.stdout
    assert "1 turns" in done.stdout


def test_probe_i4_a_chat_under_cp1252_and_under_c(tmp_path: Path) -> None:
    model = script(tmp_path, {"text": "box \u2500 snowman \u2603 \U0001f600"})
    for env in ({"PYTHONIOENCODING": "cp1252"}, {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}):
        done = opensage("chat", "-m", model, cwd=tmp_path, stdin="hi\n", **env)
        assert done.returncode == 0, done.stderr
        assert "snowman" in done.stdout


@pytest.mark.parametrize(
    ("words", "say"),
    [
        (["run", "x", "-m", "script:none.json"], "none.json"),
        (["run", "x", "-m", "nonsense-model"], "unknown model"),
        (["run", "x", "-m", ""], "model"),
        (["run", "x", "-m", " "], "no model named"),
        (["run", "x", "-m", "script:bad.json"], "bad.json"),
        (["run", "x", "-m", "script:short.json"], "end"),
        (["run", "x", "--workdir", "nowhere"], "nowhere"),
        (["run", "", "-m", "script:short.json"], "empty"),
        (["run", "x", "-m", "script:short.json", "-c", "modell=3"], "did you mean 'model'"),
        (["run", "x", "-m", "script:short.json", "-c", "max_turns=many"], "max_turns"),
        (["run", "x", "-m", "script:short.json", "--sandbox", "vault"], "sandbox"),
        (["resume", "nothing", "-m", "script:short.json"], "no session"),
        (["sessions", "show", "../../etc/passwd"], "not a session id"),
        (["sessions", "list", "--workdir", "nowhere"], "nowhere"),
        (["run", "x", "--nope"], "--nope"),
        (["run"], "task"),
        (["run", "x", "--max-turns", "many"], "--max-turns"),
        (["nope"], "nope"),
        (["resume", "nothing"], "no session"),
        (["chat", "--session", "../x"], "not a session id"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tmp_path: Path, words: list[str], say: str) -> None:
    (tmp_path / "bad.json").write_text('[{"text": 3')
    (tmp_path / "short.json").write_text("[]")
    assert say in one_line(opensage(*words, cwd=tmp_path))


def test_a_malformed_configuration_is_named(tmp_path: Path) -> None:
    (tmp_path / "opensage.toml").write_text("model = [")
    assert "opensage.toml" in one_line(opensage("run", "x", cwd=tmp_path))
    (tmp_path / "opensage.toml").write_text("[permissions]\nalow = ['shell']\n")
    assert "did you mean 'allow'" in one_line(opensage("run", "x", cwd=tmp_path))


def test_flags_beat_environment_beats_file(tmp_path: Path) -> None:
    (tmp_path / "opensage.toml").write_text("max_turns = 1\nmodel = 'script:none.json'\n")
    model = script(tmp_path, SHELL, SHELL, {"text": "ok"})
    assert opensage("run", "x", cwd=tmp_path, OPENSAGE_MODEL=model).returncode == 1
    assert opensage("run", "x", "--max-turns", "5", cwd=tmp_path, OPENSAGE_MODEL=model).returncode == 0


def test_without_a_person_local_is_refused_call_by_call(tmp_path: Path) -> None:
    model = script(tmp_path, SHELL, {"text": "could not"})
    done = opensage("run", "x", "-m", model, "--sandbox", "local", cwd=tmp_path)
    assert done.returncode == 0
    assert not (tmp_path / "made.txt").exists()
    assert opensage("run", "x", "-m", model, "--sandbox", "local", "--yes", cwd=tmp_path).returncode == 0
    assert (tmp_path / "made.txt").exists()


def test_deny_rules_hold_even_with_yes(tmp_path: Path) -> None:
    (tmp_path / "opensage.toml").write_text("[permissions]\ndeny = ['shell(echo *)']\n")
    done = opensage("run", "x", "-m", script(tmp_path, SHELL, {"text": "no"}), "--yes", cwd=tmp_path)
    assert done.returncode == 0
    assert not (tmp_path / "made.txt").exists()


def test_an_agent_cannot_write_the_settings_of_its_next_run(tmp_path: Path) -> None:
    loosen = "printf '[permissions]\\nallow = [\"*\"]\\n' > opensage.toml"
    write = {"tool_calls": [{"name": "shell", "arguments": {"command": loosen}}]}
    model = script(tmp_path, write, {"text": "ok"})
    first = opensage("run", "x", "-m", model, cwd=tmp_path)
    assert "not trusted" in first.stderr
    refused = one_line(opensage("run", "x", "-m", model, cwd=tmp_path))
    assert "appeared while an agent was at work" in refused
    (tmp_path / "opensage.toml").unlink()
    assert opensage("run", "x", "-m", script(tmp_path, {"text": "ok"}), cwd=tmp_path).returncode == 0
    (tmp_path / "opensage.toml").write_text("max_turns = 5\n")  # now it is the person who writes it
    assert opensage("run", "x", "-m", model, cwd=tmp_path).returncode == 0


def test_a_fallback_model_takes_over(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('[{"error": {"status": 400, "message": "broken"}}]')
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.toml").write_text("model = 'script:bad.json'\nfallback = ['script:s.json']\n")
    script(tmp_path, {"text": "from the other"})
    done = opensage("run", "x", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "from the other" in done.stdout


def test_a_session_as_a_picture(tmp_path: Path) -> None:
    opensage("run", "draw <this> & that", "-m", script(tmp_path, SHELL, {"text": "ok"}), cwd=tmp_path)
    done = opensage("sessions", "export", "last", "--format", "svg", cwd=tmp_path)
    root = ElementTree.fromstring(done.stdout)
    text = "".join(root.itertext()).replace("\xa0", " ")
    assert "draw <this> & that" in text
    assert "made.txt" in text
    assert "cdn" not in done.stdout


def test_a_file_of_the_workspace_never_stands_in_for_a_library(tmp_path: Path) -> None:
    for name in ("typer", "rich", "pydantic", "tomllib", "sqlite3"):
        (tmp_path / f"{name}.py").write_text("open('ran', 'w').close()\n")
    done = opensage("run", "x", "-m", script(tmp_path, {"text": "ok"}), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()


def test_no_control_character_of_a_session_reaches_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;title\x07\x1b[31mred\x9b2J\u202e"
    model = script(tmp_path, {"text": evil, "tool_calls": [{"name": evil, "arguments": {evil: evil}}]}, {"text": evil})
    ran = opensage("run", f"task {evil}", "-m", model, cwd=tmp_path)
    log = next((tmp_path / ".opensage" / "sessions").glob("*.jsonl"))
    (log.parent / f"{evil.replace('/', '')}.jsonl").write_bytes(log.read_bytes())
    listed = opensage("sessions", "list", cwd=tmp_path)
    shown = opensage("sessions", "show", log.stem, cwd=tmp_path)
    wrong = opensage("run", "x", "--workdir", evil, cwd=tmp_path)
    assert "task" in listed.stdout
    assert "task" in shown.stdout
    for done in (ran, listed, shown, wrong):
        said = (done.stdout + done.stderr).replace("\n", "")
        assert said.isprintable(), repr(said)


def started(folder: Path, *words: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENSAGE_HOME": str(folder / "home")}
    command = [sys.executable, "-m", "opensage", *words]
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_files_do_no_harm(tmp_path: Path, closed: str) -> None:
    """Their numbers would go to the next files that are opened."""
    words = [sys.executable, "-m", "opensage", "run", "x", "-m", script(tmp_path, SHELL, {"text": "ok"})]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENSAGE_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        ["/bin/sh", "-c", f'"$@" {closed}', "sh", *words], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made.txt").exists()
    assert done.stderr == ""


def test_a_reader_that_goes_ends_the_run_quietly(tmp_path: Path) -> None:
    long = {"tool_calls": [{"name": "shell", "arguments": {"command": "sleep 1; seq 1000"}}]}
    with started(tmp_path, "run", "x", "-m", script(tmp_path, long, {"text": "ok"}), "--json") as process:
        assert process.stdout
        assert process.stderr
        assert "run.started" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=60) == 1


def test_a_run_whose_folder_is_deleted_ends_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    wait = {"tool_calls": [{"name": "shell", "arguments": {"command": "touch began; sleep 4"}}]}
    script(tmp_path, wait, *[SHELL] * 5, {"text": "ok"})
    with started(tmp_path, "run", "x", "-m", f"script:{tmp_path / 's.json'}", "-w", "work") as process:
        while not (tmp_path / "work/began").exists():
            time.sleep(0.05)
        shutil.rmtree(tmp_path / "work")
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "was deleted while the session ran" in errors
    assert len(errors.splitlines()) == 1
