"""What stands around items in their conversations, for stores that tell it edge by edge."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from opensage_memory.item import NEXT, PART_OF, REPLY_TO, Edge
from opensage_memory.store.base import Outline

AROUND = (NEXT, REPLY_TO, PART_OF)


@dataclass(slots=True)
class Around:
    """Neighbours by id; `ids` are all that were met."""

    previous: dict[str, str] = field(default_factory=dict)
    next: dict[str, str] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    session: dict[str, str] = field(default_factory=dict)
    ids: dict[str, None] = field(default_factory=dict)

    def read(self, edges: Iterable[Edge]) -> None:
        """Take edges of `AROUND`."""
        for edge in edges:
            if edge.type == PART_OF:
                self.session.setdefault(edge.source, edge.target)
                continue
            self.ids |= {edge.source: None, edge.target: None}
            if edge.type == NEXT:
                self.next.setdefault(edge.source, edge.target)
                self.previous.setdefault(edge.target, edge.source)
            else:
                self.asked.setdefault(edge.source, edge.target)

    def outlines(self, bare: list[Outline]) -> list[Outline]:
        """Outlines with their neighbours, as far as these are among them."""
        known = {each.id for each in bare}

        def told(links: dict[str, str], id: str) -> str:
            return link if (link := links.get(id, "")) in known else ""

        return [
            each._replace(
                previous=told(self.previous, each.id),
                next=told(self.next, each.id),
                asked=told(self.asked, each.id),
                session=self.session.get(each.id, ""),
            )
            for each in bare
        ]
