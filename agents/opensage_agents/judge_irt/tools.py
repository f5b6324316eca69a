"""Tools for any agent: `opensage.run(..., tools=JUDGE_TOOLS)`."""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError, ToolError
from opensage.protocols import Sandbox
from opensage.tools import ToolContext, tool
from opensage_agents.judge_irt.scores import ScoreError

MOST_BYTES = 1 << 26


async def fetched(sandbox: Sandbox, path: str, folder: Path) -> Path:
    """A copy of a file of the workspace, under its own name.

    Raises:
        ScoreError: it cannot be read, or is larger than 64 MiB.
    """
    try:
        data = await sandbox.read_bytes(path, 0, MOST_BYTES + 1)
    except OSError as error:
        raise ScoreError(f"{path} cannot be read: {error.strerror or error}") from error
    if len(data) > MOST_BYTES:
        raise ScoreError(f"{path} is larger than {MOST_BYTES >> 20} MiB: use opensage judge fit")
    place = Path(tempfile.mkdtemp(dir=folder)) / Path(path).name
    place.write_bytes(data)
    return place


def brief(rows: list[dict[str, Any]]) -> str:
    """What a model is told: the figures, not the estimates of every sample."""
    left = ("theta", "model", "ranges_judge", "ranges_human", "per_variant_variance")
    return json.dumps([{name: value for name, value in row.items() if name not in left} for row in rows])


@tool(target="path")
async def diagnose_judges(path: str, context: ToolContext, wide: bool = False, levels: int | None = None) -> str:
    """Say how reliable judges are, from a CSV of judge, criterion, sample_id, variant, score.

    Args:
        path: score file in the workspace.
        context: of the run.
        wide: each column is a prompt variant, each row a sample.
        levels: of the scale 1..K.
    """
    from opensage_agents.judge_irt.run import fit_file

    with tempfile.TemporaryDirectory() as folder:
        try:
            place = await fetched(context.sandbox, path, Path(folder))
            return brief((await asyncio.to_thread(fit_file, place, wide=wide, levels=levels))["judges"])
        except ConfigError as error:
            raise ToolError(str(error).replace(f"{folder}/", "")) from error


@tool(target="path")
async def align_judges(path: str, people: str, context: ToolContext, force: bool = False) -> str:
    """Compare judges that are consistent with people's scores of the same samples.

    Args:
        path: score file of the judges.
        people: score file of people.
        context: of the run.
        force: figures for inconsistent judges too.
    """
    from opensage_agents.judge_irt.run import align_files

    with tempfile.TemporaryDirectory() as folder:
        try:
            files = [await fetched(context.sandbox, each, Path(folder)) for each in (path, people)]
            return brief((await asyncio.to_thread(align_files, *files, force=force))["rows"])
        except ConfigError as error:
            raise ToolError(str(error).replace(f"{folder}/", "")) from error


JUDGE_TOOLS = [diagnose_judges, align_judges]
