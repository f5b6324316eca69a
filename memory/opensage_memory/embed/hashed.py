"""Vectors without a model: hashed character n-grams."""

from __future__ import annotations

import unicodedata
import zlib
from collections import Counter
from collections.abc import Sequence


class HashedEmbedder:
    """Counts of character n-grams (3 to 5) of words, hashed with signs into a vector (the hashing trick).

    Finds other spellings and inflections of the same words, not other words of the same sense.
    """

    def __init__(self, dimension: int = 512) -> None:
        self.name, self.dimension = f"hashed-{dimension}", dimension

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Embedder`."""
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        import numpy as np

        vector = np.zeros(self.dimension, dtype=np.float32)
        for gram, count in _grams(text).items():
            code = zlib.crc32(gram.encode("utf-8", "surrogatepass"))
            vector[code % self.dimension] += count**0.5 * (1 if code & 0x80000000 else -1)
        norm = float(np.linalg.norm(vector))
        if not norm:
            vector[0] = norm = 1.0
        return list(map(float, vector / norm))


def _grams(text: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for word in unicodedata.normalize("NFKC", text).casefold().split()[:20_000]:
        framed = f"<{word[:200]}>"
        for length in (3, 4, 5):
            found.update(framed[start : start + length] for start in range(len(framed) - length + 1))
    return found
