"""Embedders: texts to vectors. None is needed."""

from __future__ import annotations

from opensage_memory.embed.base import CallableEmbedder, Embedder, embedded
from opensage_memory.embed.hashed import HashedEmbedder
from opensage_memory.embed.opening import open_embedder

__all__ = ["CallableEmbedder", "Embedder", "HashedEmbedder", "embedded", "open_embedder"]
