"""`opensage repair check`: its exit codes, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from opensage.cli.main import main

SORTED = """TARGET = "f"
STRATEGY = st.tuples(st.lists(st.integers(-9, 99)))
def is_sorted(args, result):
    assert result == sorted(args[0]), "not sorted"
"""


def test_the_command_says_by_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "props.py").write_text(SORTED)
    codes, statuses = {}, {}
    for name, code in {
        "right": "def f(a):\n    return sorted(a)",
        "wrong": "def f(a):\n    return a",
        "bad": "def",
    }.items():
        (tmp_path / f"{name}.py").write_text(code)
        words = ["repair", "check", str(tmp_path / f"{name}.py"), "-p", str(tmp_path / "props.py"), "--examples", "20"]
        codes[name] = main([*words, "--json", "--sandbox", "bubblewrap"])
        statuses[name] = json.loads(capsys.readouterr().out)["status"]
    assert codes == {"right": 0, "wrong": 1, "bad": 2}
    assert statuses == {"right": "ok", "wrong": "violated", "bad": "invalid_code"}
    assert main(["repair", "check", str(tmp_path / "none.py"), "-p", str(tmp_path / "props.py")]) == 2
    assert "cannot be read" in capsys.readouterr().err
