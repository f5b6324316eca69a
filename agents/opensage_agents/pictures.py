"""Pictures of results, by matplotlib without pyplot: no window system, no state that stays."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError
from opensage.files import write_whole

KINDS = (".png", ".svg", ".pdf")


def new_figure(width: float, height: float, path: Path | None = None) -> Any:
    """An empty figure of so many inches; a file that it is meant for is checked before anything is drawn.

    Raises:
        ConfigError: matplotlib is missing, or the file's name has another ending.
    """
    if path is not None and path.suffix.lower() not in KINDS:
        raise ConfigError(f"{path}: the name of a picture ends in {', '.join(KINDS)}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs matplotlib: pip install 'opensage[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: Path) -> None:
    """Write a figure whole, as PNG, SVG or PDF by the file's name.

    Raises:
        ConfigError: the file cannot be written.
    """
    out = io.BytesIO()
    figure.savefig(out, format=path.suffix.lower()[1:], dpi=120)
    write_whole(path, out.getvalue())
