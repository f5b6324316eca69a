"""The loop, the worlds, what they are summed up to, and the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opensage.cli.main import main
from opensage_agents.selfplay import BadValue, History, Round, collapse_report
from opensage_agents.selfplay.loop import Attempt, SelfPlayLoop, standardised
from opensage_agents.selfplay.metrics import effective, entropy, means, overlap
from opensage_agents.selfplay.policy import SoftmaxQuestioner
from opensage_agents.selfplay.questions import NUMBER, SHAPE, SKILLS, rendered
from opensage_agents.selfplay.world_t1 import KINDER, T1
from opensage_agents.selfplay.world_t2 import T2, TextSolver
from opensage_agents.selfplay.worlds import arms_of, simulate, summed


class Counting:
    """A questioner, a solver and a reward that note the order of what is asked of them."""

    note = ""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.advantages: list[np.ndarray] = []
        self.trained: list[int] = []

    def sample(self, number: int) -> np.ndarray:
        self.said.append(f"sample {number}")
        return np.arange(number)

    def update(self, items: np.ndarray, advantages: np.ndarray) -> None:
        self.advantages.append(advantages)

    def attempt(self, items: np.ndarray) -> Attempt:
        shares = (items % 11) / 10
        return Attempt(shares, items % 5 > 0, items)

    def train(self, items: np.ndarray, attempt: Attempt) -> None:
        self.said.append("train")
        self.trained += items.tolist()

    def held_out(self) -> float:
        return len(self.trained) / 100

    def begin(self, number: int) -> None:
        self.said.append(f"begin {number}")

    def __call__(self, items: np.ndarray, attempt: Attempt) -> np.ndarray:
        return attempt.s

    def used(self, items: np.ndarray, number: int) -> None:
        self.said.append(f"used {len(items)}")


def test_a_round_fits_then_asks_then_trains() -> None:
    all_ = Counting()
    loop = SelfPlayLoop(all_, all_, all_, rounds=2, steps=2, batch=4, pool=12, observe=lambda *_args: {"seen": 0.5})
    history = loop.run()
    once = ["sample 4", "sample 4", "sample 12", "train", "used 5"]
    assert all_.said == ["begin 1", *once, "begin 2", *once]
    assert all_.trained == 2 * [3, 4, 6, 7, 8]  # shares of 0.3 to 0.8, and valid
    assert [each.used for each in history.rounds] == [0, 5, 5]
    assert history.rounds[1].learnable == pytest.approx(5 / 12)
    assert history.scores == [0.0, 0.05, 0.1]
    assert abs(all_.advantages[0].mean()) < 1e-12
    assert all_.advantages[0].std() == pytest.approx(1)


def test_a_constant_bonus_pays_nothing() -> None:
    assert standardised(np.full(5, 0.7)).tolist() == [0.0] * 5
    assert np.allclose(standardised(np.arange(4.0)), standardised(np.arange(4.0) + 9))


def test_replay_and_a_filter_of_the_pool() -> None:
    all_ = Counting()
    loop = SelfPlayLoop(
        all_, all_, all_, rounds=2, steps=0, batch=4, pool=12, replay=1.0, unseen=lambda items: items > 4
    )
    assert loop.run().rounds[-1].used == 3
    assert all_.trained[:3] == [6, 7, 8]
    assert sorted(all_.trained[-3:]) == [6, 7, 8]
    assert len(all_.trained) == 9  # nothing is known in the first round
    for options, said in (
        ({"rounds": 0}, "rounds"),
        ({"batch": 1}, "batch"),
        ({"band": (0.8, 0.3)}, "band"),
        ({"replay": 2.0}, "replay"),
    ):
        with pytest.raises(BadValue, match=said):
            SelfPlayLoop(all_, all_, all_, **options)  # type: ignore[arg-type]


def test_collapse_is_measured_from_the_peak() -> None:
    scores = [0.2, 0.5, 0.7, 0.4]
    rounds = [Round(n, s, figures={"overlap": n / 10, "effective": 2.0} if n else {}) for n, s in enumerate(scores)]
    report = collapse_report(History(tuple(rounds)))
    assert (report["onset"], report["peak"], report["final"]) == (2, 0.7, 0.4)
    assert report["drop"] == pytest.approx(0.3)
    assert report["overlap"] == [0.1, 0.2, 0.3]
    assert report["final_effective"] == 2.0
    assert json.dumps(History(tuple(rounds)).to_dict())


def test_measures_of_spread() -> None:
    assert entropy([]) == entropy(["a"] * 9) == 0
    assert effective(range(7)) == pytest.approx(7)
    unit = np.eye(3)
    assert overlap(unit, unit[:1]) == pytest.approx(1 / 3)
    assert overlap(unit, unit[:0]) == 0
    assert np.isnan(overlap(unit[:0], unit))  # nothing was used: nothing is repeated, and nothing is new
    assert means([[1.0, np.nan], [3.0, np.nan]]).tolist() == [2.0, pytest.approx(np.nan, nan_ok=True)]
    assert History((Round(1, 0.5, figures={"overlap": float("nan")}),)).to_dict()["rounds"][0]["figures"] == {
        "overlap": None
    }
    assert overlap(unit, (unit[:1] + 0.1) / np.linalg.norm(unit[0] + 0.1)) == pytest.approx(1 / 3)


def test_the_softmax_learns_what_is_paid() -> None:
    asker = SoftmaxQuestioner(np.zeros((2, 3)), np.random.default_rng(0))
    assert asker.probabilities.shape == (2, 3)
    for _ in range(50):
        items = asker.sample(32)
        asker.update(items, standardised((items == 4).astype(float)))
    assert asker.probabilities[1, 1] > 0.9


def test_every_question_has_the_answer_of_its_skills() -> None:
    import random

    wanted = {
        "sum": 16,
        "gcd": 4,
        "lcm": 12,
        "percent": 75,
        "triangle": 24,
        "sequence": 28,
        "remainder": 0,
        "quotient": 3,
    }
    found = {skill.name: int(skill.call(np.int64(12), np.int64(4))) for skill in SKILLS}
    assert found.items() >= wanted.items()
    texts = [rendered(cell, random.Random(1)) for cell in range(int(np.prod(SHAPE)))]
    assert all("{" not in text and text.endswith("?") for text in texts)
    solver = TextSolver(T2(), np.random.default_rng(0))
    cells = np.ravel_multi_index(([0, 2, NUMBER, NUMBER], [NUMBER, 0, 0, 0], [0, 0, 0, 2], [0, 0, 0, 0]), SHAPE)
    attempt = solver.attempt(cells)
    a, b, c, label = attempt.labels.T
    assert label[0] == a[0] + b[0]
    assert label[1] == a[1] * b[1] + c[1]
    assert attempt.valid.tolist() == [True, True, False, True]
    assert attempt.s[2:].tolist() == [0, 0]  # nobody can know


def test_the_solver_learns_from_right_answers() -> None:
    solver = TextSolver(T2(fade=0.0, rate=0.2), np.random.default_rng(0))
    before = solver.held_out()
    cells = np.random.default_rng(1).integers(NUMBER * SHAPE[1] * 9, size=400)
    for _ in range(6):
        solver.train(cells, solver.attempt(cells))
    assert 0 < before < solver.held_out() - 0.2


def test_t1_collapses_and_novelty_keeps_it_up() -> None:
    """Check 5 with few seeds: the benchmark has them all."""
    sums = summed(simulate("t1", ["base", "batch", "oneclass", "random"], range(100, 106)))
    assert sums["batch"]["drop"] >= 0.02
    assert sums["batch"]["onset"] < 25
    assert sums["oneclass"]["drop"] <= 0.01
    assert sums["oneclass"]["final"] >= sums["batch"]["final"] + 0.08
    assert sums["oneclass"]["final_effective"] >= 1.8 * sums["batch"]["final_effective"]
    assert abs(sums["random"]["final"] - sums["batch"]["final"]) < 0.05
    assert sums["base"]["final"] < sums["batch"]["final"]


def test_there_is_a_world_in_which_nothing_collapses() -> None:
    sums = summed(simulate("t1-kind", ["base", "oneclass"], range(100, 102)))
    assert sums["base"]["drop"] < 0.02
    assert sums["base"]["final"] > 0.9
    assert KINDER.families == 16


@pytest.mark.parametrize("arm", arms_of("t2"))
def test_every_reward_of_t2_runs(arm: str) -> None:
    history = simulate("t2", [arm], [1], rounds=3, steps=2, pool=64)[arm][0]
    assert len(history.scores) == 4
    assert all(0 <= value <= 1 for value in (*history.scores, *history.series("overlap")))
    again = simulate("t2", [arm], [1], rounds=3, steps=2, pool=64)[arm][0]
    assert again == history


def test_a_world_and_a_reward_must_be_there() -> None:
    for call, said in (
        (lambda: simulate("t3", ["base"], [1]), "t1, t1-kind, t2"),
        (lambda: simulate("t1", ["gated"], [1]), "gated: no reward of world t1"),
        (lambda: T1(families=1), "2 families"),
        (lambda: T1(phi=-1), "phi is -1"),
        (lambda: T2(fade=1.0), "fade is 1"),
    ):
        with pytest.raises(ValueError, match=said):
            call()


def test_simulate_writes_rounds_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["selfplay", "simulate", "--world", "t1", "--reward", "base,oneclass", "--seeds", "2", "--rounds", "3"]
    assert main([*words, "-o", str(tmp_path / "r.json"), "--plot", str(tmp_path / "r.png")]) == 0
    assert "oneclass" in capsys.readouterr().out
    whole = json.loads((tmp_path / "r.json").read_text())
    assert len(whole["runs"]["oneclass"]) == 2
    assert len(whole["runs"]["oneclass"][0]["rounds"]) == 4
    assert whole["summary"]["base"]["finals"][0] == whole["runs"]["base"][0]["rounds"][-1]["score"]
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")
    for extra, said in (
        (["--world", "t9"], "t9"),
        (["--reward", "none"], "no reward of world t1"),
        (["--kind", "knn"], "world t1 has no kind"),
        (["--plot", str(tmp_path / "r.doc")], "ends in .png, .svg, .pdf"),
        (["--plot", str(tmp_path / "no" / "r.png")], "cannot be written"),
        (["--phi", "-1"], "phi"),
    ):
        assert main([*words, *extra]) == 2
        assert said in capsys.readouterr().err


def _lines(path: Path, entries: list[Any]) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in entries))
    return str(path)


def test_fit_and_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    history = _lines(tmp_path / "h.jsonl", [f"What is the sum of {n} and {n + 1}?" for n in range(60)])
    new = {"question": "Name a prime below the bound.", "s": 0.5}
    asked = _lines(tmp_path / "q.jsonl", ["What is the sum of 7 and 99?", new, {**new, "host": 0.1, "valid": False}])
    detector = str(tmp_path / "d.npz")
    assert main(["selfplay", "fit", history, "-o", detector, "--kind", "ocsvm"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == 60
    assert main(["selfplay", "score", detector, asked]) == 0
    seen, fresh, invalid = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (seen["seen"], fresh["seen"], "reward" in seen) == (True, False, False)
    assert (fresh["novelty"], fresh["reward"], fresh["gate"]) == (1.0, 1.0, True)
    assert (invalid["reward"], invalid["gate"]) == (0.1, False)
    (tmp_path / "few.jsonl").write_text('"a"\n"b"\n')
    (tmp_path / "bad.jsonl").write_text('"a"\n{')
    odd = _lines(tmp_path / "odd.jsonl", [{"question": "a", "s": 3}])
    text = _lines(tmp_path / "text.jsonl", [{"question": "a", "s": "x"}])
    for words, said in (
        (["fit", str(tmp_path / "few.jsonl"), "-o", detector], "2 used problems are too few"),
        (["fit", str(tmp_path / "bad.jsonl"), "-o", detector], "bad.jsonl:2"),
        (["fit", str(tmp_path / "none.jsonl"), "-o", detector], "cannot be read"),
        (["fit", history, "-o", detector, "--kind", "svm"], "knn, ocsvm"),
        (["fit", history, "-o", detector, "--embedder", "glove"], "minilm"),
        (["fit", history, "-o", "/proc/d.npz"], "cannot be written"),
        (["score", detector, asked, "--surface"], "fit it again"),
        (["score", history, asked], "no detector"),
        (["score", detector, odd], "s is 3.0 in row 0"),
        (["score", detector, text], "no list of numbers"),
        (["score", detector, asked, "--lam", "-1"], "lam is -1"),
        (["score", detector, asked, "--form", "x"], "additive or gated"),
        (["score", detector, asked, "--alpha", "2"], "alpha"),
    ):
        assert main(["selfplay", *words]) == 2, words
        assert said in capsys.readouterr().err, words
