"""What can go wrong with a history, a detector or a reward."""

from __future__ import annotations

from opensage.errors import ConfigError


class NotEnoughHistory(ConfigError):
    """Too few used problems to fit a detector; a reward falls back to the host's and says so."""


class NotFittedError(ConfigError):
    """A detector is asked for what it has not been fitted or calibrated for."""


class IncompatibleDetector(ConfigError):
    """A saved detector is of another version or of another embedder, or is no detector at all."""


class BadValue(ConfigError, ValueError):
    """A number, a row or a line cannot be used; the message says which."""
