"""A memory over each kind of store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from opensage_memory import Memory


@pytest.fixture
def open_memory(open_store: Callable[..., Any]) -> Callable[..., Memory]:
    """Opens the test's memory; options are those of `Memory`."""
    return lambda **options: Memory(open_store(), **options)


@pytest.fixture
def memory(open_memory: Callable[..., Memory]) -> Memory:
    """An empty memory without an embedder."""
    return open_memory()
