"""Problems that a model proposes: a statement, a reference, and assertions that the reference must pass."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

from opensage_agents.selfplay.text import LONGEST

FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.S)
MOST_TESTS = 8
LONGEST_CODE = 8_000


@dataclass(frozen=True, slots=True)
class Case:
    """One test: a call as source, and the literal that it must give."""

    call: str
    expected: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """One problem.

    Attributes:
        statement: what is asked for; all that the solver sees, beside the head.
        head: the function's `def` line.
        name: of the function.
        reference: a program of which the proposer says that it is right.
        cases: tests; once `checked`, those that the reference passes.
        reason: why it is no problem, "" if it is one.
    """

    statement: str
    head: str = ""
    name: str = ""
    reference: str = ""
    cases: tuple[Case, ...] = ()
    reason: str = ""

    @property
    def valid(self) -> bool:
        """Whether it can be asked."""
        return not self.reason


def proposed(reply: str) -> Proposal:
    """The problem in a reply: words before the first block of code, then a block with a function and assertions.

    A reply that holds none is a proposal with a `reason`, never an error: models write anything.
    """
    block = FENCE.search(reply)
    statement = _statement(reply[: block.start()] if block else reply)
    if block is None:
        return Proposal(statement, reason="no block of code")
    code = "\n".join(FENCE.findall(reply))[: 2 * LONGEST_CODE]
    try:
        return _taken(statement, ast.parse(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return Proposal(statement, reason=f"the code is no Python: {error}"[:200])


def _taken(statement: str, tree: ast.Module) -> Proposal:
    asserts = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    called = [name for node in asserts if (name := _called(node))]
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    wanted = next((node for node in functions if node.name in called), functions[0] if functions else None)
    if wanted is None:
        return Proposal(statement, reason="no function")
    statement = statement or " ".join((ast.get_docstring(wanted) or "").split())[:LONGEST]
    cases = [case for node in asserts if (case := _case(node, wanted.name))]
    kept = [
        node for node in tree.body if isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom | ast.ClassDef)
    ]
    kept = [node for node in kept if not getattr(node, "name", "").startswith("test")]
    reference = "\n".join(ast.unparse(node) for node in kept)
    reason = "no statement" if not statement else "fewer than two tests with a literal" if len(cases) < 2 else ""
    reason = reason or ("the reference is too long" if len(reference) > LONGEST_CODE else "")
    head = f"def {wanted.name}({ast.unparse(wanted.args)}):"
    return Proposal(statement, head, wanted.name, reference, tuple(cases[:MOST_TESTS]), reason)


def _statement(text: str) -> str:
    """Words without headings such as `Problem:`, in one line."""
    text = re.sub(r"[*#_`]{2,}|^#+", " ", text, flags=re.M)
    text = re.sub(
        r"^\s*(?:problem|statement|task|reference|solution)(?: statement| \d+)?\s*:", " ", text, flags=re.M | re.I
    )
    return " ".join(text.split())[:LONGEST]


def _called(node: ast.Assert) -> str:
    test = node.test
    call = test.left if isinstance(test, ast.Compare) else test
    return call.func.id if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else ""


def _case(node: ast.Assert, name: str) -> Case | None:
    """`assert f(...) == literal`; `assert f(...)` and `assert not f(...)` are of True and False."""
    if isinstance(node.test, ast.Compare):
        fine = len(node.test.ops) == 1 and isinstance(node.test.ops[0], ast.Eq | ast.Is)
        call, expected = node.test.left, ast.unparse(node.test.comparators[0])
    else:
        negative = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        fine, expected = True, str(not negative)
        call = node.test.operand if isinstance(node.test, ast.UnaryOp) else node.test
    if not fine or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != name:
        return None
    try:
        ast.literal_eval(expected)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None
    return Case(ast.unparse(call), expected)


def program_in(reply: str, name: str) -> str:
    """The solver's program: the last block that defines the function, or the whole reply if it does; "" for none."""
    for block in [*reversed(FENCE.findall(reply)), reply]:
        try:
            tree = ast.parse(block)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body):
            return block if len(block) <= LONGEST_CODE else ""
    return ""
