"""What the Generator is told: one failure, and which."""

from __future__ import annotations

import ast
import re

from opensage_agents.pgs.properties import Property, PropertySet
from opensage_agents.pgs.report import Counterexample, Report
from opensage_agents.pgs.tester import SLOW_WAY, shown

_MOST = 600
_NEXT = re.compile(r"; (?=\w+\.|\w+ = |raises\()")
"""Between two calls of a sequence; a text that is passed may hold a semicolon of its own."""
REPEATED = "You have written this very program before, and it was wrong in the same way: change something else."
WORSE = "Your last repair was worse and was taken back; this is the program from before it."
BLIND = "It does not do what the task asks. Nothing more is known."


def feedback(report: Report, propset: PropertySet) -> str:
    """The text for a report that is not "ok": the input, what came out, and what it breaks. Under 400 tokens."""
    found = report.counterexample
    if found is None:
        return f"It cannot be used: {report.message[:_MOST]}"
    call = _called(found, propset)
    if found.outcome == "wrong_answer":
        return f"{call}\nit returns\n    {_cut(found.result_repr)}\nbut {found.message[:_MOST]}."
    if found.outcome == "violated":
        return _misused(call, found, propset) if found.stateful else _violated(call, found, propset)
    right = f"\nIt must return\n    {_cut(found.wanted_repr)}" if found.wanted_repr else ""
    if found.outcome == "crashed":
        return f"{call}\nit fails: {found.message[:_MOST]}{right}"
    if found.outcome == "recursion":
        return f"{call}\nits recursion does not end: {found.message[:_MOST]}"
    return f"{call}\nit {found.message[:200]}: is there an endless loop, or a much faster way?"


def _called(found: Counterexample, propset: PropertySet) -> str:
    """The input; of an object, the calls one by one."""
    text = _cut(found.written(propset.entry.rpartition(".")[2]))
    if not found.stateful:
        return f"For this input\n    {text}"
    return "After these calls, the last of them,\n    {}".format(_NEXT.sub("\n    ", text))


def _misused(call: str, found: Counterexample, propset: PropertySet) -> str:
    """What breaks a rule of a machine: the rule alone is shown, not the whole machine."""
    machine = next(each for each in propset.properties if each.name == found.property)
    rule, _, why = found.message.partition(": ")
    returned = f"\nreturns\n    {_cut(found.result_repr)}" if found.result_repr else ""
    return f"{call}{returned}\nThat is wrong: {why[:_MOST]}. The check is\n```python\n{rule_of(machine, rule)}\n```"


def rule_of(machine: Property, rule: str, most: int = 500) -> str:
    """The source of one rule or invariant, bounded."""
    owner = ast.parse(machine.text).body[0]
    body = owner.body if isinstance(owner, ast.ClassDef) else []
    found = next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == rule), owner)
    text = ast.unparse(found)
    return text if len(text) <= most else text[:most].rsplit("\n", 1)[0] + "\n    ..."


def _violated(call: str, found: Counterexample, propset: PropertySet) -> str:
    prop = next(each for each in propset.properties if each.name == found.property)
    why = f": {found.message}" if found.message != "does not hold" else ""
    right = f"but must return\n    {_cut(found.wanted_repr)}\n" if found.wanted_repr else ""
    if prop.name == SLOW_WAY:  # its text says no more than what must be returned
        right = right or f"but the result {found.message[:_MOST]}\n"
        return f"{call}\nit returns\n    {_cut(found.result_repr)}\n{right.rstrip()}"
    return (
        f"{call}\nit returns\n    {_cut(found.result_repr)}\n{right}"
        f"That breaks the property {prop.name.replace('_', ' ')!r}{why[:_MOST]}. The check is\n"
        f"```python\n{shown(prop)}\n```"
    )


def _cut(text: str) -> str:
    return text if len(text) <= _MOST else f"{text[: _MOST // 2]} ... {text[-_MOST // 4 :]}"
