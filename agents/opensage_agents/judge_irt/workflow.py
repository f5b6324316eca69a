"""The agent `judge_irt`: diagnoses the score file that a task names; with a second file it compares with people."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
from pathlib import Path

from opensage.errors import ConfigError
from opensage.workflow import Outcome, Steps
from opensage_agents.judge_irt.report import number
from opensage_agents.judge_irt.run import align_files, fit_file
from opensage_agents.judge_irt.scores import ScoreError
from opensage_agents.judge_irt.tools import fetched

_FILE = re.compile(r"[\w./-]+\.(?:csv|jsonl)\b")


async def judge_irt(steps: Steps) -> str | Outcome:
    """Diagnose, leave the report beside the scores, say the verdicts; without a file the model drives."""
    paths = list(dict.fromkeys(_FILE.findall(steps.task)))
    if not paths:
        steps.say("no score file (.csv, .jsonl) is named: the model drives")
        return await steps.loop()
    with tempfile.TemporaryDirectory() as folder:
        try:
            files = [await _fetched(steps, path, Path(folder)) for path in paths[:2]]
            report = await asyncio.to_thread(fit_file, files[0])
            aligned = (await asyncio.to_thread(align_files, *files))["rows"] if len(files) == 2 else []
        except ConfigError as error:
            return Outcome("stuck", str(error).replace(f"{folder}/", ""), "The scores cannot be used.")
    out = str(Path(paths[0]).with_suffix(".report.json"))
    await steps.leave(out, json.dumps({**report, "alignment": aligned}) + "\n", say="The report stays.")
    lines = [
        f"{row['judge'] or 'judge'} / {row['criterion'] or '-'}: {row['verdict']} (C_V {number(row['cv'])}, "
        f"rho {number(row['rho'])}); {row['meaning']}"
        for row in report["judges"]
    ]
    lines += [
        f"{row['judge'] or 'judge'} beside people: {row['status']}, ratio {number(row['ratio'])}, "
        f"D_W {number(row['distance'])}"
        for row in aligned
    ]
    return "\n".join([*lines, f"Report: {out}"])


async def _fetched(steps: Steps, path: str, folder: Path) -> Path:
    """A copy of a score file, once the tool `read` may read it."""
    looked = await steps.call("read", {"path": path, "limit": 1}, say=f"Scores: {path}.")
    if not looked.ok:
        raise ScoreError(f"{path} cannot be read: {looked.text.strip().splitlines()[0] if looked.text else 'refused'}")
    return await fetched(steps.run.sandbox, path, folder)


__all__ = ["judge_irt"]
