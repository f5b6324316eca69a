"""The sessions of a project: list, show, fork, export, remove."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from opensage.errors import SessionError
from opensage.files import is_plain, why
from opensage.log.conversation import Conversation
from opensage.log.events import AgentCalled, Event, RunStarted, SessionStarted, UserMessage, encode
from opensage.log.folds import Summary, summarise
from opensage.log.journal import Journal, Loaded, load
from opensage.log.session import check_id, new_id

if TYPE_CHECKING:
    from opensage.secrets import Mask


class SessionStore:
    """The folder `.opensage/sessions` of a project. Reading needs no lock. With a mask no secret comes out of it."""

    def __init__(self, folder: Path, mask: Mask | None = None) -> None:
        self.folder = folder
        self.mask = self._mask = mask

    def ids(self) -> list[str]:
        """All ids, oldest first, without those of sub-agents. What is no regular file is no session."""
        return [name for name in self._all() if "." not in name]

    def _all(self) -> list[str]:
        if not self.folder.is_dir():
            return []
        return sorted(path.stem for path in self.folder.glob("*.jsonl") if is_plain(path))

    def below(self, session: str) -> list[str]:
        """Ids of the sessions of its sub-agents, and of theirs."""
        return [name for name in self._all() if name.startswith(f"{session}.")]

    def path(self, session: str) -> Path:
        """The log of a session; a unique prefix or "last" is enough.

        Raises:
            SessionError: none or several match.
        """
        ids = self.ids()
        if session == "last" and ids:
            return self.folder / f"{ids[-1]}.jsonl"
        check_id(session)
        prefix, dot, number = session.partition(".")
        if dot:  # of a sub-agent
            ids, session = self._all(), f"{self.path(prefix).stem}.{number}"
        found = [i for i in ids if i == session] or [i for i in ids if i.startswith(session)]
        if len(found) != 1:
            what = "no session" if not found else f"{len(found)} sessions"
            raise SessionError(f"{what} {session} in {self.folder}; `opensage sessions list` shows those there are")
        return self.folder / f"{found[0]}.jsonl"

    def root(self, session: str) -> str:
        """The whole id of a session that can be gone on with.

        Raises:
            SessionError: none or several match, or it is a sub-agent's.
        """
        found = self.path(session).stem
        above = found.partition(".")[0]
        if above != found:
            raise SessionError(
                f"{found} is the session of a sub-agent, which goes on with its caller (`opensage resume {above}`); "
                f"a copy can go on by itself: `opensage fork {found}`"
            )
        return found

    def load(self, session: str) -> Loaded:
        """The events of a session."""
        loaded = load(self.path(session))
        if self._mask:
            for event in loaded.events:
                self._mask.event(event)
        return loaded

    def summaries(self) -> Iterator[Summary]:
        """One fold a session, oldest first; an unreadable log is reported as status "unreadable"."""
        for session in self.ids():
            try:
                summary = summarise(self.load(session).events)
            except SessionError as error:
                summary = Summary(status="unreadable", reason=str(error))
            summary.session = session
            yield summary

    def messages(self, session: str) -> list[dict[str, object]]:
        """The conversation of a session in OpenAI chat-completions form."""
        conversation = Conversation()
        for event in self.load(session).events:
            conversation.apply(event)
        return list(conversation.view())

    def export(self, session: str, form: str = "jsonl") -> str:
        """The log as text: "jsonl" (the events), or "messages" (OpenAI chat-completions JSON).

        Raises:
            SessionError: unknown form.
        """
        if form == "messages":
            return json.dumps(self.messages(session), indent=1, ensure_ascii=False) + "\n"
        if form == "jsonl":
            return b"".join(encode(event) for event in self.load(session).events).decode()
        raise SessionError(f"unknown export form {form!r}; use jsonl, messages or svg")

    def fork(self, session: str, at: int | None = None) -> str:
        """Copy the events up to and including `at` into a new session; returns its id.

        Raises:
            SessionError: `at` is before the first event.
        """
        source = self.path(session)
        events = [e for e in self.load(source.stem).events if at is None or e.seq <= at]
        if not events or (at is not None and at < 0):
            raise SessionError(
                f"session {source.stem} has no event at or before {at}; `opensage sessions show` lists them"
            )
        target = new_id()
        for event in events:
            if isinstance(event, SessionStarted):
                event.session, event.parent, event.forked_at = target, source.stem, events[-1].seq
        said = {source.stem: _messages(events)}
        for name in self.below(source.stem):  # each after the one above it
            above, _, number = name.rpartition(".")
            if messages := said.get(above, {}).get(number, 0):
                said[name] = self._copy_below(name, f"{target}{name.removeprefix(source.stem)}", messages)
        self._write_whole(target, b"".join(encode(event) for event in events), self.folder / f"{source.stem}.blobs")
        return target

    def _copy_below(self, name: str, target: str, messages: int) -> dict[str, int]:
        """A sub-agent's session, if it can be read, comes along up to the next message that it was not given yet."""
        try:
            events = _heard(self.load(name).events, messages)
        except SessionError:
            return {}
        for event in events:
            if isinstance(event, SessionStarted):
                event.session, event.parent = target, target.rpartition(".")[0]
        self._write_whole(target, b"".join(encode(event) for event in events), self.folder / f"{name}.blobs")
        return _messages(events)

    def _write_whole(self, session: str, data: bytes, blobs: Path) -> None:
        temporary, copied = self.folder / f".{session}.new", self.folder / f"{session}.blobs"
        board, copied_board = blobs.with_suffix(".board"), self.folder / f"{session}.board"
        try:
            if is_plain(board):  # whole: what each agent has read of it is a place in it
                shutil.copyfile(board, copied_board)
            for blob in sorted(blobs.iterdir()) if blobs.is_dir() else ():
                if is_plain(blob):
                    copied.mkdir(exist_ok=True)
                    shutil.copyfile(blob, copied / blob.name)
            temporary.write_bytes(data)
            temporary.rename(self.folder / f"{session}.jsonl")
        except OSError as error:
            for half in (temporary, copied_board):
                with contextlib.suppress(OSError):
                    half.unlink(missing_ok=True)
            shutil.rmtree(copied, ignore_errors=True)
            raise SessionError(f"cannot write session {session} in {self.folder}: {why(error)}.") from None

    def remove(self, session: str) -> str:
        """Delete a session that nobody writes, with those of its sub-agents and their work; returns its id.

        Raises:
            SessionBusy: a run holds it.
        """
        path = self.path(session)
        Journal(path).close()
        for name in [*self.below(path.stem), path.stem]:
            shutil.rmtree(self.folder / f"{name}.blobs", ignore_errors=True)
            shutil.rmtree(self.folder.parent / "work" / name, ignore_errors=True)
            (self.folder / f"{name}.board").unlink(missing_ok=True)
            (self.folder / f"{name}.jsonl").unlink()
        return path.stem


def _messages(events: Iterable[Event]) -> dict[str, int]:
    """How many messages a session gave to each of its sub-agents, by the number in their ids."""
    return Counter(str(event.number) for event in events if isinstance(event, AgentCalled) and event.task)


def _heard(events: list[Event], messages: int) -> list[Event]:
    """The events up to the run that answers a message beyond these."""
    begun = 0
    for place, event in enumerate(events):
        if isinstance(event, RunStarted):
            begun = place
        elif isinstance(event, UserMessage):
            messages -= 1
            if messages < 0:
                return events[:begun]
    return events
