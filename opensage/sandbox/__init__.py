"""OpenSage: sandbox."""
