"""`coder` with a small model: real files, a real sandbox, replies from a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import opensage
from opensage import Limits
from opensage.models import ScriptedModel
from opensage.topology.library import find_agent
from opensage_agents.coder.examples import Example, examples_in
from opensage_agents.coder.functions import functions_in, replaced

BUGGY = '''import math


def area(r):
    """Area of a circle.

    >>> area(0)
    0.0
    """
    return math.pi * r


class Shop:
    def price(self, n: int) -> int:
        return n * 3
'''
TASK = "shapes.py has a defect. Fix the function area. area(2) == 12.566370614359172, and area(1) returns 3.141592653589793."


class Small(ScriptedModel):
    needs_coach = True


def _reply(expression: str) -> dict[str, Any]:
    return {"text": f"The last line is wrong.\n```python\ndef area(r):\n    return {expression}\n```"}


def _run(
    tmp_path: Path, script: Any, task: str = TASK, **options: Any
) -> tuple[opensage.options.Result, ScriptedModel]:
    model = Small(script)
    agent = find_agent("coder", tmp_path)
    result = opensage.run(
        task, agent=agent, model=model, workdir=tmp_path, sandbox="bubblewrap", approve="allow", memory=False, **options
    )
    return result, model


def _fixes(*expressions: str) -> dict[str, Any]:
    return {"agents": {"fix": [_reply(one) for one in expressions]}}


def test_candidates_are_tried_until_one_passes_the_examples(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(BUGGY)
    result, model = _run(tmp_path, _fixes("math.pi * r * 3", "math.pi * r ** 2"))
    assert (result.status, result.usage["model_calls"]) == ("done", 2)
    text = (tmp_path / "shapes.py").read_text()
    assert text == BUGGY.replace("math.pi * r", "math.pi * r ** 2")  # the docstring that the reply left out is kept
    first, second = (request["messages"][1]["content"] for request in model.requests)
    assert "`area(2)` should give `12.566370614359172`, but it gives `6.283185307179586`" in first
    assert "it gives `18.84955592153876`" in second  # how the first candidate fails
    assert "2 of 2 examples pass" in result.text


def test_the_file_is_as_it_was_when_nothing_helps(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(BUGGY.replace("* r\n", "* r * 2\n"))  # area(2) is right by chance
    result, _ = _run(tmp_path, {"agents": {"fix": [{"repeat": _reply("0"), "times": -1}]}})
    assert (result.status, result.reason) == ("stuck", "no candidate was better than what was there")
    assert (tmp_path / "shapes.py").read_text() == BUGGY.replace("* r\n", "* r * 2\n")


def test_a_limit_leaves_the_best_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(BUGGY)
    result, _ = _run(tmp_path, _fixes("math.pi * r * 2", "0", "1", "2"), limits=Limits(max_turns=3))
    assert result.status == "limit"
    assert "max_turns" in result.reason
    assert "math.pi * r * 2" in (tmp_path / "shapes.py").read_text()


def test_the_time_limit_leaves_the_best_too(tmp_path: Path) -> None:
    """No tool can be called any more then: the better first version must not give way to the one tried last."""
    (tmp_path / "shapes.py").write_text(BUGGY)
    better = "math.pi * r * (2 if r == 2 else 9)"  # as good as what was there, the next one is not
    slow = {**_reply("0"), "delay_s": 60}
    script = {"agents": {"fix": [_reply(better), _reply("1"), slow]}}
    result, _ = _run(tmp_path, script, limits=Limits(max_seconds=12))
    assert result.status == "limit"
    assert "max_seconds" in result.reason
    assert better in (tmp_path / "shapes.py").read_text()
    assert "1 of 2 examples pass" in result.text


def test_better_is_not_done(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(BUGGY.replace("* r\n", "* r * 7\n"))
    script = {"agents": {"fix": [{"repeat": _reply("math.pi * r * 2"), "times": -1}]}}
    result, _ = _run(tmp_path, script)
    assert result.status == "stuck"
    assert "not right yet: 1 of 2 examples pass" in result.reason
    assert "math.pi * r * 2" in (tmp_path / "shapes.py").read_text()


def test_candidates_that_do_not_end_break_or_write_elsewhere_are_worth_nothing(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(BUGGY)
    wild = ["__import__('os')._exit(0)", "area(r)", "[x for x in iter(int, 1)]", "print('OPENSAGE [{\"ok\": true}]')"]
    result, _ = _run(tmp_path, _fixes(*wild, "math.pi * r * r"))
    assert result.status == "done"
    assert "math.pi * r * r" in (tmp_path / "shapes.py").read_text()


def test_replies_without_the_function_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text(BUGGY)
    fix = [{"text": "I do not know."}, {"text": "```python\ndef area(r:\n```"}, {"text": ""}, _reply("math.pi * r * r")]
    result, _ = _run(tmp_path, {"agents": {"fix": fix}})
    assert result.status == "done"


def test_tests_of_the_repository_decide_when_there_are_no_examples(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text("def twice(n):\n    return n + 1\n")
    (tmp_path / "test_shapes.py").write_text(
        "from shapes import twice\n\ndef test_one():\n    assert twice(1) == 2\n\ndef test_two():\n    assert twice(2) == 4\n"
    )
    fix = [{"text": f"```python\ndef twice(n):\n    return {one}\n```"} for one in ("n + 2", "n * 2")]
    result, model = _run(tmp_path, {"agents": {"fix": fix}}, task="Mend `twice`, it is wrong for 2.")
    assert result.status == "done"
    assert "2 of 2 tests pass" in result.text
    assert "assert 3 == 4" in model.requests[0]["messages"][1]["content"]


def test_without_examples_and_tests_candidates_must_agree(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text("def twice(n):\n    return n + 1\n")
    good, bad = ({"text": f"```python\ndef twice(n):\n    return {one}\n```"} for one in ("n * 2", "n * 3"))
    script = {"agents": {"reproduce": [{"text": "no idea"}], "fix": [good, bad, good, good]}}
    result, _ = _run(tmp_path, script, task="twice in shapes.py does not double its argument.")
    assert result.status == "done"
    assert "n * 2" in (tmp_path / "shapes.py").read_text()


def test_own_checks_are_votes(tmp_path: Path) -> None:
    (tmp_path / "shapes.py").write_text("def twice(n):\n    return n + 1\n")
    checks = {"text": "```python\nassert twice(2) == 4\nassert twice(0) == 0\nassert other(1) == 2\nnonsense(\n```"}
    fix = [{"text": f"```python\ndef twice(n):\n    return {one}\n```"} for one in ("n + 2", "n * 2")]
    script = {"agents": {"reproduce": [checks], "fix": fix}}
    result, _ = _run(tmp_path, script, task="twice in shapes.py does not double its argument.")
    assert "2 of 2 own checks pass" in result.text


@pytest.mark.parametrize("task", ["Say hello.", "fix readme.md", "Mend missing.py", "`price` and `price` are wrong"])
def test_without_one_function_the_model_drives(tmp_path: Path, task: str) -> None:
    (tmp_path / "a.py").write_text("def price():\n    pass\n")
    (tmp_path / "b.py").write_text("def price():\n    pass\n")
    result, _ = _run(tmp_path, {"default": [{"text": "Hello."}]}, task=task)
    assert (result.status, result.text) == ("done", "Hello.")


def test_a_large_model_drives_with_the_instruction(tmp_path: Path) -> None:
    model = ScriptedModel([{"text": "done"}])
    result = opensage.run(
        TASK, agent=find_agent("coder", tmp_path), model=model, workdir=tmp_path, sandbox="bubblewrap"
    )
    assert result.status == "done"
    assert "Reproduce. Run the failing test" in model.requests[0]["messages"][0]["content"]


def test_a_method_is_replaced_in_its_class() -> None:
    (place,) = [one for one in functions_in(BUGGY) if one.name == "Shop.price"]
    text = replaced(BUGGY, place, "```python\ndef price(self, n: int) -> int:\n    return n * 4\n```")
    assert text == BUGGY.replace("n * 3", "n * 4")
    assert replaced(BUGGY, place, "def price(self, n: int) -> int:\n    return   n*3") == ""  # the same


def test_imports_and_helpers_come_along() -> None:
    place = functions_in(BUGGY)[0]
    reply = "```python\nimport math\nfrom decimal import Decimal\ndef half(x):\n    return x / 2\ndef area(r):\n    return half(Decimal(r))\n```"
    text = replaced(BUGGY, place, reply)
    assert text.startswith("import math\nfrom decimal import Decimal\ndef half(x):\n    return x / 2\n")
    assert text.count("import math") == 1


def test_examples_in_many_spellings() -> None:
    text = (
        "f(1) == 2, `f([1, 2], 'a)')` returns `[3]`; f(x) -> y\nExamples:\n>>> f(3)\n4\nand more\n"
        "f({'a': (1, 2)}) ➞ 'x'\n>>> f(9) == 1\nTrue\nclass f(2) == 3\ndef f(1) -> 2\n>>> f(\n"
    )
    found = examples_in(text, "f")
    assert examples_in(">>> g(1) == 2\n>>> g(3) == 4", "g") == [Example("g(1)", "2"), Example("g(3)", "4")]
    assert examples_in("g(1) = True and g(2) ==> ('a', 'b')", "g") == [
        Example("g(1)", "True"),
        Example("g(2)", "('a', 'b')"),
    ]
    told = (
        'For s = "ab,c", c = [1, 2] the result should be (1, True)\nFor s = 1, the result is 2\nfor x = 1, c = 2 is 3'
    )
    assert examples_in(told, "g", ["s", "c"]) == [Example('g("ab,c", [1, 2])', "(1, True)")]
    assert examples_in("Input: [1, 2]\nOutput: 3\nInput: x\nOutput: y", "g", ["a"]) == [Example("g([1, 2])", "3")]
    assert examples_in(">>> g({\n...  1: 2,\n... })\n{3}", "g") == [Example("g({1: 2})", "{3}", printed=True)]
    assert Example("f(3)", "4", printed=True) in found
    assert Example("f(9)", "1") in found
    assert Example("f(1)", "2") in found
    assert Example("f([1, 2], 'a)')", "[3]") in found
    assert Example("f({'a': (1, 2)})", "'x'") in found
    assert not [one for one in found if "x)" in one.call]
