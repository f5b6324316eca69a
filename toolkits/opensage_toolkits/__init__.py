"""Numerical methods as toolkits. Nothing lives here yet; see the folder README."""
