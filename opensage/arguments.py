"""Reads the arguments of a call as models write them."""

from __future__ import annotations

import json
from typing import Any

from opensage.errors import ToolError

_SHOWN = 500
_from_json = json.JSONDecoder(strict=False).decode


def parse_arguments(raw: str) -> dict[str, Any]:
    """The arguments as a dict; "" and null are no arguments; raw newlines in strings pass, NUL is dropped.

    Raises:
        ToolError: not JSON, or no object; it says where, and shows the text.
    """
    if not raw.strip():
        return {}
    try:
        value = _from_json(raw)
    except (ValueError, RecursionError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ToolError(
            f"The arguments are not valid JSON ({why}). You wrote: {_short(raw)}\n"
            "Call the tool again with one JSON object."
        ) from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ToolError(
            f"The arguments must be a JSON object, but you wrote {_short(raw)}. "
            'Call the tool again with e.g. {"name": value}.'
        )
    return {str(key): _clean(item) for key, item in value.items()}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\0", "") if "\0" in value else value
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    return value


def is_complete(raw: str) -> bool:
    """Whether the text is a whole JSON object, i.e. was not cut off."""
    try:
        return isinstance(_from_json(raw), dict)
    except (ValueError, RecursionError):
        return False


def _short(raw: str) -> str:
    return raw if len(raw) <= _SHOWN else f"{raw[:_SHOWN]}... ({len(raw)} characters)"
