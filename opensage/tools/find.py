"""`list` and `search`: what is in the workspace, bounded, by the programs that the sandbox has."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from opensage.errors import ToolError
from opensage.protocols import ExecResult
from opensage.tools.base import ToolContext
from opensage.tools.decorate import tool
from opensage.tools.paths import SKIPPED, inside, missing, shown

MAX_ENTRIES = 200
MAX_MATCHES = 200
_COLUMNS = 300
_MOST_BYTES = 100_000
_MOST_SHOWN = 30_000
_SECONDS = 20.0
_DEPTH = 3
_ABSENT = 44
_NO_PROGRAM = 45
_FAILED = 2
_STATUS = re.compile(r"opensage-status (\d+)\s*\Z")
_PREVIEW = re.compile(r" \[\.\.\. .*\]\Z")


@tool(name="list", source="builtin", parallel=True, target="path")
async def list_files(ctx: ToolContext, path: str = ".") -> str:
    """List files and folders."""
    place = await inside(ctx, path)
    result = await ctx.sandbox.exec(_list_script(place), timeout=_SECONDS, cwd=ctx.sandbox.workdir)
    if result.exit_code == _ABSENT:
        raise await missing(ctx, place)
    records = (record for record in result.stdout.split("\0") if record)
    entries = [entry for entry in (_Entry.of(record, place) for record in records) if entry]
    if not entries and result.stderr.strip():
        raise ToolError(f"{shown(place, ctx)}: {result.stderr.strip().splitlines()[-1][:200]}")
    cut = result.timed_out or len(result.stdout) >= _MOST_BYTES
    return _tree(entries, cut) or f"({shown(place, ctx)} is empty)"


def _list_script(place: str) -> str:
    path = shlex.quote(_not_option(place))
    names = " -o ".join(f"-name {name}" for name in SKIPPED)
    return (
        f"[ -e {path} ] || exit {_ABSENT}\n"
        f"find -H {path} -maxdepth {_DEPTH} \\( {names} \\) -prune -o -printf '%y %s %P\\0' | head -c {_MOST_BYTES}"
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """One thing found: "d", "f", "l", ...; bytes; path below the listed folder."""

    kind: str
    size: int
    path: str

    @classmethod
    def of(cls, record: str, listed: str) -> _Entry | None:
        """One record of `find`; that of the listed folder itself, which has no path, gives None."""
        kind, _, rest = record.partition(" ")
        size, _, path = rest.partition(" ")
        if not size.isdigit() or (not path and kind == "d"):
            return None
        return cls(kind, int(size), path or listed.rpartition("/")[2])

    @property
    def depth(self) -> int:
        return self.path.count("/")

    def line(self) -> str:
        name = self.path.rpartition("/")[2]
        name = name if name.isprintable() else repr(name)
        mark = {"d": "/", "l": "@"}.get(self.kind, f"  {_size(self.size)}")
        return "  " * self.depth + name + mark


def _tree(entries: list[_Entry], cut: bool) -> str:
    """As many levels as fit; of a single level, as many entries."""
    depths = [sum(entry.depth <= depth for entry in entries) for depth in range(_DEPTH)]
    depth = max((level for level in range(_DEPTH) if depths[level] <= MAX_ENTRIES), default=0)
    seen = sorted((entry for entry in entries if entry.depth <= depth), key=lambda entry: entry.path.split("/"))
    lines = [entry.line() for entry in seen[:MAX_ENTRIES]]
    if len(seen) > MAX_ENTRIES or cut:
        lines.append(f"[{max(0, len(seen) - MAX_ENTRIES)}{'+' if cut else ''} more entries]")
    elif len(seen) < len(entries):
        lines.append("[deeper levels are left out: list a folder to see them]")
    return "\n".join(lines)


def _size(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KB", "MB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 10 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GB"


@tool(name="search", source="builtin", parallel=True, target="path")
async def search(ctx: ToolContext, pattern: str, path: str = ".", glob: str | None = None) -> str:
    """Search file contents by regular expression.

    Args:
        ctx: context.
        pattern: regex
        path: file or folder
        glob: only files like this, e.g. *.py
    """
    if not pattern or "\0" in pattern:
        raise ToolError('the pattern is empty or holds NUL. Example arguments: {"pattern": "def main"}')
    query = _Query(pattern, _not_option(await inside(ctx, path)), glob or None)
    found = await _search(ctx, query)
    literal = _refused(found)
    if literal:
        found = await _search(ctx, _Query(pattern, query.path, query.glob, literal=True))
    if found.exit_code == _ABSENT:
        raise await missing(ctx, query.path)
    if _refused(found):
        raise ToolError(f"the search failed: {found.stderr.strip()[:300]}")
    note = "[the pattern is no valid regex: it was searched as plain text]\n" if literal else ""
    return note + _render(found, query, ctx)


def _refused(found: ExecResult) -> bool:
    """Whether the query itself was refused. Of paths that cannot be read the programs are told to say nothing."""
    return found.exit_code == _FAILED and found.stderr.strip() != ""


@dataclass(frozen=True, slots=True)
class _Query:
    pattern: str
    path: str
    glob: str | None
    literal: bool = False


async def _search(ctx: ToolContext, query: _Query) -> ExecResult:
    """Run the search by the first program that is there, and remember which."""
    engines = (
        [ctx.state["search"]] if "search" in ctx.state else ["rg", *(["python"] if ctx.sandbox.python else []), "grep"]
    )
    for engine in engines:
        script = (
            _python_script(ctx) if engine == "python" else _rg_script(query) if engine == "rg" else _grep_script(query)
        )
        path = shlex.quote(query.path)
        result = await ctx.sandbox.exec(
            f"[ -e {path} ] || exit {_ABSENT}\n{script}",
            timeout=_SECONDS,
            cwd=ctx.sandbox.workdir,
            stdin=_request(query) if engine == "python" else None,
        )
        if result.exit_code != _NO_PROGRAM:
            ctx.state["search"] = engine
            return _with_status(result)
    raise ToolError("the sandbox has neither rg, nor python, nor grep: search is not possible")


def _needs(program: str) -> str:
    return f"command -v {program} >/dev/null 2>&1 || exit {_NO_PROGRAM}\n"


def _piped(command: str, through: str = "") -> str:
    """The command's output, bounded, and its exit code on stderr, since that of a pipe is the last one's."""
    return f'{{ {command}; echo "opensage-status $?" >&2; }} {through}| head -c {_MOST_BYTES}'


def _rg_script(query: _Query) -> str:
    options = ["-nH", "--no-heading", "--null", "--color=never", "--hidden", "--no-messages", "--sort=path"]
    options += [f"--max-columns={_COLUMNS}", "--max-columns-preview", *(["-F"] if query.literal else [])]
    if query.glob and "/" in query.glob:
        options += ["-g", query.glob]
    elif query.glob:  # as a type: a plain -g would bring back what .gitignore leaves out
        options += ["--type-add", f"wanted:{query.glob}", "-t", "wanted"]
    options += [part for name in SKIPPED for part in ("-g", f"!{name}")]
    return _needs("rg") + _piped(shlex.join(["rg", "--no-config", *options, "-e", query.pattern, query.path]))


def _grep_script(query: _Query) -> str:
    options = ["-rnIHZ", "-F" if query.literal else "-E", *(f"--exclude-dir={name}" for name in SKIPPED)]
    options += [f"--include={query.glob.rpartition('/')[2]}"] if query.glob else []
    command = shlex.join(["grep", "-s", *options, "-e", query.pattern, query.path])
    return _needs("grep") + _piped(command, f"| cut -b -{_COLUMNS * 10} ")


def _python_script(ctx: ToolContext) -> str:
    python = shlex.quote(ctx.sandbox.python or "python3")
    source = Path(__file__).with_name("searcher.py").read_text()
    return f"{_needs(python)}exec {python} -I -c {shlex.quote(source)}"


def _request(query: _Query) -> bytes:
    fields = {"pattern": query.pattern, "path": query.path, "glob": query.glob, "literal": query.literal}
    return json.dumps({**fields, "skipped": SKIPPED, "columns": _COLUMNS, "most": _MOST_BYTES}).encode()


def _with_status(result: ExecResult) -> ExecResult:
    """The result with the program's own exit code in place of the pipe's."""
    status = _STATUS.search(result.stderr)
    if not status:
        return result
    return ExecResult(
        int(status[1]),
        result.stdout,
        result.stderr[: status.start()],
        timed_out=result.timed_out,
        truncated=result.truncated,
        duration=result.duration,
    )


def _render(result: ExecResult, query: _Query, ctx: ToolContext) -> str:
    lines: list[str] = []
    size = 0
    records = result.stdout.split("\n")
    for record in records:
        name, nul, rest = record.partition("\0")
        number, colon, text = rest.partition(":")
        if not (nul and colon and number.isdigit()):
            continue
        line = f"{shown(name.removeprefix('./'), ctx)}:{number}:{_clipped(text)}"
        size += len(line) + 1
        if len(lines) >= MAX_MATCHES or size > _MOST_SHOWN:
            lines.append("[there are more matches: narrow the pattern, path or glob]")
            break
        lines.append(line)
    if result.timed_out:
        lines.append(f"[the search was stopped after {_SECONDS:.0f} s: narrow the path or simplify the pattern]")
    if not lines:
        lines.append(f"no matches for {query.pattern!r} in {query.path}")
    if result.exit_code == _FAILED:
        lines.append("[some paths could not be searched: they are unreadable or too long]")
    return "\n".join(lines)


def _clipped(text: str) -> str:
    text = text.removesuffix("\r")
    if len(text) > _COLUMNS:
        return _PREVIEW.sub("", text)[:_COLUMNS].removesuffix("…") + "…"
    return text


def _not_option(path: str) -> str:
    return f"./{path}" if path.startswith("-") else path
