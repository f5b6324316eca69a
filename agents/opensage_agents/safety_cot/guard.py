"""A model whose thoughts and answers are scored before anybody sees them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from opensage.messages import CallChunk, Delta, Message, Reply, Request
from opensage.models.assembler import Assembler
from opensage.models.retry import Wrapper, closable
from opensage.protocols import Model
from opensage_agents.safety_cot.judges import Judge, TagJudge, judged
from opensage_agents.safety_cot.redact import HIDDEN, safe_texts
from opensage_agents.safety_cot.sample import TAGS, Sample, parse
from opensage_agents.safety_cot.scores import Scores, closed

NOTICE = (
    "[This reply was withheld: its reasoning or its text was judged unsafe. Ask for the background, the law or "
    "protective measures instead.]"
)
NOT_JUDGED = "[This reply was withheld: it could not be judged. Try again.]"
TIMEOUT = 30.0
KEY = "safety"
"""Field of a reply's `extra` that keeps the verdict in the log. It is never sent to a model."""
_OPAQUE = frozenset({"provider", "signature", "thought_signature", "encrypted_content", "data", "id", "type"})


class Guarded(Wrapper):
    """Holds a reply back until a judge has scored it; an unsafe one is replaced by a notice, its calls are not made.

    Scored are the thought (between tags, or in the fields that a provider keeps it in), and the answer with the
    arguments of its tool calls. While the reply is held back empty pieces are passed on, so that nothing takes the
    stream for stalled. A judge that fails, is late or gives wrong numbers closes: the reply is withheld.

    The log then has the notice as the reply's text, and in `extra["safety"]` the scores and the redacted reply. Replies
    that are safe are passed on as they came, in one piece.

    Args:
        model: any model.
        judge: the reference judge without it, which sees placeholders only: give a real one for real use.
        tau: safety below which a reply is withheld, in (0, 1).
        timeout: seconds for the judge, above 0.
        notice: what is shown instead.
        tags: that open and close a thought in the text.

    Raises:
        ValueError: tau or timeout is out of its range.
    """

    def __init__(
        self, model: Model, judge: Judge | None = None, *, tau: float = 0.5, timeout: float = TIMEOUT,
        notice: str = NOTICE, tags: tuple[str, str] = TAGS,
    ) -> None:  # fmt: skip
        super().__init__(model)
        if not 0 < tau < 1:
            raise ValueError(f"tau is {tau:g}: it lies between 0 and 1, both excluded")
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout:g}: it is above 0 seconds")
        self.judge: Judge = judge or TagJudge()
        self._tau, self._timeout, self._notice, self._tags = tau, timeout, notice, tags

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """One reply, in one piece, after it was scored."""
        assembler = Assembler()
        async with aclosing(closable(self._model, request)) as deltas:
            async for delta in deltas:
                assembler.feed(delta)
                yield Delta(usage=delta.usage, reset=delta.reset, note=delta.note)
        reply = assembler.reply()
        sample = self.sample(request, reply)
        scores = await self._scores(sample)
        if self._tau <= scores.S and not scores.flagged:
            yield _whole(reply)
            return
        yield Delta(note=f"a reply was withheld by the judge {self.judge.name}{_because(scores)}")
        yield self._instead(reply, sample, scores)

    async def _scores(self, sample: Sample) -> Scores:
        try:
            return await asyncio.to_thread(judged, self.judge, sample, self._timeout)
        except ValueError as error:
            return closed(str(error))

    def sample(self, request: Request, reply: Reply) -> Sample:
        """What is scored of a reply."""
        read = parse(reply.text, self._tags, prompt=_asked(request.messages), strict=False)
        told = [*_texts(reply.extra), *(text for call in reply.calls for text in _texts(call.extra))]
        thought = "\n".join(part for part in (*told, read.thought) if part)
        calls = [f"{call.name} {_plain(call.arguments)}" for call in reply.calls]
        return replace(read, thought=thought, answer="\n".join(part for part in (read.answer, *calls) if part))

    def _instead(self, reply: Reply, sample: Sample, scores: Scores) -> Delta:
        thought, answer = (HIDDEN, HIDDEN) if scores.flagged else safe_texts(sample, scores, self._tau)
        kept = {
            "judge": self.judge.name, "S_z": scores.S_z, "S_y": scores.S_y, "tau": self._tau, "flagged": scores.flagged,
            "thought": thought, "answer": answer, "calls": len(reply.calls),
        }  # fmt: skip
        text = NOT_JUDGED if scores.flagged else self._notice
        return Delta(text=text, finish_reason="stop", usage=reply.usage, extra={KEY: kept})


def _because(scores: Scores) -> str:
    return f": {scores.flagged}" if scores.flagged else f": thought {scores.S_z:g}, answer {scores.S_y:g}"


def _whole(reply: Reply) -> Delta:
    calls = [CallChunk(n, call.id, call.name, call.arguments, call.extra) for n, call in enumerate(reply.calls)]
    return Delta(reply.text, calls, reply.finish_reason, reply.usage, reply.extra)


def _asked(messages: Sequence[Message]) -> str:
    """What the person said last."""
    for message in reversed(messages):
        if message.get("role") == "user" and isinstance(message.get("content"), str):
            return str(message["content"])
    return ""


def _texts(value: object) -> list[str]:
    """Every text inside JSON data, whatever its depth, but for fields that are ids or ciphers."""
    found: list[str] = []
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            found.append(each)
        elif isinstance(each, Mapping):
            waiting += [item for key, item in reversed(list(each.items())) if key not in _OPAQUE]
        elif isinstance(each, list | tuple):
            waiting += reversed(each)
    return found


def _plain(arguments: str) -> str:
    """The texts of a call's arguments, names included, with escapes resolved, so that none hides from the judge."""
    try:
        # As pairs, so that a name that comes twice hides nothing either.
        found: Any = json.loads(arguments, strict=False, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return arguments
    return "\n".join(_texts(found))
