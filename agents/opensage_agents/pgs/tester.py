"""The Tester: states what every correct solution does. It sees the task and the function's head, never its code."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from opensage_agents.pgs.asking import Desk
from opensage_agents.pgs.properties import Kind, Property
from opensage_agents.pgs.report import Counterexample
from opensage_agents.pgs.task import Task

SYSTEM = "You are a careful tester: you state what every correct solution does."
TRIES = 3
"""How often the Tester is asked for what can be used before it counts as failed."""
VOTES = 3
FENCE = re.compile(r"```[a-zA-Z0-9+_-]*[ \t]*\n(.*?)(?:\n[ \t]*```|\Z)", re.S)
MOST_ASSERTS = 6
"""Assertions of one function that are taken."""
SLOW_WAY = "equals_a_slow_way"
"""The property that a slow version of the Tester's own is made into."""
_MOST_TEXT = 4000


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a reply of the Tester holds.

    Attributes:
        properties: each as a function `(args, result)`.
        strategy: an expression, or "".
        preconditions: expressions that go with it.
        setup: imports and helpers that stand beside them.
        refused: functions that cannot be properties, with the reason.
    """

    properties: list[Property] = field(default_factory=list)
    strategy: str = ""
    preconditions: tuple[str, ...] = ()
    setup: str = ""
    refused: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Tester:
    """Asks for properties and inputs, and whether a property that blocks everything is right."""

    desk: Desk
    task: Task

    async def propose(self, complaint: str = "", known: list[str] | None = None) -> Proposal:
        """Properties, and a strategy where one is asked for. Without one that can be read it is asked again."""
        seen = Proposal()
        for _ in range(TRIES):
            reply = await self.desk.ask("tester", SYSTEM, self.prompt(complaint, known or []))
            seen = read_proposal(reply, self.task)
            if seen.properties:
                return seen
            why = "; ".join(f"{name}: {text}" for name, text in seen.refused.items())
            complaint = why or "your last answer had no function in a ```python block"
        return seen

    async def strategy(self, complaint: str) -> str:
        """Another strategy, after one that cannot be used; "" when there is none."""
        prompt = (
            f"{self._case()}\nYour strategy for the inputs cannot be used: {complaint[:600]}\n{_HOW_INPUTS}\n"
            "Answer with that one line in a ```python block."
        )
        return read_proposal(await self.desk.ask("tester", SYSTEM, prompt, 200), self.task).strategy

    async def confirms(self, prop: Property, found: Counterexample) -> bool:
        """Whether, from the task alone, most of three answers say that every correct solution has the property."""
        prompt = (
            f"{self._case()}\nSomebody claims that every correct solution passes this check:\n"
            f"```python\n{shown(prop)}\n```\nIt was broken by {self.task.entry_point}({found.args_repr[:400]}) "
            f"returning {found.result_repr[:400]}.\nThink of what the task asks for this input. Is the claim true for "
            "every correct solution? Answer with yes or no."
        )
        votes = [await self.desk.ask("tester", SYSTEM, prompt, 20) for _ in range(VOTES)]
        yes = sum(bool(re.search(r"\byes\b", each, re.I)) for each in votes)
        return yes > VOTES / 2

    def prompt(self, complaint: str = "", known: Sequence[str] = ()) -> str:
        """The question for properties."""
        config, task = self.desk.config, self.task
        names, wanted = ", ".join(task.parameters), config.properties_per_round
        parts = [self._case()]
        if known:
            parts.append(f"There are checks already: {', '.join(known)}. State something else.")
        if complaint:
            parts.append(f"What you wrote before cannot be used: {complaint[:800]}")
        if SLOW_WAY not in known:
            parts.append(
                f"Write first `def {slow_name(task)}({names}):`, which finds the right answer of small inputs in the "
                "slowest, most obvious way."
            )
            wanted -= 1
        parts.append(
            f"{'Then write' if SLOW_WAY not in known else 'Write'} {wanted} checks `def check_...({names}, result):`. "
            f"Each gets the arguments of {task.entry_point} and its `result`, and asserts one thing that is true for "
            "EVERY correct solution and EVERY valid input, with a message that says what must be. Some relate the "
            "result to the arguments, some look at the result alone. Do not print, do not use files, write no tests."
        )
        if config.inputs == "tester":
            parts.append(_HOW_INPUTS)
        parts.append("Answer with one ```python block.")
        return "\n".join(parts)

    def _case(self) -> str:
        task = self.task
        text = f"Task:\n{task.description[:_MOST_TEXT]}\n\nThe function: `{task.head}`"
        pairs = [
            f"{task.entry_point}({', '.join(map(repr, args))}) == {result!r}" for args, result in task.public_tests
        ]
        shown_pairs = [each for each in pairs if len(each) <= 300][:4]
        if self.desk.config.tester_sees_code and task.code:
            text += f"\nThe code, which may be wrong:\n```python\n{task.code[:_MOST_TEXT]}\n```"
        return text + ("\nRight are:\n" + "\n".join(shown_pairs) if shown_pairs else "")


_HOW_INPUTS = (
    "Also write one line `STRATEGY = st.tuples(...)` with one Hypothesis strategy for each argument, so that all "
    "inputs are valid and small, e.g. "
    "`STRATEGY = st.tuples(st.lists(st.integers(-9, 9), max_size=6), st.integers(0, 5))`."
)


def shown(prop: Property, most: int = 500) -> str:
    """A property's source, bounded, without the lines that only take the arguments apart."""
    text = prop.text
    return text if len(text) <= most else text[:most].rsplit("\n", 1)[0] + "\n    ..."


def read_proposal(reply: str, task: Task) -> Proposal:
    """The functions and the strategy of all blocks of a reply. Nothing of it is run.

    A version of the function itself, which small models like to write, is a property, too: results must equal its own.
    """
    trees = [tree for tree in map(whole_part, FENCE.findall(reply) or [reply]) if tree]
    nodes = [part for tree in trees for node in tree.body for part in _split(node)]
    own = any(_is_version(node, task) for node in nodes)
    found = Proposal()
    for node in nodes:
        found = _with(found, _renamed(node, task) if own else node, task)
    if own:
        found.properties.append(Property(SLOW_WAY, _equals_slow(task), "model", "a slow version gives the same"))
    if not trees:
        found.refused["the block"] = "it is no Python"
    return found


def whole_part(text: str) -> ast.Module | None:
    """The tree of the first lines that are Python: a reply may end in the middle of its last function."""
    lines = text.rstrip().split("\n")
    starts = [at for at, line in enumerate(lines) if re.match(r"(@|def |class |import |from |[A-Z_]+ *=)", line)]
    trees = (parsed("\n".join(lines[:end])) for end in (len(lines), *reversed(starts)))
    return next((tree for tree in trees if tree is not None and tree.body), None)


def _split(node: ast.stmt) -> list[ast.stmt]:
    """A check of several assertions as several checks of one: small models pile them up, and one may be wrong."""
    if not isinstance(node, ast.FunctionDef) or not _judges(node):
        return [node]
    asserts = {ast.dump(each.test): each for each in node.body if isinstance(each, ast.Assert)}
    if len(asserts) < 2:
        return [node]
    found: list[ast.stmt] = []
    for number, kept in enumerate(list(asserts.values())[:MOST_ASSERTS], 1):
        at = node.body.index(kept)
        body = [each for each in node.body[:at] if not isinstance(each, ast.Assert)]
        one = copy.deepcopy(ast.FunctionDef(f"{node.name}_{number}", node.args, [*body, kept], node.decorator_list))
        found.append(ast.fix_missing_locations(one))
    return found


def slow_name(task: Task) -> str:
    """The name of the Tester's own version."""
    return f"slow_{task.entry_point.rpartition('.')[2]}"


def _is_version(node: ast.stmt, task: Task) -> bool:
    names = (task.entry_point.rpartition(".")[2], slow_name(task))
    return isinstance(node, ast.FunctionDef) and node.name in names and not _judges(node)


def _judges(node: ast.FunctionDef) -> bool:
    return bool(node.args.args) and node.args.args[-1].arg == "result"


def _renamed(node: ast.stmt, task: Task) -> ast.stmt:
    """A part of a reply, with another name for the version in it: it must not be taken for the real function."""
    for each in ast.walk(node):
        if isinstance(each, ast.Name) and each.id == task.entry_point.rpartition(".")[2]:
            each.id = slow_name(task)
    if isinstance(node, ast.FunctionDef) and _is_version(node, task):
        node.name = slow_name(task)
    return node


def _equals_slow(task: Task) -> str:
    """A property that says nothing where the slow version fails: its inputs may be others than ours."""
    return (
        f"def {SLOW_WAY}(args, result):\n    try:\n        wanted = {slow_name(task)}(*args)\n"
        "    except Exception:\n        assume(False)\n"
        "    wanted = list(wanted) if hasattr(wanted, '__next__') else wanted\n"
        "    assert approx(result, wanted), f'must be {wanted!r:.200}'\n"
    )


def _with(found: Proposal, node: ast.stmt, task: Task) -> Proposal:
    if isinstance(node, ast.FunctionDef) and _judges(node):
        why = _unfit(node, task)
        if why:
            found.refused[node.name] = why
        elif node.name not in {each.name for each in found.properties}:
            kind: Kind = "relation" if set(task.parameters) & set(_names(node)) else "output"
            kind = "model" if slow_name(task) in _names(node) else kind
            found.properties.append(Property(node.name, converted(node), kind, ast.get_docstring(node) or ""))
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "STRATEGY":
        return replace(found, strategy=ast.unparse(node.value))
    elif isinstance(node, ast.Assign) and set(_names(node.targets[0])) == {"PRECONDITIONS"}:
        return replace(found, preconditions=tuple(map(ast.unparse, getattr(node.value, "elts", ()))))
    elif _is_setup(node, task):
        return replace(found, setup=f"{found.setup}\n{ast.unparse(node)}".strip())
    return found


def _is_setup(node: ast.stmt, task: Task) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name != task.entry_point
    if isinstance(node, ast.Assign):
        return not {"TARGET", "EXAMPLES", "ADAPTER", "PRECONDITIONS"} & set(_names(node))
    return isinstance(node, ast.Import | ast.ImportFrom) and "hypothesis" not in ast.unparse(node)


def _unfit(node: ast.FunctionDef, task: Task) -> str:
    """Why a function cannot be a property, "" when it can."""
    count = len(node.args.args) - 1
    if task.entry_point.rpartition(".")[2] in _names(node):
        return f"it calls {task.entry_point}: use `result`"
    if (
        task.parameters
        and count != len(task.parameters)
        and [each.arg for each in node.args.args] != ["args", "result"]
    ):
        return f"it takes {count} arguments and the result, the function takes {len(task.parameters)}"
    return ""


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))


def converted(node: ast.FunctionDef) -> str:
    """`def check(a, b, result)` as `def check(args, result)`, which takes its arguments apart first."""
    names = [each.arg for each in node.args.args]
    if names != ["args", "result"]:
        takes = ast.parse(f"{', '.join(names[:-1])}, = args").body[0]
        node.body.insert(1 if ast.get_docstring(node) is not None else 0, takes)
        node.args.args = [ast.arg("args"), ast.arg("result")]
    marks = [each for each in node.decorator_list if ast.unparse(each).startswith("prop(")]
    node.args.defaults, node.decorator_list, node.returns = [], marks, None
    return ast.unparse(ast.fix_missing_locations(node))


def parsed(text: str) -> ast.Module | None:
    """The tree of a text, None when it is no Python."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
