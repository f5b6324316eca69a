"""What of a memory one agent has: where it writes, what it may read, and what of it is its own conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opensage.memory.place import MemoryPlace

if TYPE_CHECKING:
    from opensage.engine import Engine
    from opensage.secrets import Mask
    from opensage_memory import Hit, Memory


@dataclass(frozen=True, slots=True)
class Reach:
    """One agent's part of a memory.

    Attributes:
        place: the memory.
        name: of the agent whose part it is: its own, or its creator's.
        agent: its name.
        engine: in whose session is what it need not be reminded of.
        mask: secrets that never get in.
    """

    place: MemoryPlace
    name: str
    agent: str
    engine: Engine
    mask: Mask

    @property
    def memory(self) -> Memory:
        """The memory, opened."""
        return self.place.memory

    @property
    def session(self) -> str:
        """Id of its session."""
        return self.engine.session.id

    @property
    def own(self) -> str:
        """The scope that it writes to."""
        return f"{self.place.project}/{self.name}"

    @property
    def scopes(self) -> tuple[str, ...]:
        """The scopes that it reads: its own, what was published to the project, the person's."""
        from opensage_memory.scope import lineage

        return lineage(self.own)

    def news(self, hits: Sequence[Hit]) -> list[Hit]:
        """Hits without what stands in the agent's history anyway, and without turns in which nothing was said."""
        entries = self.engine.session.conversation.entries
        seqs = [seq for seq, message in entries if message["role"] != "system"]
        first = min(seqs, default=0)
        return [hit for hit in hits if not self._seen(hit.item.key, first) and not hit.item.data.get("silent")]

    def _seen(self, key: str, first: int) -> bool:
        session, _, rest = key.partition("#")
        seq = rest.partition(".")[0]
        return session == self.session and (not seq.isdecimal() or int(seq) >= first)
