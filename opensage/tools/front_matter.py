"""YAML front matter: the block between two `---` lines at the top of a Markdown file."""

from __future__ import annotations

import importlib
import re
from typing import Any

_MAX_BLOCK = 64_000
_BLOCK = re.compile(r"\A---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


class FrontMatterError(ValueError):
    """The block is no YAML mapping. The message is one line."""


def split_front_matter(text: str) -> tuple[dict[str, Any], str]:
    """The fields and the body; no block gives no fields.

    Raises:
        FrontMatterError: the block is not closed, too large, or not a YAML mapping.
    """
    if not re.match(r"---[ \t]*\r?\n", text):
        return {}, text
    found = _BLOCK.match(text)
    if not found:
        raise FrontMatterError("the front matter is not closed: end it with a line '---'")
    if len(found[1]) > _MAX_BLOCK:
        raise FrontMatterError(f"the front matter is larger than {_MAX_BLOCK} characters")
    fields = _load(found[1])
    if not isinstance(fields, dict):
        raise FrontMatterError("the front matter is not a list of 'key: value' lines")
    return {str(key): value for key, value in fields.items()}, text[found.end() :]


def _load(block: str) -> Any:
    yaml: Any = importlib.import_module("yaml")
    try:
        return yaml.safe_load(block) or {}
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 2}" if error.problem_mark else ""
        raise FrontMatterError(f"the front matter is not valid YAML{where}: {error.problem}") from None
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
        TypeError,
    ) as error:  # e.g. a date of month 99, an unhashable key
        first = (str(error).splitlines() or ["?"])[0]
        raise FrontMatterError(f"the front matter is not valid YAML: {first[:200]}") from None
