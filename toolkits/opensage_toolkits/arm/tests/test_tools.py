"""Quick tests that travel with the toolkit."""

from __future__ import annotations

import json

from ..tools import recall, size


def test_the_paper_s_memory_is_that_of_a_short_window() -> None:
    found = json.loads(json.dumps(size(head_dim=128, kv_heads=8, layers=32)))
    assert found["memory_bytes"] == sum(found["terms"].values()) == 32 * 8 * 256 * ((2 * 128 + 1) * 2 + 8)
    assert found["tokens_of_a_window_of_these_bytes"] == 261
    assert found["full_cache_bytes"]["131072"] == 131072 * 32 * 8 * 2 * 128 * 2


def test_a_window_cannot_know_what_it_no_longer_holds() -> None:
    found = json.loads(json.dumps(recall("window", steps=3)))
    assert found["accuracy"] < 0.2
    assert found["numbers"] <= 16 * 99
