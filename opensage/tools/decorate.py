"""`@tool`: a Python function becomes a tool."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, overload

from opensage.errors import ConfigError
from opensage.tools.base import Approval, Tool, ToolContext, ToolOutput
from opensage.tools.result import result_text
from opensage.tools.schema import Binding, LazySchema
from opensage.tools.toolbox import NAME
from opensage.tools.workers import in_thread


class FunctionCall:
    """Validates arguments, calls the function (a plain one in a worker thread) and renders what it returns."""

    __slots__ = ("_binding", "_func", "_is_async")

    def __init__(self, func: Callable[..., Any], binding: Binding, is_async: bool) -> None:
        self._func = func
        self._binding = binding
        self._is_async = is_async

    async def __call__(self, arguments: dict[str, Any], context: ToolContext) -> object:
        """A str, or a `ToolOutput`; `ToolError` when the arguments do not fit."""
        values = self._binding.validate(arguments)
        if self._binding.context is not None:
            values[self._binding.context] = context
        if self._is_async:
            return _rendered(await self._func(**values))
        result = await in_thread(partial(_call, self._func, values))
        return _rendered(await result) if inspect.isawaitable(result) else result


@overload
def tool(func: Callable[..., Any], /) -> Tool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Approval | None = None,
    parallel: bool | None = None,
    changes: bool = False,
    target: str | None = None,
    source: str = "python",
    resumable: bool = False,
) -> Callable[[Callable[..., Any]], Tool]: ...


def tool(func: Callable[..., Any] | None = None, /, **options: Any) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool from a function: its name, docstring and type hints are what the model sees.

    A parameter annotated `ToolContext` is filled in by the kit and hidden from the model. A plain function runs in a
    worker thread, one at a time; an async one runs on the loop and may overlap others (`parallel` changes either).

    Args:
        func: the function, when used as `@tool` without arguments.
        **options: `name`, `description`, `approval` ("allow", "ask", "deny"), `parallel`, `changes` (it can change
            files or run programs), `target` (the argument that permission patterns match), `source`, `resumable`
            (after a crash a call that was at work is made again).

    Raises:
        ConfigError: the name is not valid, or the signature cannot be shown to a model.
    """
    namespace = _local_names()
    if func is not None:
        return _make(func, namespace)
    return lambda function: _make(function, namespace, **options)


def _make(
    func: Callable[..., Any],
    namespace: Mapping[str, Any],
    *,
    name: str | None = None,
    description: str | None = None,
    approval: Approval | None = None,
    parallel: bool | None = None,
    changes: bool = False,
    target: str | None = None,
    source: str = "python",
    resumable: bool = False,
) -> Tool:
    if isinstance(func, Tool):
        raise ConfigError(f"'{func.name}' is a tool already: use @tool once")
    if not callable(func):
        raise ConfigError(f"a tool is made from a function, not from {type(func).__name__}")
    title = name or str(getattr(func, "__name__", None) or type(func).__name__)
    if not NAME.fullmatch(title):
        raise ConfigError(f"tool name {title!r} is not valid: pass name= with 1 to 64 letters, digits, '_' or '-'")
    if inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
        raise ConfigError(f"tool '{title}' is a generator: return a list instead")
    binding = Binding(title, func, namespace)
    is_async = inspect.iscoroutinefunction(func) or inspect.iscoroutinefunction(type(func).__call__)
    return Tool(
        name=title,
        description=description or binding.doc.description or title,
        parameters=LazySchema(binding),
        invoke=FunctionCall(func, binding, is_async),
        parallel=is_async if parallel is None else parallel,
        approval=approval,
        source=source,
        changes=changes,
        target=target,
        resumable=resumable,
        func=func,
    )


def _call(func: Callable[..., Any], values: dict[str, Any]) -> object:
    result = func(**values)
    # Rendered here, so that a huge result does not hold up the loop.
    return result if inspect.isawaitable(result) else _rendered(result)


def _rendered(result: object) -> object:
    return result if isinstance(result, ToolOutput) else result_text(result)


def _local_names() -> Mapping[str, Any]:
    """Names that type hints of a function made inside another function may speak of."""
    frame = sys._getframe(2)
    return dict(frame.f_locals) if frame.f_code.co_name != "<module>" else {}
