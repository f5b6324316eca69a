"""OpenSage: models."""
