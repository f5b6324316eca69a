"""OpenSage: cli."""
