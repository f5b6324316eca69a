"""Self-play with a one-class novelty reward ("Seen Detector").

Importing this package loads none of its modules: `opensage --help` reads its command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opensage.lazy import lazily

if TYPE_CHECKING:
    from opensage_agents.selfplay.buffer import HistoryBuffer
    from opensage_agents.selfplay.detector import SeenDetector
    from opensage_agents.selfplay.embedding import Encoder
    from opensage_agents.selfplay.errors import BadValue, IncompatibleDetector, NotEnoughHistory, NotFittedError
    from opensage_agents.selfplay.metrics import History, Round, collapse_report
    from opensage_agents.selfplay.reward import NoveltyReward, WrappedReward, wrap_reward

_HOMES = {
    "BadValue": "errors",
    "Encoder": "embedding",
    "History": "metrics",
    "HistoryBuffer": "buffer",
    "IncompatibleDetector": "errors",
    "NotEnoughHistory": "errors",
    "NotFittedError": "errors",
    "NoveltyReward": "reward",
    "Round": "metrics",
    "SeenDetector": "detector",
    "WrappedReward": "reward",
    "collapse_report": "metrics",
    "wrap_reward": "reward",
}

__all__ = [
    "BadValue",
    "Encoder",
    "History",
    "HistoryBuffer",
    "IncompatibleDetector",
    "NotEnoughHistory",
    "NotFittedError",
    "NoveltyReward",
    "Round",
    "SeenDetector",
    "WrappedReward",
    "collapse_report",
    "wrap_reward",
]

__getattr__ = lazily(__name__, _HOMES)
