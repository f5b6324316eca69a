"""`GradedResponseModel`: fit, posterior, curves, a file of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from opensage.files import read_text, write_whole
from opensage_agents.jsonable import plain
from opensage_agents.judge_irt import curves
from opensage_agents.judge_irt.curves import Grid, Patterns
from opensage_agents.judge_irt.fitting import Fit, maximise
from opensage_agents.judge_irt.scores import MOST_LEVELS, Coded, Floats, ScoreError, coded

Method = Literal["map", "mml", "bayes"]
LEAST_POINTS = 61
GRID_ERROR = 1e-3  # of the log-likelihood, when the grid is made twice as fine
FORMAT = "opensage-grm/1"
_MOST_POINTS = 1000


class GradedResponseModel:
    """Samejima's graded response model with a standard normal trait.

    "Items" are the prompt variants of one judge, "persons" the samples that it judges.

    Args:
        n_categories: levels K of the scale; without it the largest score seen.
        method: "map" (priors a ~ LogNormal(0, 0.5), b ~ N(0, 1), ordered), "mml" (no priors), or "bayes" (posterior
            means over draws of Hamiltonian Monte Carlo, with R-hat and effective sample sizes).
        n_quad: points of the grid for the trait, at least 61; a fit doubles it while that changes the likelihood.
        theta_max: the grid is on [-theta_max, theta_max].
        seed: of the draws; "map" and "mml" draw nothing.

    Attributes (after `fit`):
        discrimination_: (P,) slopes. thresholds_: (P, K-1), strictly increasing. loglik_: marginal, without priors.
        converged_, n_iter_, n_quad_, variants_, n_categories_, warnings_, merged_ (levels never given, by variant).
        draws_: of "bayes", else None.

    Source: Samejima (1969); the judge's reading arXiv 2602.00521. MAP and MML stand for its NUTS: reconstruction.
    """

    def __init__(
        self,
        n_categories: int | None = None,
        method: Method = "map",
        n_quad: int = LEAST_POINTS,
        theta_max: float = 6.0,
        seed: int = 0,
    ) -> None:
        if method not in get_args(Method):
            raise ScoreError(f"method {method!r}: it is one of {', '.join(get_args(Method))}")
        if not LEAST_POINTS <= n_quad <= _MOST_POINTS:
            raise ScoreError(f"n_quad is {n_quad}: the grid has {LEAST_POINTS} to {_MOST_POINTS} points")
        if not 4.0 <= theta_max <= 20.0:
            raise ScoreError(f"theta_max is {theta_max:g}: 4 to 20 standard deviations are sensible")
        self.n_categories, self.method, self.n_quad, self.theta_max = n_categories, method, n_quad, theta_max
        self.seed = seed
        self.draws_: Any = None
        self.converged_, self.loglik_ = False, float("nan")
        self.warnings_: list[str] = []
        self.discrimination_: Floats = np.zeros(0)
        self.thresholds_: Floats = np.zeros((0, 0))

    def fit(self, scores: ArrayLike | Coded) -> GradedResponseModel:
        """Estimate slopes and thresholds.

        Args:
            scores: (J, P) whole numbers 1..K, NaN where missing (taken as missing at random).

        Raises:
            ScoreError: the scores cannot be used; it is a ValueError too.
        """
        data = scores if isinstance(scores, Coded) else coded(scores, self.n_categories)
        grid, fit, off = self._refined(data)
        self._keep(data, fit, grid)
        self.warnings_ = data.warnings + _doubts(fit, data, off)
        if self.method == "bayes":
            from opensage_agents.judge_irt.bayes import sample

            self.draws_ = sample(data, grid, fit, seed=self.seed)
            self.discrimination_, self.thresholds_ = self.draws_.means
            self.loglik_ = self._loglik(data, grid)
            self.converged_ = self.converged_ and self.draws_.converged
            self.warnings_ += self.draws_.warnings
        return self

    def fit_near(self, scores: ArrayLike, slopes: Floats, thresholds: Floats) -> GradedResponseModel:
        """A quick estimate from where it must lie: one climb on the grid as it is, to a gradient of 1e-6.

        Args:
            scores: as for `fit`; every method but "mml" has the priors.
            slopes: (P,) where the climb begins.
            thresholds: (P, K - 1), likewise.

        Raises:
            ScoreError: the scores cannot be used.
        """
        data, grid = coded(scores, self.n_categories, least=2), Grid.of(self.n_quad, self.theta_max)
        self._keep(data, maximise(data, grid, self.method != "mml", curves.packed(slopes, thresholds), 1e-6), grid)
        return self

    def _refined(self, data: Coded) -> tuple[Grid, Fit, float]:
        """A fit on a grid that is fine enough for it, and what doubling it would still change."""
        n, start = self.n_quad, None
        while True:
            grid = Grid.of(n, self.theta_max)
            fit = maximise(data, grid, self.method != "mml", start)
            finer = Grid.of(2 * n - 1, self.theta_max)
            logs, _ = curves.joint(fit.a, fit.b, patterns := Patterns.of(data.levels, data.k), finer)
            off = abs(float(patterns.counts @ logs) - fit.loglik)
            if off <= GRID_ERROR or 2 * n - 1 > _MOST_POINTS:
                return grid, fit, off
            n, start = 2 * n - 1, fit.free

    def _keep(self, data: Coded, fit: Fit, grid: Grid) -> None:
        self.discrimination_, self.thresholds_ = fit.a, fit.b
        self.loglik_, self.converged_, self.n_iter_ = fit.loglik, fit.converged, fit.iterations
        self.n_categories_, self.variants_, self.n_quad_ = data.k, data.variants, len(grid.points)
        self.merged_ = data.unused()

    def _loglik(self, data: Coded, grid: Grid) -> float:
        patterns = Patterns.of(data.levels, data.k)
        return float(patterns.counts @ curves.joint(self.discrimination_, self.thresholds_, patterns, grid)[0])

    def _fitted(self) -> None:
        if not self.discrimination_.size:
            raise ScoreError("the model is not fitted: call fit(scores) or load(path) first")

    def posterior(self, scores: ArrayLike | Coded) -> tuple[Floats, Floats]:
        """Mean (EAP) and variance of the trait of each sample, (J,) each; without any score that of the prior.

        Raises:
            ScoreError: the scores do not fit the model.
        """
        self._fitted()
        levels = scores.levels if isinstance(scores, Coded) else self._levels(scores)
        patterns = Patterns.of(levels, self.n_categories_)
        grid = Grid.of(self.n_quad_, self.theta_max)
        _, share = curves.joint(self.discrimination_, self.thresholds_, patterns, grid)
        mean = share @ grid.points
        variance = (share * (grid.points - mean[:, None]) ** 2).sum(axis=1)
        return mean[patterns.inverse], variance[patterns.inverse]

    def _levels(self, scores: ArrayLike) -> Any:
        matrix = np.asarray(scores, dtype=float)
        if matrix.ndim != 2 or matrix.shape[1] != len(self.variants_):
            raise ScoreError(f"scores have shape {matrix.shape}: {len(self.variants_)} variants were fitted")
        with np.errstate(invalid="ignore"):
            bad = ~np.isnan(matrix) & ~((matrix >= 1) & (matrix <= self.n_categories_) & (matrix == np.floor(matrix)))
        if bad.any():
            j, p = np.argwhere(bad)[0]
            raise ScoreError(f"row {j + 1}, variant {self.variants_[p]}: {matrix[j, p]:g} is no level of the model")
        return np.where(np.isnan(matrix), 0, matrix).astype(np.int64)

    def category_probs(self, theta: ArrayLike) -> Floats:
        """P(Y = k | theta), (n, P, K)."""
        self._fitted()
        return curves.probs(self.discrimination_, self.thresholds_, np.atleast_1d(np.asarray(theta, dtype=float)))

    def information(self, theta: ArrayLike) -> Floats:
        """Fisher information of each variant, (n, P)."""
        self._fitted()
        points = np.atleast_1d(np.asarray(theta, dtype=float))
        return curves.information(self.discrimination_, self.thresholds_, points)

    def as_dict(self) -> dict[str, Any]:
        """The fitted model as JSON data."""
        self._fitted()
        return {
            "format": FORMAT, "method": self.method, "n_categories": self.n_categories_, "seed": self.seed,
            "variants": list(self.variants_), "discrimination": plain(self.discrimination_),
            "thresholds": plain(self.thresholds_), "loglik": self.loglik_, "converged": self.converged_,
            "n_iter": self.n_iter_, "n_quad": self.n_quad_, "theta_max": self.theta_max, "unused": self.merged_,
        }  # fmt: skip

    def save(self, path: str | Path) -> None:
        """Write the fitted model as JSON.

        Raises:
            ScoreError: it is not fitted, or the file cannot be written.
        """
        write_whole(Path(path), json.dumps(self.as_dict(), indent=1) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> GradedResponseModel:
        """A model that `save` wrote: the same to the last bit.

        Raises:
            ScoreError: the file cannot be read or holds no such model.
        """
        return cls.from_dict(read_json(Path(path)), str(path))

    @classmethod
    def from_dict(cls, data: Any, where: str = "the model") -> GradedResponseModel:
        """The inverse of `as_dict`.

        Raises:
            ScoreError: the data is no model.
        """
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise ScoreError(f"{where} holds no model of the format {FORMAT}: write one with save()")
        try:
            model = cls(int(data["n_categories"]), data["method"], int(data["n_quad"]), float(data["theta_max"]))
            model.discrimination_ = np.asarray(data["discrimination"], dtype=float)
            model.thresholds_ = np.asarray(data["thresholds"], dtype=float)
            model.variants_ = tuple(str(name) for name in data["variants"])
            model.loglik_, model.converged_ = float(data["loglik"]), bool(data["converged"])
            model.n_iter_, model.seed = int(data["n_iter"]), int(data["seed"])
            model.merged_ = [[int(k) for k in each] for each in data["unused"]]
        except (KeyError, TypeError, ValueError) as error:
            raise ScoreError(f"{where} is damaged ({error}): fit again and save()") from error
        model.n_categories_, model.n_quad_, model.warnings_ = int(data["n_categories"]), int(data["n_quad"]), []
        _check_shape(model, where)
        return model


def _check_shape(model: GradedResponseModel, where: str) -> None:
    a, b, p, k = model.discrimination_, model.thresholds_, len(model.variants_), model.n_categories_
    if not 2 <= k <= MOST_LEVELS or a.shape != (p,) or b.shape != (p, k - 1) or not p:
        raise ScoreError(f"{where} is damaged: its slopes, thresholds, variants and levels do not fit together")
    if not (np.isfinite(a).all() and np.isfinite(b).all() and (a > 0).all() and (np.diff(b, axis=1) > 0).all()):
        raise ScoreError(f"{where} is damaged: slopes must be positive and thresholds increase")


def _doubts(fit: Fit, data: Coded, off: float) -> list[str]:
    found = [] if fit.converged else ["the fit has not converged: its figures mean nothing yet"]
    if fit.other > 1e-2:
        found.append(f"another start ended {fit.other:.3f} lower: the likelihood has more than one maximum")
    if off > GRID_ERROR:
        found.append(f"the grid is too coarse for slopes this steep: the log-likelihood is off by {off:.2g}")
    for name, a in zip(data.variants, fit.a, strict=True):
        if a >= 99 or a <= 0.0101:
            found.append(f"variant {name}: the slope is at its bound ({a:.3g}); method map keeps it finite")
    return found


def read_json(path: Path, most: int = 1 << 28) -> Any:
    """JSON data of a file; `ScoreError` when it cannot be read or is none."""
    try:
        return json.loads(read_text(path, most))
    except (json.JSONDecodeError, RecursionError) as error:
        raise ScoreError(f"{path} is no JSON: {error}") from error
