"""What a workspace tells its agents: `AGENTS.md`, `CLAUDE.md`, and folders with a `SKILL.md` (Agent Skills).

The workspace is not trusted: a file is read only if it is a regular one that lies, links followed, within its root; it
is bounded; whatever is wrong with it becomes a warning, and the rest is still read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opensage.tools.front_matter import FrontMatterError, split_front_matter

FILES = ("AGENTS.md", "CLAUDE.md")
SKILL_FOLDERS = (".opensage/skills", "skills", ".claude/skills")
MAX_FILE = 32_000
MAX_TOTAL = 64_000
MAX_SKILLS = 100
_MAX_DESCRIPTION = 1024
_MAX_SKILL_FILE = 256_000
_MAX_PARENTS = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill that the model can read by `read("skill:<name>")` when it needs it.

    Attributes:
        name: of the front matter, else of the folder.
        description: when to use it, one line.
        folder: on the host; holds `SKILL.md`.
    """

    name: str
    description: str
    folder: Path


@dataclass(frozen=True, slots=True)
class Instructions:
    """What goes into the prompt.

    Attributes:
        text: the instruction files, the most general first, each under its path.
        skills: name and description of each; bodies are read on demand.
        warnings: what could not be read, one line each, for people.
        sources: the files behind `text`.
    """

    text: str = ""
    skills: tuple[Skill, ...] = ()
    warnings: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()

    @property
    def skills_text(self) -> str:
        """One line a skill, for the prompt."""
        return "\n".join(f"- skill:{skill.name}: {skill.description}" for skill in self.skills)

    @property
    def skill_folders(self) -> dict[str, Path]:
        """Name → folder: what `read` looks up in `ToolContext.state["skills"]`."""
        return {skill.name: skill.folder for skill in self.skills}


def load_instructions(workdir: Path, home: Path) -> Instructions:
    """Read what applies to a workspace.

    Args:
        workdir: the workspace on the host; its parents up to the git root count too, the nearest last.
        home: OpenSage's folder of the user (`~/.opensage`), with `AGENTS.md` and `skills/` of its own.

    Never raises for what the files hold: see `warnings`.
    """
    warnings: list[str] = []
    root = git_root(workdir) or workdir
    texts = _texts(workdir, root, home, warnings)
    skills = _skills(workdir, root, home, warnings)
    text = "\n\n".join(f"# {path}\n{body}" for path, body in texts.items())
    return Instructions(text, tuple(skills), tuple(warnings), tuple(texts))


def git_root(folder: Path) -> Path | None:
    """The nearest folder, this or above, that holds `.git`."""
    absolute = Path(os.path.abspath(folder))
    for candidate in [absolute, *absolute.parents][:_MAX_PARENTS]:
        if os.path.lexists(candidate / ".git"):
            return candidate
    return None


def read_within(path: Path, root: Path, most: int = _MAX_SKILL_FILE) -> bytes | str:
    """The first `most` bytes of a regular file within a root, links followed; or, as a str, why not.

    A FIFO or device is never waited for.
    """
    try:
        real, real_root = os.path.realpath(path), os.path.realpath(root)
        if os.path.commonpath([real, real_root]) != real_root:
            return f"it is a link out of {root}"
        handle = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return "it is not a regular file"
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(most)
    except OSError as error:
        return error.strerror or str(error)
    finally:
        os.close(handle)


def _texts(workdir: Path, root: Path, home: Path, warnings: list[str]) -> dict[Path, str]:
    texts: dict[Path, str] = {}
    left = MAX_TOTAL
    for path, within in _candidates(workdir, root, home):
        body = _text(path, within, min(MAX_FILE, left), warnings)
        if body and body not in texts.values():  # CLAUDE.md is often a link to, or a copy of, AGENTS.md
            texts[path] = body
            left = max(0, left - len(body))
    return texts


def _candidates(workdir: Path, root: Path, home: Path) -> Iterator[tuple[Path, Path]]:
    yield home / FILES[0], home
    for folder in _chain(workdir, root):
        for name in FILES:
            yield folder / name, root


def _chain(workdir: Path, root: Path) -> list[Path]:
    """Folders from the root down to the workdir."""
    folder = Path(os.path.abspath(workdir))
    chain = [folder]
    while folder != root and folder.parent != folder and root in folder.parents:
        folder = folder.parent
        chain.append(folder)
    return chain[::-1]


def _text(path: Path, within: Path, most: int, warnings: list[str]) -> str:
    if not os.path.lexists(path):
        return ""
    data = read_within(path, within, most + 1)
    if isinstance(data, str):
        warnings.append(f"{path} was not read: {data}")
        return ""
    if b"\0" in data:
        warnings.append(f"{path} was not read: it is binary")
        return ""
    text = data[:most].decode("utf-8-sig", "replace").strip()
    if len(data) > most:
        warnings.append(f"{path} is larger than {most} bytes: only its beginning is used")
        text += "\n[cut here]"
    return text


def _skills(workdir: Path, root: Path, home: Path, warnings: list[str]) -> list[Skill]:
    found: dict[str, Skill] = {}
    for folder, within in _skill_folders(workdir, root, home, warnings):
        skill = _skill(folder, within, warnings)
        if skill is None:
            continue
        if skill.name in found:
            warnings.append(f"{folder} is left out: the skill '{skill.name}' is in {found[skill.name].folder} already")
        elif len(found) >= MAX_SKILLS:
            warnings.append(f"only the first {MAX_SKILLS} skills are used")
            break
        else:
            found[skill.name] = skill
    return list(found.values())


def _skill_folders(workdir: Path, root: Path, home: Path, warnings: list[str]) -> Iterator[tuple[Path, Path]]:
    parents = [(folder / name, root) for folder in _chain(workdir, root)[::-1] for name in SKILL_FOLDERS]
    for parent, within in [*parents, (home / "skills", home)]:
        try:
            names = sorted(os.listdir(parent))[: 4 * MAX_SKILLS] if parent.is_dir() else []
        except OSError as error:
            warnings.append(f"{parent} was not read: {error.strerror}")
            continue
        for name in names:
            if os.path.lexists(parent / name / "SKILL.md"):
                yield parent / name, within


def _skill(folder: Path, within: Path, warnings: list[str]) -> Skill | None:
    path = folder / "SKILL.md"
    data = read_within(path, within)
    if isinstance(data, str) or b"\0" in data:
        warnings.append(f"{path} was not read: {data if isinstance(data, str) else 'it is binary'}")
        return None
    try:
        fields, body = split_front_matter(data.decode("utf-8-sig", "replace"))
    except FrontMatterError as error:
        warnings.append(f"{path}: {error}")
        fields, body = {}, ""
    name = str(fields.get("name") or folder.name).strip()
    if not _NAME.fullmatch(name):
        warnings.append(f"{path}: the name {name[:80]!r} is not valid, use lower-case letters, digits and '-'")
        return None
    described = fields.get("description") or next((line for line in body.splitlines() if line.strip("# \t")), name)
    return Skill(name, " ".join(str(described).strip("# ").split())[:_MAX_DESCRIPTION], folder)
