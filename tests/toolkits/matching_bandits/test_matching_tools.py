"""What an agent may call: JSON in, JSON out, bounded; and the toolkit's place in the package."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from importlib.metadata import entry_points

import numpy as np
import pytest

from opensage.toolkit.spec import load_toolkit
from opensage_toolkits.matching_bandits import bench, tools
from opensage_toolkits.matching_bandits.market import TieError, UnsupportedSetting

U = [[0.9, 0.5, 0.1], [0.8, 0.6, 0.2]]
V = [[0.1, 0.2], [0.4, 0.3], [0.6, 0.5]]


def test_result_survives_json_and_is_checked():
    result = json.loads(json.dumps(tools.run(U, V, ["wayse", "caucb"], T=2048, seeds=2)))
    assert list(result["algos"]) == ["wayse", "caucb"]
    assert result["algos"]["wayse"]["checkpoints"] == [128, 256, 512, 1024, 2048]
    verdict = tools.check(**result)
    assert verdict["algos"]["wayse"] == {"runs": 2, "stable": 2, "player_optimal": 2, "blocking": []}
    result["algos"]["wayse"]["runs"][1]["usual"] = [0, 1]
    verdict = tools.check(**result)
    assert not verdict["ok"]
    assert verdict["algos"]["wayse"]["blocking"] == [{"seed": 1, "pair": [1, 0]}]


def test_the_benchmark_in_a_result_is_checked_too():
    result = tools.run(U, V, T=512, seeds=1)
    assert not tools.check(result["market"], {}, [0, 1])["ok"]


def test_departures_and_returns_reach_the_market():
    result = tools.run(U, V, ["wayse2s"], T=300, seeds=1, arrivals=[1, 5], departures=[100, 200], returns=[150, 0])
    assert result["market"]["present"] == [True, False]
    assert result["benchmark"] == [0, -1]


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: tools.run(U, V, ["nope"], T=10), ValueError, "unknown algo 'nope'; known: wayse, wayse2s"),
        (lambda: tools.run(U, V, T=2**18 + 1), ValueError, "T must be a whole number from 1 to 262144"),
        (lambda: tools.run(U, V, T=True), ValueError, "T must be"),
        (lambda: tools.run(U, V, seeds=65), ValueError, "seeds must be a whole number from 1 to 64"),
        (
            lambda: tools.run([*U, [0.1, 0.5, 0.9]], np.eye(3).argsort(), T=2**18, seeds=64),
            ValueError,
            "fewer steps or seeds",
        ),
        (lambda: tools.run(U, V, ["caucb"] * 3, T=2**18, seeds=1), ValueError, "one algorithm a call"),
        (lambda: tools.run(U, V, departures=[5, 5]), UnsupportedSetting, "wayse2s"),
        (lambda: tools.run(np.eye(13).tolist(), np.eye(13).tolist()), TieError, "tie in row 0 of u"),
        (lambda: tools.run([[j / 20 for j in range(13)]], [[0.5]] * 13), ValueError, "at most 12 arms"),
        (lambda: tools.run(U, V, T=10, checkpoints=[11]), ValueError, "1..T=10"),
        (lambda: tools.check({"u": U, "v": V}, {}), ValueError, 'market lacks "present"'),
        (
            lambda: tools.check({"u": U, "v": V, "present": [True, True]}, {"a": {}}),
            ValueError,
            'algos."a".* lacks "runs"',
        ),
        (
            lambda: tools.check({"u": U, "v": V, "present": [True, True]}, {"a": {"runs": [3]}}),
            ValueError,
            'lacks "usual"',
        ),
        (lambda: tools.random_market(13, 13), ValueError, "players must be a whole number from 1 to 12"),
        (lambda: tools.random_market(3, 2), ValueError, "need N <= K"),
        (lambda: tools.stable_matching(U, [[1, 2], [2, 2], [1, 2]]), TieError, "row 1 of v"),
        (lambda: tools.growth([1, 2], [[0.0, 1.0]]), ValueError, "positive"),
    ],
)
def test_bad_input_is_named(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_the_largest_answer_is_small():
    result = tools.run(**tools.random_market(12, 12, 0.05), T=64, seeds=64, algo=["wayse", "caucb"])
    assert len(json.dumps(result)) < 64_000


def test_ranks_and_utilities_both_come_through_the_schema():
    """A model's integers stay ranks, and 0.5 stays a utility."""
    spec = load_toolkit(_folder())
    assert [tool.name for tool in spec.tools] == sorted(tools.__all__, key=[t.name for t in spec.tools].index)
    assert spec.pure
    assert spec.requirements == ("numpy>=1.26",)
    assert not spec.notes
    checked = {tool.name: tool.binding for tool in spec.tools}["stable_matching"].validate
    assert tools.stable_matching(**checked({"u": U, "v": [[2, 1], [1, 2], [1, 2]]}))["matching"] == [1, 0]
    assert tools.stable_matching(**checked({"u": U, "v": V}))["matching"] == [1, 0]


def _folder():
    from pathlib import Path

    return Path(tools.__file__).parent


def test_the_toolkit_s_own_tests_pass():
    own = importlib.import_module("opensage_toolkits.matching_bandits.tests.test_tools")
    found = [getattr(own, name) for name in dir(own) if name.startswith("test_")]
    assert len(found) >= 4
    for test in found:
        test()


def test_it_is_found_by_entry_point_and_imports_little():
    names = {point.name: point.value for point in entry_points(group="opensage.toolkits")}
    assert names["matching_bandits"] == "opensage_toolkits.matching_bandits"
    code = (
        "import sys; import opensage_toolkits.matching_bandits.tools, opensage_toolkits.matching_bandits.bench; "
        "print([m for m in ('opensage', 'matching', 'mabwiser', 'scipy', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=_path())
    assert done.stdout.strip() == "[]"


def _path():
    import os

    return {**os.environ, "PYTHONPATH": str(_folder().parents[1])}


def test_bench_prints_one_json_object(capsys):
    assert bench.main(["--quick", "--only", "oracle"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["quick"]
    assert report["oracle"]["against_matching"]["ok"]


def test_bench_fails_when_a_check_does(capsys, monkeypatch):
    monkeypatch.setitem(bench.PARTS, "oracle", lambda quick: {"arrivals": [{"ok": True}, {"ok": False}]})
    assert bench.main(["--only", "oracle"]) == 1
