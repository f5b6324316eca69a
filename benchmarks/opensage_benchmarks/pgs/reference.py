"""A property file whose one property is: the same as the reference."""

from __future__ import annotations

from opensage_agents.pgs.properties import PropertySet
from opensage_agents.pgs.strategies import strategy_from
from opensage_benchmarks.pgs.data import Fix

_AFTER = '''
import signal

_KNOWN = {}


def _late(*_):
    raise TimeoutError("the reference is too slow")


def _reference(args):
    """Its result; None where it has none: it raises, or needs more than half a second of CPU time."""
    key = repr(args)
    if key not in _KNOWN:
        signal.signal(signal.SIGVTALRM, _late)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.5)
        try:
            _KNOWN[key] = [ENTRY(*args)]
        except Exception:
            _KNOWN[key] = None
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return _KNOWN[key]


TARGET = "ENTRY"
STRATEGY = INPUTS
PRECONDITIONS = [lambda args: _reference(copy.deepcopy(args)) is not None]


@prop(kind="model", reason="the canonical solution")
def is_what_the_reference_gives(args, result):
    wanted = _reference(args)[0]
    assert approx(result, wanted), f"must be {wanted!r}"
'''


def property_file(task: Fix) -> PropertySet:
    """The canonical solution as a model, on inputs like those of the calls that are known, and on these."""
    drawn = strategy_from(task.canonical, task.entry, [(args, None) for args in task.calls])
    text = _AFTER.replace("ENTRY", task.entry)
    text = text.replace("INPUTS", f"({drawn.strategy}) | st.sampled_from({list(task.calls)!r})")
    text = text.replace("CONDITIONS = [", f"CONDITIONS = [{''.join(f'{each}, ' for each in drawn.preconditions)}")
    return PropertySet.from_source(f"import copy\n{task.canonical}\n{text}")
