"""Patches that come from outside: refused when they reach where they must not, else applied as swebench 5 does."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opensage_benchmarks.swe.errors import PatchError
from opensage_benchmarks.swe.git import GitError, environment, git, said
from opensage_benchmarks.swe.survey import leaves_tree
from opensage_benchmarks.swe.workspace import MOST_PATCH, Workspace

_HUNK = re.compile(rb"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@")
_NAMES = (b"--- ", b"+++ ", b"rename from ", b"rename to ", b"copy from ", b"copy to ", b"Index: ")
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_PATCH_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Applied:
    """A patch is in a checkout: the command that got it there, and what the tries said."""

    step: str
    log: str


def as_patch(text: str) -> bytes:
    """The bytes of a patch as a prediction holds it; the last newline is put back, which models and tools strip.

    Raises:
        PatchError: no text at all, or more than 16 MiB of it.
    """
    data = text.encode("utf-8", "surrogateescape")
    if len(data) > MOST_PATCH:
        raise PatchError(f"the patch has {len(data) >> 20} MiB, more than {MOST_PATCH >> 20}")
    if not data.strip():
        raise PatchError("the patch is empty")
    return data if data.endswith(b"\n") else data + b"\n"


def check_outside(patch: bytes) -> list[str]:
    """The paths that a patch changes, as `os.fsdecode` gives them.

    Raises:
        PatchError: it is no diff, holds a binary or a submodule, or a path or link that leaves the tree.
    """
    paths: dict[str, None] = {}
    changes = 0
    link = b""
    for kind, line in _lines(patch):
        if kind == "hunk":
            changes += 1
        elif kind == "body":
            if link and line.startswith(b"+"):
                _check_target(link, line[1:])
        elif line.startswith((b"GIT binary patch", b"Binary files ")):
            raise PatchError("the patch holds a binary file: leave it out, only text can be graded")
        elif line.startswith(b"diff --git "):
            _check_parts(line[11:], re.split(rb'[/\s"]', line[11:]))
            link = b""
        elif re.match(rb"(new|old|deleted) (file )?mode |index [0-9a-f]+\.\.[0-9a-f]+ \d+$", line):
            if line.endswith(b"160000"):
                raise PatchError("the patch changes a submodule, which cannot be graded")
            changes += 1
            link = link or (b"a link" if line.endswith(b"120000") else b"")
        elif line.startswith(_NAMES):
            name = _name(line)
            changes += line.startswith((b"rename to ", b"copy to "))
            if name != b"/dev/null":
                path = _path(name, stripped=line.startswith((b"--- ", b"+++ ")))
                paths[path.decode(errors="surrogateescape")] = None
                link = path if link else b""
    if not changes:
        raise PatchError("this is no diff: there is no hunk in it")
    return list(paths)


def _lines(patch: bytes) -> Iterator[tuple[str, bytes]]:
    """Each line with its kind: a "head", the start of a "hunk", or a "body" line as its hunk's numbers say."""
    old = new = 0
    for line in patch.split(b"\n"):
        if old > 0 or new > 0:
            old -= line[:1] in (b" ", b"-", b"", b"\r")
            new -= line[:1] in (b" ", b"+", b"", b"\r")
            yield "body", line
        elif found := _HUNK.match(line):
            old, new = (int(group or b"1") for group in found.groups())
            yield "hunk", line
        else:
            yield "head", line.rstrip(b"\r")


def _name(line: bytes) -> bytes:
    """The name in a line of a header: without its keyword and time, escapes resolved."""
    keyword = next(word for word in _NAMES if line.startswith(word))
    name = line[len(keyword) :]
    if not name.startswith(b'"'):
        return name.partition(b"\t")[0]
    inside = name[1:].rpartition(b'"')[0]
    return re.sub(rb"\\([0-7]{3}|.)", _unescape, inside, flags=re.DOTALL)


def _unescape(found: re.Match[bytes]) -> bytes:
    code = found[1]
    return bytes([int(code, 8) & 255]) if len(code) == 3 else _ESCAPES.get(code, code)


def _path(name: bytes, *, stripped: bool) -> bytes:
    """The path in the tree: without the first folder (`a/`, `b/`) where `-p1` takes it away."""
    if name.startswith(b"/"):
        raise PatchError(f"the patch names an absolute path: {_shown(name)}")
    path = name.partition(b"/")[2] if stripped else name
    if stripped and not path:
        raise PatchError(f"the patch has no a/ or b/ before {_shown(name)}: make it with git diff, without --no-prefix")
    _check_parts(name, path.split(b"/"))
    if path.startswith(b"/") or b"\0" in path:
        raise PatchError(f"the patch names a path out of the tree: {_shown(name)}")
    return path


def _check_parts(name: bytes, parts: list[bytes]) -> None:
    if b".." in parts:
        raise PatchError(f"the patch leaves the tree: {_shown(name)}")
    if any(part.lower() == b".git" for part in parts):
        raise PatchError(f"the patch changes the repository itself: {_shown(name)}")


def _check_target(path: bytes, target: bytes) -> None:
    if leaves_tree(path.decode(errors="surrogateescape"), target.decode(errors="surrogateescape")):
        raise PatchError(f"the patch makes a link that leaves the tree: {_shown(path)} -> {_shown(target)}")


def _shown(name: bytes) -> str:
    return name.decode(errors="backslashreplace")[:200]


def apply_patch(workspace: Workspace, patch: bytes, *, lenient: bool = True) -> Applied:
    """Apply a checked patch to the workspace: `git apply`, then `--3way`, `--reject`, then GNU patch with fuzz.

    Each try starts from a clean tree. A try counts when it leaves nothing rejected.

    Args:
        workspace: at its base.
        patch: as `check_outside` let it pass.
        lenient: whether anything but plain `git apply` is tried.

    Raises:
        PatchError: none works; the message says why the first did not.
    """
    log: list[str] = []
    first = ""
    for words in (("--verbose",), ("--verbose", "--3way"), ("--verbose", "--reject"))[: 3 if lenient else 1]:
        step = " ".join(("git apply", *words))
        done = git(
            "apply", *words, "-", folder=workspace.folder, git_dir=workspace.trusted, stdin=patch, check=False
        )  # fmt: skip
        log.append(f"$ {step}\n{done.stderr.decode(errors='replace')}")
        if done.returncode == 0:
            return Applied(step, "".join(log))
        if first:  # the first try, without options, does all or nothing
            clean(workspace)
        first = first or said(done)
    if lenient and _gnu_patch(workspace.folder, patch, log):
        return Applied("patch --batch --forward --fuzz=5 -p1", "".join(log))
    clean(workspace)
    raise PatchError(f"the patch does not apply: {first}")


def clean(workspace: Workspace) -> None:
    """Put the folder back to its base; what was ignored from the start stays."""
    steps = (
        ("read-tree", workspace.base),
        ("update-index", "-q", "--refresh"),
        ("checkout-index", "-q", "-u", "-f", "-a"),
    )
    for words in (*steps, ("clean", "-q", "-fd")):
        git(*words, folder=workspace.folder, git_dir=workspace.trusted, check=words[0] != "update-index")


def _gnu_patch(folder: Path, patch: bytes, log: list[str]) -> bool:
    """GNU patch refuses paths out of the folder, and links on the way, by itself."""
    program = shutil.which("patch")
    if program is None:
        log.append("$ patch\nnot installed: `apt install patch`\n")
        return False
    command = [program, "--batch", "--forward", "--fuzz=5", "-p1", "--no-backup-if-mismatch"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            input=patch,
            capture_output=True,
            env=environment(),
            timeout=_PATCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise GitError(f"patch ran for more than {_PATCH_SECONDS:.0f} s in {folder}") from error
    log.append(f"$ {' '.join(('patch', *command[1:]))}\n{(done.stdout + done.stderr).decode(errors='replace')}")
    return done.returncode == 0
