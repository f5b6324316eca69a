"""What a run came to, from its records alone."""

from __future__ import annotations

import dataclasses
import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.run.folder import read_outcomes


@dataclass(frozen=True, slots=True)
class Summary:
    """Numbers of a run. Times are seconds, money US dollars.

    Attributes:
        limits_hit: tasks that a limit ended: when there are many, the results speak of the limits.
        statuses, classes: how many tasks of each.
        resolved: of `graded` tasks; None when nothing was graded.
        cost: what is known of it; `unknown_price` tells how many tasks had calls without a price.
        median: of one task: wall_s, cpu_s, model_calls, tokens.
        not_started: ids that have no outcome.
        budget: the total cap that ended the run, or "".
    """

    tasks: int
    finished: int
    limits_hit: int
    statuses: Mapping[str, int]
    classes: Mapping[str, int]
    patches: int
    graded: int
    resolved: int | None
    model_calls: int
    tool_calls: int
    input_tokens: int
    output_tokens: int
    cost: float
    unknown_price: int
    wall_s: float
    cpu_s: float
    median: Mapping[str, float]
    infra_ids: Sequence[str] = ()
    not_started: Sequence[str] = ()
    budget: str = ""
    interrupted: bool = False

    def ended(self, **how: Any) -> Summary:
        """The same with how the run ended."""
        return dataclasses.replace(self, **how)

    @property
    def exit_code(self) -> int:
        """0 finished, 1 with errors of the machine, 3 budget spent, 130 interrupted."""
        if self.interrupted:
            return 130
        if self.budget:
            return 3
        return 1 if self.classes.get("infra") else 0

    def to_dict(self) -> dict[str, Any]:
        """As it stands in summary.json."""
        return dataclasses.asdict(self)


def summarise(out: Path, ids: Collection[str] | None = None) -> Summary:
    """Sum up an output folder, or some of its tasks.

    Raises:
        BenchError: it holds no run.
    """
    outcomes = read_outcomes(out)
    wanted = outcomes.keys() if ids is None else ids
    records = [outcomes[id] for id in wanted if id in outcomes]
    graded = [record for record in records if record.get("resolved") is not None]
    starts = [record["started"] for record in records]
    ends = [record["started"] + record["wall_s"] for record in records]
    return Summary(
        tasks=len(wanted),
        finished=len(records),
        limits_hit=sum(record["status"] == "limit" for record in records),
        statuses=dict(Counter(str(record["status"]) for record in records)),
        classes=dict(Counter(str(record["class"]) for record in records)),
        patches=sum(record["patch_bytes"] > 0 for record in records),
        graded=len(graded),
        resolved=sum(bool(record["resolved"]) for record in graded) if graded else None,
        **{name: sum(record[name] for record in records) for name in _SUMMED},
        cost=round(sum(record["cost"] or 0.0 for record in records), 9),
        unknown_price=sum(record["cost"] is None for record in records),
        wall_s=round(max(ends) - min(starts), 3) if records else 0.0,
        cpu_s=round(sum(record["cpu_s"] for record in records), 3),
        median=_medians(records),
        infra_ids=tuple(record["id"] for record in records if record["class"] == "infra"),
    )


_SUMMED = ("model_calls", "tool_calls", "input_tokens", "output_tokens")


def _medians(records: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    if not records:
        return {}
    found = {name: [float(record[name]) for record in records] for name in ("wall_s", "cpu_s", "model_calls")}
    found["tokens"] = [float(record["input_tokens"] + record["output_tokens"]) for record in records]
    return {name: round(statistics.median(values), 3) for name, values in found.items()}
