"""Numerical methods as toolkits, one folder each; see the folder README."""
