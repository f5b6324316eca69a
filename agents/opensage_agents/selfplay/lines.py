"""Problems in JSON lines, read and written whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError
from opensage.files import read_regular, write_whole
from opensage_agents.selfplay.errors import BadValue

MOST_BYTES = 256 << 20
_TEXT = ("question", "text", "problem", "prompt")


def read_lines(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """The number of each line and its object, with a text under `question`; it may be a bare string, or name it `text`.

    Raises:
        ConfigError: the file cannot be read.
        BadValue: a line is no JSON or holds no question; says its number.
    """
    try:
        data = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    return [(number, _parsed(line, f"{path}:{number}")) for number, line in lines]


def _parsed(line: bytes, where: str) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadValue(f"{where}: no JSON ({error}): a line is an object with a question") from error
    entry = {"question": said} if isinstance(said, str) else said
    name = next((each for each in _TEXT if isinstance(entry, dict) and isinstance(entry.get(each), str)), None)
    if name is None:
        raise BadValue(f"{where}: no question: a line is a text, or an object with a text under {', '.join(_TEXT)}")
    return {**entry, "question": entry[name]}


def write_lines(path: Path, entries: Iterable[Mapping[str, Any]]) -> None:
    """Write the file whole, or leave what was there.

    Raises:
        ConfigError: it cannot be written.
    """
    text = "".join(json.dumps(dict(entry), ensure_ascii=False) + "\n" for entry in entries)
    write_whole(path, text.encode("utf-8", "backslashreplace"))  # a half character is escaped, as JSON has it
