"""Whether a source of tasks is sound: the references resolve every task, and nothing does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from opensage_benchmarks.swe.grade import Grader, Verdict
from opensage_benchmarks.swe.grade.evaluate import Progress, grade_all
from opensage_benchmarks.swe.task import Task

# A patch that changes nothing that is tested, for tasks to be run as they are.
_NOTHING = """diff --git a/.opensage-nothing b/.opensage-nothing
new file mode 100644
--- /dev/null
+++ b/.opensage-nothing
@@ -0,0 +1 @@
+nothing
"""


@dataclass(frozen=True, slots=True)
class Validation:
    """What came of it.

    Attributes:
        gold: verdicts on the references; a task without one has none.
        empty: verdicts on the tasks as they are.
    """

    gold: Mapping[str, Verdict]
    empty: Mapping[str, Verdict]

    @property
    def bad(self) -> dict[str, str]:
        """Tasks to leave out of a benchmark, and why."""
        found = {id: f"the reference is {v.status}: {_why(v)}" for id, v in self.gold.items() if not v.resolved}
        for id, verdict in self.empty.items():
            if verdict.resolved:
                found[id] = "it is resolved without a patch"
            elif verdict.status in ("infra_error", "invalid_patch"):
                found[id] = f"it cannot be tested: {_why(verdict)}"
        return found

    @property
    def flaky(self) -> dict[str, Sequence[str]]:
        """Tests with different outcomes in several runs, by task."""
        both = [*self.gold.values(), *self.empty.values()]
        return {verdict.task_id: verdict.flaky for verdict in both if verdict.flaky}


def _why(verdict: Verdict) -> str:
    failed = [id for lists in verdict.tests.values() for id in lists["failure"]]
    return verdict.reason or f"{len(failed)} tests fail, {failed[0] if failed else '?'} first"


async def validate(
    grader: Grader,
    tasks: Sequence[Task],
    *,
    gold: bool = True,
    empty: bool = True,
    workers: int = 1,
    progress: Progress | None = None,
) -> Validation:
    """Grade references and, or, the tasks as they are.

    Args:
        grader: of the source.
        tasks: of it.
        gold: whether the references are graded.
        empty: whether the tasks are tested without a patch.
        workers: tasks at a time.
        progress: told after each task.
    """
    with_patch = {task.id: task.patch for task in tasks if task.patch.strip()} if gold else {}
    without = dict.fromkeys((task.id for task in tasks), _NOTHING) if empty else {}
    by_id = {task.id: task for task in tasks}
    found = [await grade_all(grader, by_id, patches, workers, progress) for patches in (with_patch, without)]
    # The stand-in for no patch is no patch of anybody's.
    return Validation(found[0], {id: replace(verdict, applied_by="") for id, verdict in found[1].items()})
