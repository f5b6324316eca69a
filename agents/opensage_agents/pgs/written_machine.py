"""Machines as a pytest file that a person can keep: the shrunk sequences of calls come first."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from opensage_agents.pgs.properties import Property, PropertySet

_HEAD = '''"""Properties of {entry}, kept by `opensage repair`; run with pytest."""

import hypothesis.strategies as st
from hypothesis import assume
from hypothesis.stateful import Bundle, consumes, initialize, invariant, multiple, precondition, rule
from hypothesis.strategies import *  # noqa: F403 the rules may use any of them
from opensage_agents.pgs.inside.space import approx, prop
from opensage_agents.pgs.kept import machine_of

from {module} import {entry} as _tested  # a machine may have its name

StatefulMachine = machine_of(_tested)

'''


def machine_as_pytest(propset: PropertySet, sequences: Sequence[str], module: str = "") -> str:
    """The file's text.

    Args:
        propset: the machines.
        sequences: earlier counterexamples, `repr((machine, ((rule, values), ...)))`; those that are no literals are
            left out.
        module: where the class is imported from; its own name when nothing is said.
    """
    machines = [replace(each, check=_based(each.text)) for each in propset.properties]
    text = _HEAD.format(entry=propset.entry, module=module or propset.target.rpartition(":")[0] or propset.entry)
    parts = [text, replace(propset, properties=machines).to_source(), ""]
    by_name = {each.name: each for each in machines}
    for number, (name, steps) in enumerate(filter(None, map(_sequence, dict.fromkeys(sequences))), 1):
        if name in by_name:
            parts.append(_example(number, by_name[name], steps))
    parts += [f"Test{name} = {name}.TestCase\n" for name in by_name]
    return "\n".join(parts)


def _based(text: str) -> str:
    """The machine on our class, whatever name of it its file used."""
    return text.replace("stateful.RuleBasedStateMachine", "StatefulMachine").replace(
        "RuleBasedStateMachine", "StatefulMachine"
    )


def _sequence(text: str) -> tuple[str, list[tuple[str, dict[str, object]]]] | None:
    try:
        name, steps = ast.literal_eval(text)
        return str(name), [(str(rule), dict(values)) for rule, values in steps]
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _example(number: int, machine: Property, steps: list[tuple[str, dict[str, object]]]) -> str:
    """A test that takes the steps, and checks the invariants between them as Hypothesis does."""
    first, checks = set(_having(machine, "initialize")), [f"    machine.{name}()" for name in _free_invariants(machine)]
    lines = [f"def test_{machine.name}_sequence_{number}():", f"    machine = {machine.name}()"]
    lines += checks if not first else []
    for rule, values in steps:
        first.discard(rule)
        lines.append(f"    machine.{rule}({', '.join(f'{key}={value!r}' for key, value in values.items())})")
        lines += checks if not first else []
    return "\n".join([*lines, "    machine.teardown()", "", ""])


def _free_invariants(machine: Property) -> list[str]:
    """Invariants that hold at any time: those with a precondition are left to Hypothesis."""
    bound = set(_having(machine, "precondition"))
    return [name for name in _having(machine, "invariant") if name not in bound]


def _having(machine: Property, decorator: str) -> list[str]:
    owner = ast.parse(machine.text).body[0]
    functions = [node for node in getattr(owner, "body", []) if isinstance(node, ast.FunctionDef)]
    return [node.name for node in functions if any(decorator in ast.unparse(each) for each in node.decorator_list)]
