"""What a kept test file of a machine runs on: the object lives in the test's own process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine


def machine_of(kind: Callable[..., Any]) -> type[RuleBasedStateMachine]:
    """The class `StatefulMachine` for objects of this kind: the same methods as in a property file.

    Args:
        kind: the class under test; it is called without arguments where no rule calls `make`.
    """

    class StatefulMachine(RuleBasedStateMachine):
        """One object under test."""

        tested: Any = None

        def make(self, *args: Any, **kwargs: Any) -> None:
            """Make a new object."""
            self.tested = kind(*args, **kwargs)

        def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
            """Call a method; a generator is read to its end, as a check does."""
            return _drained(getattr(self._object(), method)(*args, **kwargs))

        def attribute(self, name: str) -> Any:
            """The value of an attribute."""
            return getattr(self._object(), name)

        def raises(self, kinds: Any, method: str, *args: Any, **kwargs: Any) -> None:
            """Assert that a method raises such an exception, given as a class, a name, or a tuple of them."""
            wanted = {
                str(getattr(each, "__name__", each)) for each in (kinds if isinstance(kinds, tuple) else (kinds,))
            }
            try:
                got = self.call(method, *args, **kwargs)
            except Exception as error:
                if wanted & {each.__name__ for each in type(error).__mro__}:
                    return
                raise
            raise AssertionError(f"{method} must raise {' or '.join(sorted(wanted))}, but returns {got!r:.200}")

        def _object(self) -> Any:
            if self.tested is None:
                self.make()
            return self.tested

    return StatefulMachine


def _drained(value: Any) -> Any:
    return list(value) if hasattr(value, "__next__") else value
