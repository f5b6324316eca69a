"""How far a model can be trusted as a judge: the graded response model and a diagnosis in two phases.

Importing this package loads none of its modules: `opensage --help` reads its command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opensage.lazy import lazily

if TYPE_CHECKING:
    from opensage_agents.judge_irt.alignment import Alignment, align
    from opensage_agents.judge_irt.chance import Chance, chance_of
    from opensage_agents.judge_irt.collecting import Bounds, Collected, Plan, acollect, collect, score_in
    from opensage_agents.judge_irt.consistency import (
        Diagnosis,
        Interval,
        bootstrap,
        diagnose,
        marginal_reliability,
        prompt_consistency,
    )
    from opensage_agents.judge_irt.items import Item, read_items
    from opensage_agents.judge_irt.model import GradedResponseModel
    from opensage_agents.judge_irt.perturb import wordings
    from opensage_agents.judge_irt.reading import read_scores
    from opensage_agents.judge_irt.run import align_files, fit_file
    from opensage_agents.judge_irt.scores import ScoreError
    from opensage_agents.judge_irt.tools import JUDGE_TOOLS, align_judges, diagnose_judges

_HOMES = {
    "JUDGE_TOOLS": "tools",
    "Alignment": "alignment",
    "Bounds": "collecting",
    "Chance": "chance",
    "Collected": "collecting",
    "Diagnosis": "consistency",
    "GradedResponseModel": "model",
    "Interval": "consistency",
    "Item": "items",
    "Plan": "collecting",
    "ScoreError": "scores",
    "acollect": "collecting",
    "align": "alignment",
    "align_files": "run",
    "align_judges": "tools",
    "bootstrap": "consistency",
    "chance_of": "chance",
    "collect": "collecting",
    "diagnose": "consistency",
    "diagnose_judges": "tools",
    "fit_file": "run",
    "marginal_reliability": "consistency",
    "prompt_consistency": "consistency",
    "read_items": "items",
    "read_scores": "reading",
    "score_in": "collecting",
    "wordings": "perturb",
}

__all__ = [
    "JUDGE_TOOLS",
    "Alignment",
    "Bounds",
    "Chance",
    "Collected",
    "Diagnosis",
    "GradedResponseModel",
    "Interval",
    "Item",
    "Plan",
    "ScoreError",
    "acollect",
    "align",
    "align_files",
    "align_judges",
    "bootstrap",
    "chance_of",
    "collect",
    "diagnose",
    "diagnose_judges",
    "fit_file",
    "marginal_reliability",
    "prompt_consistency",
    "read_items",
    "read_scores",
    "score_in",
    "wordings",
]

__getattr__ = lazily(__name__, _HOMES)
