"""The local grader: patches in, verdicts and swebench's reports out."""

from __future__ import annotations

from opensage_benchmarks.swe.grade.evaluate import Summary, evaluate, regrade
from opensage_benchmarks.swe.grade.grader import Grader, Log
from opensage_benchmarks.swe.grade.verdict import Run, Verdict

__all__ = ["Grader", "Log", "Run", "Summary", "Verdict", "evaluate", "regrade"]
