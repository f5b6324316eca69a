"""Agents under test: those of the kit, scripted ones, peers, and anybody's own."""

from opensage_benchmarks.swe.agents.opening import agent_modules, check_agent, needs_reference, open_agent

__all__ = ["agent_modules", "check_agent", "needs_reference", "open_agent"]
