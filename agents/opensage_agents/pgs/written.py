"""Properties as a pytest file that a person can keep. Hypothesis draws the inputs, the shrunk examples come first."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from opensage_agents.pgs.properties import Property, PropertySet

_HEAD = '''"""Properties of {entry}, kept by `opensage repair`; run with pytest."""

import copy

import hypothesis.strategies as st
from hypothesis import assume, example, given
from hypothesis.strategies import *  # noqa: F403 the strategy may use any of them
from opensage_agents.pgs.inside.space import approx, prop

from {module} import {first} as _tested  # a property may have its name

'''


def as_pytest(propset: PropertySet, examples: Sequence[str], module: str = "") -> str:
    """The file's text.

    Args:
        propset: the properties, with the strategy and public examples.
        examples: arguments that once failed, as they stand in a call; those that are no literals are left out.
        module: where the function is imported from; its own name when nothing is said.
    """
    entry = propset.entry
    where = module or propset.target.rpartition(":")[0] or entry.partition(".")[0]
    parts = [_HEAD.format(entry=entry, module=where, first=entry.partition(".")[0]), propset.to_source(), "", ""]
    parts.append(_call(propset))
    parts += [_public(number, *pair) for number, pair in enumerate(propset.examples, 1)]
    parts += [_test(each, list(filter(is_literal, examples)), propset) for each in propset.properties]
    return "\n".join(parts)


def _call(propset: PropertySet) -> str:
    owner, _, name = propset.entry.rpartition(".")
    target = f"_tested().{name}" if owner else "_tested"
    if not propset.adapter:
        drained = "list(found) if hasattr(found, '__next__') else found"
        return f"def _called(args):\n    found = {target}(*args)\n    return {drained}\n\n"
    return (
        f"_space = {{}}\nexec(ADAPTER, _space)\n\n\ndef _called(args):\n    return _space['call']({target}, *args)\n\n"
    )


def _public(number: int, args: tuple[object, ...], result: object) -> str:
    return (
        f"def test_public_example_{number}():\n"
        f"    assert approx(_called({args!r}), {result!r}) or _called({args!r}) == {result!r}\n\n"
    )


def _test(prop: Property, examples: Sequence[str], propset: PropertySet) -> str:
    name, wanted = prop.name, ("args", "result", "given")[: 3 if prop.sees_after else 2]
    shown = "".join(f"@example({f'({each},)' if each else '()'})\n" for each in dict.fromkeys(examples))
    unseen = f"{name}.__test__ = False\n\n\n" if name.startswith("test") else ""
    conditions = "".join(f"    assume(({each})(args))\n" for each in propset.preconditions)
    return (
        f"{unseen}{shown}@given(STRATEGY)\ndef test_{name}(args):\n{conditions}"
        f"    when = getattr({name}, 'when', None)\n    assume(when is None or when(args))\n"
        f"    given = copy.deepcopy(args)\n    result = _called(given)\n    verdict = {name}({', '.join(wanted)})\n"
        f"    assert verdict is None or verdict, 'does not hold'\n\n"
    )


def is_literal(text: str) -> bool:
    """Whether arguments, as they stand in a call, are plain data."""
    try:
        ast.literal_eval(f"({text},)" if text else "()")
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return True
