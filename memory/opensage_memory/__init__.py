"""The graph memory of OpenSage. Nothing lives here yet; see the folder README."""
