"""How large C_V gets by chance: the same diagnosis of made judges for whom wording does not matter at all."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from opensage_agents.judge_irt.consistency import Diagnosis, prompt_consistency
from opensage_agents.judge_irt.curves import probs
from opensage_agents.judge_irt.model import GradedResponseModel, Method
from opensage_agents.judge_irt.scores import Floats, Ints, ScoreError

LEVEL = 0.95
LEAST = 20


@dataclass(frozen=True, slots=True)
class Chance:
    """C_V of ideal judges.

    Attributes:
        cv: 95 % of them are below that; NaN when fewer than half could be diagnosed.
        passing: share of them whose C_V is within the bound; NaN as above.
        n: judges that were made.
        failed: of them, those whose scores could not be used; left out.
    """

    cv: float
    passing: float
    n: int
    failed: int

    def told(self, found: Diagnosis) -> list[str]:
        """What a reader of a C_V must know."""
        samples = len(found.data.ids)
        if np.isnan(self.cv):
            return [f"{self.failed} of {self.n} ideal judges could not be diagnosed: score more samples to read C_V"]
        lines = [
            f"C_V {found.cv:.3f}: of {self.n} ideal judges with {samples} samples, {LEVEL:.0%} have less than "
            f"{self.cv:.3f}, and {self.passing:.0%} are within {found.cv_max:g}"
        ]
        if found.verdict in ("prompt_sensitive", "both") and found.cv <= self.cv:
            lines.append(f"C_V is no larger than chance makes it with {samples} samples: score more to tell")
        return lines


def chance_of(found: Diagnosis, n: int = 40, seed: int = 0, step: Callable[[], None] = lambda: None) -> Chance:
    """Draw ideal judges like this one and diagnose them (ours, not of the paper).

    Each has the mean slope (geometric) and the mean thresholds of the wordings in all of them; qualities are drawn from
    the model's standard normal, and scores are missing where they are missing here.

    Args:
        found: a diagnosis; the model of "bayes" is followed by fits of "map".
        n: judges, at least 20.
        seed: of the drawing.
        step: called after each judge.

    Raises:
        ScoreError: n is below 20.
    """
    if n < LEAST:
        raise ScoreError(f"n is {n}: take at least {LEAST} ideal judges")
    rng, values, model = np.random.default_rng(seed), list[float](), found.model
    a = np.full_like(model.discrimination_, np.exp(np.log(model.discrimination_).mean()))
    b = np.tile(model.thresholds_.mean(axis=0), (len(a), 1))
    for _ in range(n):
        with contextlib.suppress(ScoreError):
            values.append(_cv_of(_scores(a, b, found.data.levels, rng), a, b, found.model))
        step()
    values = [value for value in values if np.isfinite(value)]
    if 2 * len(values) < n:
        return Chance(float("nan"), float("nan"), n, n - len(values))
    passing = float(np.mean(np.array(values) <= found.cv_max))
    return Chance(float(np.quantile(values, LEVEL)), passing, n, n - len(values))


def _scores(a: Floats, b: Floats, levels: Ints, rng: np.random.Generator) -> Floats:
    """Scores (J, P) of a judge, missing where these are missing."""
    theta = rng.normal(size=len(levels))
    share = probs(a, b, theta)  # (J, P, K)
    drawn = (rng.random((*levels.shape, 1)) > share.cumsum(axis=2)[:, :, :-1]).sum(axis=2)
    return np.where(levels > 0, 1.0 + drawn, np.nan)


def _cv_of(scores: Floats, a: Floats, b: Floats, like: GradedResponseModel) -> float:
    method: Method = "map" if like.method == "bayes" else like.method
    model = GradedResponseModel(like.n_categories_, method, like.n_quad_).fit_near(scores, a, b)
    return prompt_consistency(model.posterior(scores)[0], scores)[0]
