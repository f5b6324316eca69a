"""What a docstring says: the description, and a line for each parameter. Google, NumPy and Sphinx forms are read."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

MAX_DESCRIPTION = 1024

_GOOGLE = re.compile(r"^([A-Z][A-Za-z ]*):\s*$")
_GOOGLE_ARGS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments"}
_GOOGLE_ALL = _GOOGLE_ARGS | {
    *("returns", "return", "yields", "yield", "raises", "attributes", "example", "examples", "note", "notes"),
    *("warning", "warnings", "see also", "todo", "references", "other parameters", "warns", "receives"),
}
_NAMED = re.compile(r"^\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)$")
_SPHINX = re.compile(r"^:(\w+)((?:\s+[^:]+)?):\s*(.*)$")
_NUMPY = re.compile(r"^\*{0,2}(\w+(?:\s*,\s*\w+)*)\s*(?::.*)?$")


@dataclass(slots=True)
class Docstring:
    """The description (one line where it fits) and the text of each parameter."""

    description: str = ""
    params: dict[str, str] = field(default_factory=dict)


def parse_docstring(text: str | None) -> Docstring:
    """Read a docstring; a form that is not understood gives fewer parameter texts, never an error."""
    lines = inspect.cleandoc(text or "").splitlines()
    start = next((i for i in range(len(lines)) if _section(lines, i)), len(lines))
    doc = Docstring(_description(lines[:start]))
    index = start
    while index < len(lines):
        index = _read_section(lines, index, doc.params)
    return doc


def _description(lines: list[str]) -> str:
    paragraphs = "\n".join(line.strip() for line in lines).split("\n\n")
    joined = "\n".join(" ".join(part.split("\n")).strip() for part in paragraphs if part.strip())
    return joined if len(joined) <= MAX_DESCRIPTION else joined[: MAX_DESCRIPTION - 1] + "…"


def _section(lines: list[str], index: int) -> str | None:
    """The kind of section that starts at this line: "google:<name>", "numpy:<name>", "sphinx", or None."""
    line = lines[index]
    found = _GOOGLE.match(line)
    if found and found[1].lower() in _GOOGLE_ALL:
        return "google:" + found[1].lower()
    rule = lines[index + 1] if index + 1 < len(lines) else ""
    if line.strip() and re.fullmatch(r"-{3,}\s*", rule):
        return "numpy:" + line.strip().lower()
    return "sphinx" if _SPHINX.match(line) else None


def _read_section(lines: list[str], index: int, params: dict[str, str]) -> int:
    kind = _section(lines, index) or ""
    end = next((i for i in range(index + 1, len(lines)) if _section(lines, i)), len(lines))
    body = lines[index + 1 : end]
    if kind == "sphinx":
        _read_sphinx(lines[index], body, params)
    elif kind.partition(":")[2] in _GOOGLE_ARGS | {"other parameters"}:
        _read_entries(body, _NAMED, params) if kind.startswith("google") else _read_numpy(body[1:], params)
    return end


def _read_sphinx(head: str, body: list[str], params: dict[str, str]) -> None:
    found = _SPHINX.match(head)
    names = found[2].split() if found else []
    if found and names and found[1] in ("param", "parameter", "arg", "argument", "key", "keyword"):
        params[names[-1].lstrip("*")] = _flat([found[3], *body])


def _read_entries(body: list[str], form: re.Pattern[str], params: dict[str, str]) -> None:
    """Entries `name (type): text` at the section's own indentation, going on in deeper lines."""
    indent = min((len(line) - len(line.lstrip()) for line in body if line.strip()), default=0)
    name = ""
    for line in body:
        found = form.match(line.strip()) if len(line) - len(line.lstrip()) == indent else None
        if found:
            name = found[1]
            params[name] = found[2]
        elif name:
            params[name] = _flat([params[name], line])


def _read_numpy(body: list[str], params: dict[str, str]) -> None:
    names: list[str] = []
    for line in body:
        found = _NUMPY.match(line) if line[:1].strip() else None
        if found:
            names = [name.strip() for name in found[1].split(",")]
            params.update(dict.fromkeys(names, ""))
        else:
            params.update({name: _flat([params[name], line]) for name in names})


def _flat(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())
