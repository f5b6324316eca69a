"""An agent in Markdown: front matter (name, description, model, tools, toolkits, limits), the body is its instruction.

The form is that of `AGENT.md` files and of sub-agents of other kits; see DESIGN section 1.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from opensage.errors import ConfigError
from opensage.spec import AgentSpec
from opensage.tools.front_matter import FrontMatterError, split_front_matter

MOST_BYTES = 256_000
_FIELDS = ("name", "description", "model", "tools", "toolkits", "limits", "memory_scope", "workflow")
_FOREIGN = frozenset({"color", "license", "metadata", "version", "author"})
"""Keys of other kits that change nothing here."""


def parse_agent(text: str, where: str, *, name: str = "") -> AgentSpec:
    """Read an agent.

    Args:
        text: the file's content.
        where: what errors call it.
        name: used when the front matter has none.

    Raises:
        ConfigError: one line that names what is wrong, and where.
    """
    try:
        fields, body = split_front_matter(text)
    except FrontMatterError as error:
        raise ConfigError(f"{where}: {error}") from None
    data = {key: value for key, value in fields.items() if key not in _FOREIGN and value is not None}
    if unknown := [key for key in data if key not in _FIELDS]:
        near = difflib.get_close_matches(unknown[0], _FIELDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(_FIELDS)}"
        raise ConfigError(f"{where}: unknown key {unknown[0][:80]!r}; {hint}")
    for key in ("tools", "toolkits"):
        if isinstance(data.get(key), str):  # "read, shell", as others write it
            data[key] = [part.strip() for part in data[key].split(",") if part.strip()]
    return make_spec({"name": name, **data, "instruction": body.strip()}, where)


def make_spec(data: Mapping[str, Any], where: str) -> AgentSpec:
    """The one validation, of what people write and of what agents ask for.

    Raises:
        ConfigError: one line that names the field.
    """
    try:
        return AgentSpec.model_validate({key: value for key, value in data.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}: {place}: {first['msg']} (got {str(first['input'])[:80]!r})") from None


def read_agent(path: Path, data: bytes) -> AgentSpec:
    """Read the bytes of an agent's file; without a name in it the file's, or the folder's of `AGENT.md`, counts."""
    name = path.parent.name if path.stem == "AGENT" else path.stem
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    return parse_agent(text, str(path), name=name)


def write_agent(spec: AgentSpec) -> str:
    """The agent as Markdown; `parse_agent` gives the same spec again."""
    yaml: Any = importlib.import_module("yaml")
    fields = spec.model_dump(mode="json", exclude_none=True, exclude={"instruction"}, exclude_unset=True)
    fields = {"name": spec.name, "description": spec.description, **fields}
    # Characters that YAML takes for line ends, e.g. U+0085, are escaped only when all others are.
    head = yaml.safe_dump(fields, sort_keys=False, allow_unicode=spec.description.isprintable())
    return f"---\n{head}---\n\n{spec.instruction}\n"
