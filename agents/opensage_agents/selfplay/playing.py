"""Opens what a live run needs, runs it, and leaves its files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from opensage.errors import ConfigError, ModelError
from opensage.files import why, write_whole
from opensage_agents.pgs.asking import Asker, BudgetSpent, Desk, ModelAsker
from opensage_agents.pgs.task import PGSConfig
from opensage_agents.pgs.trace import Trace
from opensage_agents.selfplay.embedding import Encoder
from opensage_agents.selfplay.lines import write_lines
from opensage_agents.selfplay.live import PROPOSER, SOLVER, LiveConfig, LiveReport, LiveRound, LiveSelfPlay
from opensage_agents.selfplay.verdicts import Judge

REPLY_TOKENS = 500


@dataclass(frozen=True, slots=True)
class Setup:
    """Models, bounds and places of a run; see `opensage selfplay run --help`."""

    model: str = ""
    solver_model: str = ""
    embedder: str = "hash"
    sandbox: str = "auto"
    temperature: float = 0.8
    max_seconds: float = 7200.0
    max_tokens: int | None = None
    max_cost: float | None = None
    out: Path | None = None
    resume: bool = False


def play(setup: Setup, config: LiveConfig, say: Callable[[str], None] = lambda _text: None) -> LiveReport:
    """Run both arms; a limit or a model that fails ends it early, and `stopped` says so.

    Raises:
        ConfigError: a setting cannot be used.
        SandboxError: no sandbox can be opened.
    """
    encoder = Encoder(setup.embedder)
    encoder.encode(["Is it there?"])  # a package that is missing is told before a model is asked
    desk = Desk(_askers(setup), _bounds(setup), _trace(setup))
    return asyncio.run(_played(desk, Judge(setup.sandbox), config, encoder, setup, say))


def _bounds(setup: Setup) -> PGSConfig:
    return PGSConfig(
        max_seconds=setup.max_seconds, max_tokens=setup.max_tokens, max_cost=setup.max_cost,
        temperature=setup.temperature, reply_tokens=REPLY_TOKENS,
    )  # fmt: skip


def _askers(setup: Setup) -> dict[str, Asker]:
    from opensage.models import default_model, open_model

    first = ModelAsker(open_model(setup.model or default_model(os.environ)))
    return {PROPOSER: first, SOLVER: ModelAsker(open_model(setup.solver_model)) if setup.solver_model else first}


def _trace(setup: Setup) -> Trace:
    """Answers are kept as they come, so that a run that was ended goes on without asking twice."""
    if setup.out is None:
        if setup.resume:
            raise ConfigError("--resume needs the folder of the run: add --out DIR")
        return Trace()
    path = setup.out / "trace.jsonl"
    if path.exists() and not setup.resume:
        raise ConfigError(f"{path} holds a run already: go on with --resume, or name another --out")
    return Trace(path, resume=setup.resume)


async def _played(
    desk: Desk, judge: Judge, config: LiveConfig, encoder: Encoder, setup: Setup, say: Callable[[str], None]
) -> LiveReport:
    async with judge:
        play_ = LiveSelfPlay(desk, judge, config, encoder, lambda each: say(told_round(each)))
        try:
            await play_.run()
        except (BudgetSpent, ModelError) as error:
            play_.report.stopped = str(error)
        finally:
            _leave(play_, setup.out)
    return play_.report


def _leave(play_: LiveSelfPlay, out: Path | None) -> None:
    """Report and histories, of an interrupted run too."""
    import json

    if out is None:
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{out} cannot be made: {why(error)}") from error
    write_whole(out / "report.json", json.dumps(play_.report.to_dict(), ensure_ascii=False).encode("utf-8", "replace"))
    for name in ("host", "novelty"):
        kept = [
            {"question": each.statement, "round": round_.number, "s": each.s, "novelty": each.novelty}
            for round_ in play_.report.of(name)
            for each in round_.played
            if each.kept
        ]
        write_lines(out / f"{name}.jsonl", kept)


def told_round(each: LiveRound) -> str:
    """A round for people, in a line."""
    shown = "" if each.overlap is None else f", overlap {each.overlap:.2f}"
    return (
        f"round {each.number}, {each.arm}: {each.valid} of {len(each.played)} proposals are problems, "
        f"{each.kept} kept, solved {each.solved:.2f}{shown}" + (f" ({each.note})" if each.note else "")
    )


__all__ = ["Setup", "play", "told_round"]
