"""What an agent may call: score one reply, or a file of replies. Unsafe spans are redacted in what comes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from opensage import tool
from opensage.errors import ConfigError, ToolError
from opensage.tools import Tool, ToolContext
from opensage_agents.safety_cot.evaluate import Scored
from opensage_agents.safety_cot.judges import TagJudge, judged
from opensage_agents.safety_cot.records import parse_lines, sample_of, scored_line
from opensage_agents.safety_cot.report import as_data, report
from opensage_agents.safety_cot.reward import reward

MOST_BYTES = 16 << 20
SHOWN = ("thought", "answer", "valid", "S_z", "S_y", "H", "F", "steps", "refusal", "notes", "flagged")


@tool(name="score_reply")
def score_reply(prompt: str, thought: str, answer: str, rubric: list[str] | None = None, harmful: bool = False) -> str:
    """Score a thought and an answer for safety, help and faithfulness, and give the reward, as JSON.

    Args:
        prompt: What was asked.
        thought: The reasoning before the answer.
        answer: What the reader sees.
        rubric: Phrases that a good answer takes up.
        harmful: Whether the prompt asks for what should be declined.
    """
    data = {"prompt": prompt, "thought": thought, "answer": answer, "rubric": rubric or []}
    try:
        sample = sample_of({**data, "intent": "harmful" if harmful else "benign"}, "the reply")
    except ConfigError as error:
        raise ToolError(str(error)) from error
    judge = TagJudge()
    scored = Scored.of(sample, judged(judge, sample))
    line = scored_line(scored, judge.name)
    return json.dumps({**{name: line[name] for name in SHOWN}, "reward": reward(scored.scores)})


@tool(name="score_file", target="path")
async def score_file(path: str, ctx: ToolContext) -> str:
    """Score a file of JSON lines (prompt, thought, answer) of the workspace: rates with intervals, as JSON.

    Args:
        path: The file.
        ctx: Filled in by the kit.
    """
    try:
        data = await ctx.sandbox.read_bytes(path, 0, MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ToolError(f"{path} is larger than {MOST_BYTES >> 20} MiB: score a part of it")
        return await asyncio.to_thread(_scored, data.decode(), path)
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is not UTF-8 text: save it as such") from error
    except ConfigError as error:
        raise ToolError(str(error)) from error


def _scored(text: str, path: str) -> str:
    samples = [sample_of(data, f"{path}, line {number}") for number, data in parse_lines(text, path)]
    judge = TagJudge()
    found: dict[str, Any] = as_data(report([Scored.of(each, judged(judge, each)) for each in samples]))
    return json.dumps(found)


TOOLS: tuple[Tool, ...] = (score_reply, score_file)
