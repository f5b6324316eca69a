"""Pieces of the command line that need no terminal: tables, pipes, block boundaries, escapes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from opensage.cli.stream import clean, finished

ROOT = Path(__file__).parents[3]


def started(*words: str, cwd: Path) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "memory")])
    env = {**os.environ, "PYTHONPATH": path, "OPENSAGE_HOME": str(cwd / "home")}
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "opensage", *words]
    return subprocess.Popen(command, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_sandboxes_are_a_table_and_the_dead_are_pruned(tmp_path: Path) -> None:
    code = "import asyncio,os,sys\nfrom pathlib import Path\nfrom opensage.sandbox import open_sandbox\nbox=open_sandbox('local',Path('.'))\nasyncio.run(box.exec('true'))\nos._exit(0)"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OPENSAGE_HOME": str(tmp_path / "home")}
    (tmp_path / "work").mkdir()
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path / "work", env=env, check=True)
    shown = [started("sandbox", word, cwd=tmp_path).communicate(timeout=60)[0] for word in ("ls", "prune", "ls")]
    assert shown[0].splitlines()[0].split() == ["sandbox", "kind", "owner", "started", "workspace"]
    assert "dead" in shown[0]
    assert str(tmp_path / "work") in shown[0]
    assert shown[1].startswith("removed:")
    assert shown[2] == "no sandboxes\n"


def test_ctrl_c_ends_a_chat_that_waits_for_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('[{"text": "answer"}]')
    chat = started("chat", "-m", "script:s.json", cwd=tmp_path)
    assert chat.stdin
    assert chat.stdout
    chat.stdin.write("hello\n")
    chat.stdin.flush()
    while "[done]" not in chat.stdout.readline():
        pass
    time.sleep(0.5)
    chat.send_signal(signal.SIGINT)
    _, err = chat.communicate(timeout=20)
    assert (chat.returncode, err) == (130, "")


def test_a_failed_turn_does_not_end_the_chat_and_a_last_line_needs_no_newline(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('[{"error": {"status": 400, "message": "no"}}, {"text": "second"}]')
    out, err = started("chat", "-m", "script:s.json", cwd=tmp_path).communicate("one\r\n\ntwo", timeout=60)
    assert "error:" in out
    assert "second" in out
    assert err == ""


def test_a_chat_in_which_nothing_was_said_leaves_no_session(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("[]")
    chat = started("chat", "-m", "script:s.json", cwd=tmp_path)
    chat.communicate("/help\n/cost\n", timeout=60)
    assert chat.returncode == 0
    assert not list((tmp_path / ".opensage" / "sessions").glob("*.jsonl"))


def test_blocks_end_at_blank_lines_that_surely_end_them() -> None:
    assert finished("one\n\ntwo") == len("one\n\n")
    assert finished("one\n\n") == 0
    assert finished("- a\n\n  still a\n") == 0
    assert finished("```\na\n\nb\n") == 0
    assert finished("~~~\na\n\n```\n\nb\n~~~\n\nend") == len("~~~\na\n\n```\n\nb\n~~~\n\n")
    assert finished("````\n```\n\nx\n````\n\ny") == len("````\n```\n\nx\n````\n\n")


@given(st.lists(st.sampled_from(["a", "\n", "\n\n", "```", "- x", "  ", "# h"]), max_size=30))
def test_streaming_loses_nothing_whatever_the_pieces(pieces: list[str]) -> None:
    tail, printed = "", ""
    for piece in pieces:
        tail += piece
        cut = finished(tail)
        printed, tail = printed + tail[:cut], tail[cut:]
    assert printed + tail == "".join(pieces)


@given(st.text())
def test_nothing_that_is_printed_can_steer_a_terminal(text: str) -> None:
    assert not set(clean(text)) & {"\x1b", "\x9b", "\x07", "\x08", "\r", "\u202e"}


def test_text_stays_and_escapes_go() -> None:
    assert clean("\x1b[31mred\x1b[0m\ta\r\n\x1b]0;title\x07b\u202ec") == "red\ta\nbc"
