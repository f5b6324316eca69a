"""Runs of a world: arms on the same seeds, summed up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from opensage_agents.selfplay import world_t1, world_t2
from opensage_agents.selfplay.arms import ARMS as T2_ARMS
from opensage_agents.selfplay.errors import BadValue
from opensage_agents.selfplay.metrics import History, collapse_report, means

WORLDS: dict[str, Callable[..., Any]] = {
    "t1": world_t1.T1,
    "t1-kind": lambda **changes: replace(world_t1.KINDER, **changes),
    "t2": world_t2.T2,
}
"""t1-kind is a t1 in which nothing collapses, so that not only the world that was chosen is looked at."""


def arms_of(world: str) -> tuple[str, ...]:
    """Rewards that a world knows.

    Raises:
        BadValue: no such world.
    """
    if world not in WORLDS:
        raise BadValue(f"{world!r} is no world: there are {', '.join(WORLDS)}")
    return tuple(T2_ARMS) if world == "t2" else world_t1.ARMS


def simulate(
    world: str, arms: Sequence[str], seeds: Sequence[int], on_run: Callable[[str, int], None] = lambda *_run: None,
    **changes: Any,
) -> dict[str, list[History]]:  # fmt: skip
    """Run each arm with each seed; `changes` are constants of the world.

    Raises:
        BadValue: no such world or reward, or a constant is out of bounds.
    """
    known = arms_of(world)
    unknown = [arm for arm in arms if arm not in known]
    if unknown:
        raise BadValue(f"{', '.join(unknown)}: no reward of world {world}; there are {', '.join(known)}")
    constants = WORLDS[world](**changes)
    run: Callable[..., History] = world_t2.simulate if world == "t2" else world_t1.simulate
    found: dict[str, list[History]] = {arm: [] for arm in arms}
    for seed in seeds:
        for arm in arms:
            found[arm].append(run(arm, seed, constants))
            on_run(arm, seed)
    return found


def summed(runs: Mapping[str, Sequence[History]]) -> dict[str, dict[str, Any]]:
    """Of each arm: means over seeds of the collapse report, the curve of scores, and each seed's final score."""
    found = {}
    for arm, histories in runs.items():
        reports = [collapse_report(history) for history in histories]
        names = [name for name, value in reports[0].items() if isinstance(value, int | float)]
        figures = {name: float(means([each[name] for each in reports if name in each])) for name in names}
        found[arm] = {
            **figures, "overlap": means([each["overlap"] for each in reports]).tolist(),
            "scores": np.mean([each.scores for each in histories], axis=0).tolist(),
            "finals": [each["final"] for each in reports],
        }  # fmt: skip
    return found
