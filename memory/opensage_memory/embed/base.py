"""What an embedder is, and whether what it gave can be used."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from opensage_memory.errors import GraphMemoryError

Vectors = Sequence[Sequence[float]]


class BadVectors(GraphMemoryError):
    """An embedder failed, or gave what is no vector; the items are kept and wait in the queue."""


class Embedder(Protocol):
    """Texts to vectors of one length."""

    name: str
    """Model and version: vectors of different names are never compared."""

    dimension: int

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One vector for each text, float32, any norm but zero."""


class CallableEmbedder:
    """An embedder from a function.

    Args:
        name: of the model.
        dimension: length of a vector.
        call: texts to vectors.
    """

    def __init__(self, name: str, dimension: int, call: Callable[[Sequence[str]], Vectors]) -> None:
        self.name, self.dimension, self._call = name, dimension, call

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder`."""
        return self._call(texts)


def embedded(embedder: Embedder, texts: Sequence[str]) -> Vectors:
    """The vectors of texts, checked.

    Raises:
        BadVectors: the embedder raised, gave another number of vectors, another length, no numbers, NaN or zeros.
    """
    try:
        vectors = embedder.embed(texts)
        found = [[float(value) for value in vector] for vector in vectors]
    except GraphMemoryError:
        raise
    except Exception as error:
        # Foreign code may raise anything; the caller keeps the text and is told.
        raise BadVectors(f"the embedder {embedder.name} failed: {type(error).__name__}: {error}"[:500]) from error
    if len(found) != len(texts):
        raise BadVectors(f"the embedder {embedder.name} gave {len(found)} vectors for {len(texts)} texts")
    for vector in found:
        if fault := _fault(vector, embedder.dimension):
            raise BadVectors(f"the embedder {embedder.name} gave {fault}")
    return found


def _fault(vector: Sequence[Any], dimension: int) -> str:
    if len(vector) != dimension:
        return f"a vector of {len(vector)} numbers, not {dimension}"
    if not all(map(math.isfinite, vector)):
        return "a vector with NaN or infinity"
    return "" if any(vector) else "a vector of zeros"
