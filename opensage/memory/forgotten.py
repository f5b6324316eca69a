"""What was forgotten stays so although the logs have it: places of logs whose items are not written again."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from opensage.memory.place import MemoryPlace, explained

if TYPE_CHECKING:
    from opensage_memory import Memory
    from opensage_memory.store.base import Operation, Reader

FORGOTTEN = "forgotten"
"""Setting of the store: JSON, places by the operation that forgot them."""


def forget(
    memory: Memory, ids: Iterable[str], scope: str, *, purge: bool = False, mark: bool = True
) -> Operation | None:
    """Forget items and remember the places they came from; None when none of them is in the scope.

    Args:
        memory: where.
        ids: which.
        scope: whose.
        purge: leave no byte of them, at once.
        mark: whether to keep a rebuild from writing them again.
    """
    done = memory.forget(ids, scope)
    if done is None:
        return None
    if mark:
        with memory.store.write() as writer:
            marks = forgotten(writer) | dict.fromkeys(_places(done), done.id)
            writer.set_meta(FORGOTTEN, json.dumps(marks) if marks else None)
    if purge:
        memory.vacuum()
    return done


def undo(memory: Memory, operation: str, scope: str) -> Operation | None:
    """Take an operation back; what it had forgotten may be written again."""
    undone = memory.undo(operation, scope)
    with memory.store.write() as writer:
        known = forgotten(writer)
        left = {key: by for key, by in known.items() if by != operation}
        if left != known:
            writer.set_meta(FORGOTTEN, json.dumps(left) if left else None)
    return undone


def forget_session(place: MemoryPlace, session: str) -> int:
    """Forget what the logs of a removed session had told; returns how many items.

    Raises:
        MemoryUnavailable: the memory cannot be written.
    """
    count = 0
    with contextlib.closing(place), explained():
        for item in place.memory.find(session, f"{place.project}/*", kinds=("session",)):
            done = forget(place.memory, [item.id], item.scope, mark=False)
            count += 0 if done is None else len(done.touched)
    return count


def forgotten(reader: Reader) -> dict[str, str]:
    """The places whose items were forgotten, and by which operation."""
    try:
        found = json.loads(reader.meta(FORGOTTEN) or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _places(done: Operation) -> list[str]:
    """Keys of the items that an operation removed, of those that come from a log."""
    if done.name != "forget" or not done.undo:
        return []
    keys = [str(item.get("key", "")) for item, _tokens in json.loads(done.undo).get("items", ())]
    return [key for key in keys if "#" in key]
