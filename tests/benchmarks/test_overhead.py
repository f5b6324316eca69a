import json
import subprocess
import sys

import pytest

from opensage_benchmarks.overhead.__main__ import HERE, main, run_kit, summary, targets
from opensage_benchmarks.overhead.child import Counter, load, measure


def figures(cost: float, growth: float = 1.0) -> dict:
    return {
        "package": "x",
        "version": "1",
        "python": "3",
        "cpu_ms_per_turn_median": cost,
        "last_tenth_over_first": growth,
    }


def test_the_benchmark_prints_one_json_object_and_names_peers_that_failed_or_are_missing(capsys):
    peers = ["--peer", f"smolagents={sys.executable}", "--peer", "mini-swe-agent=/nowhere/python"]
    main(["40", "--peer-turns", "20", "--rounds", "1", *peers])
    printed = json.loads(capsys.readouterr().out)
    kits = printed["comparison"]["kits"]
    assert printed["cpu_ms_per_turn_median"] > 0
    assert printed["memory_bytes_per_turn"] < 2048 * 4  # few turns: the first ones weigh more
    assert kits["opensage"]["cpu_ms_per_turn_median"] > 0
    assert "smolagents" in kits["smolagents"]["error"]
    assert "/nowhere/python" in kits["mini-swe-agent"]["error"]
    assert printed["comparison"]["left_out"] == ["pydantic-ai", "openai-agents"]


def test_a_turn_costs_the_same_late_and_early_and_little():
    found = summary([run_kit("opensage", sys.executable, 300) for _ in range(3)])
    assert found["cpu_ms_per_turn_median"] < 3  # 0.5 measured; the slack is for a busy machine
    assert found["last_tenth_over_first"] < 2


def test_a_kit_that_does_not_call_the_tool_each_turn_is_an_error():
    class Lazy:
        PACKAGE = "pytest"

        @staticmethod
        def run(turns, add):
            add(1, 1)
            return "I am done"

    with pytest.raises(RuntimeError, match="1 tool calls in 50 turns; it ended with 'I am done'"):
        measure(Lazy, 50)


def test_the_opensage_kit_calls_the_tool_once_a_turn():
    counter = Counter()
    assert load(str(HERE / "kits" / "opensage_kit.py")).run(5, counter) == "done"
    assert len(counter.stamps) == 5


def test_rounds_give_medians_and_spread_and_an_error_of_any_round_is_told():
    found = summary([figures(3.0), figures(1.0), figures(2.0)])
    assert (found["cpu_ms_per_turn_median"], found["least_and_most"]) == (2.0, [1.0, 3.0])
    assert summary([figures(1.0), {"error": "broke"}]) == {"error": "broke"}


@pytest.mark.parametrize(
    ("own", "mini", "holds"), [(0.4, None, True), (0.9, None, False), (0.9, 5.0, True), (0.9, 4.0, False)]
)
def test_the_cost_of_a_turn_is_judged_alone_or_against_mini_swe_agent(own, mini, holds):
    rest = {"memory_bytes_per_turn": 3000, "import_opensage_cpu_s": 0.1, "help_cpu_s": 0.5}
    kits = {"opensage": figures(own), **({"mini-swe-agent": figures(mini)} if mini else {})}
    judged = targets(figures(own, 1.3), rest, kits)
    assert list(judged.values()) == [holds, False, False, True, False]


@pytest.mark.parametrize("wrong", [["3"], ["--peer", "nokit=x"], ["--peer", "smolagents"], ["--rounds", "0"]])
def test_wrong_arguments_are_refused(wrong):
    done = subprocess.run(
        [sys.executable, "-m", "opensage_benchmarks.overhead", *wrong], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "error:" in done.stderr
