"""Which function a task means."""

from __future__ import annotations

import ast
import posixpath
import re
import shlex
from dataclasses import dataclass

from opensage.errors import ToolError
from opensage.workflow import Steps
from opensage_agents.coder.functions import Place, functions_in, source_of

_PATH = re.compile(r"[\w./-]+\.py\b")
_WORD = re.compile(r"[A-Za-z_]\w{2,}")
_MOST_BYTES = 400_000
_MOST_WORDS = 40


@dataclass(frozen=True, slots=True)
class Target:
    """A function in a file of the workspace, with the file's text as it was found."""

    path: str
    text: str
    place: Place

    @property
    def docstring(self) -> str:
        """The function's, or ""."""
        node = ast.parse(source_of(self.text, self.place)).body[0]
        return ast.get_docstring(node) or "" if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""

    @property
    def parameters(self) -> list[str]:
        """Names of what must be given, without `self`."""
        node = ast.parse(source_of(self.text, self.place)).body[0]
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        names = [item.arg for item in (*node.args.posonlyargs, *node.args.args)]
        names = names[: len(names) - len(node.args.defaults)]
        return names[1:] if "." in self.place.name and names[:1] in (["self"], ["cls"]) else names

    def found_in(self, text: str) -> Place | None:
        """The same function in another version of the file."""
        return next((place for place in functions_in(text) if place.name == self.place.name), None)


async def find_target(steps: Steps) -> Target | None:
    """The one Python function that the task means: named by file, by name, or chosen by the model in a file."""
    for path in dict.fromkeys(_PATH.findall(steps.task)):
        if not _is_test(path) and (target := await _in_file(steps, posixpath.normpath(path))):
            return target
    return await _by_name(steps)


async def _in_file(steps: Steps, path: str) -> Target | None:
    text = await _text(steps, path)
    places = functions_in(text)
    if not places:
        return None
    await steps.call("read", {"path": path}, say="Explore: the file that the task names.")
    stem = posixpath.basename(path)[:-3]
    named = [place for place in places if re.search(rf"\b{re.escape(place.short)}\b", steps.task)]
    if len(places) > 1 and not named:
        named = [place for place in places if place.short == stem] or await _chosen(steps, path, places)
    return Target(path, text, (named or places)[0]) if named or len(places) == 1 else None


async def _chosen(steps: Steps, path: str, places: list[Place]) -> list[Place]:
    names = "\n".join(place.name for place in places)
    prompt = (
        f"Task:\n{steps.task[:2000]}\n\nFunctions in {path}:\n{names}\n\nWhich one has to change? Answer with its name."
    )
    answer = await steps.ask(prompt, purpose="explore", max_tokens=20, temperature=0.0)
    return [place for place in places if place.short in _WORD.findall(answer)][:1]


async def _by_name(steps: Steps) -> Target | None:
    """A function whose name stands in the task as code: with a bracket, in backticks or with an underscore."""
    words = re.findall(
        r"`(?:[\w.]+\.)?([A-Za-z_]\w*)(?:\(.*?\))?`|\b([A-Za-z_]\w*)\(|\b([a-z]+_[a-z_0-9]+)\b", steps.task
    )
    names = list(dict.fromkeys(word for group in words for word in group if word))[:_MOST_WORDS]
    if not names:
        return None
    pattern = rf"^\s*(async )?def ({'|'.join(map(re.escape, names))})\b"
    command = f"grep -rnE --include='*.py' {shlex.quote(pattern)} . | head -50"
    found = (
        await steps.call("shell", {"command": command}, say="Explore: where the names of the task are defined.")
    ).text
    hits = re.findall(r"^\./(\S+?):\d+:\s*(?:async )?def (\w+)", found, re.M)
    hits = [(path, name) for path, name in hits if not _is_test(path)]
    for name in names:
        paths = [path for path, found_name in hits if found_name == name]
        if len(paths) == 1 and (target := await _named(steps, paths[0], name)):
            return target
    return None


async def _named(steps: Steps, path: str, name: str) -> Target | None:
    text = await _text(steps, path)
    places = [place for place in functions_in(text) if place.short == name]
    return Target(path, text, places[0]) if len(places) == 1 else None


async def _text(steps: Steps, path: str) -> str:
    """A file's text, "" when it cannot be read as text."""
    try:
        data = await steps.run.sandbox.read_bytes(path, limit=_MOST_BYTES + 1)
        return data.decode("utf-8") if len(data) <= _MOST_BYTES else ""
    except (ToolError, OSError, UnicodeDecodeError):
        return ""


def _is_test(path: str) -> bool:
    name = posixpath.basename(path)
    return name.startswith("test_") or name.endswith("_test.py") or name == "conftest.py"
