"""A question to the model beside the conversation: a summary, a diagnosis. Its cost is logged."""

from __future__ import annotations

from contextlib import aclosing

from opensage.log.events import SideReply
from opensage.log.session import Session
from opensage.messages import Reply, Request
from opensage.models.assembler import Assembler
from opensage.protocols import Model


async def ask_beside(session: Session, model: Model, request: Request) -> str:
    """The answer's text, without blanks at its ends. Recorded as a `SideReply`, for usage and for people.

    Raises:
        ModelError, LimitReached: as any model call.
    """
    return (await answer_beside(session, model, request)).text.strip()


async def answer_beside(session: Session, model: Model, request: Request, *, prompt: str = "") -> SideReply:
    """The same as the event that was recorded; `prompt` is kept with it."""
    reply = await whole_reply(model, request)
    usage = reply.usage
    return session.record(
        SideReply(
            purpose=request.agent,
            prompt=prompt,
            model=model.name,
            text=reply.text,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            cost=usage.cost,
        )
    )


async def whole_reply(model: Model, request: Request) -> Reply:
    """One reply, when nobody looks on as it comes. Nothing is recorded."""
    assembler = Assembler()
    async with aclosing(model.stream(request)) as deltas:  # type: ignore[type-var]
        async for delta in deltas:
            assembler.feed(delta)
    return assembler.reply()
