"""How large C_V gets by chance: ideal judges like the one that was diagnosed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from opensage_agents.judge_irt import ScoreError, chance_of, diagnose, fit_file
from opensage_benchmarks.judge_irt.simulate import scores_of


def made(samples: int, slopes: list[float], seed: int = 0) -> Any:
    return diagnose(scores_of(samples, slopes, seed)[1], n_categories=5)


def test_few_samples_make_a_large_cv_without_any_effect() -> None:
    found = made(40, [2.5] * 4, seed=5)
    chance = chance_of(found, 40, seed=1)
    assert found.verdict == "prompt_sensitive"  # and yet its wordings are one instrument
    assert found.cv <= chance.cv
    assert chance.cv > 0.3
    assert chance.passing < 0.3
    assert any("no larger than chance" in text for text in chance.told(found))


def test_an_odd_wording_is_beyond_chance() -> None:
    found = made(300, [2.5, 2.5, 2.5, 0.6], seed=5)
    chance = chance_of(found, 20)
    assert found.cv > chance.cv
    assert len(chance.told(found)) == 1
    assert "of 20 ideal judges with 300 samples" in chance.told(found)[0]


def test_more_samples_more_ideal_judges_pass() -> None:
    few, many = (chance_of(made(n, [2.5] * 4), 20) for n in (100, 2000))
    assert few.cv > 2 * many.cv
    assert few.passing < many.passing


def test_missing_scores_stay_missing_and_the_seed_decides() -> None:
    scores = scores_of(120, [2.0] * 3, 0)[1]
    whole = diagnose(scores, n_categories=5)
    scores[::2, 1] = np.nan
    half = diagnose(scores, n_categories=5)
    first = chance_of(half, 20, seed=3)
    assert first == chance_of(half, 20, seed=3)
    assert first.cv > chance_of(whole, 20, seed=3).cv


def test_too_few_are_an_error_and_what_cannot_be_said_is_said() -> None:
    found = made(60, [2.5] * 3)
    with pytest.raises(ScoreError, match="at least 20"):
        chance_of(found, 5)
    tiny = diagnose([[1, 2], [2, 1], [1, 2]], n_categories=2)
    chance = chance_of(tiny, 20)
    assert np.isnan(chance.cv)
    assert "could not be diagnosed" in chance.told(tiny)[0]


def test_a_report_says_it(tmp_path: Any) -> None:
    path = tmp_path / "scores.csv"
    rows = scores_of(60, [2.5] * 3, 0)[1].astype(int)
    path.write_text("a,b,c\n" + "\n".join(",".join(map(str, row)) for row in rows))
    row = fit_file(path, wide=True, levels=5, chance=20)["judges"][0]
    assert row["chance"]["n"] == 20
    assert any("ideal judges" in text for text in row["warnings"])
    assert fit_file(path, wide=True, levels=5, chance=0)["judges"][0]["chance"] is None
    from opensage_agents.judge_irt.cli import app

    done = CliRunner().invoke(app, ["fit", str(path), "--wide", "--levels", "5", "--chance", "20"])
    assert done.exit_code == 0, done.output
    assert "of 20 ideal judges with 60" in done.output
