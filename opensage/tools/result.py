"""Whatever a tool returned, as the text that the model gets."""

from __future__ import annotations

import json
from typing import Any

from opensage.tools.base import ToolOutput

_PLAIN = (bool, int, float, type(None))


def result_text(value: object) -> str:
    """A str as it is, anything else as JSON; what JSON cannot hold appears as its `repr`. Never raises.

    Pydantic models, dataclasses, paths, dates, sets, bytes and NumPy-like scalars are turned into plain values.
    """
    if isinstance(value, ToolOutput):
        return value.text
    if isinstance(value, str):
        return value
    if isinstance(value, _PLAIN):
        return json.dumps(value)
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: object) -> Any:
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value, fallback=_fallback, inf_nan_mode="constants", bytes_mode="utf8")
    except (PydanticSerializationError, ValueError, RecursionError):
        # Bytes that are not UTF-8, a structure that holds itself, a __repr__ that raises: a picture is still better
        # than losing the result of a tool that has already acted.
        return _safe_repr(value)


def _fallback(value: object) -> Any:
    item = getattr(value, "item", None)  # scalars of NumPy and torch
    if callable(item) and getattr(value, "shape", None) == ():
        return item()
    to_list = getattr(value, "tolist", None)
    return to_list() if callable(to_list) else _safe_repr(value)


def _safe_repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may raise anything; the result must not be lost
        return f"<{type(value).__name__}: repr failed with {type(error).__name__}>"
