"""One process that fits the same scores with us and with the pip packages girth and mirt; JSON on stdout.

Runs in an environment that has the peers: `python -m opensage_benchmarks.judge_irt --peer ENV/bin/python`. Where
py-irt is installed too, it fits the scores cut in two: it has no graded model.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def main() -> None:
    """Read `{"scores": [[...]]}` on stdin; times are CPU seconds: the first fit, and the second one."""
    scores = np.array(json.load(sys.stdin)["scores"], dtype=int)
    found = {name: fit(scores) for name, fit in (("ours", _ours), ("girth", _girth), ("mirt", _mirt))}
    if importlib.util.find_spec("py_irt"):
        halves = 1 + (scores > (1 + scores.max()) // 2)
        found |= {"ours, two levels": _ours(halves), "py-irt": _py_irt(halves)}
    print(json.dumps(found))


def _warm(fit: Callable[[], Any]) -> tuple[float, float, Any]:
    """CPU seconds of the first fit, which may compile, of the second, and what it gives."""
    spent = []
    for _ in range(2):
        start = time.process_time()
        found = fit()
        spent.append(time.process_time() - start)
    return spent[0], spent[1], found


def _ours(scores: Any) -> dict[str, Any]:
    from opensage_agents.judge_irt import GradedResponseModel

    first, seconds, model = _warm(lambda: GradedResponseModel(method="mml").fit(scores))
    return {"first": first, "seconds": seconds, "loglik": model.loglik_, "a": model.discrimination_.tolist()}


def _girth(scores: Any) -> dict[str, Any]:
    from girth import grm_mml

    first, seconds, found = _warm(lambda: grm_mml(scores.T))
    return {"first": first, "seconds": seconds, "a": np.asarray(found["Discrimination"]).tolist(),
            "loglik": _loglik(scores, found["Discrimination"], found["Difficulty"])}  # fmt: skip


def _mirt(scores: Any) -> dict[str, Any]:
    from mirt import fit_mirt

    first, seconds, found = _warm(lambda: fit_mirt(scores - 1, model="GRM"))
    return {"first": first, "seconds": seconds, "loglik": float(found.log_likelihood)}


def _py_irt(scores: Any) -> dict[str, Any]:
    """The two-parameter model by variational inference with the defaults of the package, hierarchical priors.

    It leaves mean and spread of the ability free; the likelihood is taken where they suit it best.
    """
    import pandas
    from py_irt.config import IrtConfig
    from py_irt.dataset import Dataset
    from py_irt.training import IrtModelTrainer
    from scipy.optimize import minimize

    names = [f"item {p}" for p in range(scores.shape[1])]
    data = Dataset.from_pandas(pandas.DataFrame(scores - 1, columns=names), item_columns=names)
    config = IrtConfig(model_type="2pl", priors="hierarchical", seed=0, deterministic=True)
    with contextlib.redirect_stdout(sys.stderr):
        trainer = IrtModelTrainer(config=config, data_path=None, dataset=data)
        start = time.process_time()
        trainer.train(device="cpu")
        seconds = time.process_time() - start
    found = trainer.best_params
    places = [int(found["item_ids"][place].removeprefix("item ")) for place in range(len(names))]
    a, b = (np.asarray(found[name])[np.argsort(places)] for name in ("disc", "diff"))

    def fall(free: Any) -> float:
        spread = np.exp(free[1])
        return -_loglik(scores, a * spread, ((b - free[0]) / spread)[:, None])

    best = minimize(fall, [0.0, 0.0], method="Nelder-Mead")
    spread = float(np.exp(best.x[1]))
    return {"seconds": seconds, "loglik": -float(best.fun), "a": (a * spread).tolist()}


def _loglik(scores: Any, a: Any, b: Any) -> float:
    """Of a peer's parameters, on our grid."""
    from opensage_agents.judge_irt.curves import Grid, Patterns, joint

    data = Patterns.of(scores, int(scores.max()))
    logs, _ = joint(np.asarray(a, dtype=float), np.asarray(b, dtype=float), data, Grid.of(241, 6.0))
    return float(data.counts @ logs)


if __name__ == "__main__":
    main()
