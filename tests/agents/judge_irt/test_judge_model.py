"""The graded response model: reference data, recovery, properties, and what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage.errors import OpenSageError
from opensage_agents.judge_irt import GradedResponseModel, ScoreError, bayes, bootstrap, diagnose, prompt_consistency
from opensage_agents.judge_irt.bayes import effective_size, split_r_hat
from opensage_agents.judge_irt.classical import classical, cronbach_alpha, spearman, weighted_kappa
from opensage_agents.judge_irt.curves import Grid, Patterns, information, joint, log_probs
from opensage_agents.judge_irt.fitting import log_prior
from opensage_agents.judge_irt.scores import coded
from opensage_benchmarks.judge_irt import rows
from opensage_benchmarks.judge_irt.simulate import scores_of

DATA = Path(os.environ.get("OPENSAGE_DATA") or Path(__file__).parents[4] / "shared" / "data")


@pytest.mark.skipif(not (DATA / "tabular" / "science_grm.csv").is_file(), reason="the Science data is not here")
def test_the_science_data_gives_the_published_figures() -> None:
    row = rows.reference(rows.read_science(DATA))
    assert row.holds, row.measured


@pytest.mark.parametrize("seed", range(5))  # as many as the specification asks for
def test_slopes_thresholds_and_quality_come_back(seed: int) -> None:
    row = rows.recovery([seed])
    assert row.holds, row.measured


def test_other_checks_of_the_benchmark() -> None:
    found = [rows.probabilities([0, 1]), rows.two_levels(3), rows.invariance(1), rows.gate(2), rows.gradient(4)]
    assert not [row for row in found if not row.holds]


def test_simulated_judges_land_in_their_cell() -> None:
    found = list(rows.cells([1]))
    assert len(found) == 3
    assert not [row for row in found if not row.holds]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.02, 60), min_size=1, max_size=3),
    st.lists(st.floats(1e-6, 5), min_size=1, max_size=6),
    st.floats(-10, 5),
)
def test_probabilities_are_a_distribution_and_slope_gives_information(
    slopes: list[float], gaps: list[float], low: float
) -> None:
    b = np.tile(low + np.cumsum([0.0, *gaps]), (len(slopes), 1))
    a, theta = np.array(slopes), np.linspace(-3, 3, 13)
    shares = np.exp(log_probs(a, b, theta))
    assert np.abs(shares.sum(axis=1) - 1).max() < 1e-9
    assert (shares >= 0).all()
    assert (information(a, b, theta) >= 0).all()


def test_information_is_that_of_the_probabilities() -> None:
    a, b, h = np.array([1.4]), np.array([[-1.0, 0.2, 1.1]]), 1e-5
    theta = np.linspace(-2, 2, 9)
    shares, slope = (
        np.exp(log_probs(a, b, theta)),
        np.exp(log_probs(a, b, theta + h)) - np.exp(log_probs(a, b, theta - h)),
    )
    expected = ((slope / (2 * h)) ** 2 / shares).sum(axis=1)[0]
    assert np.abs(information(a, b, theta)[:, 0] - expected).max() < 1e-8


def test_the_priors_gradient() -> None:
    free, steps = np.array([0.3, -1.0, -0.2, 0.4, -0.1, 0.5, 0.0, 0.1]), np.eye(8) * 1e-6
    rough = [(log_prior(free + e, 2)[0] - log_prior(free - e, 2)[0]) / 2e-6 for e in steps]
    assert np.abs(log_prior(free, 2)[1] - rough).max() < 1e-6


def test_posterior_agrees_with_sums_over_the_grid() -> None:
    _, scores = scores_of(60, [2.0, 1.0], 5)
    scores[3, 0] = np.nan
    model = GradedResponseModel(5).fit(scores)
    points = np.linspace(-6, 6, model.n_quad_)
    shares = model.category_probs(points)
    likely = np.exp(-(points**2) / 2) * shares[:, 1, int(scores[3, 1]) - 1]
    mean = (likely * points).sum() / likely.sum()
    theta, var = model.posterior(scores)
    assert theta[3] == pytest.approx(mean, abs=1e-10)
    assert var[3] == pytest.approx((likely * (points - mean) ** 2).sum() / likely.sum(), abs=1e-10)
    blank = model.posterior([[np.nan, np.nan]])
    assert blank[0][0] == pytest.approx(0, abs=1e-9)
    assert blank[1][0] == pytest.approx(1, abs=1e-3)


def test_a_saved_model_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    model = GradedResponseModel().fit(scores_of(80, [2.0, 1.0], 5)[1])
    model.save(tmp_path / "m.json")
    again = GradedResponseModel.load(tmp_path / "m.json")
    points = np.linspace(-3, 3, 50)
    assert (again.category_probs(points) == model.category_probs(points)).all()
    data = json.loads((tmp_path / "m.json").read_text())
    for change in ({"thresholds": [[1.0, 0.0]]}, {"discrimination": [-1.0, 2.0]}, {"format": "x"}, {"n_quad": 3}):
        (tmp_path / "bad.json").write_text(json.dumps({**data, **change}))
        with pytest.raises(ScoreError):
            GradedResponseModel.load(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ScoreError, match="no JSON"):
        GradedResponseModel.load(tmp_path / "bad.json")


def test_a_guttman_pattern_stays_finite_by_the_prior() -> None:
    scores = np.repeat(np.arange(1.0, 6.0), 12)[:, None] * np.ones((1, 3))
    model = GradedResponseModel().fit(scores)
    assert model.converged_
    assert model.discrimination_.max() < 20
    assert any("the same in every sample" in each for each in model.warnings_)
    theta, _ = model.posterior(scores)
    assert (np.diff(theta[::12]) > 0).all()


def test_a_finer_grid_changes_nothing() -> None:
    _, scores = scores_of(200, [2.5] * 3, 2)
    model = GradedResponseModel().fit(scores)
    data = Patterns.of(coded(scores).levels, 5)
    fine, _ = joint(model.discrimination_, model.thresholds_, data, Grid.of(2 * model.n_quad_ - 1, 6.0))
    assert abs(float(data.counts @ fine) - model.loglik_) <= 1e-3


BAD = {
    "not whole": (lambda y: _set(y, 4, 1, 2.5), "row 5 .*variant 2.*2.5 is not a whole"),
    "outside": (lambda y: _set(y, 2, 0, 0), "row 3 .*variant 1.*outside 1..5"),
    "one variant": (lambda y: y[:, :1], "at least 2 are needed"),
    "constant": (lambda y: _set(y, slice(None), 2, 3), "variant 3 gives the same score everywhere"),
    "other numbering": (lambda y: y + 10, "lowest score is 11"),
    "nothing": (lambda y: y * np.nan, "no score at all"),
    "a vector": (lambda y: y[:, 0], "a matrix"),
    "empty variant": (lambda y: _set(y, slice(None), 1, np.nan), "variant 2 has no score"),
    "infinite": (lambda y: _set(y, 0, 0, np.inf), "not a whole"),
}


def _set(scores: np.ndarray, row: object, column: int, value: float) -> np.ndarray:
    scores[row, column] = value
    return scores


@pytest.mark.parametrize("name", BAD)
def test_bad_scores_are_named(name: str) -> None:
    change, message = BAD[name]
    scores = change(scores_of(60, [2.0] * 3, 1)[1])
    with pytest.raises(ValueError, match=message) as caught:
        diagnose(scores)
    assert isinstance(caught.value, OpenSageError)


def test_bad_options_are_named() -> None:
    for options in ({"method": "em"}, {"n_quad": 30}, {"theta_max": 1.0}):
        with pytest.raises(ScoreError):
            GradedResponseModel(**options)  # type: ignore[arg-type]
    with pytest.raises(ScoreError, match="not fitted"):
        GradedResponseModel().information([0.0])
    with pytest.raises(ScoreError, match="ddof"):
        prompt_consistency(np.zeros(3), np.ones((3, 2)), ddof=2)


def test_what_is_allowed_is_said() -> None:
    _, scores = scores_of(25, [2.0] * 3, 3)
    scores[scores[:, 0] == 3, 0] = 2
    scores[4] = np.nan
    constant = np.hstack([scores, np.full((25, 1), 2.0)])
    found = diagnose(constant, n_categories=5, drop_constant=True)
    told = "\n".join(found.warnings)
    assert "too few samples: 24" in told
    assert "1 samples have no score at all" in told
    assert "variant 1 never gives" in told
    assert "variant 4 gives the same score everywhere and was dropped" in told
    assert found.theta.shape == (24,)
    assert (np.diff(found.model.thresholds_, axis=1) > 0).all()


def test_cv_is_the_within_level_variance_of_theta() -> None:
    theta = np.array([0.0, 2.0, 4.0, 8.0, 9.0])
    scores = np.array([[1, 1], [1, 1], [2, 1], [2, 2], [1, 2]], dtype=float)
    cv, means = prompt_consistency(theta, scores)
    first = np.mean([np.var([0, 2, 9]), np.var([4, 8])])
    second = np.mean([np.var([0, 2, 4]), np.var([8, 9])])
    assert means == pytest.approx([first, second])
    assert cv == pytest.approx(np.std([first, second]) / np.mean([first, second]))
    with pytest.raises(ScoreError, match="C_V is undefined"):
        prompt_consistency(np.arange(2.0), np.array([[1, 1], [2, 2]], dtype=float))


def test_usual_figures() -> None:
    x = np.array([[1, 2], [2, 3], [3, 4], [4, 5.0]])
    assert cronbach_alpha(x) == pytest.approx(1.0)
    assert spearman(x[:, 0], x[:, 1]) == pytest.approx(1.0)
    one, other = np.array([1, 1, 2, 2.0]), np.array([1, 2, 1, 2.0])
    assert weighted_kappa(one, other) == pytest.approx(0.0)
    assert weighted_kappa(one, one) == pytest.approx(1.0)
    theta, scores = scores_of(4000, [2.0] * 4, 1)
    found = classical(scores)
    assert found["omega"] == pytest.approx(found["alpha"], abs=0.01)  # equal loadings
    assert theta.shape == (4000,)


def test_bootstrap_resamples_samples() -> None:
    scores = np.column_stack([np.arange(40.0), np.arange(40.0)])
    found = bootstrap(
        lambda y: {"mean": float(y[:, 0].mean()), "gap": float(np.abs(y[:, 0] - y[:, 1]).max())}, scores, 200
    )
    assert found["gap"].high == 0  # rows stay whole
    assert found["mean"].low < 19.5 < found["mean"].high
    assert 5 < found["mean"].high - found["mean"].low < 9  # 1.96 * 2 * 11.5 / sqrt(40) = 7.2
    with pytest.raises(ScoreError, match="at least 20"):
        bootstrap(lambda y: {}, scores, 3)


def test_convergence_figures_of_draws() -> None:
    rng = np.random.default_rng(0)
    free = rng.normal(size=(4, 500))
    assert split_r_hat(free) < 1.01
    assert 1500 < effective_size(free) < 2600
    walk = np.cumsum(free, axis=1)
    assert split_r_hat(walk) > 1.05
    assert effective_size(walk) < 60


def test_draws_agree_with_the_maximum() -> None:
    _, scores = scores_of(300, [1.5, 2.0], 3, (-0.5, 0.7))
    draws = GradedResponseModel(method="bayes").fit(scores)
    peak = GradedResponseModel().fit(scores)
    assert draws.converged_, draws.warnings_
    assert np.abs(draws.thresholds_ - peak.thresholds_).max() < 0.15
    assert np.abs(draws.discrimination_ - peak.discrimination_).max() < 0.3


def test_too_few_draws_give_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bayes, "KEPT", 40)
    found = diagnose(scores_of(120, [1.5, 2.0], 3, (-0.5, 0.7))[1], method="bayes")
    assert found.verdict == "not_converged"
    assert not found.model.converged_
    assert any("least effective size" in text for text in found.warnings)
