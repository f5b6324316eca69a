"""Matching bandits: players and arms that learn a stable matching from noisy payoffs, without a global clock."""
