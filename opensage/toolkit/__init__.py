"""Toolkits: folders of tools that run in the sandbox, shipped, of the user, or made by agents at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opensage.toolkit.calls import toolkit_tools
    from opensage.toolkit.library import Library
    from opensage.toolkit.spec import ToolkitSpec, load_toolkit
    from opensage.toolkit.staging import Report, Staging
    from opensage.toolkit.workshop import Shelf, Workshop

__all__ = ["Library", "Report", "Shelf", "Staging", "ToolkitSpec", "Workshop", "load_toolkit", "toolkit_tools"]

_PLACES = {
    "Library": "library",
    "Report": "staging",
    "Shelf": "workshop",
    "Staging": "staging",
    "ToolkitSpec": "spec",
    "Workshop": "workshop",
    "load_toolkit": "spec",
    "toolkit_tools": "calls",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for, when it is asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
