"""git: what changed, who wrote a line, which commit broke it. Nothing here changes the working tree."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from .files import GIT, inside
from .process import run

_SECONDS = 60.0
_DIFF = 20_000
_BLAMED = 200
_OUTPUT = 1500


class GitError(ValueError):
    """git refused; the message is its own."""


def git(root: Path | str, *words: str, seconds: float = _SECONDS) -> str:
    """What git prints.

    Raises:
        GitError: it failed, is not installed, or takes too long.
    """
    try:
        done = subprocess.run([*GIT, *words], cwd=root, capture_output=True, timeout=seconds, stdin=subprocess.DEVNULL)
    except FileNotFoundError:
        raise GitError("git is not installed here") from None
    except subprocess.TimeoutExpired:
        raise GitError(f"git {words[0]} did not end in {seconds:g} s") from None
    if done.returncode:
        raise GitError(f"git {words[0]}: {done.stderr.decode('utf-8', 'replace').strip()[:1000]}")
    return done.stdout.decode("utf-8", "replace")


def diff(root: Path | str, revision: str = "HEAD", path: str = "") -> dict[str, Any]:
    """What differs from a revision, new files included as names; the diff is bounded.

    Raises:
        GitError: no such revision, or no repository.
    """
    base = _commit(root, revision)
    paths = ["--", inside(Path(root), path)] if path else ["--"]
    options = ["--no-ext-diff", "--no-textconv", "--no-color"]
    text = git(root, "diff", *options, base, *paths)
    counts = git(root, "diff", *options, "--numstat", base, *paths).splitlines()
    new = git(root, "ls-files", "--others", "--exclude-standard", *paths).splitlines()
    rows = [dict(zip(("added", "removed", "file"), line.split("\t", 2), strict=False)) for line in counts]
    cut = len(text) - _DIFF
    shown = text if cut <= 0 else f"{text[:_DIFF]}\n[{cut} characters left out]"
    return {"revision": base, "files": rows[:_BLAMED], "new_files": new[:_BLAMED], "diff": shown}


def blame(root: Path | str, path: str, line: int, count: int = 1) -> dict[str, Any]:
    """Who wrote lines of a file, in which commit.

    Raises:
        GitError: the file is not tracked, or has no such line.
    """
    place = inside(Path(root), path)
    text = git(root, "blame", "--porcelain", "-L", f"{line},+{min(count, _BLAMED)}", "--", place)
    rows: list[dict[str, Any]] = []
    facts: dict[str, dict[str, str]] = {}
    number, commit = 0, ""
    for each in text.split("\n"):
        head = re.match(r"([0-9a-f]{40}) \d+ (\d+)", each)
        if head:
            commit, number = head[1], int(head[2])
        elif each.startswith("\t"):
            known = facts.get(commit, {})
            new = not int(commit, 16)
            about = {"author": known.get("author", ""), "when": _day(known.get("author-time", "0"))}
            summary = "not committed yet" if new else known.get("summary", "")
            rows.append({"line": number, "commit": commit[:12], **about, "summary": summary, "text": each[1:201]})
        elif commit:
            key, _, value = each.partition(" ")
            facts.setdefault(commit, {})[key] = value
    return {"file": place, "lines": rows}


def bisect(root: Path | str, command: str, good: str, bad: str = "HEAD", seconds: float = 60.0) -> dict[str, Any]:
    """The first commit for which a command fails, by halving; it runs in a copy of the history.

    Args:
        root: the workspace.
        command: shell command, 0 for good; 125 for a commit that cannot be tested.
        good: a commit for which it ends with 0.
        bad: a later one for which it does not.
        seconds: of one run.

    Raises:
        GitError: no such commits, or they are not as said.
    """
    first, last = _commit(root, good), _commit(root, bad)
    commits = git(root, "rev-list", "--first-parent", "--reverse", f"{first}..{last}").split()
    if not commits or git(root, "merge-base", first, last).strip() != first:
        raise GitError(f"{bad} does not come after {good}")
    with tempfile.TemporaryDirectory(prefix="opensage-bisect-") as folder:
        copy = _History(root, Path(folder) / "copy", command, seconds)
        return _search(copy, first, commits)


class _History:
    """A clone that borrows the objects; checks out one commit after the other."""

    def __init__(self, root: Path | str, place: Path, command: str, seconds: float) -> None:
        self.place, self.command, self.seconds = place, command, seconds
        self.tried: list[dict[str, Any]] = []
        top = git(root, "rev-parse", "--show-toplevel").strip()
        self.output = ""
        self.within = os.path.relpath(os.path.realpath(root), os.path.realpath(top))
        git(".", "clone", "-q", "--shared", "--no-checkout", "--", top, str(place))

    def good(self, commit: str) -> bool | None:
        """Whether the command ends with 0 there; None when it cannot be tested."""
        git(self.place, "checkout", "-q", "--force", "--detach", commit)
        git(self.place, "clean", "-q", "-f", "-d", "-x")
        begun = time.monotonic()
        done = run(self.command, self.place / self.within, self.seconds, {"PYTHONDONTWRITEBYTECODE": "1"})
        verdict = None if done.code == 125 else done.code == 0 and not done.late
        said = "skipped" if verdict is None else "good" if verdict else "timeout" if done.late else "bad"
        self.tried.append({"commit": commit[:12], "verdict": said, "seconds": round(time.monotonic() - begun, 2)})
        self.output = done.output[-_OUTPUT:]
        return verdict


def _search(copy: _History, first: str, commits: list[str]) -> dict[str, Any]:
    if copy.good(first) is not True:
        raise GitError(f"the command fails for the good commit already: {copy.output}")
    if copy.good(commits[-1]) is not False:
        raise GitError("the command does not fail for the bad commit")
    output = copy.output
    low, high = -1, len(commits) - 1  # commits[low] is good, commits[high] is bad
    skipped: set[int] = set()
    while True:
        left = sorted(set(range(low + 1, high)) - skipped, key=lambda n: abs(2 * n - low - high))
        if not left:
            break
        verdict = copy.good(commits[left[0]])
        if verdict is None:
            skipped.add(left[0])
        elif verdict:
            low = left[0]
        else:
            high, output = left[0], copy.output
    show = git(copy.place, "show", "-s", "--format=%an%x09%as%x09%s", commits[high]).strip().split("\t", 2)
    about = dict(zip(("author", "when", "summary"), show, strict=False))
    files = git(copy.place, "diff-tree", "--no-commit-id", "--name-only", "-r", "-m", "--first-parent", commits[high])
    answer = {"first_bad": commits[high], **about, "files": files.splitlines()[:50], "tried": copy.tried}
    between = [commits[n][:12] for n in range(low + 1, high)]
    return {**answer, "output": output, **({"or_one_of": between} if between else {})}


def _commit(root: Path | str, revision: str) -> str:
    if not revision or revision.startswith("-"):
        raise GitError(f"{revision!r} is no revision")
    try:
        return git(root, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").strip()
    except GitError as error:
        raise GitError(f"{revision}: {error}") from None


def _day(text: str) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(int(text) if text.isdigit() else 0))
