"""A model proposes and solves: real programs in a real sandbox, a scripted model."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import opensage
from opensage import Limits
from opensage.cli.main import main
from opensage.models import ScriptedModel
from opensage.topology.library import find_agent
from opensage_agents.selfplay.live import LiveConfig
from opensage_agents.selfplay.proposal import Case, program_in, proposed
from opensage_agents.selfplay.verdicts import Judge, same
from opensage_agents.selfplay.workflow import config_of

OLD = {
    "double": ("Double every number of a list.", "return [2 * x for x in v]", "[1, 2]", "[2, 4]", "[]", "[]"),
    "shout": ("Turn the letters of a text into capitals.", "return v.upper()", "'ab'", "'AB'", "''", "''"),
    "tail": ("Give the last element of a sequence, None if empty.", "return v[-1] if v else None", "[3]", "3", "[]", "None"),
    "vowels": ("Count vowels in a word.", "return sum(c in 'aeiou' for c in v)", "'aei'", "3", "'x'", "0"),
    "square": ("Say whether an integer is a perfect square.", "return int(v ** 0.5) ** 2 == v", "9", "True", "8", "False"),
    "swap": ("Exchange keys and values of a dictionary.", "return {b: a for a, b in v.items()}", "{1: 2}", "{2: 1}", "{}", "{}"),
}  # fmt: skip
NEW = {
    "flat": ("Flatten one level of nesting.", "return [y for x in v for y in x]", "[[1], [2]]", "[1, 2]", "[]", "[]"),
    "binary": ("Write the base two digits of some value.", "return bin(v)[2:]", "5", "'101'", "2", "'10'"),
    "rotate": ("Move the head to the end of the queue.", "return v[1:] + v[:1]", "[1, 2]", "[2, 1]", "[]", "[]"),
    "primes": ("List primes below the bound.", "return [n for n in range(2, v) if all(n % d for d in range(2, n))]", "6", "[2, 3, 5]", "2", "[]"),
    "words": ("Split a sentence at blanks and sort by length.", "return sorted(v.split(), key=len)", "'bb a'", "['a', 'bb']", "''", "[]"),
    "trace": ("Add up the diagonal of a matrix.", "return sum(r[i] for i, r in enumerate(v))", "[[1, 0], [0, 4]]", "5", "[]", "0"),
}  # fmt: skip


def proposal(name: str, row: tuple[str, ...]) -> str:
    statement, body, a, one, b, two = row
    return (
        f"{statement}\n```python\ndef {name}(v):\n    {body}\n\nassert {name}({a}) == {one}\nassert {name}({b}) == {two}\n"
        f"assert {name}({a}) == 'wrong'\n```"
    )


def answers(name: str, row: tuple[str, ...]) -> list[dict[str, str]]:
    """One that is right, one that is not: half are solved."""
    return [{"text": f"```python\ndef {name}(v):\n    {body}\n```"} for body in (row[1], "return 77")]


def script() -> dict[str, Any]:
    """Round 1 with three replies that are no problems; then the old ones again before new ones, for each arm."""
    broken = [
        "I cannot.",
        "```python\ndef f(:\n```",
        "Lie.\n```python\ndef f(v):\n    return 1\nassert f(1) == 2\nassert f(2) == 3\n```",
    ]
    first = [{"text": text} for text in broken] + [{"text": proposal(*pair)} for pair in OLD.items()]
    again = [{"text": proposal(*pair)} for pair in (*OLD.items(), *list(NEW.items())[:3])]
    solved = [turn for pair in OLD.items() for turn in answers(*pair)]
    solved_again = [turn for pair in (*OLD.items(), *list(NEW.items())[:3]) for turn in answers(*pair)]
    return {"agents": {"proposer": first + 2 * again, "solver": solved + 2 * solved_again}}


def test_the_reward_chooses_what_was_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "script.json").write_text(json.dumps(script()))
    words = ["selfplay", "run", "--script", str(tmp_path / "script.json"), "--rounds", "2", "--problems", "9"]
    words += ["--keep", "6", "--samples", "2", "--sandbox", "bubblewrap", "--out", str(tmp_path / "out")]
    assert main(words) == 0, capsys.readouterr().err
    told = capsys.readouterr().out
    assert "No weights are trained" in told
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    rounds = {(each["arm"], each["number"]): each for each in report["rounds"]}
    first, host, novelty = rounds["host", 1], rounds["host", 2], rounds["novelty", 2]
    assert (first["valid"], first["kept"], first["overlap"]) == (6, 6, None)
    assert [each["statement"] for each in first["played"]] == [
        each["statement"] for each in rounds["novelty", 1]["played"]
    ]
    reasons = [each["reason"] for each in first["played"] if each["reason"]]
    assert reasons[0] == "no block of code"
    assert "no Python" in reasons[1]
    assert "passes 0 of 2" in reasons[2]
    assert {each["s"] for each in first["played"] if not each["reason"]} == {0.5}
    assert {each["tests"] for each in first["played"] if not each["reason"]} == {2}
    assert (host["overlap"], novelty["overlap"]) == (1.0, 0.5)  # all three new ones were kept, and three old ones
    assert host["overlap_valid"] == novelty["overlap_valid"] == pytest.approx(2 / 3)
    kept = [json.loads(line) for line in (tmp_path / "out" / "novelty.jsonl").read_text().splitlines()]
    assert {NEW[name][0] for name in ("flat", "binary", "rotate")} < {each["question"] for each in kept}
    assert main(words) == 2
    assert "--resume" in capsys.readouterr().err
    # Resumed with a script that has nothing: all answers are in the trace.
    (tmp_path / "script.json").write_text('{"agents": {"proposer": [], "solver": []}}')
    assert main([*words, "--resume", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert {**again, "seconds": 0} == {**report, "seconds": 0}


def test_a_limit_ends_the_run_and_keeps_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    turns = script()
    for turn in turns["agents"]["proposer"]:
        turn["usage"] = {"input_tokens": 100, "output_tokens": 100}
    (tmp_path / "script.json").write_text(json.dumps(turns))
    words = ["selfplay", "run", "--script", str(tmp_path / "script.json"), "--rounds", "2", "--problems", "9"]
    words += ["--samples", "2", "--sandbox", "bubblewrap", "--max-tokens", "2000", "--json"]
    assert main(words) == 1
    report = json.loads(capsys.readouterr().out)
    assert "max_tokens" in report["stopped"]
    assert len(report["rounds"]) == 2  # the first of both arms
    assert main(["selfplay", "run", "--resume"]) == 2
    assert main(["selfplay", "run", "--script", str(tmp_path / "none.json")]) == 2
    assert main([*words, "--keep", "10"]) == 2
    assert "keep is 10" in capsys.readouterr().err
    assert main([*words, "--kind", "svm"]) == 2
    assert "knn, ocsvm" in capsys.readouterr().err
    assert main([*words, "--form", "svm"]) == 2
    assert "additive or gated" in capsys.readouterr().err
    assert main([*words, "--embedder", "glove"]) == 2
    assert "minilm" in capsys.readouterr().err


def test_the_agent_plays_and_leaves_a_report(tmp_path: Path) -> None:
    model = ScriptedModel(script())
    result = opensage.run(
        "Play 2 rounds of 9 problems with 2 samples.", agent=find_agent("selfplay", tmp_path), model=model,
        workdir=tmp_path, sandbox="bubblewrap", approve="allow", memory=False,
    )  # fmt: skip
    assert result.status == "done", result.reason
    assert "No weights are trained" in result.text
    report = json.loads((tmp_path / "selfplay.json").read_text())
    assert [each["arm"] for each in report["rounds"]] == ["host", "novelty"] * 2
    model = ScriptedModel(script())
    result = opensage.run(
        "Play 2 rounds of 9 problems with 2 samples.", agent=find_agent("selfplay", tmp_path), model=model,
        workdir=tmp_path, sandbox="bubblewrap", approve="allow", memory=False, limits=Limits(max_turns=4),
    )  # fmt: skip
    assert result.status == "limit"
    assert "max_turns" in result.reason


def test_the_task_names_the_numbers() -> None:
    config = config_of("Play 3 rounds of 16 problems about string parsing. Use 5 samples.")
    assert (config.rounds, config.problems, config.samples, config.topic) == (3, 16, 5, "string parsing")
    assert (config_of("go").rounds, config_of("go").problems) == (2, 8)
    assert config_of("9999 rounds of 0 problems").rounds == 20


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no block"),
        ("x\n```python\nx = 1\n```", "no function"),
        ("x\n```python\ndef f(a):\n    return a\nassert f(1) == 1\n```", "fewer than two"),
        ("x\n```python\ndef f(a):\n    return a\nassert f(1) == g()\nassert f(2) == f(2)\n```", "fewer than two"),
        ("```python\ndef f(a):\n    return a\nassert f(1) == 1\nassert f(2) == 2\n```", "no statement"),
        ("x\n```python\n" + "(" * 5000 + "\n```", "no Python"),
        (
            "x\n```python\ndef f(a):\n    return " + "a+" * 2000 + "a\nassert f(1) == 1\nassert f(2) == 2\n```",
            "no Python",
        ),
        (
            "x\n```python\ndef f(a):\n    return '" + "z" * 9000 + "'\nassert f(1) == 1\nassert f(2) == 2\n```",
            "too long",
        ),
    ],
)
def test_what_is_no_problem_is_told(reply: str, reason: str) -> None:
    assert reason in proposed(reply).reason


def test_a_proposal_is_taken_apart() -> None:
    reply = (
        "**Problem:** Say whether a number is even.\n\n```python\nimport math\ndef even(n: int) -> bool:\n    return n % 2 == 0\n```\n"
        "Tests:\n```python\nassert even(2)\nassert not even(3)\nassert even(4) is True\nassert other(1) == 2\nprint(1)\n```"
    )
    found = proposed(reply)
    assert (found.statement, found.head) == ("Say whether a number is even.", "def even(n: int):")
    assert found.cases == (Case("even(2)", "True"), Case("even(3)", "False"), Case("even(4)", "True"))
    assert "print" not in found.reference
    assert program_in("```python\ndef even(n):\n    return n\n```", "even").startswith("def even")
    assert program_in("no", "even") == ""


HOSTILE = {
    "hangs": "def f(v):\n    while True:\n        pass",
    "exits": "import os\ndef f(v):\n    os._exit(0)",
    "lies": 'import sys\ndef f(v):\n    sys.__stdout__.write(\'[[true, "2"], [true, "4"]]\\n\')\n    sys.__stdout__.flush()\n    os._exit(0)',
    "grows": "def f(v):\n    return 'x' * 10**10",
    "floods": "import sys\ndef f(v):\n    sys.__stdout__.write('y' * 10**7)\n    return 0",
    "raises": "class Bad(Exception):\n    def __str__(self):\n        raise self\ndef f(v):\n    raise Bad",
    "breaks": "1 / 0",
    "odd": "def f(v):\n    return object()",
}


def test_hostile_programs_pass_nothing() -> None:
    cases = [Case("f(1)", "2"), Case("f(2)", "4")]

    async def tried() -> dict[str, list[bool]]:
        async with Judge("bubblewrap", seconds=0.5) as judge:
            found = {name: await judge.passed(code, cases) for name, code in HOSTILE.items()}
            found["right"] = await judge.passed("def f(v):\n    return 2 * v", cases)
            found["half"] = await judge.passed("def f(v):\n    return 2", cases)
            found["none"] = await judge.passed("", cases)
            return found

    found = asyncio.run(tried())
    assert found.pop("right") == [True, True]
    assert found.pop("half") == [True, False]
    assert found == {name: [False, False] for name in (*HOSTILE, "none")}


def test_literals_are_compared_by_kind() -> None:
    assert same("0.30000000000000004", "0.3")
    assert same("[1, (2, 3)]", "[1, (2, 3)]")
    assert same("{'a': {1, 2}}", "{'a': {2, 1}}")
    for got, want in (
        ("True", "1"),
        ("[1]", "(1,)"),
        ("'1'", "1"),
        ("1", "2"),
        ("f()", "1"),
        ("[1, 2]", "[1]"),
        ("(" * 9999, "1"),
    ):
        assert not same(got, want)


def test_bad_settings_are_told() -> None:
    for options, said in (
        ({"rounds": 0}, "rounds is 0"),
        ({"problems": 1001}, "problems"),
        ({"samples": 0}, "samples"),
        ({"keep": 0}, "keep is 0"),
        ({"tau": 0.0}, "tau"),
    ):
        with pytest.raises(ValueError, match=said):
            LiveConfig(**options)  # type: ignore[arg-type]
