"""`opensage agents`: the topology of a session, and the library of agents."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opensage.errors import ConfigError, SessionError

if TYPE_CHECKING:  # imported late, to keep --help fast
    from rich.text import Text
    from rich.tree import Tree

    from opensage.topology.graph import Node

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The agents of a session, and saved agents.")
Workdir = Annotated[Path, typer.Option("--workdir", "-w", help="The folder the agents belong to.")]
_STYLES = {"done": "green", "limit": "yellow", "stuck": "yellow", "interrupted": "yellow", "new": "dim"}
_TASK = 70


def _folder(workdir: Path) -> Path:
    folder = workdir.expanduser()
    if not folder.is_dir():
        raise ConfigError(f"{workdir} is not a folder; name the one the agents belong to with --workdir")
    return folder


@app.command("tree")
def tree(
    session: Annotated[str, typer.Argument(help="Session id, a unique prefix of it, or last.")] = "last",
    workdir: Workdir = Path("."),
    as_json: Annotated[bool, typer.Option("--json", help="Print the graph as JSON (node-link form).")] = False,
) -> None:
    """Who called whom in a session: status, turns, tokens, cost, and why an agent stopped."""
    import json

    from rich.console import Console

    from opensage.cli.masking import current
    from opensage.cli.sessions import open_store
    from opensage.topology.graph import Topology

    store = open_store(workdir)
    topology = Topology(store.folder, store.path(session).stem, current())
    if as_json:
        import networkx

        print(json.dumps(networkx.node_link_data(topology.graph(), edges="edges"), ensure_ascii=True))
        return
    Console(highlight=False, markup=False).print(drawn(topology.root))


def drawn(root: Node) -> Tree:
    """The tree of a session for the terminal."""
    from rich.tree import Tree

    top = Tree(_label(root))
    _grow(top, root.children)
    return top


def _grow(tree: Tree, children: Iterable[Node]) -> None:
    from rich.text import Text

    groups: dict[int, Tree] = {}
    for child in children:
        branch = tree
        if child.group:
            if child.group not in groups:
                groups[child.group] = tree.add(Text(f"ensemble {child.group}", style="bold"))
            branch = groups[child.group]
        _grow(branch.add(_label(child)), child.children)


def _label(node: Node) -> Text:
    from rich.text import Text

    from opensage.cli.stream import clean

    own, total = node.usage, node.total
    cost = "cost unknown" if own.cost is None else f"${own.cost:.4f}"
    text = Text(clean(node.agent), style="bold")
    text.append(f" {node.session.rpartition('-')[2] if '.' in node.session else node.session}", style="dim")
    text.append(f" [{node.status}]", style=_STYLES.get(node.status, "red"))
    text.append(f" {node.turns} turns, {node.tool_calls} tool calls, {own.tokens} tokens, {cost}")
    if node.children:
        whole = "cost unknown" if total.cost is None else f"${total.cost:.4f}"
        text.append(f" (with all below: {total.tokens} tokens, {whole})", style="dim")
    if node.reason or node.lost:
        text.append(f"\n{clean(node.reason or node.lost)}", style="yellow")
    flat = " ".join(clean(node.task).split())
    if flat:
        text.append(f"\n{flat[:_TASK]}{'...' if len(flat) > _TASK else ''}", style="dim")
    return text


@app.command("list")
def list_agents(
    query: Annotated[str, typer.Argument(help="Words to look for; all agents without it.")] = "",
    workdir: Workdir = Path("."),
) -> None:
    """Saved agents that a session in this folder can call: the project's, yours, shipped ones."""
    from rich.console import Console
    from rich.table import Table

    from opensage.cli.stream import clean
    from opensage.topology.library import AgentLibrary

    library = AgentLibrary(_folder(workdir))
    table = Table("agent", "source", "model", "tools", "description", box=None)
    for saved in library.search(query):
        spec = saved.spec
        tools = "all" if spec.tools is None else ", ".join(spec.tools)
        table.add_row(*map(clean, (spec.name, saved.source, spec.model, tools, spec.description)))
    Console(highlight=False, markup=False).print(table)
    for warning in library.warnings:
        typer.echo(f"warning: {clean(warning)}", err=True)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="Name of a saved agent, or id of an agent's session.")],
    workdir: Workdir = Path("."),
) -> None:
    """A saved agent as Markdown, or what an agent of a session did."""
    from opensage.cli import sessions
    from opensage.cli.stream import clean
    from opensage.topology.agent_file import write_agent
    from opensage.topology.library import AgentLibrary

    saved = AgentLibrary(_folder(workdir)).find(name)
    if saved is not None:
        typer.echo(clean(write_agent(saved.spec)), nl=False)
        return
    try:
        sessions.show(name, workdir)
    except SessionError as error:
        names = ", ".join(AgentLibrary(_folder(workdir)).all()) or "none"
        raise ConfigError(f"{name!r} is neither a saved agent ({names}) nor a session: {error}") from None


@app.command("save")
def save(
    session: Annotated[str, typer.Argument(help="Session in which the agent was made.")],
    name: Annotated[str, typer.Argument(help="Name of the agent.")],
    workdir: Workdir = Path("."),
) -> None:
    """Keep an agent that was made in a session, for later ones."""
    from opensage.cli.sessions import open_store
    from opensage.topology.agent_file import make_spec
    from opensage.topology.graph import Topology
    from opensage.topology.library import AgentLibrary

    store = open_store(workdir)
    root = store.path(session).stem
    made = {
        agent: found.spec
        for node in Topology(store.folder, root).root.walk()
        for agent, found in node.delegations.made.items()
    }
    if name not in made:
        raise ConfigError(f"session {root} made no agent {name!r}; it made: {', '.join(made) or 'none'}")
    path = AgentLibrary(_folder(workdir)).save(make_spec(made[name], f"agent {name}"))
    typer.echo(f"saved {path}")
