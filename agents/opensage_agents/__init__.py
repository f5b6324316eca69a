"""Agent workflows. Nothing lives here yet; see the folder README."""
