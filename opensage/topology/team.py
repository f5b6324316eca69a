"""What all agents of one run share: who there is, the board, the models they may use, the seats."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from opensage.errors import ConfigError, OpenSageError, SessionError, ToolError
from opensage.log.blobs import BlobStore
from opensage.log.delegations import Delegations, number_of
from opensage.log.journal import load
from opensage.models import open_model
from opensage.protocols import Model
from opensage.spec import AgentSpec
from opensage.toolkit.workshop import Workshop
from opensage.topology.agent_file import make_spec
from opensage.topology.board import Board
from opensage.topology.library import AgentLibrary
from opensage.topology.seats import Seats

_MOST_CHILDREN = 10_000


@dataclass(slots=True)
class Known:
    """An agent of this run. `by` made it; `source` is "model", "project", "user", "shipped" or "python"."""

    spec: AgentSpec
    by: str = ""
    source: str = "model"
    retired: bool = False

    @property
    def trusted(self) -> bool:
        """Whether a person chose its model."""
        return self.source in ("user", "shipped", "python")


class Team:
    """One per root session; it outlives the runs of a chat.

    Args:
        folder: where the sessions' logs are.
        root: id of the root session.
        library: saved agents.
        main: name of the root agent, which nobody may take or call.
        workshop: the toolkits.
        models: model strings that agents may be given besides the caller's own.
        agents: agents that the developer brought.
    """

    def __init__(
        self,
        folder: Path,
        root: str,
        library: AgentLibrary,
        main: AgentSpec,
        workshop: Workshop,
        *,
        models: Sequence[str] = (),
        agents: Sequence[AgentSpec] = (),
    ) -> None:
        self.folder, self.library, self.main = folder, library, main.name
        self.workshop, self.models = workshop, tuple(models)
        self._brought: dict[str, Known] = {}
        for spec in agents:
            if spec.name in (*self._brought, main.name):
                raise ConfigError(f"two agents are named {spec.name!r}; names are unique in a run")
            self._brought[spec.name] = Known(spec, source="python")
        self.seats = Seats(None)
        self._opened: dict[str, Model] = {}
        self.enter(root)

    def enter(self, root: str) -> None:
        """Belong to a session from now on, and know nothing of another."""
        self.root, self.workshop.session = root, root
        self.board = Board(self.folder / f"{root}.board", BlobStore(self.folder / f"{root}.blobs"))
        self.known = dict(self._brought)
        self.created = self.called = 0
        self._restored = False

    def restore(self, own: Delegations) -> None:
        """Learn from the logs of an earlier process which agents there are."""
        if self._restored:
            return
        self._restored = True
        self._learn(own)
        for path in child_logs(self.folder, self.root):
            fold = Delegations()
            try:
                events = load(path).events
            except SessionError:
                continue  # what cannot be read made nothing that can be called
            for event in events:
                fold.apply(event)
            self._learn(fold)

    def _learn(self, fold: Delegations) -> None:
        for name, made in fold.made.items():
            try:
                spec = make_spec(made.spec, f"agent {name}")
            except ConfigError:
                continue
            self.known.setdefault(name, Known(spec, made.by, self._source(spec, made.source)))
            self.created += made.source == "model"
        for name in fold.retired & self.known.keys():
            self.known[name].retired = True
        self.called += len(fold.children)

    def _source(self, spec: AgentSpec, told: str) -> str:
        """Where an agent of a log is from; that a person chose its model is believed to that person's files alone."""
        known = Known(spec, source=told or "model")
        saved = self.library.find(spec.name) if known.trusted else None
        sure = saved is not None and (saved.source, saved.spec.model) == (told, spec.model)
        return known.source if sure or not known.trusted else "project"

    def check_new(self, name: str) -> None:
        """Refuse a name that is taken, or that looks like the id of a call.

        Raises:
            ToolError: it names who has it.
        """
        if number_of(name):
            raise ToolError(f"'{name}' looks like the id of a call: choose another name")
        if name == self.main:
            raise ToolError(f"'{name}' is the main agent: choose another name")
        if name in self.known:
            known = self.known[name]
            state = "was retired, but names are not used twice" if known.retired else "exists already: call it"
            raise ToolError(f"an agent named '{name}' {state}, or choose another name")
        if (saved := self.library.find(name)) is not None:
            raise ToolError(
                f"'{name}' is a saved agent ({saved.spec.description[:80]}): call it, or choose another name"
            )

    def find(self, name: str) -> Known:
        """The agent of that name, from this run or the library.

        Raises:
            ToolError: there is none, or it was retired; those there are, are listed.
        """
        known = self.known.get(name)
        if known is not None and not known.retired:
            return known
        saved = self.library.find(name) if known is None else None
        if saved is not None:
            return Known(saved.spec, source=saved.source)
        why = "was retired" if known is not None else "does not exist"
        raise ToolError(f"agent '{name[:80]}' {why}{self._hint(name)}")

    def names(self) -> list[str]:
        """Agents that can be called."""
        ours = [name for name, known in self.known.items() if not known.retired]
        return ours + [name for name in self.library.all() if name not in (*self.known, self.main)]

    def described(self, name: str) -> str:
        """One line about an agent."""
        known, saved = self.known.get(name), self.library.find(name)
        spec = known.spec if known is not None else saved.spec if saved is not None else AgentSpec()
        return " ".join((spec.description or spec.instruction).split())[:120]

    def retire(self, name: str, by: str) -> None:
        """Let an agent be called no more.

        Args:
            name: of the agent.
            by: who asks; its maker and the main agent may.

        Raises:
            ToolError: there is none, or it belongs to people or to another agent.
        """
        known = self.find(name)
        if known.source != "model":
            raise ToolError(f"agent '{name}' was made by people ({known.source}) and cannot be retired")
        if by not in (known.by, self.main):
            raise ToolError(f"agent '{name}' was made by '{known.by}', who alone can retire it")
        known.retired = True

    def _hint(self, name: str) -> str:
        names = self.names()
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
        listed = ", ".join(names[:20]) or "none yet: make one with create_agent"
        return f". Did you mean '{near[0]}'? " if near else f". Agents: {listed}"

    def model(self, name: str, own: Model) -> Model:
        """The model of an agent; opened once a run.

        Raises:
            ToolError: it cannot be opened.
        """
        if name in ("inherit", "", own.name):
            return own
        if name not in self._opened:
            try:
                self._opened[name] = open_model(name)
            except OpenSageError as error:
                raise ToolError(f"model {name!r} cannot be used: {error}") from None
        return self._opened[name]

    async def close(self) -> None:
        """Close the models that agents used."""
        opened, self._opened = list(self._opened.values()), {}
        for model in opened:
            await model.close()


def child_logs(folder: Path, root: str) -> list[Path]:
    """Logs of all sessions below one, in the order of their numbers."""
    found = [path for path in folder.glob(f"{root}.*.jsonl") if _numbers(path.stem, root)]
    return sorted(found, key=lambda path: _numbers(path.stem, root))[:_MOST_CHILDREN]


def _numbers(session: str, root: str) -> list[int]:
    parts = session.removeprefix(f"{root}.").split(".")
    return [int(part) for part in parts] if all(part.isdecimal() and len(part) < 9 for part in parts) else []
