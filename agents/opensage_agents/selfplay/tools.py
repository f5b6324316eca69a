"""Tools for agents that write problems, tests or lessons: what is new among them."""

from __future__ import annotations

from typing import Any

from opensage.tools import tool
from opensage_agents.selfplay.detector import SeenDetector
from opensage_agents.selfplay.embedding import Encoder
from opensage_agents.selfplay.errors import BadValue
from opensage_agents.selfplay.reward import NoveltyReward

MOST = 5_000
LEAST = 6


@tool
def novelty(questions: list[str], used: list[str], alpha: float = 0.05) -> list[dict[str, Any]]:
    """Say how unlike everything that was used each question is: novelty 0 to 1, and whether it counts as seen.

    Args:
        questions: new ones, at most 5000.
        used: earlier ones, 6 to 5000; numbers and names do not count.
        alpha: share of seen-like questions that may count as new.
    """
    _bounded(questions, used)
    encoder = Encoder()
    detector = SeenDetector(h_min=LEAST).fit_history(encoder.encode(used))
    found = NoveltyReward(detector, alpha=alpha, encoder=encoder)
    _, parts = found(questions, [0.5] * len(questions), [0.0] * len(questions))
    return [
        {"question": text[:200], "novelty": round(float(new), 4), "seen": bool(seen)}
        for text, new, seen in zip(questions, parts["novelty"], parts["seen"], strict=True)
    ]


@tool
def rewards(
    questions: list[str], solved: list[float], used: list[str], lam: float = 0.5
) -> list[dict[str, Any]]:  # fmt: skip
    """Pay questions: uncertainty of the solver less repetition in the batch, and novelty if they can be learnt from.

    Args:
        questions: new ones, at most 5000.
        solved: share of the solver's answers that were right, one for each question.
        used: earlier ones, at most 5000; with fewer than 6 the host's reward alone is paid, and the note says so.
        lam: weight of the novelty.
    """
    from opensage_agents.selfplay.host import host_reward

    _bounded(questions, used)
    if len(solved) != len(questions):
        raise BadValue(f"{len(solved)} numbers for {len(questions)} questions: give one share for each")
    paid = NoveltyReward(None, lam)
    note = paid.refit(used, SeenDetector(h_min=LEAST))
    total, parts = paid(questions, solved, host_reward(questions, solved))
    return [
        {"question": text[:200], "reward": round(float(value), 4), "novelty": round(float(new), 4), "note": note}
        for text, value, new in zip(questions, total, parts["novelty"], strict=True)
    ]


def _bounded(questions: list[str], used: list[str]) -> None:
    if max(len(questions), len(used)) > MOST:
        raise BadValue(f"more than {MOST} texts: give fewer at once")
