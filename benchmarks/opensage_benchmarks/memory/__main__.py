"""`python -m opensage_benchmarks.memory`: a table on stderr, one JSON object on stdout."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from opensage_benchmarks.memory import crash, engine, locomo, longmemeval, peers, retrieval
from opensage_benchmarks.memory.dialogue import Conversation

COLUMNS = ("recall@5", "recall@10", "recall@20", "mrr")
EMBEDDERS = ("none", "minilm", "hashed")


def main(argv: Sequence[str] | None = None) -> int:
    """Run what is asked for; returns the exit code."""
    chosen = _arguments(argv)
    result: dict[str, Any] = {"python": platform.python_version(), "sqlite": sqlite3.sqlite_version}
    result |= {"cpus": os.cpu_count(), "threads": os.environ.get("OMP_NUM_THREADS", "unset")}
    with tempfile.TemporaryDirectory() as folder:
        if chosen.locomo or chosen.longmemeval:
            try:
                found = locomo.load(chosen.locomo) if chosen.locomo else list(longmemeval.load(chosen.longmemeval))
            except ValueError as error:
                print(f"opensage_benchmarks.memory: {error}", file=sys.stderr)
                return 2
            result["retrieval"] = evaluate(found, chosen.embedder, chosen.peer, Path(folder))
        if chosen.nodes:
            result["engine"] = [engine.measure(nodes, Path(folder)) for nodes in chosen.nodes]
        if chosen.kills:
            result["crash"] = crash.measure(Path(folder), chosen.seconds, chosen.kills)
    tables(result)
    print(json.dumps(result))
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m opensage_benchmarks.memory", description=__doc__)
    data = os.environ.get("OPENSAGE_DATA", "../shared/data")
    default = Path(data) / "locomo" / "locomo5.json"
    parser.add_argument(
        "--locomo", type=Path, default=default if default.is_file() else None, help="LoCoMo's JSON file"
    )
    parser.add_argument("--longmemeval", type=Path, help="LongMemEval's JSON file, instead of LoCoMo")
    parser.add_argument("--embedder", action="append", choices=EMBEDDERS, help="also with this one (several times)")
    parser.add_argument(
        "--peer", action="append", choices=[*peers.PEERS, "none"], help="only this peer (several times)"
    )
    parser.add_argument("--nodes", type=int, action="append", help="store throughput at this size (several times)")
    parser.add_argument("--kills", type=int, default=0, help="writers killed in the middle, after many at once")
    parser.add_argument("--seconds", type=float, default=10.0, help="for how long three write and two read at once")
    chosen = parser.parse_args(argv)
    if chosen.longmemeval:
        chosen.locomo = None
    chosen.embedder = chosen.embedder or ["none"]
    if not (chosen.locomo or chosen.longmemeval or chosen.nodes or chosen.kills):
        parser.error("name a data file with --locomo or --longmemeval (or set OPENSAGE_DATA), or a size with --nodes")
    return chosen


def evaluate(
    conversations: list[Conversation], embedders: Sequence[str], wanted: Sequence[str] | None, folder: Path
) -> dict[str, Any]:
    """Each way to rank, over all conversations, those that the weights were tuned on, and the others."""
    from opensage_memory.embed import open_embedder

    ways: dict[str, Callable[[Conversation], dict[str, Any]]] = {}
    for name in embedders:
        embedder = open_embedder(name)

        def through_memory(conversation: Conversation, name: str = name, embedder: Any = embedder) -> dict[str, Any]:
            memory = retrieval.store(conversation, folder / f"{name}-{conversation.name}.db", embedder)
            try:
                return retrieval.evaluate(conversation, memory)
            finally:
                memory.close()

        ways[f"opensage, {name if name != 'none' else 'no model'}"] = through_memory
    versions = {name: found for name, found in peers.installed().items() if wanted is None or name in wanted}
    for name in versions:
        ways[name] = lambda conversation, name=name: peers.evaluate(name, conversation)  # type: ignore[misc]
    return {"versions": versions, "ways": {name: _way(rank, conversations) for name, rank in ways.items()}}


def _way(rank: Callable[[Conversation], dict[str, Any]], conversations: list[Conversation]) -> dict[str, Any]:
    results = {}
    for conversation in _progress(conversations):
        results[conversation.name] = rank(conversation)
    split = {
        "all": results.values(),
        "tuned on": [result for name, result in results.items() if name in locomo.TUNED_ON],
        "untouched": [result for name, result in results.items() if name not in locomo.TUNED_ON],
    }
    return {
        **{name: retrieval.summary(part) for name, part in split.items()},
        "cpu_ms": {name: [result["turns"], round(result["cpu_ms"], 2)] for name, result in results.items()},
    }


def _progress(conversations: list[Conversation]) -> Any:
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(conversations, "conversations", console=console, transient=True, disable=not console.is_terminal)


def tables(result: dict[str, Any]) -> None:
    """Print what was measured to stderr."""
    from rich.console import Console
    from rich.table import Table

    console = Console(stderr=True)
    for split in ("all", "tuned on", "untouched") if "retrieval" in result else ():
        table = Table("way", "category", "n", *COLUMNS, title=f"Evidence retrieval, {split}")
        for way, measured in result["retrieval"]["ways"].items():
            for category, row in measured[split].items():
                if category != "all" and split != "all":
                    continue
                name = f"{category} {locomo.CATEGORIES.get(category, '')}" if category != "all" else "1 to 4"
                table.add_row(way, name, str(row["n"]), *(f"{row[column]:.3f}" for column in COLUMNS))
        console.print(table)
    if "crash" in result:
        table = Table("", "of", "acknowledged", "lost", "drift", "check", title="Many at once, and killed")
        for name, each in result["crash"].items():
            done = (
                f"{each['writes']} writes, {each['reads']} reads, {each['errors']} errors" if "writes" in each else ""
            )
            told = [str(each[part]) for part in ("acknowledged", "lost", "drift", "check")]
            table.add_row(name, done or f"{each['kills']} kills", *told)
        console.print(table)
    for measured in result.get("engine", []):
        title = f"{measured['nodes']:,} nodes of {measured['dimension']} dimensions"
        table = Table("", *measured["store"], title=title)
        for name in ("store", "bare"):
            table.add_row(name, *(str(measured[name].get(column, "")) for column in measured["store"]))
        console.print(table)


if __name__ == "__main__":
    sys.exit(main())
