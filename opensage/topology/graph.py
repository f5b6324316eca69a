"""The topology of a run as a fold over its logs: who made whom, who called whom, who posted what."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opensage.errors import SessionError
from opensage.log.delegations import Delegation, Delegations
from opensage.log.events import Event, ModelReply, RunStarted, SideReply, ToolResult
from opensage.log.folds import Summary
from opensage.log.journal import load
from opensage.messages import Usage
from opensage.topology.team import child_logs

if TYPE_CHECKING:
    import networkx as nx

    from opensage.secrets import Mask


@dataclass(slots=True)
class Node:
    """One session of the tree.

    Attributes:
        turns: its own model calls, those of its children not included; `tool_calls` and `usage` likewise.
        status: of its last run; "interrupted" when that never ended.
    """

    session: str
    agent: str = ""
    task: str = ""
    status: str = "new"
    reason: str = ""
    text: str = ""
    model: str = ""
    turns: int = 0
    tool_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    group: int = 0
    children: list[Node] = field(default_factory=list)
    lost: str = ""
    delegations: Delegations = field(default_factory=Delegations)

    def walk(self) -> Iterable[Node]:
        """It and all below it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def total(self) -> Usage:
        """Usage of it and all below it."""
        total = Usage()
        for node in self.walk():
            total += node.usage
        return total


class Topology:
    """The tree of sessions below a root, and the graph of agents.

    Args:
        folder: where the logs are.
        root: id of the root session.
        mask: hides secrets that were none when the logs were written.

    Raises:
        SessionError: the root's log cannot be read.
    """

    def __init__(self, folder: Path, root: str, mask: Mask | None = None) -> None:
        self.root = _node(root, _events(folder / f"{root}.jsonl", mask))
        nodes = {root: self.root}
        for path in child_logs(folder, root):
            above, _, number = path.stem.rpartition(".")
            if above not in nodes:
                continue
            nodes[path.stem] = node = _loaded(path, mask)
            seen = nodes[above].delegations.children.get(int(number))
            nodes[above].children.append(_as_seen(node, seen))
        for node in nodes.values():
            _add_lost(node, nodes)

    def graph(self) -> nx.DiGraph[str]:
        """Agents as nodes (spec, status, calls, turns, tokens, cost), edges with `created`, `called` and `posted`.

        A topic of the message board is the node "#topic". Counts are on the edges.
        """
        import networkx

        graph: nx.DiGraph[str] = networkx.DiGraph()
        for node in self.root.walk():
            self._add(graph, node)
        for node in self.root.walk():
            for name, made in node.delegations.made.items():
                graph.add_node(
                    name, **{"calls": 0, "status": "created", **graph.nodes.get(name, {}), "spec": made.spec}
                )
                _edge(graph, node.agent, name, "created")
            for child in node.children:
                _edge(graph, node.agent, child.agent, "called")
            for topic, count in node.delegations.topics.items():
                _edge(graph, node.agent, f"#{topic}", "posted", count)
            for name in node.delegations.retired & set(graph.nodes):
                graph.nodes[name]["status"] = "retired"
        return graph

    @staticmethod
    def _add(graph: nx.DiGraph[str], node: Node) -> None:
        known: dict[str, Any] = graph.nodes.get(node.agent, {})
        cost, more = known.get("cost", 0.0), node.usage.cost
        graph.add_node(
            node.agent,
            status=node.status,
            calls=known.get("calls", 0) + 1,
            turns=known.get("turns", 0) + node.turns,
            tokens=known.get("tokens", 0) + node.usage.tokens,
            cost=None if cost is None or more is None else cost + more,
        )


def _events(path: Path, mask: Mask | None) -> list[Event]:
    events = load(path).events
    if mask:
        for event in events:
            mask.event(event)
    return events


def _loaded(path: Path, mask: Mask | None) -> Node:
    try:
        return _node(path.stem, _events(path, mask))
    except SessionError as error:
        return Node(path.stem, status="unreadable", lost=str(error))


def _node(session: str, events: Iterable[Event]) -> Node:
    summary, node = Summary(), Node(session)
    for event in events:
        summary.apply(event)
        node.delegations.apply(event)
        if isinstance(event, SideReply) or (isinstance(event, ModelReply) and not event.by):
            node.turns += 1
            node.usage += Usage(event.input_tokens, event.output_tokens, event.cached_tokens, event.cost)
        elif isinstance(event, ToolResult):
            node.tool_calls += 1
        elif isinstance(event, RunStarted):
            node.agent, node.model = event.agent, event.model
    node.agent, node.task, node.text = node.agent or summary.agent, summary.task, summary.text
    node.status, node.reason = summary.status, summary.reason
    if node.status == "running":
        node.status = "interrupted"
    return node


def _as_seen(node: Node, seen: Delegation | None) -> Node:
    """A child with what its caller knows of it."""
    if seen is not None:
        node.agent, node.task, node.group = node.agent if node.turns else seen.agent, node.task or seen.task, seen.group
        if node.status == "cancelled" and seen.status == "limit":
            node.status, node.reason = seen.status, seen.reason
    return node


def _add_lost(node: Node, there: Collection[str]) -> None:
    """Children that left no log: they were ended before they began, or it is gone."""
    for seen in node.delegations:
        session = f"{node.session}.{seen.number}"
        if session not in there:
            status = "interrupted" if seen.status == "running" else seen.status
            child = Node(session, seen.agent, seen.task, status, seen.reason, seen.text, seen.model, group=seen.group)
            node.children.append(child)
    node.children.sort(key=lambda child: int(child.session.rpartition(".")[2]))


def _edge(graph: nx.DiGraph[str], source: str, target: str, kind: str, count: int = 1) -> None:
    if target not in graph:
        graph.add_node(target)
    data = graph.get_edge_data(source, target) or {}
    graph.add_edge(source, target, **{**data, kind: data.get(kind, 0) + count})
