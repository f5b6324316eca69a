"""How the memory is configured: the table `[memory]` of a settings file."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SERVERS = re.compile(r"(neo4j|bolt)(\+s|\+ssc)?://\S+")


def _known_store(where: str) -> str:
    if "\0" in where:
        raise ValueError("a NUL character cannot be part of a path")
    if _SCHEME.match(where) and not _SERVERS.fullmatch(where):
        raise ValueError("use the path of a file, or neo4j://HOST:7687")
    return where


def _known_embedder(name: str) -> str:
    if not re.fullmatch(r"none|hashed|minilm|litellm:\S+:[0-9]+", name):
        raise ValueError("use none, hashed, minilm or litellm:MODEL:DIMENSION")
    return name


class MemorySettings(BaseModel):
    """What the memory of a workspace is, and how much of it a prompt gets."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    """Whether anything is remembered and recalled."""
    store: Annotated[str, AfterValidator(_known_store)] = ""
    """Path of a file, or `neo4j://HOST:7687`; empty for `.opensage/memory/memory.db` of the workspace."""
    embedder: Annotated[str, AfterValidator(_known_embedder)] = "none"
    """What makes vectors: `none`, `hashed`, `minilm` or `litellm:MODEL:DIMENSION`."""
    budget_tokens: Annotated[int, Field(ge=0, le=100_000)] = 800
    """Tokens of what is recalled at the start of a task; 0 recalls nothing by itself."""
