"""Runs inside the sandbox, by `python -I -c`: standard library only. Prints `path NUL line:text`, like `rg --null`.

Reads one JSON object: pattern, path, glob, literal, skipped, columns, most (bytes printed). Exit code 2 says that the
pattern is invalid, with the reason on stderr, or that some paths could not be read.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

unread: list[str] = []
"""Paths that could not be read."""


def files(path: str, skipped: list[str]) -> Iterator[str]:
    """Files at or below a path: those that git does not ignore, else all but the skipped folders."""
    if not os.path.isdir(path):
        yield path
        return
    tracked = git_files(path)
    if tracked is not None:
        kept = (name for name in tracked if not set(name.split("/")[:-1]) & set(skipped))
        yield from (os.path.join(path, name) for name in sorted(kept))
        return
    waiting = [path]
    while waiting:
        place = waiting.pop()
        if os.path.isdir(place) and (place == path or not os.path.islink(place)):
            names = (name for name in listed(place) if name not in skipped)
            waiting += [os.path.join(place, name) for name in sorted(names, reverse=True)]
        else:
            yield place


def listed(folder: str) -> list[str]:
    """Names in a folder; of one that cannot be read, none."""
    try:
        return os.listdir(folder)
    except OSError:
        unread.append(folder)
        return []


def git_files(path: str) -> list[str] | None:
    """What git lists below a path, or None where it does not."""
    command = ["git", "-c", "core.fsmonitor=false", "ls-files", "-coz", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout).split("\0")[:-1] if done.returncode == 0 else None


def matches(path: str, pattern: re.Pattern[str], columns: int) -> Iterator[str]:
    """Lines of one text file; binary and unreadable ones, and what is no regular file, give none."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            return
        with open(path, "rb") as file:
            if b"\0" in file.read(8192):
                return
            file.seek(0)
            for number, line in enumerate(file, 1):
                text = line.rstrip(b"\r\n").decode("utf-8", "replace")
                if pattern.search(text):
                    yield f"{path}\0{number}:{text[:columns]}{'…' if len(text) > columns else ''}\n"
    except FileNotFoundError:  # git lists what was deleted
        return
    except OSError:
        unread.append(path)


def wanted(path: str, glob: str | None) -> bool:
    """Whether a path fits the glob: its name, or the whole path where the glob has a slash."""
    if not glob:
        return True
    name = path if "/" in glob else os.path.basename(path)
    return fnmatch.fnmatch(name.removeprefix("./"), glob.replace("**/", "*"))


def main() -> int:
    """Search; see the module."""
    request: dict[str, Any] = json.load(sys.stdin)
    text = re.escape(request["pattern"]) if request["literal"] else request["pattern"]
    try:
        pattern = re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:
        sys.stderr.write(str(error))
        return 2
    left = request["most"]
    for path in files(request["path"], request["skipped"]):
        if wanted(path, request["glob"]):
            for line in matches(path, pattern, request["columns"]):
                data = line.encode("utf-8", "surrogateescape")
                left -= len(data)
                if left < 0:
                    return 0
                # At once: a pattern may take for ever on the next line, and what was found is worth having.
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
    return 2 if unread else 0


if __name__ == "__main__":
    sys.exit(main())
