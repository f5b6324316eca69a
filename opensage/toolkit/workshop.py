"""The toolkits of a tree of agents, and what each agent sees of them.

An agent sees what the agent above it sees, or the part of it that was named for it. What an agent makes is seen by
itself, by every agent above it, and by those below one that sees it unless they were given names. So no agent's tools
ever exceed those of the agent above it.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from opensage.errors import ConfigError, ToolError
from opensage.log.toolkit_events import ToolkitMade, ToolkitRetired
from opensage.toolkit.calls import toolkit_tools
from opensage.toolkit.gate import Draft, check
from opensage.toolkit.library import Library
from opensage.toolkit.spec import ToolkitSpec, key_of
from opensage.toolkit.staging import Report, Staging
from opensage.toolkit.store import Provenance
from opensage.tools.base import Tool, ToolContext
from opensage.tools.toolbox import Toolbox

TOOLKIT_TOOLS = (
    "create_toolkit", "update_toolkit", "list_toolkits", "inspect_toolkit", "retire_toolkit", "search_toolkits",
)  # fmt: skip
"""Names of the tools in `tools.py`, which is imported when an agent needs them."""
IN_PROMPT = 20
"""Toolkits that the prompt names; more are found by `search_toolkits`."""
_LINE = 200


@dataclass(slots=True, eq=False)
class Item:
    """A toolkit of the tree. `new`: made in this session; `everywhere`: it was there before the run began."""

    spec: ToolkitSpec
    tools: list[Tool]
    everywhere: bool = False
    new: bool = False
    owners: list[Shelf] = field(default_factory=list)

    @property
    def made(self) -> bool:
        """Whether agents made it, so that agents may change it."""
        return self.spec.source in ("project", "session")


class Workshop:
    """The toolkits of one tree of agents. Nothing is started by looking at them.

    Args:
        workdir: the workspace on the host; toolkits are kept in its `.opensage`.
        home: OpenSage's folder of the user.
        session: id of the session, for provenance.
        allowed: packages that may be installed into a sandbox for a toolkit.
        wheels: folder of their wheels.
    """

    def __init__(
        self, workdir: Path, home: Path, session: str = "", *, allowed: Sequence[str] = (), wheels: Path | None = None
    ) -> None:
        self.session = session
        self.staging = Staging(allowed, wheels)
        self.library = Library(workdir, home)
        self.shelves: list[Shelf] = []
        self._items: dict[str, Item] | None = None

    @property
    def unread(self) -> bool:
        """Whether nothing was read from the disk so far, and so nothing was made either."""
        return self._items is None

    @property
    def items(self) -> dict[str, Item]:
        """All toolkits by their key, read from the disk when first asked for."""
        if self._items is None:
            self._items = {}
            for entry in self.library.usable():
                if entry.spec is not None:
                    new = entry.provenance is not None and entry.provenance.session == self.session != ""
                    tools = toolkit_tools(entry.spec, self.staging)
                    self._items[entry.spec.key] = Item(entry.spec, tools, everywhere=True, new=new)
        return self._items

    def register(self, spec: ToolkitSpec, maker: Shelf) -> Item:
        """Make a new version known to every agent that may see it; each has its tools on its next model call."""
        old = self.items.get(spec.key)
        owners = [*(old.owners if old else ()), *(shelf for shelf in maker.line if not old or shelf not in old.owners)]
        item = Item(spec, toolkit_tools(spec, self.staging), bool(old and old.everywhere), True, owners)
        self.items[spec.key] = item
        for shelf in self.shelves:
            shelf.refresh(item)
        return item

    def forget(self, item: Item) -> None:
        """Take a toolkit from all agents."""
        self.items.pop(item.spec.key, None)
        for shelf in self.shelves:
            shelf.drop(item)


class Shelf:
    """What one agent sees of the workshop, and the toolbox that its toolkits' tools are in.

    Args:
        workshop: of the tree.
        toolbox: of the agent.
        names: the toolkits it may see; None is all that the agent above it sees.
        agent: its name.
        above: the shelf of the agent that created it.
        reserved: names that no toolkit may take, e.g. those of agents.

    Raises:
        ConfigError: a name is not one that the agent above sees.
    """

    def __init__(
        self,
        workshop: Workshop,
        toolbox: Toolbox,
        names: Sequence[str] | None = None,
        agent: str = "main",
        above: Shelf | None = None,
        reserved: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self.workshop, self.toolbox, self.agent, self.above = workshop, toolbox, agent, above
        self._names = None if names is None else {key_of(name) for name in names}
        self._reserved = reserved
        if names:
            seen = above.items() if above else [item for item in workshop.items.values() if item.everywhere]
            unknown = [name for name in names if key_of(name) not in {item.spec.key for item in seen}]
            if unknown:
                there = ", ".join(item.spec.name for item in seen) or "none"
                raise ConfigError(f"agent {agent} wants unknown toolkits {', '.join(unknown)}; there are: {there}")
        workshop.shelves.append(self)
        for item in self.items():
            self._put(item, item.new or names is not None)

    def __repr__(self) -> str:
        return f"Shelf({self.agent}: {', '.join(item.spec.name for item in self.items())})"

    @property
    def line(self) -> list[Shelf]:
        """This shelf and those above it."""
        return [self, *(self.above.line if self.above else ())]

    def items(self) -> list[Item]:
        """The toolkits that the agent sees."""
        if self._names == set() and self.workshop.unread:  # an agent without toolkits costs no look at the disk
            return []
        return [item for item in self.workshop.items.values() if self.sees(item)]

    def sees(self, item: Item) -> bool:
        """Whether the agent may use a toolkit."""
        if self in item.owners:
            return True
        if self._names is not None and item.spec.key not in self._names:
            return False
        return item.everywhere if self.above is None else self.above.sees(item)

    def get(self, name: str) -> Item:
        """The toolkit of that name. Raises `ToolError` when the agent sees none; it names the nearest."""
        items = {item.spec.key: item for item in self.items()}
        found = items.get(key_of(name))
        if found is None:
            near = difflib.get_close_matches(key_of(name)[:64], items, n=1, cutoff=0.5)
            hint = f"did you mean '{items[near[0]].spec.name}'?" if near else _there(items.values())
            raise ToolError(f"there is no toolkit '{name[:80]}': {hint}")
        return found

    def refresh(self, item: Item) -> None:
        """Put the tools of a toolkit, as it is now, into the toolbox, if the agent sees it."""
        if not self.sees(item):
            return
        shown = item.new or self._names is not None
        shown = shown or any(tool.source == _source(item) and tool.name in self.toolbox.shown for tool in self.toolbox)
        self.drop(item)
        self._put(item, shown)
        if "list_toolkits" in self.toolbox and "search_toolkits" not in self.toolbox:
            for tool in self.tools():
                if tool.name == "search_toolkits":
                    self.toolbox.add(tool)

    def _put(self, item: Item, shown: bool) -> None:
        for tool in item.tools:
            self.toolbox.add(tool, shown=shown)

    def drop(self, item: Item) -> None:
        """Take the tools of a toolkit out of the toolbox."""
        for tool in self.toolbox:
            if tool.source == _source(item):
                self.toolbox.remove(tool.name)

    def open(self, item: Item) -> None:
        """Show the tools of a toolkit to the model from now on."""
        self.toolbox.show(tool.name for tool in item.tools)

    def reserved(self) -> set[str]:
        """Names that a toolkit must not have: tools that are no toolkit's, and agents."""
        return {tool.name for tool in self.toolbox if not tool.source.startswith("toolkit:")} | {*self._reserved()}

    def tools(self) -> list[Tool]:
        """The tools by which the agent makes, finds and reads toolkits, bound to this shelf."""
        from opensage.toolkit.tools import shelf_tools

        return shelf_tools(self, search=len(self.items()) > IN_PROMPT)

    def prompt(self) -> str:
        """One line a toolkit, for the system message; "" when there is none."""
        items = self.items()
        if not items:
            return ""
        how = ""
        if "inspect_toolkit" in self.toolbox:
            how = " Call inspect_toolkit first: it says how to use one, and gives you its tools."
        lines = [f"- {_short(item.spec.line)}" for item in items[:IN_PROMPT]]
        more = [f"- and {len(items) - IN_PROMPT} more: search_toolkits finds them"] if len(items) > IN_PROMPT else []
        return "\n".join([f"Toolkits, tested code for special work.{how}", *lines, *more])

    async def make(self, ctx: ToolContext, made: Draft, old: Item | None = None) -> tuple[Item, Report]:
        """Pass a draft through the gate: checks, tests in the sandbox, the disk; only then is it registered.

        Raises:
            ToolError: what to change, or the report of the tests that failed.
        """
        workshop = self.workshop
        store = workshop.library.store
        version = max(await asyncio.to_thread(store.newest, made.name), old.spec.version if old else 0) + 1
        spec = await asyncio.to_thread(made.spec, version)
        reserved = {name for shelf in workshop.shelves for name in shelf.reserved()}
        await asyncio.to_thread(check, spec, made.name, reserved=reserved)
        ctx.progress(f"testing toolkit {spec.name}")
        report = await workshop.staging.test(ctx.sandbox, spec)
        if not report.good:
            text, has = report.text(), ", ".join(each.name for each in spec.tools)
            hint = f"The tests begin with: from ..tools import {has}\n" if "ImportError" in text and has else ""
            raise ToolError(f"toolkit '{spec.name}' was not registered: {text}\n{hint}Mend it and call again.")
        known = workshop.items.get(spec.key)
        if known is not old:
            raise ToolError(f"toolkit '{spec.name}' was made by another agent meanwhile: inspect it, and update it")
        told = {**asdict(report), "failed": [], "seconds": round(report.seconds, 2)}
        provenance = Provenance(workshop.session, self.agent, version, spec.hash, time.time(), told)
        folder = await asyncio.to_thread(store.add, spec, provenance)
        item = workshop.register(spec.model_copy(update={"folder": folder}), self)
        if ctx.record is not None:
            tools = {tool.title: tool.signature for tool in spec.tools}
            ctx.record(
                ToolkitMade(
                    name=spec.name,
                    version=version,
                    hash=spec.hash,
                    agent=self.agent,
                    description=spec.description,
                    tools=tools,
                    report=told,
                )
            )
        return item, report

    async def retire(self, ctx: ToolContext, item: Item) -> None:
        """Put a toolkit away: no agent sees it any more; its versions stay on the disk.

        Raises:
            ToolError: agents did not make it, or an agent above this one did.
        """
        spec = item.spec
        if not item.made:
            raise ToolError(f"'{spec.name}' is {spec.source}, not made by agents: it cannot be retired")
        if self not in item.owners and self.above is not None:
            raise ToolError(f"'{spec.name}' was not made by you or an agent below you: only its maker can retire it")
        await asyncio.to_thread(self.workshop.library.store.retire, spec.name, self.workshop.session, self.agent)
        self.workshop.forget(item)
        if ctx.record is not None:
            ctx.record(ToolkitRetired(name=spec.name, version=spec.version, agent=self.agent))

    def close(self) -> None:
        """The agent has ended. Safe to call twice."""
        if self in self.workshop.shelves:
            self.workshop.shelves.remove(self)


def _source(item: Item) -> str:
    return f"toolkit:{item.spec.name}"


def _short(line: str) -> str:
    return line if len(line) <= _LINE else f"{line[: _LINE - 1]}…"


def _there(items: Collection[Item]) -> str:
    names = [item.spec.name for item in items]
    return f"there are: {', '.join(names[:IN_PROMPT]) or 'none'}" + (", ..." if len(names) > IN_PROMPT else "")
