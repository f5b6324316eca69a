"""A session: its log, its blobs and the folds the loop needs, kept up to date event by event."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from opensage import __version__
from opensage.errors import SessionError
from opensage.files import why
from opensage.log.blobs import BlobStore
from opensage.log.conversation import Conversation
from opensage.log.delegations import Delegations
from opensage.log.events import Event, Recovered, SessionStarted, ToolResult
from opensage.log.folds import Summary
from opensage.log.journal import Journal

if TYPE_CHECKING:
    from opensage.secrets import Mask

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
E = TypeVar("E", bound=Event)

NEVER_STARTED = (
    "[interrupted: this call never ran; the session stopped before it. Call it again if it is still needed.]"
)
MAY_HAVE_RUN = (
    "[interrupted: the session stopped while this call was running: its result is lost and it may have taken effect. "
    "Check the state before you repeat it.]"
)


def state_folder(workdir: Path) -> Path:
    """`.opensage` of a project, made on first use and ignored by git.

    Raises:
        SessionError: the folder cannot be made.
    """
    folder = workdir / ".opensage"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        ignore = folder / ".gitignore"
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise SessionError(f"cannot write {folder}: {why(error)}, or choose another --workdir.") from None
    return folder


def new_id() -> str:
    """A session id that sorts by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


def check_id(session: str) -> str:
    """The id itself, if it can be a file name.

    Raises:
        SessionError: it cannot.
    """
    if not _ID.fullmatch(session):
        raise SessionError(f"{session[:80]!r} is not a session id; `opensage sessions list` shows them")
    return session


class Session:
    """One open session. `record` is the only way anything gets into it.

    Raises:
        SessionBusy: another run writes it.
        SessionError: it does not exist (with `create=False`) or cannot be opened.
    """

    def __init__(
        self,
        folder: Path,
        session: str,
        *,
        create: bool = False,
        workdir: Path | None = None,
        mask: Mask | None = None,
        parent: str = "",
    ) -> None:
        path = folder / f"{check_id(session)}.jsonl"
        if not create and not path.exists():
            raise SessionError(f"no session {session} in {folder}; `opensage sessions list` shows those there are")
        self._make_folder(folder)
        self.id = session
        self.journal = Journal(path, mask)
        self.blobs = BlobStore(folder / f"{session}.blobs")
        self.conversation = Conversation()
        self.summary = Summary()
        self.delegations = Delegations()
        for event in self.journal.events:
            if mask:  # what an earlier run did not know for a secret
                mask.event(event)
            self._fold(event)
        loaded, self.journal.events = self.journal.events, []
        if not any(isinstance(event, SessionStarted) for event in loaded):
            place = os.fspath(workdir or "")
            self.record(SessionStarted(session=session, kit=__version__, workdir=place, parent=parent))

    @staticmethod
    def _make_folder(folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SessionError(f"cannot make {folder}: {why(error)}, or choose another --workdir.") from None

    def record(self, event: E) -> E:
        """Append an event and fold it."""
        self.journal.append(event)
        self._fold(event)
        return event

    def _fold(self, event: Event) -> None:
        self.conversation.apply(event)
        self.summary.apply(event)
        self.delegations.apply(event)

    def close_open_calls(self, *, only_started: bool = False, keep: Collection[str] = ()) -> list[Event]:
        """Answer the calls a crash left open, so that the history can be sent again.

        Args:
            only_started: leave calls that never began to be run by a resume.
            keep: names of tools whose calls a resume makes again.

        Returns:
            The events written, the synthetic results among them.
        """
        conversation = self.conversation
        lost = [
            call
            for call in conversation.open.values()
            if (call.id in conversation.started or not only_started) and call.name not in keep
        ]
        if not lost:
            return []
        names = ", ".join(f"{call.name} ({call.id})" for call in lost)
        events: list[Event] = [self.record(Recovered(detail=f"interrupted: {names}"))]
        for call in lost:
            text = MAY_HAVE_RUN if call.id in conversation.started else NEVER_STARTED
            answer = ToolResult(id=call.id, name=call.name, text=text, ok=False, synthetic="interrupted")
            events.append(self.record(answer))
        return events

    def close(self) -> None:
        """Free the log."""
        self.journal.close()
