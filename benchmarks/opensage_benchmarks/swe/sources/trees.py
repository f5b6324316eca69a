"""Where the files of a task come from: a plain folder or a git repository, and which of them the agent never sees."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from opensage_benchmarks.swe.errors import MissingRepo, TaskError
from opensage_benchmarks.swe.git import GitError, git, new_repository

_REPO = re.compile(r"(?!.*\.\.)[\w.-]+(/[\w.-]+)?")
_COMMIT = re.compile(r"[0-9a-fA-F]{7,64}")
_LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", ".pytest_cache", ".mypy_cache", ".tox", ".venv"})


@dataclass(frozen=True, slots=True)
class Hidden:
    """Paths of a repository (patterns of whole paths, or folders) that the agent never sees.

    Attributes:
        references: solutions.
        tests: what the grader puts back.
    """

    references: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()

    @property
    def all(self) -> tuple[str, ...]:
        """Both."""
        return (*self.references, *self.tests)


# The drivers among QuixBugs' programs tell what each should print; its other languages hold the same programs again.
QUIXBUGS = Hidden(
    references=("correct_*", "java*", "python_programs/*_test.py"),
    tests=("python_testcases", "json_testcases", "conftest.py"),
)
HIDDEN: Mapping[str, Hidden] = {"jkoppel/quixbugs": QUIXBUGS}
"""By repository in lower case. One with such paths comes without its history, which holds them too."""


def matches(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path or a folder above it is one of these."""
    parts = path.split("/")
    above = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    return any(fnmatchcase(each, pattern) for pattern in patterns for each in above)


def find_repo(repos: Path | None, repo: str) -> Path:
    """The repository among the user's: `owner__name`, `owner/name` or `name` in that folder, letters' case aside.

    Raises:
        MissingRepo: it is not there.
        TaskError: `repo` is no name of a repository.
    """
    if not _REPO.fullmatch(repo):
        raise TaskError(f"{repo!r} is no name of a repository such as owner/name")
    owner, _, name = repo.rpartition("/")
    if repos is None:
        raise MissingRepo(f"task of {repo}: name the folder with a clone of it: --repos FOLDER")
    ways = [[f"{owner}__{name}"], [owner, name], [name]] if owner else [[name]]
    for way in ways:
        if (found := _below(repos, way)) is not None:
            return found
    raise MissingRepo(f"no {repo} in {repos}: put a clone or a copy of it there, as {'__'.join(ways[0])} or {name}")


def _below(folder: Path, parts: list[str]) -> Path | None:
    for part in parts:
        try:
            names = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
        except OSError:
            return None
        same = [name for name in names if name.lower() in (part.lower(), f"{part.lower()}.git")]
        if not same:
            return None
        folder = folder / (part if part in same else same[0])
    return folder


def git_dir(folder: Path) -> Path | None:
    """The git directory of a clone or a bare repository; nothing for a plain folder, whatever lies above it."""
    if (folder / ".git").exists():
        return folder / ".git"
    return folder if (folder / "HEAD").is_file() and (folder / "objects").is_dir() else None


def copy_tree(source: Path, target: Path, hidden: Iterable[str] = ()) -> None:
    """Copy a plain folder less what is hidden and what tools leave behind; the copy can be written to.

    Links stay links, unless they lead out of the tree: those are left out.
    """
    for path in _files(source, tuple(hidden)):
        place = target / path.relative_to(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            place.symlink_to(path.readlink())
        else:
            shutil.copyfile(path, place)
            place.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)


def _files(root: Path, hidden: tuple[str, ...]) -> Iterator[Path]:
    inside = root.resolve()
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(set(folders) - _LEFT_OUT - set(links))
        for name in sorted(files + links):
            path = here / name
            leads_out = path.is_symlink() and not path.resolve().is_relative_to(inside)
            plain = path.is_symlink() or path.is_file()
            if plain and not leads_out and not matches(path.relative_to(root).as_posix(), hidden):
                yield path


def read_tree(root: Path, patterns: Iterable[str]) -> dict[str, bytes]:
    """Path → bytes of the files of a folder that match."""
    wanted = tuple(patterns)
    found = {path.relative_to(root).as_posix(): path for path in _files(root, ()) if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if matches(name, wanted)}


def clone_at(source: Path, commit: str, target: Path) -> None:
    """Make `target` a repository of one commit and its ancestors, checked out: no remote, tag, reflog or later object.

    Raises:
        MissingRepo: `source` does not hold the commit.
    """
    full = resolve(source, commit)
    new_repository(target / ".git")
    quiet = ("-c", "core.logAllRefUpdates=false")
    fetch = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow", "--update-head-ok")
    _git(target, *quiet, *fetch, f"--upload-pack={_UPLOAD}", f"file://{source.resolve()}", f"{full}:refs/heads/main")
    _git(target, *quiet, "checkout", "--quiet", "--force", "main")


# Its settings are its own: those of the program that fetches do not reach it.
_UPLOAD = "git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack"


def export_at(source: Path, commit: str, target: Path) -> None:
    """Write the files of one commit into a folder, without any history.

    Raises:
        MissingRepo: `source` does not hold the commit.
    """
    full = resolve(source, commit)
    with tempfile.TemporaryDirectory(prefix="opensage-index-") as place:
        for words in (("read-tree", full), ("checkout-index", "--all", "--force")):
            _git(target, *words, git_dir=source, index=Path(place) / "index")


def resolve(source: Path, commit: str) -> str:
    """The full name of a commit; HEAD for none.

    Raises:
        MissingRepo: the repository does not hold it.
    """
    if commit and not _COMMIT.fullmatch(commit):
        raise MissingRepo(f"{commit!r} is no commit: 40 hex digits are wanted")
    words = ("rev-parse", "--verify", "--quiet", f"{commit or 'HEAD'}^{{commit}}")
    try:
        return _git(source.parent, *words, git_dir=source)
    except MissingRepo as error:
        raise MissingRepo(f"{source} does not hold commit {commit or 'HEAD'}; fetch it there with git fetch") from error


def apply_patch(folder: Path, patch: str) -> None:
    """Apply a patch in a plain folder.

    Raises:
        TaskError: it does not apply.
    """
    with tempfile.TemporaryDirectory(prefix="opensage-git-") as place:
        new_repository(Path(place))
        words = ("apply", "--whitespace=nowarn", "-")
        try:
            git(*words, folder=folder, git_dir=Path(place), stdin=patch.encode("utf-8", "surrogateescape"))
        except GitError as error:
            raise TaskError(f"the patch that makes the bug does not apply: {error}") from error


def _git(folder: Path, *words: str, git_dir: Path | None = None, index: Path | None = None) -> str:
    try:
        return git(*words, folder=folder, git_dir=git_dir, index=index).stdout.decode(errors="replace").strip()
    except GitError as error:
        raise MissingRepo(str(error)) from error
