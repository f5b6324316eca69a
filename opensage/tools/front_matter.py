"""YAML front matter: the block between two `---` lines at the top of a Markdown file."""

from __future__ import annotations

import functools
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
        fields = yaml.load(block, _loader()) or {}
        str(fields)  # a ValueError when it holds a number too long to be shown
        return fields
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


@functools.cache
def _loader() -> Any:
    """A safe loader without aliases: a few lines of them stand for more than fits into memory."""
    yaml: Any = importlib.import_module("yaml")

    def compose_node(self: Any, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "an alias (*name) is not allowed; write it out", mark)
        return yaml.SafeLoader.compose_node(self, parent, index)

    return type("Loader", (yaml.SafeLoader,), {"compose_node": compose_node})
