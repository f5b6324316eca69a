"""A checkout that is tested: the base, the model's patch, and then what belongs to the test alone, as it must be."""

from __future__ import annotations

import configparser
import os
import shutil
import stat
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from opensage_benchmarks.swe.errors import BenchError
from opensage_benchmarks.swe.git import git
from opensage_benchmarks.swe.patch import Applied, apply_patch, check_outside
from opensage_benchmarks.swe.task import Task, TestPlan
from opensage_benchmarks.swe.workspace import Workspace

_STEER = frozenset({
    "conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "tox.ini", "sitecustomize.py",
    "usercustomize.py",
})  # fmt: skip
"""Files that decide what pytest runs and reports."""


class TaskBroken(BenchError):
    """The task's own tests cannot be put in place: not the candidate's fault."""


@dataclass(frozen=True, slots=True)
class Built:
    """How the patch got in, and which of its files were put back to the base because they steer the tests."""

    applied: Applied
    put_back: tuple[str, ...]


def build(workspace: Workspace, task: Task, plan: TestPlan, patch: bytes) -> Built:
    """Make a fresh workspace ready to be tested.

    Raises:
        PatchError: the patch reaches out of the tree, or does not apply.
        TaskBroken: the task's test patch does not apply.
    """
    paths = check_outside(patch)
    applied = apply_patch(workspace, patch)
    tests = [path for path in _touched(plan) if path not in plan.files]
    named = {id.partition("::")[0] for id in (*task.fail_to_pass, *task.pass_to_pass) if "::" in id}
    steering = [path for path in paths if path in named or _steers(workspace, path)]
    put_back(workspace, [*tests, *steering])
    for path in plan.removed:
        _delete(workspace.folder, path)
    for path, data in plan.files.items():
        _write(workspace.folder, path, data)
    if plan.patch.strip():
        _apply_tests(workspace, task, plan)
    return Built(applied, tuple(steering))


def _touched(plan: TestPlan) -> list[str]:
    return check_outside(_with_newline(plan.patch)) if plan.patch.strip() else []


def _with_newline(patch: str) -> bytes:
    data = patch.encode("utf-8", "surrogateescape")
    return data if data.endswith(b"\n") else data + b"\n"


def _apply_tests(workspace: Workspace, task: Task, plan: TestPlan) -> None:
    data = _with_newline(plan.patch)
    done = git("apply", "-", folder=workspace.folder, git_dir=workspace.trusted, stdin=data, check=False)
    if done.returncode != 0:
        raise TaskBroken(f"task {task.id}: its test patch does not apply: {done.stderr.decode(errors='replace')[:300]}")


def put_back(workspace: Workspace, paths: Iterable[str]) -> None:
    """Give files the content that the base has; those that it has not are removed."""
    for path in dict.fromkeys(paths):
        _delete(workspace.folder, path)
        words = ("--literal-pathspecs", "checkout", "-q", workspace.base, "--", path)
        git(*words, folder=workspace.folder, git_dir=workspace.trusted, check=False)


def _steers(workspace: Workspace, path: str) -> bool:
    """Whether a change of this file changes what pytest does."""
    name = PurePosixPath(path).name
    if name in _STEER or name.endswith(".pth"):
        return True
    if name not in ("pyproject.toml", "setup.cfg"):
        return False
    show = git("cat-file", "blob", f"{workspace.base}:{path}", folder=workspace.trusted, check=False)
    try:
        now = (workspace.folder / path).read_bytes()
    except OSError:
        now = b""
    return _settings(name, show.stdout if show.returncode == 0 else b"") != _settings(name, now)


def _settings(name: str, data: bytes) -> object:
    """What a file of settings says to pytest; the file itself when it cannot be read."""
    try:
        if name == "pyproject.toml":
            return tomllib.loads(data.decode()).get("tool", {}).get("pytest")
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(data.decode())
        return dict(parser["tool:pytest"]) if parser.has_section("tool:pytest") else None
    except (ValueError, AttributeError, configparser.Error):
        return data


def _place(root: Path, path: str) -> Path:
    """The place of a path of the test plan, with folders above it that are folders, whatever the patch made of them."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise TaskBroken(f"the test plan names a path out of the tree: {path}")
    place = root
    for part in parts[:-1]:
        place = place / part
        if place.is_symlink() or (place.exists() and not place.is_dir()):
            place.unlink()
        place.mkdir(exist_ok=True)
    return place / parts[-1]


def _write(root: Path, path: str, data: bytes) -> None:
    place = _place(root, path)
    remove_tree(place)
    place.write_bytes(data)


def _delete(root: Path, path: str) -> None:
    above = root
    for part in PurePosixPath(path).parts[:-1]:
        above = above / part
        if above.is_symlink() or not above.is_dir():
            return
    remove_tree(_place(root, path))


def remove_tree(path: Path) -> None:
    """Remove a file, link or folder, whatever its mode bits say."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        for folder, _folders, _files in os.walk(path, onerror=None):
            if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
                os.chmod(folder, stat.S_IRWXU)
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
