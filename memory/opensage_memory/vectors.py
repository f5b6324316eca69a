"""The vectors of a memory: whose model they are of, made early, late, or all anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from opensage_memory.embed.base import BadVectors, Embedder, embedded
from opensage_memory.errors import BadInput
from opensage_memory.item import Item
from opensage_memory.store.base import Store, Task, Vector
from opensage_memory.store.recorder import Recorder

EMBEDDER = "embedder"
"""Setting of the store: name and dimension of the model of its vectors."""
LONGEST = 20_000
"""Characters of a query that are embedded."""


class Vectors:
    """What an embedder does for a store.

    Attributes:
        embedder: makes them; None for none.
        model: name and dimension under which they are stored; empty when vectors cannot be used.
        trouble: why they cannot, or what failed last.
    """

    def __init__(self, store: Store, embedder: Embedder | None) -> None:
        self._store, self.embedder = store, embedder
        self.model = self.trouble = ""
        if embedder is not None:
            self._settle(f"{embedder.name}:{embedder.dimension}")

    def _settle(self, mine: str) -> None:
        """Use the store's vectors if they are of this model."""
        with self._store.read() as reader:
            theirs = reader.meta(EMBEDDER)
        if theirs is None and self._store.writable:
            with self._store.write() as writer:
                theirs = writer.meta(EMBEDDER) or mine
                writer.set_meta(EMBEDDER, theirs)
        if theirs == mine:
            self.model = mine
        elif theirs is not None:
            self.trouble = (
                f"{self._store.name} holds vectors of {theirs}, not of {mine}: words and graph are searched, "
                "vectors are not until `opensage memory reindex`"
            )

    def early(self, texts: Sequence[str]) -> tuple[dict[str, Vector], str]:
        """Vectors by text, made before a transaction, so that a slow embedder does not hold it; and what failed."""
        if self.embedder is None or not self.model:
            return {}, ""
        wanted = [text for text in dict.fromkeys(texts) if text.strip()]
        try:
            return dict(zip(wanted, embedded(self.embedder, wanted), strict=True)) if wanted else {}, ""
        except BadVectors as error:
            return {}, str(error)

    def keep(self, recorder: Recorder, items: Sequence[Item], made: Mapping[str, Vector], failed: str) -> None:
        """Store the vectors of new items; those without one wait."""
        if self.model:
            recorder.put_vectors({item.id: made[item.text] for item in items if item.text in made})
            missing = [item.id for item in items if item.text not in made]
            recorder.raw.put_tasks([Task(id, "embed", int(bool(failed)), failed) for id in missing])

    def later(self, recorder: Recorder) -> None:
        """Let what was made in a transaction be embedded by the next `renew`."""
        if self.model:
            fresh = [id for id in recorder.touched if recorder.is_fresh(id)]
            recorder.raw.put_tasks([Task(id, "embed") for id in fresh])

    def of(self, query: str) -> Vector | None:
        """The vector of a query; None when there is none, as words and graph still answer."""
        if self.embedder is None or not self.model or not query.strip():
            return None
        try:
            return embedded(self.embedder, [query[:LONGEST]])[0]
        except BadVectors as error:
            self.trouble = str(error)
            return None

    def renew(self, batch: int, progress: Callable[[int], None] | None) -> int:
        """See `Memory.reindex`."""
        if self.embedder is None:
            raise BadInput("no embedder is set: name one, as `hashed` or `minilm`")
        self._take_over(f"{self.embedder.name}:{self.embedder.dimension}")
        done = after = 0
        while True:
            with self._store.read() as reader:
                page = reader.without_vector(self.model, after, batch)
            if not page:
                return done
            vectors = embedded(self.embedder, [item.text for _, item in page])
            with self._store.write() as writer:
                writer.put_vectors(self.model, {item.id: v for (_, item), v in zip(page, vectors, strict=True)})
                writer.remove_tasks("embed", [item.id for _, item in page])
            after, done = page[-1][0], done + len(page)
            if progress is not None:
                progress(done)

    def _take_over(self, mine: str) -> None:
        with self._store.write() as writer:
            theirs = writer.meta(EMBEDDER)
            if theirs not in (None, mine):
                writer.remove_vectors(str(theirs))
            writer.set_meta(EMBEDDER, mine)
        self.model, self.trouble = mine, ""
