"""The slash commands of the chat."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from opensage.cli.agents import drawn
from opensage.cli.common import fetch_if_local
from opensage.cli.show import Screen, money
from opensage.cli.undo import Checkpoint, Checkpoints, UndoError, Undone
from opensage.engine import Engine
from opensage.log.events import Note
from opensage.log.session import state_folder
from opensage.log.store import SessionStore
from opensage.topology.graph import Topology

_SHOWN = 15
_HELP = {
    "/help": "this list",
    "/agents": "agents that the session made",
    "/toolkits": "toolkits that can be used",
    "/memory [WORDS]": "what is remembered between sessions, or what of it has these words",
    "/model [NAME]": "the model in use, or use another one for the next message",
    "/cost": "tokens and cost of this session",
    "/diff": "what changed in the files since the chat began",
    "/undo": "take back the file changes of the last turn",
    "/compact": "make room in the history",
    "/resume [ID]": "list the sessions of this folder, or go on with one",
    "/quit": "leave (Ctrl-D too)",
}
_KEYS = "Ctrl-C interrupts the work; at the prompt it leaves. Alt-Enter begins a new line."
COMMANDS = tuple(usage.split()[0] for usage in _HELP)


class History:
    """Checkpoints around the turns of a chat, as far as they can be made here."""

    def __init__(self, checkpoints: Checkpoints, say: Callable[[str], None]) -> None:
        self._checkpoints, self._say = checkpoints, say
        self._first: Checkpoint | None = None
        self._before: Checkpoint | None = None
        self._turns: list[tuple[Checkpoint, Checkpoint]] = []
        self._off = ""

    async def begin(self) -> None:
        """Before a turn."""
        self._before = None
        if self._off:
            return
        try:
            self._before = await self._checkpoints.save()
        except (UndoError, OSError) as error:
            self._off = str(error)
            self._say(f"(/undo and /diff are off: {error})")
        self._first = self._first or self._before

    async def end(self) -> None:
        """After a turn, however it ended."""
        if self._before is None:
            return
        try:
            after = await self._checkpoints.save()
        except (UndoError, OSError) as error:
            self._say(f"(this turn cannot be undone: {error})")
            return
        if after.tree != self._before.tree:
            self._turns.append((self._before, after))

    async def undo(self) -> Undone | None:
        """Take back the last turn that changed files; None when there is none."""
        self._check()
        if not self._turns:
            return None
        done = await self._checkpoints.undo(*self._turns[-1])
        self._turns.pop()
        return done

    async def diff(self) -> str:
        """What changed since the first turn."""
        self._check()
        if self._first is None:
            return ""
        return await self._checkpoints.diff(self._first, await self._checkpoints.save())

    def _check(self) -> None:
        if self._off:
            raise UndoError(self._off)

    def close(self) -> None:
        """Remove the checkpoints."""
        self._checkpoints.close()


class Slash:
    """Runs one command line."""

    def __init__(self, engine: Engine, screen: Screen, history: History) -> None:
        self._engine, self._screen, self._history = engine, screen, history
        self._commands: dict[str, Callable[[str], Awaitable[None]]] = {
            "/help": self._help,
            "/agents": self._agents,
            "/toolkits": self._toolkits,
            "/memory": self._memory,
            "/model": self._model,
            "/cost": self._cost,
            "/diff": self._diff,
            "/undo": self._undo,
            "/compact": self._compact,
            "/resume": self._resume,
        }

    async def run(self, text: str) -> None:
        """Run a line that begins with a slash.

        Raises:
            OpenSageError: the command could not be done.
        """
        name, _, rest = text.partition(" ")
        handler = self._commands.get(name)
        if handler is None:
            self._screen.say(f"unknown command {name[:40]}; /help lists them")
            return
        await handler(rest.strip())

    async def _help(self, _rest: str) -> None:
        for usage, what in _HELP.items():
            self._screen.say(f"{usage:14} {what}")
        self._screen.say(_KEYS, "dim")

    async def _agents(self, _rest: str) -> None:
        engine = self._engine
        root = Topology(engine.member.team.folder, engine.session.id, engine.mask).root
        self._screen.console.print(drawn(root))
        names = ", ".join(engine.member.team.names()) or "none"
        self._screen.say(f"agents that can be called: {names}", "dim")

    async def _toolkits(self, _rest: str) -> None:
        for item in self._engine.shelf.items():
            tools = ", ".join(each.title for each in item.spec.tools) or "no tools, instructions only"
            self._screen.say(f"{item.spec.line} [{tools}]")
        self._screen.say(f"the agent's tools: {', '.join(self._engine.toolbox.shown)}", "dim")

    async def _memory(self, query: str) -> None:
        reach = self._engine.member.reach()
        if reach is None:
            self._screen.say("nothing is remembered: the memory is off ([memory] enabled = false)")
            return
        from opensage.cli.memory_common import overview

        for line in await reach.place.call(lambda: overview(reach, query)):
            self._screen.say(line)

    async def _model(self, name: str) -> None:
        if name:
            await asyncio.to_thread(fetch_if_local, name)
            await self._engine.use_model(name)
            self._screen.say(f"the next message goes to {self._engine.model.name}")
            return
        window = self._engine.model.context_window
        self._screen.say(f"{self._engine.model.name}" + (f", window {window} tokens" if window else ""))
        self._screen.say("/model NAME uses another one, e.g. local/qwen2.5-coder-1.5b", "dim")

    async def _cost(self, _rest: str) -> None:
        summary = self._engine.session.summary
        usage = summary.usage
        self._screen.say(
            f"{summary.turns} turns, {summary.tool_calls} tool calls, {usage.tokens} tokens "
            f"({usage.input_tokens} in, {usage.output_tokens} out), {money(usage.cost)}"
        )

    async def _diff(self, _rest: str) -> None:
        text = await self._history.diff()
        if not text:
            self._screen.say("no changes since the chat began")
            return
        lines = text.splitlines()
        self._screen.diff("\n".join(lines[:400]))
        if len(lines) > 400:
            self._screen.say(f"... {len(lines) - 400} more lines", "dim")

    async def _undo(self, _rest: str) -> None:
        done = await self._history.undo()
        if done is None:
            self._screen.say("nothing to undo: no turn of this chat changed a file")
            return
        said = [
            f"{what}: {_names(paths)}"
            for what, paths in (
                ("restored", done.restored),
                ("removed", done.removed),
                ("left alone (changed since, or not mine to touch)", done.left),
            )
            if paths
        ]
        for line in said:
            self._screen.say(line)
        note = (
            f"[The user took back file changes of your last turn. {'; '.join(said)}. Read files again before you edit.]"
        )
        self._engine.session.record(Note(text=note, reason="undo"))

    async def _compact(self, _rest: str) -> None:
        event = await self._engine.compact()
        self._screen.say("nothing to leave out yet" if event is None else f"history compacted: {event.how}")

    async def _resume(self, wished: str) -> None:
        if wished:
            self._engine.use_session(wished)
            summary = self._engine.session.summary
            self._screen.say(f"session {self._engine.session.id} ({summary.status}): {_title(summary.task)}")
            return
        store = SessionStore(state_folder(self._engine.workdir) / "sessions")
        rows = [row for row in await asyncio.to_thread(lambda: list(store.summaries())) if row.status != "new"]
        for row in rows[-_SHOWN:]:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.updated))
            mark = "*" if row.session == self._engine.session.id else " "
            self._screen.say(f"{mark} {row.session}  {when}  {row.status:9} {_title(row.task or row.reason)}")
        self._screen.say("/resume ID goes on with one (a unique beginning is enough)" if rows else "no sessions yet")


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:60]} ..."


def _names(paths: list[str]) -> str:
    more = f" and {len(paths) - 10} more" if len(paths) > 10 else ""
    return ", ".join(path.encode(errors="replace").decode() for path in paths[:10]) + more
