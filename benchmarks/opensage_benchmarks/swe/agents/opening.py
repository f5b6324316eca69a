"""From the name that a user gives to an agent under test."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping

from opensage.errors import ConfigError
from opensage_benchmarks.swe.agent import BenchAgent

_PACKAGE = "opensage_benchmarks.swe.agents"
_OWN = {"gold": "scripted:Gold", "empty": "scripted:Empty", "mini-swe-agent": "mini_swe:MiniSwe"}


def open_agent(name: str, options: Mapping[str, str]) -> BenchAgent:
    """The agent of that name.

    Args:
        name: "gold", "empty", "mini-swe-agent", `module:factory`, "default", or a saved or shipped agent of the kit.
        options: given to a factory as keyword arguments; the others read theirs from their assignment.

    Raises:
        ConfigError: there is none, or the factory does not take these options.
    """
    if name in _OWN:
        module, _, factory = _OWN[name].partition(":")
        made = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), factory)(**options)
    elif ":" in name:
        made = _foreign(name, options)
    else:
        from opensage_benchmarks.swe.agents.kit import KitAgent

        made = KitAgent(name, **options)
    if not isinstance(made, BenchAgent):
        raise ConfigError(f"agent {name!r} has no `name` and `solve(work, gate)`; see BenchAgent")
    return made


def _foreign(name: str, options: Mapping[str, str]) -> object:
    module, _, factory = name.partition(":")
    try:
        make = getattr(importlib.import_module(module), factory)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"no agent {name!r}: {error}; write module:factory") from error
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        raise ConfigError(f"agent {name!r} does not take these options: {error}") from error
    made: object = make(**options)
    return made


def check_agent(name: str, options: Mapping[str, str]) -> None:
    """Say early what is wrong with a name.

    Raises:
        ConfigError: there is no such agent, or its options are wrong.
    """
    try:
        open_agent(name, options)
    except TypeError as error:
        raise ConfigError(f"agent {name!r} does not take these options: {error}") from error


def agent_modules(name: str, model: str = "") -> list[str]:
    """What a worker imports before its first task, so that each task starts quickly.

    A module with a function `warm` has it called then, too.
    """
    if name in _OWN:
        return [f"{_PACKAGE}.{_OWN[name].partition(':')[0]}"]
    if ":" in name:
        return [name.partition(":")[0]]
    remote = model and not model.startswith(("script:", "replay:", "record:", "local/"))
    return [f"{_PACKAGE}.kit", *(["litellm"] if remote else [])]  # eight seconds of CPU, once and not for each task


def needs_reference(name: str) -> bool:
    """Whether the agent is shown the reference patch. Only one is, and it is no agent."""
    return name == "gold"
