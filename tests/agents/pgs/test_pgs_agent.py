"""`pgs` as an agent in a workspace, and `opensage repair`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import opensage
from opensage import Limits
from opensage.cli.main import main
from opensage.models import ScriptedModel
from opensage.topology.library import find_agent

BUGGY = '''"""Lists."""


def ordered(items: list[int]) -> list[int]:
    """The items in ascending order.

    >>> ordered([2, 1])
    [1, 2]
    >>> ordered([])
    []
    """
    return sorted(set(items))


def other() -> int:
    return 1
'''
RIGHT = "```python\ndef ordered(items):\n    return sorted(items)\n```"
CHECKS = (
    "```python\nSTRATEGY = st.tuples(st.lists(st.integers(0, 9), max_size=6))\n\ndef keeps_all(items, result):\n    assert len(items) == len(result), 'items were lost'\n\n"
    "def ascends(items, result):\n    return all(a <= b for a, b in zip(result, result[1:]))\n\n"
    "def holds(items, result):\n    return sorted(items) == sorted(result)\n```"
)


class Small(ScriptedModel):
    needs_coach = True


def test_the_agent_repairs_one_function_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "lists.py").write_text(BUGGY)
    model = Small({"agents": {"tester": [{"text": CHECKS}], "generator": [{"text": RIGHT}]}})
    result = opensage.run(
        "lists.py: the function ordered loses items. Fix it.", agent=find_agent("pgs", tmp_path), model=model,
        workdir=tmp_path, sandbox="bubblewrap", approve="allow", memory=False,
    )  # fmt: skip
    assert (result.status, result.usage["model_calls"]) == ("done", 2)
    text = (tmp_path / "lists.py").read_text()
    assert "sorted(set(items))" not in text
    assert ">>> ordered([2, 1])" in text
    assert "def other() -> int:" in text
    assert "keeps_all" in result.text
    assert not list(tmp_path.glob("test_*"))


def test_a_limit_leaves_the_best_version_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "lists.py").write_text(BUGGY)
    better = RIGHT.replace("sorted(items)", "sorted(items) if len(items) > 2 else sorted(set(items))")
    model = Small({"agents": {"tester": [{"text": CHECKS}], "generator": [{"text": better}, {"text": RIGHT}]}})
    result = opensage.run(
        "lists.py: the function ordered loses items. Fix it.", agent=find_agent("pgs", tmp_path), model=model,
        workdir=tmp_path, sandbox="bubblewrap", approve="allow", memory=False, limits=Limits(max_turns=2),
    )  # fmt: skip
    assert result.status == "limit"
    assert "max_turns" in result.reason
    assert "len(items) > 2" in (tmp_path / "lists.py").read_text()


def _task(folder: Path) -> tuple[Path, Path]:
    script = folder / "script.json"
    script.write_text(json.dumps({"agents": {"tester": [{"text": CHECKS}], "generator": [{"text": RIGHT}]}}))
    (folder / "lists.py").write_text(BUGGY)
    return folder / "lists.py", script


def test_the_command_repairs_a_file_and_leaves_its_tests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, script = _task(tmp_path)
    words = ["repair", str(file), "-f", "ordered", "--script", str(script), "--sandbox", "bubblewrap"]
    words += ["--out", str(tmp_path / "out"), "--write-tests", str(tmp_path / "test_lists.py"), "--write"]
    code = main(words)
    told = capsys.readouterr().out
    assert code == 0, told
    assert "solved" in told
    assert "ordered([0, 0])" in told
    assert "sorted(set(items))" not in file.read_text()
    assert "from lists import ordered" in (tmp_path / "test_lists.py").read_text()
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"program.py", "test_properties.py", "trace.jsonl"}
    assert main(words) == 2
    assert "--resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.json", None, "cannot be read"),
        ("t.json", "{", "is no JSON"),
        ("t.json", "[]", "description and entry_point"),
        ("t.json", '{"description": "x", "entry_point": "f", "public_tests": [[1, 2]]}', "arguments of a public test"),
        ("t.json", '{"description": "x", "entry_point": "f", "public_tests": 3}', "public_tests cannot be used"),
        ("t.json", '{"description": "x", "entry_point": "f", "code": 3}', "code cannot be used"),
        ("t.py", "def f():\n    pass\ndef g():\n    pass\n", "--function"),
        ("t.py", "def t():\n    pass\n", "nothing says what t should do"),
        ("t.py", "def t(:\n", "0 functions"),
        ("t.py", b"\xff\xfe", "not UTF-8"),
    ],
)
def test_bad_tasks_are_told(
    tmp_path: Path, name: str, content: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    (tmp_path / "s.json").write_text("[]")
    assert main(["repair", str(tmp_path / name), "--script", str(tmp_path / "s.json")]) == 2
    assert said in capsys.readouterr().err


def test_a_pipe_is_not_waited_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "t.py")
    (tmp_path / "s.json").write_text("[]")
    assert main(["repair", str(tmp_path / "t.py"), "--script", str(tmp_path / "s.json")]) == 2
    assert "not a regular file" in capsys.readouterr().err


def test_bad_options_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, script = _task(tmp_path)
    words = ["repair", str(file), "-f", "ordered", "--script", str(script)]
    assert main([*words, "--feedback", "loud"]) == 2
    assert "property, io, minimal_io, none" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 2
    assert "--out" in capsys.readouterr().err
    assert main([*words[:2], "-f", "no_such", "--script", str(script)]) == 2
    assert "ordered, other" in capsys.readouterr().err
