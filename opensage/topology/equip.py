"""Which tools and toolkits an agent has: those of its spec, else what its caller has, else all there are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from opensage.errors import ConfigError
from opensage.memory import MEMORY_TOOLS
from opensage.toolkit.workshop import TOOLKIT_TOOLS, Shelf
from opensage.tools.base import Tool
from opensage.tools.toolbox import Toolbox
from opensage.topology.tools import AGENT_TOOLS, topology_tools

if TYPE_CHECKING:
    from opensage.topology.member import Member

OWN = frozenset([*AGENT_TOOLS, *TOOLKIT_TOOLS, *MEMORY_TOOLS])
"""Tools that are made anew for each agent, bound to its place in the team."""


def equip(
    member: Member, offered: Toolbox, above: Member | None, comes: Callable[[str], bool]
) -> tuple[Toolbox, Shelf]:
    """The toolbox and the shelf of toolkits of one agent.

    Args:
        member: the agent's place.
        offered: the tools there are: of its caller, or for the main agent the built-in ones and the developer's.
        above: its caller's place.
        comes: whether a tool of that name may come later, from an MCP server.

    Raises:
        ConfigError: its spec names a tool or toolkit that is not there.
    """
    box = Toolbox(t for t in offered if not _is_own(t) and not t.source.startswith("toolkit:"))
    for own in topology_tools(member) if member.limits_allow else ():
        box.add(own)
    for own in member.memory_tools():
        if own.name not in box:  # a developer's tool of that name is what the agent is to have
            box.add(own)
    names = _names(member, box, offered, above, comes)
    toolbox = Toolbox(t for t in box if t.name in names)
    shelf = Shelf(
        member.team.workshop,
        toolbox,
        _toolkits(member, above),
        member.spec.name,
        None if above is None else above.engine.shelf,
        member.team.names,
    )
    for own in shelf.tools():
        if own.name in names:
            toolbox.add(own)
    return toolbox, shelf


def _names(
    member: Member, box: Toolbox, offered: Toolbox, above: Member | None, comes: Callable[[str], bool]
) -> set[str]:
    wished = member.spec.tools
    if wished is not None:
        missing = [name for name in wished if name not in box and name not in OWN and not comes(name)]
        if missing:
            there = ", ".join(box.names)
            raise ConfigError(f"agent {member.spec.name} wants unknown tools {missing}; there are {there}")
        return set(wished)
    if above is not None:
        return {*offered.names}
    plain = {tool.name for tool in box if not _is_own(tool)}
    return plain if _is_small(member) else plain | OWN


def _is_own(tool: Tool) -> bool:
    """Whether it is one of those, and no developer's tool that has one of the memory's plain names."""
    return tool.name in OWN and (tool.name not in MEMORY_TOOLS or tool.source == "builtin")


def _toolkits(member: Member, above: Member | None) -> tuple[str, ...] | None:
    wished = member.spec.toolkits
    if wished is None and (member.spec.tools is not None or (above is None and _is_small(member))):
        return ()  # an agent that may only read must not run the code of toolkits
    return wished


def _is_small(member: Member) -> bool:
    """Whether its model does better with few tools: what is not named for it is left out."""
    return bool(getattr(member.engine.model, "needs_coach", False))
