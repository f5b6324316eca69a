"""The tools by which an agent remembers and recalls. Their docstrings are in its prompt, so they are short."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from opensage.errors import ToolError
from opensage.memory import MEMORY_TOOLS
from opensage.memory.place import Answer, explained
from opensage.memory.reach import Reach
from opensage.memory.recall import RECALL, used
from opensage.tools.base import Tool, ToolContext
from opensage.tools.decorate import tool

if TYPE_CHECKING:
    from opensage_memory import Item
    from opensage_memory.retrieval.origin import Origin

MOST_HITS = 20
_SHOWN = 300
_RECALL_TOKENS = 4000
LINKS = ("SUPPORTS", "CONTRADICTS", "SUPERSEDES", "ABOUT", "SIMILAR", "DERIVED_FROM")
"""What an agent may say of two items. PART_OF is not among them: what is part of something is forgotten with it."""
_ORIGINS = 12


class MemoryTools:
    """The tools of one agent as methods."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def remember(
        self, ctx: ToolContext, text: str, about: str = "", relation: str = "", object: str = "", until: str = ""
    ) -> str:
        """Keep a fact for later sessions.

        Args:
            ctx: context
            text: one sentence that is clear by itself
            about: what it is about
            relation: or a fact in three parts: about, relation,
            object: object
            until: ISO date when it ends
        """
        if bool(relation) != bool(object) or (relation and not about):
            raise ToolError("a fact in three parts needs all of about, relation and object; or give text alone")
        told = [self._reach.mask.text(part) for part in (text, about, relation, object)]
        item = await self._do(partial(self._remember, ctx, told, until))
        return f"remembered as {item.id}"

    def _remember(self, ctx: ToolContext, told: list[str], until: str) -> Item:
        text, about, relation, object = told
        memory, own = self._reach.memory, self._reach.own
        fields: dict[str, Any] = {"author": self._reach.agent, "sources": (f"{ctx.session}#{ctx.call_id}",)}
        if until:
            fields["until"] = until
        if relation:
            return memory.state(about, relation, object, own, sentence=text, **fields)
        if about and about.casefold() not in text.casefold():
            text = f"{about}: {text}"
        return memory.add(text, own, **fields)

    async def recall(self, query: str, k: int = 5, as_of: str = "") -> str:
        """Search what was said, done and remembered earlier.

        Args:
            query: what you want to know
            k: how many
            as_of: ISO date: what was true then
        """
        return await self._do(partial(self._recall, query, min(max(k, 1), MOST_HITS), as_of))

    def _recall(self, query: str, k: int, as_of: str) -> str:
        from opensage_memory.retrieval.context import compose

        reach = self._reach
        hits = reach.memory.search(query, reach.scopes, k + MOST_HITS, kinds=RECALL, as_of=as_of or None)
        found = reach.news(hits)[:k]
        with reach.memory.store.read() as reader:
            made = compose(found, _RECALL_TOKENS, reader)
        used(reach, made.ids)
        return made.text or "nothing is known about that"

    async def forget(self, id: str) -> str:
        """Forget an item of yours, and what was made from it.

        Args:
            id: as recall shows it
        """
        return await self._do(partial(self._forget, id.strip()))

    def _forget(self, id: str) -> str:
        from opensage.memory.forgotten import forget

        done = forget(self._reach.memory, [id], self._reach.own)
        if done is None or not done.touched:
            raise ToolError(f"you have no item {id[:80]!r}; recall shows ids, and you can forget only what is yours")
        return f"forgotten; a person can take it back with: opensage memory undo {done.id}"

    async def touches_user(self, arguments: Mapping[str, Any]) -> str:
        """Why a person is asked before a call of `forget`, or ""."""
        id = str(arguments.get("id", "")).strip()
        item = await self._do(lambda: self._reach.memory.get(id, self._reach.own))
        said = item is not None and (item.trust == "user" or item.kind in ("session", "run"))
        return "it would forget what the user said" if said else ""

    async def link(self, source: str, type: str, target: str) -> str:
        """Join two items of yours.

        Args:
            source: id
            type: SUPPORTS, CONTRADICTS, SUPERSEDES, ABOUT, SIMILAR or DERIVED_FROM
            target: id
        """
        edge = type.strip().upper()
        if edge not in LINKS:
            raise ToolError(f"{type[:40]!r} cannot be used here: use one of {', '.join(LINKS)}")
        await self._do(lambda: self._reach.memory.link(source.strip(), edge, target.strip(), self._reach.own))
        return "linked"

    async def why(self, id: str) -> str:
        """Show where an item comes from.

        Args:
            id: as recall shows it
        """
        origin = await self._do(lambda: self._reach.memory.why(id.strip(), self._reach.scopes))
        return described(origin, id.strip())

    async def _do(self, work: Callable[[], Answer]) -> Answer:
        with explained(ToolError):
            return await self._reach.place.call(work)


def described(origin: Origin, id: str) -> str:
    """An origin as text for a model: what was recalled is marked as such."""
    if origin.item is None:
        return "it was forgotten" if origin.tombstone is not None else f"there is no item {id[:80]!r} for you"
    lines = [_line(origin.item)]
    lines += [f"- source: {source}" for source in origin.sources[:_ORIGINS] if "#" in source]
    names = {edge.target: edge.type for edge in reversed(origin.edges)}
    lines += [f"- {names.get(item.id, 'from')} {_line(item)}" for item in origin.items[:_ORIGINS]]
    if origin.mentions:
        lines.append(f"- mentions: {', '.join(name[:60] for name in origin.mentions[:_ORIGINS])}")
    lines += [f"- {done.name} at {done.at.isoformat(timespec='seconds')}" for done in origin.operations[:5]]
    if origin.hidden:
        lines.append(f"- and {origin.hidden} sources that you may not read")
    return "\n".join(("<memory>", *lines, "</memory>"))


def _line(item: Item) -> str:
    text = " ".join(item.text.split())
    text = (text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…").replace("<memory", "<_memory")
    when = item.valid_from or item.created_at
    author = f", {item.author}" if item.author else ""
    return f"[{item.id}, {item.kind}, {item.trust}{author}, {when.date()}] {text.replace('</memory', '</_memory')}"


_OPTIONS: dict[str, dict[str, Any]] = {
    "remember": {"resumable": True, "target": "text"},
    "recall": {"parallel": True, "resumable": True, "target": "query"},
    "forget": {"target": "id"},
    "link": {"resumable": True},
    "why": {"parallel": True, "resumable": True},
}


def memory_tools(reach: Reach) -> list[Tool]:
    """The tools of one agent."""
    bound = MemoryTools(reach)
    made = [_made(getattr(bound, name), name) for name in MEMORY_TOOLS]
    for each in made:
        if each.name == "forget":
            each.asks = bound.touches_user
    return made


def _made(method: Callable[..., Awaitable[str]], name: str) -> Tool:
    return tool(name=name, source="builtin", **{"parallel": False, **_OPTIONS[name]})(method)
