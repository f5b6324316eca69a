"""`ToolkitSpec`: what a toolkit is, read from its folder. No code of it runs."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, PrivateAttr

from opensage.errors import ToolError
from opensage.toolkit.folder import Contents, content_hash, read_folder
from opensage.toolkit.signature import Function, read_functions
from opensage.tools.front_matter import FrontMatterError, split_front_matter
from opensage.tools.toolbox import NAME

Source = Literal["shipped", "user", "project", "session", "path"]
SECONDS = 300.0
"""A call may take, unless the toolkit's `opensage-seconds` says otherwise."""
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_DESCRIPTION = 1024
_SKILL = "SKILL.md"


def key_of(name: str) -> str:
    """A name as look-ups compare it: `-` and `_` are the same."""
    return name.strip().lower().replace("_", "-")


class ToolkitSpec(BaseModel):
    """A toolkit as it was when it was loaded; its files are kept, so that nothing done to the folder changes it."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    name: str
    description: str
    pure: bool = False
    """Whether one worker process may serve many calls."""
    requirements: tuple[str, ...] = ()
    """What must be importable, as in `numpy>=1.26`."""
    seconds: float = SECONDS
    """The time limit of a call."""
    version: int = 0
    """Of a toolkit made by agents, from 1."""
    folder: Path
    source: Source
    hash: str
    """SHA-256 of the content."""
    body: str = ""
    """SKILL.md without its front matter."""
    tools: tuple[Function, ...] = ()
    notes: tuple[str, ...] = ()
    """What is wrong with it, a line each, for people."""
    _files: Mapping[str, bytes] = PrivateAttr(default_factory=dict)

    @property
    def key(self) -> str:
        """The name as look-ups compare it."""
        return key_of(self.name)

    @property
    def package(self) -> str:
        """The name of its Python package when it is staged: one that stands for no module of Python itself."""
        name = self.name.replace("-", "_")
        return f"{name}_toolkit" if name in sys.stdlib_module_names else name

    @property
    def files(self) -> Mapping[str, bytes]:
        """Path → bytes."""
        return self._files

    @property
    def line(self) -> str:
        """Name and description on one line, for the prompt."""
        return f"{self.name}: {self.description}"

    def described(self) -> str:
        """The whole SKILL.md and the tools' signatures, as a model or a person reads it."""
        parts = [f"# {self.name}" + (f" (version {self.version})" if self.version else ""), self.description]
        parts += [self.body.strip()] if self.body.strip() else []
        tools = [f"- {tool.title}: {tool.signature}\n  {tool.description.splitlines()[0]}" for tool in self.tools]
        parts += ["Tools:\n" + "\n".join(tools)] if tools else []
        others = [path for path in self.files if path not in (_SKILL, "tools.py")]
        parts += ["Files: " + ", ".join(others[:100])] if others else []
        parts += ["Left out: " + "; ".join(self.notes[:20])] if self.notes else []
        return "\n\n".join(parts)


def load_toolkit(folder: Path, source: Source = "path", version: int = 0) -> ToolkitSpec:
    """Read a toolkit's folder; what is wrong with single files is in `notes`.

    Raises:
        ToolError: there is no SKILL.md, or its front matter or tools.py cannot be read.
    """
    return make_spec(read_folder(folder), folder, source, version)


def make_spec(contents: Contents, folder: Path, source: Source, version: int = 0) -> ToolkitSpec:
    """The specification of these files. Raises as `load_toolkit`."""
    fields, body = _skill(contents.files.get(_SKILL), folder)
    name = (_plain(fields.get("name")) or folder.name).strip()
    if not _NAME.fullmatch(name):
        raise ToolError(f"{folder}: the name {name[:80]!r} is not valid: use lower-case letters, digits and '-'")
    metadata = fields.get("metadata")
    options = {str(k): _plain(v) for k, v in metadata.items()} if isinstance(metadata, dict) else {}
    tools, notes = _tools(contents.files.get("tools.py"), name)
    spec = ToolkitSpec(
        name=name,
        description=_line(fields.get("description"), body, name),
        pure=options.get("opensage-pure", "").lower() == "true",
        requirements=tuple(re.split(r"[\s,]+(?=[A-Za-z])", options.get("opensage-requirements", "").strip()))
        if options.get("opensage-requirements", "").strip()
        else (),
        seconds=_seconds(options.get("opensage-seconds", "")),
        version=version,
        folder=folder,
        source=source,
        hash=content_hash(contents.files),
        body=body,
        tools=tools,
        notes=(*contents.notes, *notes),
    )
    spec._files = contents.files
    return spec


def _skill(data: bytes | None, folder: Path) -> tuple[dict[str, Any], str]:
    if data is None:
        raise ToolError(f"{folder} has no SKILL.md that can be read: a toolkit is a folder with one")
    if b"\0" in data:
        raise ToolError(f"{folder / _SKILL} is binary, not text")
    try:
        return split_front_matter(data.decode("utf-8-sig", "replace"))
    except FrontMatterError as error:
        raise ToolError(f"{folder / _SKILL}: {error}") from None


def _plain(value: object) -> str:
    """The text of a scalar, else nothing: the text of what refers to itself many times over would fill the memory."""
    return str(value) if isinstance(value, str | int | float) else ""


def _line(given: object, body: str, name: str) -> str:
    found = _plain(given) or next((line for line in body.splitlines() if line.strip("# \t")), name)
    return " ".join(found.strip("# ").split())[:_DESCRIPTION]


def _seconds(text: str) -> float:
    return min(float(text), 86_400.0) if re.fullmatch(r"\d{1,6}(\.\d+)?", text) and float(text) > 0 else SECONDS


def _tools(source: bytes | None, name: str) -> tuple[tuple[Function, ...], list[str]]:
    if source is None:
        return (), []
    found = read_functions(source, name.replace("-", "_"))
    bad = [f"{tool.title} is left out: the name is longer than 64" for tool in found if not NAME.fullmatch(tool.title)]
    return tuple(tool for tool in found if NAME.fullmatch(tool.title)), bad
