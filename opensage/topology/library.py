"""Saved agents: of the project (`./.opensage/agents`), of the user (`~/.opensage/agents`), and shipped ones."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opensage.errors import ConfigError
from opensage.files import is_plain, read_regular, why
from opensage.models.registry import home_dir
from opensage.spec import AgentSpec
from opensage.topology.agent_file import MOST_BYTES, read_agent, write_agent

GROUP = "opensage.agents"
_MOST_FILES = 500
_WORD = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Saved:
    """An agent found in a library. `source` is "project", "user" or "shipped"."""

    spec: AgentSpec
    source: str
    path: Path


class AgentLibrary:
    """The agents a workspace can call by name. Files are read when they are asked for; a bad one is a warning."""

    def __init__(self, workdir: Path, home: Path | None = None) -> None:
        self.project = workdir / ".opensage" / "agents"
        self.user = (home or home_dir()) / "agents"
        self.warnings: list[str] = []
        self._found: dict[str, Saved] | None = None

    def all(self) -> dict[str, Saved]:
        """Name → agent; the project's hide the user's, those hide shipped ones."""
        if self._found is None:
            self._found, self.warnings = {}, []
            for source, path in self._paths():
                try:
                    spec = read_agent(path, read_regular(path, MOST_BYTES))
                except OSError as error:
                    self.warnings.append(f"{path} was not read: {error.strerror}")
                except ConfigError as error:
                    self.warnings.append(str(error))
                else:
                    self._found.setdefault(spec.name, Saved(spec, source, path))
        return self._found

    def find(self, name: str) -> Saved | None:
        """The agent of that name, or None."""
        return self.all().get(name)

    def search(self, query: str) -> list[Saved]:
        """The agents whose name, description or instruction holds words of the query, best first."""
        words = set(_WORD.findall(query.lower()))
        if not words:
            return list(self.all().values())
        scored = [(_score(saved.spec, words), saved) for saved in self.all().values()]
        return [saved for score, saved in sorted(scored, key=lambda pair: -pair[0]) if score > 0]

    def save(self, spec: AgentSpec) -> Path:
        """Write the agent into the project's library, whole or not at all, and over no file that is there.

        Raises:
            ConfigError: there is a file of this name, the agent is too large, or the file cannot be written.
        """
        from opensage.sandbox import tree  # late, to keep `opensage agents list` fast

        path = self.project / f"{spec.name}.md"
        data = write_agent(spec).encode(errors="replace")
        if len(data) > MOST_BYTES:
            raise ConfigError(f"agent {spec.name} has {len(data)} bytes, {MOST_BYTES} are allowed; shorten it")
        if os.path.lexists(path):
            if is_plain(path) and path.read_bytes() == data:
                return path
            raise ConfigError(f"{path} is there already and is not overwritten; remove it or choose another name")
        try:
            self.project.mkdir(parents=True, exist_ok=True)
            folder = os.open(self.project, tree.FOLDER)  # through no link: the folder may have come from anybody
            try:
                tree.write_new(folder, path.name, data)
            finally:
                os.close(folder)
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {why(error)}.") from None
        self._found = None
        return path

    def _paths(self) -> Iterator[tuple[str, Path]]:
        for source, folder in (("project", self.project), ("user", self.user)):
            yield from ((source, path) for path in _files(folder))
        yield from (("shipped", path) for path in shipped())


def _files(folder: Path) -> list[Path]:
    """`NAME.md` and `NAME/AGENT.md`, in order."""
    try:
        entries = sorted(folder.iterdir())[:_MOST_FILES] if folder.is_dir() else []
    except OSError:
        return []
    single = [path for path in entries if path.suffix == ".md" and is_plain(path)]
    return single + [path / "AGENT.md" for path in entries if is_plain(path / "AGENT.md")]


def shipped() -> list[Path]:
    """`AGENT.md` of every package that an entry point of `opensage.agents` names; none of them is imported."""
    found = []
    for point in importlib.metadata.entry_points(group=GROUP):
        package, _, module = point.value.partition(":")[0].rpartition(".")
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(package) if package else None
            folders = spec.submodule_search_locations if spec is not None else None
            found += [path for folder in folders or () if (path := Path(folder) / module / "AGENT.md").is_file()]
    return found


def _score(spec: AgentSpec, words: set[str]) -> float:
    name, description, body = (
        set(_WORD.findall(text.lower())) for text in (spec.name, spec.description, spec.instruction)
    )
    return 3.0 * len(words & name) + 2.0 * len(words & description) + 0.5 * len(words & body)


def find_agent(name: str, workdir: Path, home: Path | None = None) -> AgentSpec:
    """A saved agent, for `--agent NAME`.

    Raises:
        ConfigError: there is none; the message lists those there are, and files that could not be read.
    """
    library = AgentLibrary(workdir, home)
    saved = library.find(name)
    if saved is None:
        names = ", ".join(library.all()) or "none are saved"
        bad = f" ({'; '.join(library.warnings[:3])})" if library.warnings else ""
        raise ConfigError(f"no agent {name!r}; there are: {names}{bad}")
    return saved.spec


__all__ = ["AgentLibrary", "Saved", "find_agent", "shipped"]
