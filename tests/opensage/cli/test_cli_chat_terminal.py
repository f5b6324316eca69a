"""The chat on a real (pseudo) terminal: keys go in, what a person would read comes out."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78])")
PROMPT = "you>"


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, words: list[str], cwd: Path, size: tuple[int, int], env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "opensage", *words],
            cwd=cwd,
            env=env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(slave)
        self.raw = ""
        self._seen = 0

    def _pump(self, seconds: float) -> bool:
        if not select.select([self._master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        if b"\x1b[6n" in data:  # where is the cursor?
            self.type("\x1b[1;1R")
        self.raw += data.decode(errors="replace")
        return bool(data)

    def until(self, text: str, seconds: float = 20) -> str:
        """What came since the last call, up to `text`."""
        end = time.monotonic() + seconds
        while True:
            plain = ESCAPES.sub("", self.raw)[self._seen :]
            if text in plain:
                self._seen += plain.index(text) + len(text)
                return plain[: plain.index(text) + len(text)]
            alive = self._pump(0.2)
            assert alive or text in ESCAPES.sub("", self.raw)[self._seen :], f"ended before {text!r}:\n{plain}"
            assert time.monotonic() < end, f"no {text!r} in:\n{plain}"

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def line(self, text: str) -> None:
        """Wait for the prompt, then type a line."""
        self.until(PROMPT)
        self.type(text + "\r")

    def exit_code(self, seconds: float = 20) -> int:
        end = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < end:
            self._pump(0.1)
        return self._process.wait(timeout=1)

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        os.close(self._master)


@contextmanager
def chat(
    folder: Path, *turns: Any, words: tuple[str, ...] = (), size: tuple[int, int] = (40, 100), **env: str
) -> Iterator[Terminal]:
    work, home = folder / "work", folder / "home"
    work.mkdir(exist_ok=True)
    (folder / "s.json").write_text(json.dumps(turns))
    clean = {k: v for k, v in os.environ.items() if not k.startswith("OPENSAGE_") and k not in ("NO_COLOR", "COLUMNS")}
    path = os.pathsep.join([str(ROOT), str(ROOT / "memory")])
    given = {"PYTHONPATH": path, "OPENSAGE_HOME": str(home), "TERM": "xterm-256color"}
    script = os.path.relpath(folder / "s.json", work)
    terminal = Terminal(["chat", "-m", f"script:{script}", *words], work, size, {**clean, **given, **env})
    try:
        yield terminal
    finally:
        with contextlib.suppress(OSError):
            terminal.close()


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def text(*pieces: str, wait: float = 0.0) -> dict[str, Any]:
    chunks = [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    return {"chunks": [*chunks, {"choices": [{"delta": {}, "finish_reason": "stop"}]}], "delay_s": wait}


def test_markdown_is_shown_as_such_and_the_status_line_counts(tmp_path: Path) -> None:
    reply = {
        "text": "# Head\n\nSome **bold** List<int>.\n\n```python\nx = 1\n```\n\nThe end.",
        "usage": {"input_tokens": 70, "output_tokens": 7, "cost": 0.5},
    }
    with chat(tmp_path, reply) as terminal:
        terminal.line("hello")
        shown = terminal.until("[done]")
        assert "Some bold List<int>." in shown
        assert "```" not in shown
        assert shown.count("The end.") >= 1
        terminal.until(PROMPT)
        terminal.until("77 tokens | $0.5000")
        terminal.type("\x04")
        assert terminal.exit_code() == 0


def test_probe_d11_a_message_after_ctrl_c_gets_an_answer(tmp_path: Path) -> None:
    with chat(tmp_path, call("shell", command="touch began; sleep 60; touch ended"), text("hello again")) as terminal:
        terminal.line("block")
        terminal.until("running shell")
        until_there(tmp_path / "work" / "began")
        terminal.type("\x03")
        terminal.until("interrupted; the history is kept")
        terminal.line("hi")
        terminal.until("hello again")
        terminal.until("[done]")
        terminal.until(PROMPT)
        terminal.type("\x03")
        assert terminal.exit_code() == 130
    assert not (tmp_path / "work" / "ended").exists()


def test_ctrl_c_while_the_model_streams_keeps_the_chat(tmp_path: Path) -> None:
    with chat(tmp_path, text("never", wait=60), text("answer")) as terminal:
        terminal.line("first")
        terminal.until("thinking 1 s")
        terminal.type("\x03")
        terminal.until("interrupted")
        terminal.line("second")
        terminal.until("answer")
        terminal.line("/quit")
        assert terminal.exit_code() == 0


def test_approvals_no_edit_always(tmp_path: Path) -> None:
    commands = ["touch refused", "touch wrong", "touch third", "touch fourth", "touch fifth; touch sixth > o", "ls x y"]
    with chat(
        tmp_path, *[call("shell", command=c) for c in commands], text("all done"), words=("--sandbox", "local")
    ) as terminal:
        terminal.line("go")
        terminal.until("command: touch refused")
        terminal.until("[e]dit:")
        terminal.type("n not this one\r")
        terminal.until("not this one")
        terminal.until("[e]dit:")
        terminal.type("maybe\r")
        terminal.until("answer y, a, n")
        terminal.until("[e]dit:")
        terminal.type("e\r")
        terminal.until("command>")
        terminal.type("\x15touch right\r")
        terminal.until("touch third")
        terminal.until("[a]lways shell(touch *), ")
        terminal.until("[e]dit:")
        terminal.type("a\r")
        terminal.until("allowed for the rest of this session: shell(touch *)")
        terminal.until("touch sixth")  # not covered by what was said of touch: asked again
        terminal.until("[e]dit:")
        terminal.type("n\r")
        terminal.until("ls x y")
        terminal.until("[e]dit:")
        terminal.type("a ls x *\r")
        terminal.until("allowed for the rest of this session: shell(ls x *)")
        terminal.until("all done")
        terminal.line("/quit")
        assert terminal.exit_code() == 0
    made = {path.name for path in (tmp_path / "work").iterdir()} - {".opensage"}
    assert made == {"right", "third", "fourth"}


def test_ctrl_c_at_an_approval_interrupts_the_turn(tmp_path: Path) -> None:
    with chat(tmp_path, call("shell", command="touch x"), text("fine"), words=("--sandbox", "local")) as terminal:
        terminal.line("go")
        terminal.until("[e]dit:")
        terminal.type("\x03")
        terminal.until("interrupted")
        terminal.line("hi")
        terminal.until("fine")
        terminal.line("/quit")
        assert terminal.exit_code() == 0
    assert not (tmp_path / "work" / "x").exists()


def test_undo_diff_and_what_the_model_is_told(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").write_text("one\ntwo\n")
    with chat(tmp_path, call("edit", path="a.txt", old="two", new="2"), text("edited"), text("seen")) as terminal:
        terminal.line("/undo")
        terminal.until("nothing to undo")
        terminal.line("edit it")
        terminal.until("edited")
        terminal.line("/diff")
        assert "+2" in terminal.until("+2")
        terminal.line("/undo")
        terminal.until("restored: a.txt")
        assert (tmp_path / "work" / "a.txt").read_text() == "one\ntwo\n"
        terminal.line("/diff")
        terminal.until("no changes since the chat began")
        terminal.line("and now?")
        terminal.until("seen")
        terminal.line("/quit")
        assert terminal.exit_code() == 0
    log = next((tmp_path / "work" / ".opensage" / "sessions").glob("*.jsonl")).read_text()
    assert "took back file changes" in log
    assert not (tmp_path / "work" / ".opensage" / "undo").exists()


def test_slash_commands_switch_model_and_session_and_survive_errors(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "other.json").write_text(json.dumps([{"text": "from the other model"}]))
    with chat(tmp_path, {"error": {"status": 401, "message": "bad key"}}, text("unused")) as terminal:
        terminal.line("first words")
        terminal.until("error:")
        for command, said in {
            "/help": "/undo",
            "/agents": "agents that can be called: coder, judge_irt, memory",
            "/toolkits": "matching-bandits",
            "/memory": "WORDS searches",
            "/nonsense": "unknown command",
            "/model nonsense": "error:",
            "/model script:other.json": "next message goes to script:other.json",
            "hello": "from the other model",
            "/cost": "1 turns",
            "/resume": "first words",
            "/resume nothing": "error:",
            "/resume last": "first words",
            "/compact": "nothing to leave out",
        }.items():
            terminal.line(command)
            terminal.until("\r\n")
            terminal.until(said)
        terminal.line("/quit")
        assert terminal.exit_code() == 0


@pytest.mark.parametrize(
    ("size", "env"),
    [
        ((40, 100), {"TERM": "dumb"}),
        ((40, 100), {"NO_COLOR": "1"}),
        ((6, 20), {}),
        ((40, 100), {"LANG": "C", "LC_ALL": "C"}),
        ((40, 100), {"PYTHONIOENCODING": "cp1252"}),
    ],
    ids=["dumb", "no-color", "narrow", "lang-c", "cp1252"],
)
def test_odd_terminals(tmp_path: Path, size: tuple[int, int], env: dict[str, str]) -> None:
    many = "\n".join(f"- item {n} \u2603" for n in range(60))
    with chat(tmp_path, text("# T\n\n", many, "\n\nlast words"), size=size, **env) as terminal:
        terminal.until("you>")
        terminal.type("x\r")
        terminal.until("last words")
        terminal.until("you>")
        time.sleep(0.5)  # a key that comes before the prompt has the terminal is the terminal's own
        terminal.type("\x04")
        assert terminal.exit_code() == 0
        assert "Traceback" not in terminal.raw
        if "NO_COLOR" in env:
            assert not re.search(r"\x1b\[[0-9;]*(?:3[0-7]|38;|9[0-7])[0-9;]*m", terminal.raw)
        if env.get("TERM") == "dumb":
            assert "\x1b" not in terminal.raw.partition("you>")[2]


def test_what_a_tool_prints_cannot_steer_the_terminal(tmp_path: Path) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\x9b31mplain"
    with chat(
        tmp_path, {"text": hostile, **call("shell", command=r"printf '\033]0;owned\007\033[2Jinside'")}, text("ok")
    ) as terminal:
        terminal.line("go")
        terminal.until("inside")
        terminal.until("[done]")
        assert "\x1b]0;" not in terminal.raw
        assert "\x1b[2J" not in terminal.raw.split("go", 1)[1]


def until_there(path: Path, seconds: float = 15) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.05)


def test_the_chat_asks_once_whether_to_trust_the_file(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/opensage.toml").write_text("sandbox = 'local'\n[permissions]\nallow = ['*']\n")
    with chat(tmp_path, words=("--sandbox", "local")) as terminal:
        shown = terminal.until("[y]es, [n]o: ")
        assert 'sandbox = "local"' in shown
        assert 'permissions.allow = ["*"]' in shown
        terminal.type("\r")
        assert "left out: permissions.allow" in terminal.until("/help").replace("\r\n", "")
        terminal.line("/quit")
        assert terminal.exit_code() == 0
    for answer in ("y\r", ""):
        with chat(tmp_path) as terminal:
            if answer:
                terminal.until("[y]es, [n]o: ")
                terminal.type(answer)
            assert "NO SANDBOX" in terminal.until("/help")
            terminal.line("/quit")
            assert terminal.exit_code() == 0


def test_a_chat_whose_folder_is_deleted_says_so_and_can_be_left(tmp_path: Path) -> None:
    with chat(tmp_path, {"text": "first"}, {"text": "second"}, words=("--sandbox", "local")) as terminal:
        terminal.line("one")
        terminal.until("[done]")
        terminal.until(PROMPT)
        while (tmp_path / "work").exists():  # what is still being written there
            shutil.rmtree(tmp_path / "work", ignore_errors=True)
        terminal.type("two\r")
        terminal.until("was deleted while the session ran")
        terminal.line("/quit")
        assert terminal.exit_code() == 1
    assert "Press ENTER" not in terminal.raw
    assert "Traceback" not in terminal.raw
