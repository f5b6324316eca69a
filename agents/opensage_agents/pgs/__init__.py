"""Repair by properties and minimal counterexamples.

Importing this package loads none of its modules: `opensage --help` reads its command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from opensage.lazy import lazily

if TYPE_CHECKING:
    from opensage_agents.pgs.checking import CheckOptions, acheck, check
    from opensage_agents.pgs.filtering import VacuityReport, afind_vacuous, avalidate, find_vacuous
    from opensage_agents.pgs.ghostwriter import ghostwritten
    from opensage_agents.pgs.properties import Property, PropertyError, PropertySet
    from opensage_agents.pgs.repair import PGSWorkflow
    from opensage_agents.pgs.report import Counterexample, FilterReport, Report, Stats
    from opensage_agents.pgs.result import Result, Round
    from opensage_agents.pgs.strategies import Inputs, strategy_from
    from opensage_agents.pgs.task import PGSConfig, Task

_HOMES = {
    "CheckOptions": "checking",
    "Counterexample": "report",
    "FilterReport": "report",
    "Inputs": "strategies",
    "PGSConfig": "task",
    "PGSWorkflow": "repair",
    "Property": "properties",
    "PropertyError": "properties",
    "PropertySet": "properties",
    "Report": "report",
    "Result": "result",
    "Round": "result",
    "Stats": "report",
    "Task": "task",
    "VacuityReport": "filtering",
    "acheck": "checking",
    "afind_vacuous": "filtering",
    "avalidate": "filtering",
    "check": "checking",
    "find_vacuous": "filtering",
    "ghostwritten": "ghostwriter",
    "strategy_from": "strategies",
}

__all__ = [
    "CheckOptions",
    "Counterexample",
    "FilterReport",
    "Inputs",
    "PGSConfig",
    "PGSWorkflow",
    "Property",
    "PropertyError",
    "PropertySet",
    "Report",
    "Result",
    "Round",
    "Stats",
    "Task",
    "VacuityReport",
    "acheck",
    "afind_vacuous",
    "avalidate",
    "check",
    "find_vacuous",
    "ghostwritten",
    "strategy_from",
]

__getattr__ = lazily(__name__, _HOMES)
