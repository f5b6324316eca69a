"""Ways to keep a bounded past side by side: `python -m opensage_toolkits.arm.bench`.

Prints one JSON object; a table and progress on standard error. `--quick` takes about two minutes; the full form trains
eighty models for four times as many steps. `--plot FILE` draws accuracy by method and task.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TRAINED = ("full", "arm", "window", "sinks", "linear", "delta")
METHODS = (*TRAINED, "h2o", "tova", "random", "merge")
TASKS = ("mqar", "needle", "copy", "selective_copy")
DECODED = (1_000, 100_000)
PICTURES = (".png", ".svg", ".pdf")


def recall(quick: bool, seeds: Sequence[int]) -> list[dict[str, Any]]:
    """Accuracy of each method on each task at the numbers of the routed memory."""
    from .trials import Trial, tried

    steps, names = (250, ("mqar",)) if quick else (1000, TASKS)
    rows = []
    for task in names:
        length = 176 if task == "needle" else 64  # eleven times the slots
        for method in METHODS:
            for seed in seeds:
                row = tried(Trial(method, task, steps=steps, length=length, seed=seed))
                rows.append(row)
                print(f"{task:15} {method:8} {row['accuracy']:.3f}  {row['cpu_seconds']} s of CPU", file=sys.stderr)
    return rows


def ablation(quick: bool) -> list[dict[str, Any]]:
    """Routed memory with a full overwrite, and without the load-balance loss."""
    from .trials import Trial, tried

    steps = 250 if quick else 1000
    kinds: list[dict[str, Any]] = [{"gate": "overwrite"}, {"balance": 0.0}]
    return [tried(Trial("arm", "mqar", steps=steps, **kind)) for kind in kinds]


def prices(quick: bool) -> list[dict[str, Any]]:
    """A policy for several prices of reading, on one pair and on eight."""
    from .prices import priced
    from .trials import Trial

    steps, several = (250, (0.0, 1.0)) if quick else (1000, (0.0, 0.03, 0.1, 0.3, 1.0))
    return priced(Trial("arm", "mqar", steps=steps), several, 60 if quick else 300)


def decoding() -> dict[str, Any]:
    """CPU time of a decoded token and bytes of the state, after few tokens and after many, beside full attention."""
    import torch

    from .attention import ARMAttention
    from .config import ARMConfig

    torch.manual_seed(0)
    layer = ARMAttention(ARMConfig(64, 2, 2, 32, depth=3)).eval()
    found: dict[str, Any] = {}
    for length in DECODED:
        with torch.no_grad():
            state = None
            for _ in range(length // 1000):
                state = layer(torch.randn(1, 1000, 64), state)[1]
            assert state is not None
            x, keys = torch.randn(1, 64), torch.randn(1, 2, length, 32)
            found[str(length)] = {
                "arm_us": _per_call(lambda x=x, state=state: layer.step(x, state)),
                "full_us": _per_call(lambda keys=keys: (torch.randn(1, 2, 1, 32) @ keys.mT).softmax(-1) @ keys),
                "state_bytes": state.nbytes,
            }
    first, last = (found[str(length)] for length in DECODED)
    return {**found, "arm_ratio": round(last["arm_us"] / first["arm_us"], 2),
            "full_ratio": round(last["full_us"] / first["full_us"], 2)}  # fmt: skip


def _per_call(work: Any, times: int = 50) -> float:
    """Microseconds of CPU time of one call, the median of five runs."""
    runs = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(times):
            work()
        runs.append((time.process_time() - begun) / times * 1e6)
    return round(sorted(runs)[2], 1)


def plotted(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Bars of accuracy, a group for each task."""
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(row["task"] for row in rows))
    figure = Figure(figsize=(3 + 3 * len(names), 4), layout="constrained")
    axis = figure.subplots()
    for index, method in enumerate(METHODS):
        means = [_mean(rows, task, method) for task in names]
        at = [place + (index - len(METHODS) / 2) * 0.8 / len(METHODS) for place in range(len(names))]
        axis.bar(at, means, 0.75 / len(METHODS), label=method)
    axis.axhline(1 / 16, color="black", linewidth=0.8, linestyle=":", label="chance")
    axis.set_xticks(range(len(names)), names)
    axis.set_ylabel("answered")
    axis.set_ylim(0, 1.02)
    axis.legend(ncols=2, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(path, dpi=120)


def _mean(rows: Sequence[dict[str, Any]], task: str, method: str) -> float:
    found = [row["accuracy"] for row in rows if (row["task"], row["method"]) == (task, method)]
    return sum(found) / len(found) if found else 0.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run and print one JSON object; returns 0."""
    parser = argparse.ArgumentParser(prog="arm.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one task, one seed, few steps: about two minutes")
    parser.add_argument("--plot", type=Path, help="draw accuracy: .png, .svg or .pdf")
    wish = parser.parse_args(argv)
    if wish.plot is not None and wish.plot.suffix not in PICTURES:
        parser.error(f"--plot {wish.plot}: the name of a picture ends in {', '.join(PICTURES)}")
    import torch

    begun, rows = time.process_time(), recall(wish.quick, (0,) if wish.quick else (0, 1))
    report = {
        "torch": torch.__version__, "threads": torch.get_num_threads(), "quick": wish.quick, "recall": rows,
        "ablation": ablation(wish.quick), "prices": prices(wish.quick),
        "decoding": decoding(),
    }  # fmt: skip
    print(json.dumps({**report, "cpu_seconds": round(time.process_time() - begun, 1)}, indent=1), flush=True)
    if wish.plot is not None:
        plotted(rows, wish.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
