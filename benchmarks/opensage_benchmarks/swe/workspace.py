"""The folder that an agent works in, made without a trace of the future, and the patch taken from it.

Beside each workspace there is a *trusted* repository, which the agent cannot reach. It holds the base tree; patches are
made against it, and nothing that the workspace names (hooks, filters, attributes, its own `.git`) has a say.
"""

from __future__ import annotations

import shutil
import tempfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opensage_benchmarks.swe.errors import MissingRepo, PatchError
from opensage_benchmarks.swe.git import GitError, git, new_repository, said
from opensage_benchmarks.swe.survey import Entry, Known, LeftOut, Survey, blob_name
from opensage_benchmarks.swe.task import Task, TaskSource

MOST_PATCH = 16 << 20
_TOGETHER = 20
"""So many left out of one folder for one reason are named together."""
_DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")


@dataclass(frozen=True, slots=True)
class Workspace:
    """A prepared task.

    Attributes:
        folder: what the agent gets: a repository whose HEAD is the base, with nothing but its ancestors.
        trusted: a repository outside the agent's reach.
        base: the base commit, in both.
    """

    folder: Path
    trusted: Path
    base: str


@dataclass(frozen=True, slots=True)
class Taken:
    """What an agent did.

    Attributes:
        patch: a unified diff against the base, which applies to a clean checkout; empty when nothing changed.
        left_out: what is not in it, and why.
        left_out_diff: the text of those, as a diff of the same kind.
    """

    patch: bytes
    left_out: tuple[LeftOut, ...] = ()
    left_out_diff: bytes = field(default=b"", repr=False)


def prepare(source: TaskSource, task: Task, folder: Path, trusted: Path) -> Workspace:
    """Fill an empty folder with what the agent starts from, and an empty or new one with the trusted repository.

    A clean repository keeps the history up to its HEAD. Anything else, files alone or a repository whose work tree
    differs from its HEAD, gets one base commit, the same each time: what was taken away is in no history either.

    Raises:
        MissingRepo: the repository of the task is not at hand, or is none that git can read.
    """
    source.prepare(task, folder)
    new_repository(trusted)
    own = folder / ".git"
    try:
        base = _keep_history(folder, trusted) if own.exists() and _is_clean(folder) else ""
        _remove(own)
        if not base:
            base = _one_commit(folder, trusted)
    except GitError as error:
        raise MissingRepo(f"task {task.id}: its repository cannot be used: {error}") from error
    for name in ("logs", "COMMIT_EDITMSG"):
        _remove(trusted / name)
    shutil.copytree(trusted, own)
    return Workspace(folder, trusted, base)


def _is_clean(folder: Path) -> bool:
    if git("rev-parse", "--verify", "-q", "HEAD^{commit}", folder=folder, check=False).returncode != 0:
        return False
    if git("rev-parse", "--show-object-format", folder=folder).stdout.strip() != b"sha1":
        raise GitError(f"{folder} names objects by SHA-256, which patches of the known benchmarks do not")
    return not git("status", "--porcelain", "-z", "--untracked-files=all", folder=folder).stdout


def _keep_history(folder: Path, trusted: Path) -> str:
    """Fetch HEAD: only what it is made of crosses over. Then lay out its files, byte by byte."""
    git(
        "fetch", "--quiet", "--no-tags", "--update-shallow", "--update-head-ok", "--no-write-fetch-head",
        "--no-recurse-submodules",
        folder.resolve().as_uri(), "+HEAD:refs/heads/main", folder=folder, git_dir=trusted,
    )  # fmt: skip
    git("read-tree", "HEAD", folder=folder, git_dir=trusted)
    git("update-index", "-q", "--refresh", folder=folder, git_dir=trusted, check=False)
    git("checkout-index", "-q", "-f", "-a", folder=folder, git_dir=trusted)
    return _head(folder, trusted)


def _one_commit(folder: Path, trusted: Path) -> str:
    git("add", "-A", "-f", "--", ".", folder=folder, git_dir=trusted)
    git("commit", "-q", "--allow-empty", "--no-verify", "--no-gpg-sign", "-m", "base", folder=folder, git_dir=trusted)
    return _head(folder, trusted)


def _head(folder: Path, trusted: Path) -> str:
    return git("rev-parse", "HEAD", folder=folder, git_dir=trusted).stdout.decode().strip()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def take_patch(workspace: Workspace, *, keep_tests: bool = False) -> Taken:
    """What changed since the base, whatever was committed, reset or broken meanwhile.

    Left out are binaries, files over 1 MiB, caches, what `.gitignore` names, nested repositories, links that leave the
    tree, everything that is no regular file, names that are no plain text, scratch files that the base does not have
    (`reproduce.py`, `*.orig`, `*.log`), and tests: new ones, and changes of those there are, because graders bring
    their own. `keep_tests` keeps tests.

    Raises:
        PatchError: the patch is larger than 16 MiB, or the workspace is gone.
    """
    survey = Survey(base_files(workspace), keep_tests)
    try:
        survey.look(workspace.folder)
    except OSError as error:
        raise PatchError(f"the workspace {workspace.folder} cannot be read any more: {error.strerror}") from error
    with tempfile.TemporaryDirectory(prefix="opensage-patch-") as name:
        scratch = Path(name)
        _drop_ignored(workspace, survey, scratch)
        patch = _diff(workspace, survey, survey.changed, survey.removed, scratch)
        gone = [path for path, entry in survey.aside.items() if entry is None]
        aside = {path: entry for path, entry in survey.aside.items() if entry is not None}
        kept = _diff(workspace, survey, aside, gone, scratch)
    if len(patch) > MOST_PATCH:
        raise PatchError(f"the patch has {len(patch) >> 20} MiB, more than {MOST_PATCH >> 20}: too much was changed")
    check_patch(patch, workspace)
    return Taken(patch, tuple(_together(survey.left)), kept if len(kept) <= MOST_PATCH else b"")


def check_patch(patch: bytes, workspace: Workspace) -> None:
    """Try a patch on a clean checkout of the base.

    Raises:
        PatchError: it does not apply, or does not end with a newline.
    """
    if not patch:
        return
    if not patch.endswith(b"\n"):
        raise PatchError("the patch does not end with a newline: it was cut, or its last newline was stripped")
    with tempfile.TemporaryDirectory(prefix="opensage-check-") as name:
        index = Path(name) / "index"
        _git(workspace, "read-tree", workspace.base, index=index)
        done = git(
            "apply", "--cached", "--check", "-", folder=Path(name), git_dir=workspace.trusted, index=index,
            stdin=patch, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        raise PatchError(f"the patch does not apply to {workspace.base[:12]}: {said(done)}")


def base_files(workspace: Workspace) -> dict[str, Known]:
    """The files of the base tree by path; bytes that are not UTF-8 as `os.fsdecode` gives them."""
    out = _git(workspace, "ls-tree", "-r", "-l", "-z", workspace.base)
    files = {}
    for line in out.split(b"\0")[:-1]:
        facts, _, path = line.partition(b"\t")
        mode, _kind, sha, size = facts.split()
        name = path.decode(errors="surrogateescape")
        files[name] = Known(int(mode, 8), sha.decode(), int(size) if size != b"-" else 0)
    return files


def _git(workspace: Workspace, *words: str, index: Path | None = None, stdin: bytes = b"") -> bytes:
    """Run git on the trusted repository alone: its work tree is a folder with nothing of the agent's in it."""
    return git(*words, folder=workspace.trusted, git_dir=workspace.trusted, index=index, stdin=stdin).stdout


def _drop_ignored(workspace: Workspace, survey: Survey, scratch: Path) -> None:
    """Leave out new files that a `.gitignore` names, judged in a folder that holds those files alone."""
    new = [path for path in survey.changed if path not in survey.known]
    if not survey.ignores or not new:
        return
    for path, data in survey.ignores.items():
        place = scratch / "ignores" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    done = git(
        "check-ignore", "--no-index", "-z", "--stdin", folder=scratch / "ignores", git_dir=workspace.trusted,
        stdin=b"\0".join(map(_bytes, new)) + b"\0", check=False,
    )  # fmt: skip
    if done.returncode > 1:
        raise GitError(f"git check-ignore failed: {said(done)}")
    for path in filter(None, done.stdout.decode(errors="surrogateescape").split("\0")):
        entry = survey.changed.pop(path)
        survey.left.append(LeftOut(path, "ignored by git", len(entry.data)))
        survey.aside[path] = entry


def _diff(
    workspace: Workspace, survey: Survey, changed: Mapping[str, Entry], removed: Collection[str], scratch: Path
) -> bytes:
    """The difference between the base tree and the same with changes; what git takes for binary is left out."""
    if not changed and not removed:
        return b""
    tree = _tree(workspace, survey, changed, removed, scratch)
    out = _git(workspace, *_DIFF, "--numstat", "-z", workspace.base, tree).decode(errors="surrogateescape")
    binary = {line[4:] for line in out.split("\0") if line.startswith("-\t-\t")}
    if binary:
        survey.left += [LeftOut(path, "binary", len(changed[path].data) if path in changed else 0) for path in binary]
        rest = {path: entry for path, entry in changed.items() if path not in binary}
        return _diff(workspace, survey, rest, set(removed) - binary, scratch)
    return _git(workspace, *_DIFF, "--full-index", workspace.base, tree)


def _tree(
    workspace: Workspace, survey: Survey, changed: Mapping[str, Entry], removed: Collection[str], scratch: Path
) -> str:
    index = scratch / "index"
    index.unlink(missing_ok=True)
    _git(workspace, "read-tree", workspace.base, index=index)
    lines = [b"0 " + b"0" * 40 + b"\t" + _bytes(path) for path in removed]
    stays = survey.known.keys() - set(removed)
    folders = {above for path in stays for above in _folders(path)}
    for path, entry in changed.items():
        if path in folders or any(above in stays for above in _folders(path)):
            survey.left.append(LeftOut(path, "in the place of something that stays", len(entry.data)))
        else:
            sha = _write_blob(workspace.trusted, entry.data)
            lines.append(b"%o %s\t%s" % (entry.mode, sha.encode(), _bytes(path)))
    _git(workspace, "update-index", "-z", "--index-info", index=index, stdin=b"".join(line + b"\0" for line in lines))
    return _git(workspace, "write-tree", index=index).decode().strip()


def _write_blob(repository: Path, data: bytes) -> str:
    """Store a file as git does, without a process for each."""
    sha = blob_name(data)
    place = repository / "objects" / sha[:2] / sha[2:]
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(zlib.compress(b"blob %d\0" % len(data) + data, 1))
    return sha


def _folders(path: str) -> Iterable[str]:
    parts = path.split("/")
    return ("/".join(parts[:end]) for end in range(1, len(parts)))


def _bytes(path: str) -> bytes:
    return path.encode(errors="surrogateescape")


def _together(left: Iterable[LeftOut]) -> Iterable[LeftOut]:
    """Name a crowd by its folder."""
    crowds: dict[tuple[str, str], list[LeftOut]] = defaultdict(list)
    for item in left:
        crowds[item.path.rstrip("/").rpartition("/")[0], item.why].append(item)
    for (folder, why), items in sorted(crowds.items()):
        if len(items) > _TOGETHER:
            yield LeftOut(
                _shown(f"{folder}/*".lstrip("/")), f"{why} ({len(items)} of them)", sum(i.bytes for i in items)
            )
        else:
            yield from (LeftOut(_shown(item.path), item.why, item.bytes) for item in items)


def _shown(path: str) -> str:
    return _bytes(path).decode(errors="backslashreplace")
