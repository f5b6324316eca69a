"""Agents that make, call and join agents: the team of one run, and the fold that shows it."""
