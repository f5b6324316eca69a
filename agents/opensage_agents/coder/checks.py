"""What tells a better candidate from a worse one: examples of the task, tests of the repository, own checks."""

from __future__ import annotations

import ast
import importlib.resources
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from opensage.workflow import Steps
from opensage_agents.coder.examples import Example
from opensage_agents.coder.functions import code_in, source_of
from opensage_agents.coder.target import Target

SECONDS = 3.0
"""For one call of a candidate."""
_DRIVER = "/tmp/opensage_check.py"
_MOST_TESTS = 3
_COUNTS = re.compile(r"(\d+) (passed|failed|error)")


@dataclass(frozen=True, slots=True)
class Score:
    """What passed. `failures` are pairs of an example and what came instead; `output` is the end of failing tests."""

    examples: int = 0
    of_examples: int = 0
    tests: int = 0
    of_tests: int = 0
    failures: tuple[tuple[Example, str], ...] = ()
    output: str = ""
    sure: bool = True

    @property
    def passed(self) -> int:
        """Examples and tests that pass."""
        return self.examples + self.tests

    @property
    def whole(self) -> bool:
        """Whether there is something to pass, and all of it does."""
        return self.examples == self.of_examples and self.tests == self.of_tests

    def told(self) -> str:
        """For people."""
        kind = "examples" if self.sure else "own checks"
        parts = [f"{self.examples} of {self.of_examples} {kind}"] if self.of_examples else []
        parts += [f"{self.tests} of {self.of_tests} tests"] if self.of_tests else []
        return (" and ".join(parts) + " pass") if parts else "nothing to check it by"

    def complaint(self) -> str:
        """For the model: at most three examples that fail, and the end of a failing test."""
        if not self.sure:
            return ""
        lines = [f"`{one.call}` should give `{one.expected}`, but it gives `{got}`." for one, got in self.failures[:3]]
        return "\n".join(["It fails:", *lines, self.output[-800:]]) if lines or self.output else ""


@dataclass(slots=True)
class Checker:
    """Scores versions of the target's file, in the workspace."""

    steps: Steps
    target: Target
    examples: Sequence[Example]
    checks: Sequence[Example] = ()
    tests: list[str] = field(default_factory=list)
    _installed: bool = False

    async def find_tests(self) -> None:
        """Test files of the repository that mention the function, at most three."""
        name = self.target.place.short
        command = (
            f"grep -rlw --include='test_*.py' --include='*_test.py' {shlex.quote(name)} . | sort | head -{_MOST_TESTS}"
        )
        found = (await self.steps.call("shell", {"command": command}, say="Reproduce: tests that mention it.")).text
        self.tests = [line.strip() for line in found.splitlines() if line.strip().endswith(".py")]

    async def score(self, text: str) -> Score:
        """Put this version into the file and try it."""
        await self.steps.call("write", {"path": self.target.path, "content": text})
        asked = self.examples or self.checks
        rows = await self._evaluate(asked) if asked else []
        passed = sum(bool(row["ok"]) for row in rows)
        failures = tuple((one, str(row["got"])) for one, row in zip(asked, rows, strict=False) if not row["ok"])
        tests, total, output = await self._run_tests() if self.tests else (0, 0, "")
        return Score(passed, len(asked), tests, total, failures, output, sure=bool(self.examples) or not asked)

    async def _evaluate(self, examples: Sequence[Example]) -> list[dict[str, object]]:
        checks = [[one.call, one.expected, one.printed] for one in examples]
        arguments = json.dumps([self.target.path, checks, SECONDS])
        if not self._installed:
            await self._install()
        python = shlex.quote(self.steps.run.sandbox.python or "python3")
        command = f"{python} {_DRIVER} {shlex.quote(arguments)}"
        limit = SECONDS * (len(checks) + 1) + 10
        result = await self.steps.call("shell", {"command": command, "timeout": limit})
        found = re.search(r"^OPENSAGE (\[.*\])$", result.text, re.M)
        if found is None:
            return [{"ok": False, "got": "the program broke off"} for _ in examples]
        rows: list[dict[str, object]] = json.loads(found.group(1))
        return rows

    async def _install(self) -> None:
        source = importlib.resources.files("opensage_agents.coder").joinpath("check_driver.py").read_text("utf-8")
        command = f"cat > {_DRIVER} <<'OPENSAGE_END'\n{source}\nOPENSAGE_END"
        await self.steps.call("shell", {"command": command}, say="Reproduce: a driver that tries the examples.")
        self._installed = True

    async def _run_tests(self) -> tuple[int, int, str]:
        python = shlex.quote(self.steps.run.sandbox.python or "python3")
        files = " ".join(map(shlex.quote, self.tests))
        # Two versions of one size within a second have the same key in __pycache__: the second would not be seen.
        command = f"PYTHONDONTWRITEBYTECODE=1 {python} -m pytest -q -p no:cacheprovider {files} 2>&1 | tail -40"
        text = (await self.steps.call("shell", {"command": command, "timeout": 120})).text
        counts = {kind: int(number) for number, kind in _COUNTS.findall(text)}
        passed, bad = counts.get("passed", 0), counts.get("failed", 0) + counts.get("error", 0)
        if not counts:
            return 0, 1, text
        return passed, passed + bad, text if bad else ""


async def own_checks(steps: Steps, target: Target) -> list[Example]:
    """Checks that the model makes from the task, when neither examples nor tests are there; they are only votes."""
    prompt = (
        f"Task:\n{steps.task[:3000]}\n\nThe function:\n```python\n{source_of(target.text, target.place)}\n```\n\n"
        f"The function may be wrong. Write six assert statements of the form `assert {target.place.short}(...) == ...` "
        "that a correct function passes, small inputs first, in one ```python block."
    )
    reply = await steps.ask(prompt, purpose="reproduce", max_tokens=400, temperature=0.0)
    return [found for line in code_in(reply).splitlines() if (found := _asserted(line, target.place.short))][:8]


def _asserted(line: str, name: str) -> Example | None:
    try:
        node = ast.parse(line.strip()).body[0]
    except (SyntaxError, ValueError, IndexError):
        return None
    if not isinstance(node, ast.Assert) or not isinstance(node.test, ast.Compare):
        return None
    test = node.test
    call, want = ast.unparse(test.left), ast.unparse(test.comparators[0])
    if not isinstance(test.ops[0], ast.Eq) or f"{name}(" not in call:
        return None
    return Example(call, want)
