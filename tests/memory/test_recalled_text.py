"""What was recalled into a prompt is taken out when it comes back, and nothing else, in time that grows with the text."""

from __future__ import annotations

import time

import pytest

from opensage_memory.writing import without_recalled


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("plain", "plain"),
        ("<memory>\nx\n</memory>\nask", "ask"),
        ("a <memory>x</memory> b <memory>y</memory>  c", "a b c"),
        ("<memory>open only", "<memory>open only"),
        ("</memory>  closed <memory", "</memory>  closed <memory"),
        ("a</memory>  b <memory>", "a</memory>  b <memory>"),
        ("<memoryless> stays </memoryless>", "<memoryless> stays </memoryless>"),
    ],
)
def test_only_whole_blocks_go(text: str, left: str) -> None:
    assert without_recalled(text) == left


@pytest.mark.parametrize(
    "text", ["<memory>" * 200_000, "</memory>" + "<memory>" * 200_000, "<memory " * 200_000 + "</memory>"]
)
def test_a_hostile_text_takes_no_longer_than_its_length(text: str) -> None:
    began = time.process_time()
    without_recalled(text)
    assert time.process_time() - began < 5
