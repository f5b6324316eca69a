"""What an agent did, step by step: from a trajectory, or from the log of its session where there is none."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from opensage.files import read_regular
from opensage.log.conversation import Conversation
from opensage.log.journal import parse
from opensage_benchmarks.swe.view.rows import MOST, UNREADABLE, Row, load, one_line, shown

Kind = Literal["system", "task", "assistant", "call", "result", "note", "patch"]
TEXT = 200_000
"""Characters of one step that are kept; the rest is in the file."""
_LOG = 20_000


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that was said or done. Its text is clean and of bounded length.

    Attributes:
        title: e.g. the tool that is called.
    """

    kind: Kind
    title: str
    text: str


def cut(text: str, most: int) -> str:
    """Beginning and end of a text that is too long, with a note of what is missing."""
    if len(text) <= most:
        return text
    head, tail = text[: most * 2 // 3], text[len(text) - most // 3 :]
    return f"{head}\n[... {len(text) - len(head) - len(tail):,} characters left out ...]\n{tail}"


def read_steps(row: Row) -> list[Step]:
    """All steps of a task, then its log and its patch. What cannot be read is a step that says so."""
    steps = [*_told(row), *_graded(row.folder), *_logged(row.folder)]
    if row.patch.strip():
        steps.append(_step("patch", f"patch: {row.patch_lines} lines", row.patch))
    return steps


def _step(kind: Kind, title: str, text: str) -> Step:
    return Step(kind, one_line(title, 200), shown(cut(text, TEXT)).strip("\n"))


def _told(row: Row) -> Iterator[Step]:
    path = row.folder / f"{row.folder.name}.traj.json"
    problem = ""
    try:
        whole = load(path)
        messages = whole.get("messages") if isinstance(whole, Mapping) else whole
        if isinstance(messages, list):
            yield from _steps(messages)
            return
        problem = f"{path.name} holds no messages"
    except FileNotFoundError:
        problem = "there is no trajectory" + (" yet" if row.status in ("running", "not started") else "")
    except UNREADABLE as error:
        problem = f"{path.name} cannot be read: {error}"
    messages = _session(row.folder)
    yield _step("note", problem + ("; this is from the log of the session" if messages else ""), "")
    yield from _steps(messages)


def _session(folder: Path) -> list[Mapping[str, Any]]:
    """The conversation that the kit logged, as far as it can be read."""
    told = Conversation()
    for path in sorted((folder / "session").glob("*.jsonl"))[:1]:
        with contextlib.suppress(*UNREADABLE):
            for event in parse(read_regular(path, MOST)).events:
                told.apply(event)
    return [dict(message) for message in told.view()]


def _graded(folder: Path) -> Iterator[Step]:
    """The tests that fail, when the task was graded beside the run."""
    with contextlib.suppress(*UNREADABLE, AttributeError, TypeError, LookupError):
        for report in load(folder.parent / "grades" / f"{folder.name}.json").values():
            failing = [f"{kind}: {test}" for kind, lists in report["tests_status"].items() for test in lists["failure"]]
            if failing:
                yield _step("note", f"{len(failing)} tests fail", "\n".join(failing))


def _logged(folder: Path) -> Iterator[Step]:
    """What the agent's process printed."""
    with contextlib.suppress(*UNREADABLE):
        text = read_regular(folder / "log.txt", MOST).decode("utf-8", "replace")
        if text.strip():
            yield _step("note", "log.txt", cut(text, _LOG))


def _steps(messages: Iterable[Any]) -> Iterator[Step]:
    names: dict[str, str] = {}
    asked = False
    for message in messages:
        if not isinstance(message, Mapping):
            yield _step("note", f"a message that is none: {type(message).__name__}", str(message))
            continue
        role = str(message.get("role") or message.get("type") or message.get("object") or "")
        text = _text(message.get("content"))
        if role == "system":
            yield _step("system", "system", text)
        elif role == "user":
            yield _step("result" if asked else "task", "answer" if asked else "task", text)
            asked = True
        elif role in ("assistant", "response"):
            yield from _said(message, text, names)
        elif role in ("tool", "function_call_output"):
            output = text or _text(message.get("output"))
            id = str(message.get("tool_call_id") or message.get("call_id"))
            yield _step("result", str(message.get("name") or names.get(id, "result")), output)
        else:
            yield _step("note", role or "message", text or _text(message))


def _said(message: Mapping[str, Any], text: str, names: dict[str, str]) -> Iterator[Step]:
    """Words and calls of a model, in the form of chat completions or of responses."""
    parts = message.get("output")
    calls = message.get("tool_calls")
    calls = [*calls] if isinstance(calls, list) else []
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, Mapping) and part.get("type") == "function_call":
            calls.append({"id": part.get("call_id"), "function": part})
        elif isinstance(part, Mapping) and part.get("type") == "message":
            text += _text(part.get("content"))
    if text.strip():
        yield _step("assistant", "assistant", text)
    for call in calls:
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping):
            yield _step("call", "a call that is none", _text(call))
            continue
        name = str(function.get("name"))
        names[str(call.get("id"))] = name
        yield _step("call", name, _arguments(function.get("arguments")))


def _arguments(value: Any) -> str:
    """Arguments to read: `name: value` each, values of many lines as they are."""
    if isinstance(value, str):
        with contextlib.suppress(*UNREADABLE):
            value = json.loads(value)
    if not isinstance(value, Mapping):
        return _text(value)
    return "\n".join(f"{name}:{_of(each)}" for name, each in value.items())


def _of(value: Any) -> str:
    text = _text(value)
    return f"\n{text}" if "\n" in text.strip() else f" {text}"


def _text(content: Any) -> str:
    """Text of a message: a string, parts that have one, or anything else as JSON."""
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list) and content and all(isinstance(part, Mapping) for part in content):
        return "\n".join(_part(part) for part in content)
    with contextlib.suppress(RecursionError):
        return json.dumps(content, ensure_ascii=False, default=str)
    return "[nested too deeply to show]"


def _part(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    return text if isinstance(text, str) else f"[{one_line(str(part.get('type') or 'part'), 40)}]"
