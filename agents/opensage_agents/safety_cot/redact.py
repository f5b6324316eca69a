"""Texts without the spans that were judged unsafe."""

from __future__ import annotations

from collections.abc import Sequence

from opensage_agents.safety_cot.sample import Sample
from opensage_agents.safety_cot.scores import Scores, Span

HIDDEN = "[redacted]"


def redacted(text: str, spans: Sequence[Span]) -> str:
    """The text with each range of characters replaced by "[redacted]"; ranges may overlap."""
    pieces, at = [], 0
    for start, end in sorted(spans):
        if end <= at:
            continue
        if start >= at:
            pieces += [text[at:start], HIDDEN]
        at = end
    return "".join([*pieces, text[at:]])


def safe_texts(sample: Sample, scores: Scores, tau: float = 0.5) -> tuple[str, str]:
    """Thought and answer as they may be kept.

    Unsafe ranges are replaced. A text below tau for which the judge named no range, or that was not judged at all, is
    replaced whole.
    """
    thought = _safe(sample.thought, scores.S_z, scores.unsafe_z, tau)
    return thought, _safe(sample.answer, scores.S_y, scores.unsafe_y, tau)


def _safe(text: str, safety: float, spans: Sequence[Span], tau: float) -> str:
    return HIDDEN if text and safety < tau and not spans else redacted(text, spans)
