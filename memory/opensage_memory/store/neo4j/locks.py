"""One writer at a time, over threads, processes and machines."""

from __future__ import annotations

import secrets
import time
from typing import Protocol

from opensage_memory.errors import StoreUnavailable
from opensage_memory.store.neo4j.connection import WAIT_SECONDS, Run, driver_module, patiently

LEASE_SECONDS = 10.0


class Lock(Protocol):
    """One writer at a time over all processes; the node that it is kept in counts items too."""

    def take(self, alone: Run) -> None:
        """Before a transaction."""

    def first(self, run: Run) -> int:
        """The first query of a transaction; returns the last number given to an item."""

    def last(self, run: Run, number: int) -> None:
        """The last query of a transaction."""

    def keep(self, alone: Run) -> None:
        """Between its queries."""

    def leave(self, alone: Run) -> None:
        """After a transaction that was not committed."""


class NodeLock:
    """The server's own lock on a node: kept from the first query to the end, and given back when a client dies."""

    def take(self, alone: Run) -> None:
        """Nothing yet."""

    def first(self, run: Run) -> int:
        """Waits until no other transaction holds the node."""
        return int(run("MERGE (l:Lock {id: 0}) SET l.held = true WITH l RETURN coalesce(l.n, 0)")[0][0])

    def last(self, run: Run, number: int) -> None:
        """Keep the number."""
        run("MATCH (l:Lock {id: 0}) SET l.n = $n", n=number)

    def keep(self, alone: Run) -> None:
        """It is kept."""

    def leave(self, alone: Run) -> None:
        """It was left with the transaction."""


class Lease:
    """A lock for servers that find conflicts only at the commit: a node of which there can be one says who may write.

    A writer that died is overtaken after `LEASE_SECONDS`; one that was overtaken cannot commit.
    """

    def __init__(self) -> None:
        self._mine = {"holder": secrets.token_hex(8), "length": int(LEASE_SECONDS * 1000)}
        self._until = 0.0

    def take(self, alone: Run) -> None:
        """Wait until nobody holds it."""
        end = time.monotonic() + WAIT_SECONDS
        while not patiently(lambda: self._taken(alone)):
            if time.monotonic() > end:
                raise StoreUnavailable(f"another writer has held the memory for {WAIT_SECONDS:.0f} s: try again")
            time.sleep(0.005 + secrets.randbelow(20) / 1000)
        self._until = time.monotonic() + LEASE_SECONDS

    def _taken(self, alone: Run) -> bool:
        held = alone("MATCH (l:Lease {id: 0}) RETURN l.until < timestamp(), l.holder")
        if held and not held[0][0]:
            return False
        if held:
            alone("MATCH (l:Lease {id: 0}) WHERE l.holder = $holder DELETE l", holder=held[0][1])
        try:
            alone("CREATE (l:Lease {id: 0, holder: $holder, until: timestamp() + $length})", **self._mine)
        except driver_module().exceptions.ConstraintError:
            return False
        return True

    def first(self, run: Run) -> int:
        """The number so far."""
        return int(run("MERGE (l:Lock {id: 0}) RETURN coalesce(l.n, 0)")[0][0])

    def last(self, run: Run, number: int) -> None:
        """Give it back in the same transaction; nothing is kept when another has it."""
        run("MATCH (l:Lock {id: 0}) SET l.n = $n", n=number)
        if not run("MATCH (l:Lease {id: 0}) WHERE l.holder = $holder DELETE l RETURN 1", **self._mine):
            raise StoreUnavailable(
                f"nothing was written: a write that asks nothing for {LEASE_SECONDS:.0f} s is overtaken by others"
            )

    def keep(self, alone: Run) -> None:
        """Ask for more time when half of it is over."""
        if time.monotonic() > self._until - LEASE_SECONDS / 2:
            query = "MATCH (l:Lease {id: 0}) WHERE l.holder = $holder SET l.until = timestamp() + $length RETURN 1"
            if patiently(lambda: alone(query, **self._mine)):
                self._until = time.monotonic() + LEASE_SECONDS

    def leave(self, alone: Run) -> None:
        """Give it back."""
        patiently(lambda: alone("MATCH (l:Lease {id: 0}) WHERE l.holder = $holder DELETE l", **self._mine))
