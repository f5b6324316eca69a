"""OpenSage: tools."""
