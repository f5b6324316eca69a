"""The loop of Tester and Generator, with scripted models and a real sandbox."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opensage.models import ScriptedModel
from opensage_agents.pgs import PGSConfig, PGSWorkflow, PropertyError, PropertySet, Result, Task
from opensage_agents.pgs.inside.failures import tokens
from opensage_agents.pgs.tester import read_proposal

FAST = PGSConfig(
    sandbox="bubblewrap",
    vacuity="off",
    ghostwriter=False,
    inputs="derived",
    inputs_per_round=30,
    properties_per_round=1,
)
BUGGY = "def ordered(items: list[int]) -> list[int]:\n    return sorted(set(items))\n"
RIGHT = "def ordered(items: list[int]) -> list[int]:\n    return sorted(items)\n"
TASK = Task("Sort the items.", "ordered", BUGGY, [(([2, 1],), [1, 2])])
PERMUTES = 'def keeps_all(items, result):\n    assert len(items) == len(result), "items were lost"\n'
ARGS_PERMUTES = PERMUTES.replace("items, result", "args, result").replace("len(items)", "len(args[0])")
ASCENDS = "def ascends(items, result):\n    return all(a <= b for a, b in zip(result, result[1:]))\n"
STRICT = "def strictly(items, result):\n    return all(a < b for a, b in zip(result, result[1:]))\n"


def block(*texts: str) -> dict[str, Any]:
    return {"text": "Here.\n```python\n" + "\n\n".join(texts) + "\n```"}


def ran(
    generator: Sequence[dict[str, Any]],
    tester: Sequence[dict[str, Any]] = (),
    task: Task = TASK,
    config: PGSConfig = FAST,
    **options: Any,
) -> tuple[Result, ScriptedModel]:
    model = ScriptedModel({"agents": {"generator": list(generator), "tester": list(tester)}})
    return PGSWorkflow(model, config=config, **options).run(task), model


def prompts(model: ScriptedModel, role: str) -> list[str]:
    mark = "careful tester" if role == "tester" else "careful programmer"
    return [each["messages"][1]["content"] for each in model.requests if mark in each["messages"][0]["content"]]


def test_a_property_shows_the_least_input_and_the_repair_is_kept(tmp_path: Path) -> None:
    result, model = ran([block(RIGHT)], [block(PERMUTES, ASCENDS)])
    assert (result.status, result.code) == ("solved", RIGHT)
    first, last = result.rounds
    assert (last.status, last.counterexample) == ("ok", None)
    assert "+    return sorted(items)" in last.diff
    assert first.counterexample is not None
    assert first.counterexample["args_repr"] == "[0, 0]"
    prompt = prompts(model, "generator")[0]
    for part in ("ordered([0, 0])", "[0]", "keeps all", "items were lost", "set(items)"):
        assert part in prompt
    assert "set(items)" not in prompts(model, "tester")[0]
    (tmp_path / "ordered.py").write_text(BUGGY)
    result.write_tests(tmp_path / "test_kept.py")
    before = _pytest(tmp_path)
    assert before.returncode == 1, before.stdout + before.stderr
    assert "items were lost" in before.stdout
    (tmp_path / "ordered.py").write_text(RIGHT)
    after = _pytest(tmp_path)
    assert after.returncode == 0, after.stdout + after.stderr
    assert "3 passed" in after.stdout


def _pytest(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_kept.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)


def test_without_code_the_generator_writes_it() -> None:
    result, model = ran(
        [block(BUGGY), block(RIGHT)], [block(PERMUTES)], replace(TASK, code=None, signature="def ordered(items):")
    )
    assert (result.status, result.calls["generator"]) == ("solved", 2)
    assert "def ordered(items):" in prompts(model, "generator")[0]


def test_a_property_that_rejects_a_public_pair_is_dropped() -> None:
    task = replace(TASK, public_tests=[(([2, 1, 2],), [1, 2, 2])])
    result, _ = ran([block(RIGHT)], [block(STRICT, PERMUTES)], task)
    assert result.status == "solved"
    assert result.properties.names == ["keeps_all"]
    assert "[2, 1, 2] -> [1, 2, 2]" in result.rounds[0].dropped["strictly"]


def test_properties_without_worth_are_dropped() -> None:
    config = replace(FAST, vacuity="mutants")
    code = "def ordered(items):\n    out = []\n    for x in items:\n        if x not in out:\n            out.append(x)\n    out.sort()\n    return out\n"
    anything = "def anything(items, result):\n    return True\n"
    result, _ = ran([block(RIGHT)], [block(anything, PERMUTES)], replace(TASK, code=code), config)
    assert result.status == "solved"
    assert result.rounds[0].dropped["anything"].startswith("vacuous")


def test_the_same_program_again_ends_as_a_cycle() -> None:
    result, model = ran([{"repeat": block(BUGGY), "times": -1}], [{"repeat": block(PERMUTES), "times": -1}])
    assert result.status == "cycle"
    assert result.calls["generator"] <= FAST.max_rounds
    assert "written this very program before" in prompts(model, "generator")[1]


def test_a_tester_of_prose_has_failed() -> None:
    task = replace(TASK, public_tests=[(([1],), [1])])
    result, _ = ran([], [{"text": "I think it is fine."}] * 3, task)
    assert result.status == "tester_failed"
    assert result.calls == {"tester": 3}


def test_without_a_property_the_public_tests_are_left() -> None:
    task = replace(TASK, public_tests=[(([2, 2, 1],), [1, 2, 2]), (([1, 1],), [1, 1])])
    tester = [{"repeat": block(STRICT), "times": -1}]
    result, model = ran([block(RIGHT)], tester, task)
    assert (result.status, result.reason) == ("solved_public_only", "no property survived")
    assert "ordered([1, 1])" in prompts(model, "generator")[0]  # the least
    assert "expected [1, 1]" in prompts(model, "generator")[0]
    result, _ = ran([{"repeat": block(BUGGY), "times": -1}], tester, task)
    assert result.status == "no_valid_property"


def test_a_worse_program_is_taken_back() -> None:
    worse = "def ordered(items):\n    return [9] + items\n"
    result, model = ran([block(worse), block(RIGHT)], [{"repeat": block(PERMUTES, ASCENDS), "times": -1}])
    assert result.status == "solved"
    second = prompts(model, "generator")[1]
    assert "was worse and was taken back" in second
    assert "set(items)" in second
    assert "[9]" not in second


def test_the_best_program_is_left_when_the_rounds_are_over() -> None:
    worse = "def ordered(items):\n    return None\n"
    config = replace(FAST, max_rounds=1)
    result, _ = ran([block(worse)], [{"repeat": block(PERMUTES, ASCENDS), "times": -1}], config=config)
    assert (result.status, result.code) == ("budget", BUGGY)


def test_a_property_that_blocks_every_program_is_asked_about() -> None:
    other = "def ordered(items):\n    items = list(items)\n    items.sort()\n    return items\n"
    reversed_ = "def descends(items, result):\n    return len(items) < 3 or result[0] >= result[-1]\n"
    tester = [block(reversed_, PERMUTES, ASCENDS), *[{"text": "No, it must ascend."}] * 3]
    task = replace(TASK, code=RIGHT)
    result, _ = ran([block(other)], [*tester, *[{"text": "nothing"}] * 3], task)
    assert result.status == "solved"
    assert result.suspects == ("descends",)
    confirmed = [block(reversed_, PERMUTES, ASCENDS), {"text": "yes"}, {"text": "Yes."}, {"text": "no"}]
    result, _ = ran(
        [block(other), block(BUGGY)], [*confirmed, *[{"text": "nothing"}] * 3], task, replace(FAST, max_rounds=2)
    )
    assert result.status != "solved"
    assert result.suspects == ()


def test_inputs_of_the_tester_are_tried_thrice_and_then_derived() -> None:
    config = replace(FAST, inputs="tester")
    tester = [block("STRATEGY = no_such()", PERMUTES), block("STRATEGY = st.integers()"), block("STRATEGY = ((")]
    result, model = ran([block(RIGHT)], tester, config=config)
    assert result.status == "solved"
    assert "no_such" in prompts(model, "tester")[1]
    assert any("derived ones are" in note for note in result.notes)
    good = [block("STRATEGY = st.tuples(st.lists(st.just(7), max_size=4))", PERMUTES)]
    result, _ = ran([block(RIGHT)], good, config=config)
    assert result.rounds[0].counterexample is not None
    assert result.rounds[0].counterexample["args_repr"] == "[7, 7]"


def test_a_property_that_breaks_is_the_testers_fault() -> None:
    bad = "def divides(items, result):\n    return 1 / len(items)\n"
    result, model = ran([block(RIGHT)], [block(bad, PERMUTES)])
    assert result.status == "solved"
    assert result.properties.names == ["keeps_all"]
    assert "divides" not in "".join(prompts(model, "generator"))


@pytest.mark.parametrize(
    "reply", ["", "I cannot.", "```python\ndef other():\n    pass\n```", "```python\ndef ordered(:\n```"]
)
def test_a_generator_without_a_program_has_failed(reply: str) -> None:
    result, _ = ran([{"text": reply}] * 2, [block(PERMUTES)])
    assert (result.status, result.code) == ("generator_failed", BUGGY)
    assert result.calls["generator"] == 2


def test_the_last_block_with_the_function_is_taken_and_its_arguments_must_stay() -> None:
    two = {"text": f"First:\n```python\n{BUGGY}```\nBetter:\n```python\n{RIGHT}```\nRun it:\n```sh\npython x.py\n```"}
    assert ran([two], [block(PERMUTES)])[0].status == "solved"
    other = block("def ordered(items, key):\n    return sorted(items)\n")
    assert ran([other, other], [block(PERMUTES)])[0].status == "generator_failed"


def test_code_that_is_no_python_is_told_to_the_generator() -> None:
    task = replace(TASK, code="def ordered(items:\n    return 1\n", signature="def ordered(items):")
    result, model = ran([block(RIGHT)], [block(PERMUTES)], task)
    assert result.status == "solved"
    assert "line 1" in prompts(model, "generator")[0]


def test_each_way_of_feedback_has_its_own_prompt() -> None:
    task = replace(
        TASK,
        code="def ordered(items):\n    return items[:-1]\n",
        public_tests=[(([3, 1, 2],), [1, 2, 3]), (([1],), [1])],
    )
    shown = {}
    for name, change in {
        "io": {"feedback": "io"}, "minimal": {"feedback": "minimal_io"}, "none": {"feedback": "none"},
        "first": {"select": "first"}, "least": {"select": "min_tokens"}, "shrink": {"select": "shrink"},
    }.items():  # fmt: skip
        result, model = ran([block(RIGHT)], [block(PERMUTES)], task, replace(FAST, **change))
        shown[name] = prompts(model, "generator")[0]
        assert result.status in ("solved", "solved_public_only")
        assert tokens(shown[name]) < 400
    assert "ordered([3, 1, 2])" in shown["io"]
    assert "ordered([1])" in shown["minimal"]
    assert "expected" not in shown["none"]
    assert len({shown["io"], shown["first"], shown["shrink"]}) == 3
    assert tokens(shown["shrink"]) <= tokens(shown["least"]) <= tokens(shown["first"])


def test_a_public_pair_that_fails_goes_before_what_a_property_says_of_drawn_inputs() -> None:
    task = replace(TASK, code="def ordered(items):\n    return items[:-1]\n", public_tests=[(([3, 1],), [1, 3])])
    result, model = ran([block(RIGHT)], [block(PERMUTES)], task)
    assert result.status == "solved"
    shown = prompts(model, "generator")[0]
    for part in ("ordered([3, 1])", "it returns\n    [3]\nbut must return\n    [1, 3]", "keeps all", "items were lost"):
        assert part in shown
    fails = replace(task, code="def ordered(items):\n    return items[9]\n")
    _, model = ran([block(RIGHT)], [block(PERMUTES)], fails)
    assert "it fails: IndexError" in prompts(model, "generator")[0]
    assert "It must return\n    [1, 3]" in prompts(model, "generator")[0]
    hand = PropertySet.from_source(
        f"TARGET = 'ordered'\nSTRATEGY = st.tuples(st.lists(st.integers()))\n{ARGS_PERMUTES}"
    )
    _, model = ran([block(RIGHT)], [], task, properties=hand)
    assert "ordered([0])" in prompts(model, "generator")[0]  # given properties are trusted: the least input


def test_a_resumed_repair_asks_nothing_twice(tmp_path: Path) -> None:
    trace = tmp_path / "out" / "trace.jsonl"
    worse = "def ordered(items):\n    return sorted(set(items))[:3]\n"
    tester = [block(PERMUTES, ASCENDS), *[{"text": "yes"}] * 3]
    whole, _ = ran([block(worse), block(RIGHT)], tester, trace=trace)
    lines = trace.read_bytes().splitlines(keepends=True)
    calls = [at for at, line in enumerate(lines) if json.loads(line)["type"] == "call"]
    trace.write_bytes(b"".join(lines[: calls[-1]]) + b'{"type": "call", "role"')  # killed in the middle of a line
    left = len(calls) - 1
    again, model = ran([block(RIGHT)], [], trace=trace, resume=True)
    assert (again.status, again.code, again.calls) == (whole.status, whole.code, whole.calls)
    assert len(model.requests) == len(calls) - left == 1
    with pytest.raises(PropertyError, match="--resume"):
        ran([], [], trace=trace)
    trace.write_text("nonsense\n")
    with pytest.raises(PropertyError, match="no trace"):
        ran([], [], trace=trace, resume=True)


def test_the_budget_ends_it_and_says_which() -> None:
    usage = {"usage": {"input_tokens": 500, "output_tokens": 100}}
    result, _ = ran([{**block(RIGHT), **usage}], [{**block(PERMUTES), **usage}], config=replace(FAST, max_tokens=600))
    assert result.status == "budget"
    assert "max_tokens: 600 of 600" in result.reason


def test_kept_properties_may_have_any_name_and_see_the_arguments_after(tmp_path: Path) -> None:
    hand = PropertySet.from_source(
        'TARGET = "ordered"\nSTRATEGY = st.tuples(st.lists(st.integers(0, 9)))\n'
        "def ordered(args, result):\n    return len(args[0]) == len(result)\n"
        "def test_untouched(args, result, after):\n    assert args == after, 'touched'\n"
    )
    result, _ = ran([block(RIGHT)], [], properties=hand)
    result.write_tests(tmp_path / "test_kept.py", "ordered")
    (tmp_path / "ordered.py").write_text(RIGHT)
    after = _pytest(tmp_path)
    assert "3 passed" in after.stdout, after.stdout + after.stderr
    (tmp_path / "ordered.py").write_text("def ordered(items):\n    items.sort()\n    return items\n")
    assert "touched" in _pytest(tmp_path).stdout


def test_properties_by_hand_need_no_tester() -> None:
    hand = PropertySet.from_source(
        'TARGET = "ordered"\nSTRATEGY = st.tuples(st.lists(st.integers(0, 9)))\n'
        + PERMUTES.replace("(items, result)", "(args, result)").replace("len(items)", "len(args[0])")
    )
    result, model = ran([block(RIGHT)], [], properties=hand)
    assert (result.status, result.calls) == ("solved", {"generator": 1})
    with pytest.raises(PropertyError, match="NameError"):
        ran([block(RIGHT)], [], properties=replace(hand, strategy="st.tuples(no)"))
    assert prompts(model, "tester") == []


def test_without_a_property_of_the_tester_drafted_ones_stand_in() -> None:
    task = replace(
        TASK,
        code="def ordered(items):\n    return items[1:]\n",
        public_tests=[(([3, 1, 2],), [1, 2, 3]), (([5, 4],), [4, 5])],
    )
    result, _ = ran(
        [block(RIGHT)],
        [{"repeat": block(STRICT.replace("<", ">")), "times": -1}],
        task,
        replace(FAST, ghostwriter=True),
    )
    assert result.status == "solved"
    assert {each.source for each in result.properties.properties} == {"ghostwriter"}


def test_a_property_with_the_name_of_an_earlier_one_gets_another() -> None:
    other = "def keeps_all(items, result):\n    return sorted(items) == result\n"
    config = replace(FAST, properties_per_round=4)
    result, _ = ran(
        [block(BUGGY.replace("set(items)", "items[1:]")), block(RIGHT)],
        [block(PERMUTES), block(other), {"repeat": {"text": "yes"}, "times": -1}],
        config=config,
    )
    assert result.properties.names == ["keeps_all", "keeps_all_again"]


def test_what_a_reply_of_the_tester_holds() -> None:
    text = (
        "```python\nimport math\nfrom hypothesis import given\nBOUND = 3\ndef helper(x):\n    return x\n"
        "def one(items, result):\n    '''Each.'''\n    assert items\n"
        "def calls(items, result):\n    return ordered(items) == result\ndef two(items, more, result):\n    return True\n```"
    )
    found = read_proposal(text, TASK)
    assert [each.name for each in found.properties] == ["one"]
    assert found.properties[0].reason == "Each."
    assert set(found.refused) == {"calls", "two"}
    assert "BOUND = 3" in found.setup
    assert "import math" in found.setup
    assert "hypothesis" not in found.setup
    assert read_proposal("no code at all", TASK).properties == []


def test_a_version_of_the_function_in_the_testers_reply_is_a_property() -> None:
    own = "def ordered(items):\n    return ordered(items[1:]) + items[:1] if items[1:] else items\n"
    calls = "def calls(items, result):\n    assert ordered(items) == result\n"
    found = read_proposal(block(own, calls)["text"], TASK)
    assert [(each.name, each.kind) for each in found.properties] == [("calls", "model"), ("equals_a_slow_way", "model")]
    assert "def slow_ordered(items)" in found.setup
    assert "return slow_ordered(items[1:])" in found.setup
    assert "slow_ordered(items) == result" in found.properties[0].text
    alone = read_proposal(block("def slow_ordered(items):\n    return sorted(items)")["text"], TASK)
    assert [(each.name, each.kind) for each in alone.properties] == [("equals_a_slow_way", "model")]


def test_assertions_in_one_check_are_taken_apart_and_a_reply_that_breaks_off_is_read_so_far() -> None:
    piled = (
        "def check(items, result):\n    wanted = len(items)\n    assert len(result) == wanted\n"
        "    assert len(items) < 4, 'too long'\n    assert len(items) < 4, 'too long'"
    )
    reply = f"```python\n{piled}\n\ndef other(items, result):\n    assert result, 'is em"
    found = read_proposal(reply, TASK)
    assert [each.name for each in found.properties] == ["check_1", "check_2"]
    assert found.refused == {}
    first, second = (each.text for each in found.properties)
    assert "wanted = len(items)" in first
    assert "too long" not in first
    assert "len(result)" not in second
    assert len(read_proposal(f"```python\n{'x' * 10**5}(\n```", TASK).refused) == 1


def test_a_check_that_the_testers_own_version_breaks_is_dropped() -> None:
    slow = "def slow_ordered(items):\n    return sorted(items)\n"
    short = "def short(items, result):\n    assert len(items) < 3\n"
    result, _ = ran([block(RIGHT)], [block(slow, short, ASCENDS)])
    assert result.status == "solved"
    assert result.properties.names == ["ascends", "equals_a_slow_way"]
    assert result.rounds[0].dropped == {"short": "contradicts the Tester's own version of the function"}


def test_a_property_is_not_doubted_for_a_public_pair() -> None:
    task = replace(TASK, code="def ordered(items):\n    return items[:1]\n", public_tests=[(([2, 1],), [1, 2])])
    wrong = ["def ordered(items):\n    return items[:0]\n", "def ordered(items):\n    return items + items\n"]
    result, model = ran([*map(block, wrong), block(RIGHT)], [block(PERMUTES)], task)
    assert (result.status, result.suspects) == ("solved", ())
    assert len(prompts(model, "tester")) == 1


def test_a_slow_version_shows_what_must_be_and_nothing_where_it_fails() -> None:
    slow = "def slow_ordered(items):\n    assert len(items) < 4\n    return iter(sorted(items))\n"
    result, model = ran([block(RIGHT)], [block(slow)])
    assert (result.status, result.properties.names) == ("solved", ["equals_a_slow_way"])
    assert "returns\n    [0]\nbut the result must be [0, 0]" in prompts(model, "generator")[0]
    assert "equals_a_slow_way" not in prompts(model, "generator")[0]
    assert "slow_ordered" in prompts(model, "tester")[0]
