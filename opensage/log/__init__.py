"""OpenSage: log."""
