"""One process that fits the same scores with us and with the pip packages girth and mirt; JSON on stdout.

Runs in an environment that has the peers: `python -m opensage_benchmarks.judge_irt --peer ENV/bin/python`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np


def main() -> None:
    """Read `{"scores": [[...]]}` on stdin; times are CPU seconds, each fit once warm for us, once for the peers."""
    scores = np.array(json.load(sys.stdin)["scores"], dtype=int)
    print(json.dumps({name: fit(scores) for name, fit in (("ours", _ours), ("girth", _girth), ("mirt", _mirt))}))


def _ours(scores: Any) -> dict[str, Any]:
    from opensage_agents.judge_irt import GradedResponseModel

    GradedResponseModel(method="mml").fit(scores)
    start = time.process_time()
    model = GradedResponseModel(method="mml").fit(scores)
    return {"seconds": time.process_time() - start, "loglik": model.loglik_, "a": model.discrimination_.tolist()}


def _girth(scores: Any) -> dict[str, Any]:
    from girth import grm_mml

    start = time.process_time()
    found = grm_mml(scores.T)
    seconds = time.process_time() - start
    return {"seconds": seconds, "a": np.asarray(found["Discrimination"]).tolist(),
            "loglik": _loglik(scores, found["Discrimination"], found["Difficulty"])}  # fmt: skip


def _mirt(scores: Any) -> dict[str, Any]:
    from mirt import fit_mirt

    start = time.process_time()
    found = fit_mirt(scores - 1, model="GRM")
    seconds = time.process_time() - start
    return {"seconds": seconds, "loglik": float(found.log_likelihood)}


def _loglik(scores: Any, a: Any, b: Any) -> float:
    """Of a peer's parameters, on our grid."""
    from opensage_agents.judge_irt.curves import Grid, Patterns, joint

    data = Patterns.of(scores, int(scores.max()))
    logs, _ = joint(np.asarray(a, dtype=float), np.asarray(b, dtype=float), data, Grid.of(241, 6.0))
    return float(data.counts @ logs)


if __name__ == "__main__":
    main()
