"""How a conversation is put to a small local model, and the grammar that its answer is held to.

The model answers with one JSON object: a tool's name and arguments, or `answer` with a text. That form, three examples
and decoding constrained to it make a 1.5B model call tools; the chat template's own tool form does not hold it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opensage.messages import Message, Request
from opensage.models.assembler import dump_json, parse_json
from opensage.models.openai_chunks import text_of

_ANSWERS = ("answer", "final_answer", "reply_to_user", "opensage_answer")
_HIDDEN = frozenset({"finish", "ask"})
"""Tools that say the same as an answer; one way to say it is enough for a small model."""
_TASKS = frozenset({"tasks", "task_output", "task_wait", "task_kill"})
"""Tools for background tasks: shown once there is one, since a small model takes them for ways to wait for anything."""
_TASK_STARTED = "See it with task_output"
_KEPT = ("type", "enum", "const", "required", "minItems", "maxItems")
_AGAIN = "\nYou have done this before, and it brought nothing new. Do something else."
_MOST, _MOST_READ, _MOST_AGAIN = 2_000, 8_000, 300
"""Characters shown of a tool's result, of a file that was read, and of a result that came before."""
_VARYING = re.compile(r"\w*\d\w*")
"""Times, counts and names made up at random, which differ between results that say the same."""
_FORM = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What goes to the server.

    Attributes:
        messages: plain system, user and assistant messages, alternating.
        grammar: what the answer is held to, or None for free text.
        answer: name of the answer branch, or None for free text.
        stuck: whether the last call was a repetition that brought nothing new; its tool is then left out of the
            grammar, since a small model that has begun to repeat itself does not stop by being told.
    """

    messages: list[Message]
    grammar: str | None
    answer: str | None
    stuck: bool = False


def build(request: Request, *, tools: bool = True) -> Prompt:
    """Render a request.

    Args:
        request: the conversation and the tools.
        tools: whether this model can call tools at all.
    """
    shown = _shown_tools(request) if tools else []
    answer = _free_name(shown) if shown else None
    conversation = _Conversation(answer)
    messages = _merged(conversation.render(m) for m in request.messages)
    if answer is None:
        return Prompt(messages, None, None)
    addendum = instructions(shown, answer)
    head = messages[0]["content"] if messages and messages[0]["role"] == "system" else "You are a helpful agent."
    rest = messages[1:] if messages and messages[0]["role"] == "system" else messages
    stuck = conversation.repeated
    callable_now = [f for f in shown if f.get("name") not in stuck] if request.tool_choice != "none" else []
    messages = [{"role": "system", "content": f"{head}\n\n{addendum}"}, *rest]
    return Prompt(messages, grammar(callable_now, answer), answer, bool(stuck))


def _shown_tools(request: Request) -> list[Mapping[str, Any]]:
    waiting = any(_TASK_STARTED in text_of(m.get("content")) for m in request.messages if m.get("role") == "tool")
    hidden = _HIDDEN if waiting else _HIDDEN | _TASKS
    return [t["function"] for t in request.tools if t.get("function", {}).get("name") not in hidden]


def instructions(functions: Sequence[Mapping[str, Any]], answer: str) -> str:
    """The part of the system message that tells the model its tools and how to answer; every token costs time."""
    lines = [f"- {_signature(f)}" for f in functions]
    lines.append(
        f"- {answer}(text): Reply to the user. Use it for questions that need no tool, and when the task is done."
    )
    form = '{"name": "<tool>", "arguments": {...}}'
    return (
        "Tools:\n" + "\n".join(lines) + f"\n\nReply with one JSON object and nothing else: {form}. "
        "Never guess what a file holds or a command prints: use a tool.\n" + _examples(functions, answer)
    )


def _examples(functions: Sequence[Mapping[str, Any]], answer: str) -> str:
    """A few exchanges, and where the coding tools are there one whole repair: small models copy what they see."""
    names = {f.get("name") for f in functions}
    lines = ["Examples:", "user: hi", _call_text(answer, {"text": "Hello! What can I do for you?"})]
    lines += ["user: what is 7 * 6?", _call_text(answer, {"text": "42"})]
    if "shell" in names:
        lines += ["user: how many files are in src?", _call_text("shell", {"command": "ls src | wc -l"})]
    if {"shell", "write"} <= names:
        lines += ["user: write hi.py that greets its argument and run it on Bo"]
        lines += [_call_text("write", {"path": "hi.py", "content": "import sys\nprint('hi', sys.argv[1])\n"})]
        lines += [_shown("wrote 2 lines to hi.py"), _call_text("shell", {"command": "python hi.py Bo"})]
        lines += [_shown("hi Bo"), _call_text(answer, {"text": "hi.py works: it printed hi Bo."})]
    if {"shell", "read", "edit"} <= names:
        test = _call_text("shell", {"command": "python -m pytest -q tests/test_a.py"})
        lines += ["user: run tests/test_a.py and fix lib/a.py", test]
        lines += [_shown("lib/a.py:7: IndexError. 1 failed"), _call_text("read", {"path": "lib/a.py"})]
        change = {"path": "lib/a.py", "old": "return x[len(x)]", "new": "return x[len(x) - 1]"}
        lines += [_shown("7 return x[len(x)]"), _call_text("edit", change)]
        lines += [_shown("edited lib/a.py"), test]
        lines += [_shown("1 passed"), _call_text(answer, {"text": "lib/a.py is fixed: the last index is len(x) - 1."})]
    return "\n".join([*lines, *_making(names)])


def _making(names: set[Any]) -> list[str]:
    """The same for what makes toolkits and agents."""
    lines: list[str] = []
    if "create_toolkit" in names:
        code = 'def square(x: float) -> float:\n    """Area of a square."""\n    return x * x\n'
        test = "from ..tools import square\n\ndef test_square() -> None:\n    assert square(3) == 9\n"
        made = {"name": "area", "description": "areas of shapes", "files": code, "tests": test}
        lines += ["user: make a toolkit area with square(x)", _call_text("create_toolkit", made)]
        lines += [_shown("toolkit 'area' version 1 is ready"), _call_text("answer", {"text": "area is ready."})]
    if {"create_agent", "call_agent"} <= names:
        spec = {"name": "counter", "instruction": "Count words and report the number.", "toolkits": ["area"]}
        lines += ["user: make an agent that counts words", _call_text("create_agent", spec)]
        lines += [_shown("agent 'counter' is ready"), _call_text("answer", {"text": "counter is ready."})]
        task = {"name": "counter", "task": "Count the words of a.txt."}
        lines += ["user: let counter count the words of a.txt", _call_text("call_agent", task)]
        lines += [_shown("[a1 counter: done] 12 words"), _call_text("answer", {"text": "a.txt has 12 words."})]
    return lines


def _shown(result: str) -> str:
    return f"<tool_response>{result}</tool_response>"


def _signature(function: Mapping[str, Any]) -> str:
    schema = function.get("parameters") or {}
    properties = schema.get("properties") or {}
    required = schema.get("required") or ()
    arguments = ", ".join(name if name in required else f"{name}?" for name in properties)
    said = " ".join(str(function.get("description") or "").split())
    first = re.split(r"(?<=[.!?])\s", said, maxsplit=1)[0]
    return f"{function.get('name')}({arguments}): {first[:140]}"


def _free_name(functions: Sequence[Mapping[str, Any]]) -> str:
    taken = {f.get("name") for f in functions}
    return next((name for name in _ANSWERS if name not in taken), "_answer_")


# --- grammar


def grammar(functions: Sequence[Mapping[str, Any]], answer: str) -> str:
    """An llguidance grammar: one branch a tool, and the answer branch."""
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    branches = [_branch(str(f.get("name")), f.get("parameters")) for f in functions]
    branches.append(_branch(answer, text))
    return "%llguidance {}\nstart: %json " + json.dumps({"x-guidance": _FORM, "anyOf": branches})


def _branch(name: str, parameters: Any) -> dict[str, Any]:
    arguments = simplify(parameters)
    if arguments.get("type") != "object":
        arguments = {"type": "object"}
    properties = {"name": {"const": name}, "arguments": arguments}
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def simplify(schema: Any, depth: int = 0) -> dict[str, Any]:
    """A schema that every grammar compiler takes: types, properties, enums; the rest is checked at dispatch."""
    if not isinstance(schema, Mapping) or depth > 8 or "$ref" in schema:
        return {}
    kept = {key: schema[key] for key in _KEPT if key in schema}
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return {"anyOf": [simplify(option, depth + 1) for option in schema[key]] or [{}]}
    if isinstance(schema.get("items"), Mapping):
        kept["items"] = simplify(schema["items"], depth + 1)
    properties = schema.get("properties")
    if isinstance(properties, Mapping):
        kept["properties"] = {str(k): simplify(v, depth + 1) for k, v in properties.items()}
        required = schema.get("required")
        names = required if isinstance(required, list | tuple) else ()
        kept["required"] = [name for name in names if isinstance(name, str) and name in properties]
        extra = schema.get("additionalProperties", False)
        kept["additionalProperties"] = simplify(extra, depth + 1) if isinstance(extra, Mapping) else bool(extra)
    return kept


# --- messages


class _Conversation:
    """Renders messages in order, and notices a call that is made twice in a row, or again with the same result."""

    def __init__(self, answer: str | None) -> None:
        self._answer = answer
        self._calls: dict[str, tuple[str, str]] = {}
        self._seen: set[tuple[str, str]] = set()
        self._last = ""
        self.repeated: set[str] = set()
        """Tools whose calls were repetitions since something new came."""

    def render(self, message: Message) -> Message:
        """One plain message."""
        role, text = message.get("role"), text_of(message.get("content"))
        if role == "tool":
            return {"role": "user", "content": self._result(str(message.get("tool_call_id")), text)}
        if role == "assistant":
            return {"role": "assistant", "content": self._said(message, text)}
        self.repeated = set()
        return {"role": "system" if role in ("system", "developer") else "user", "content": text}

    def _said(self, message: Message, text: str) -> str:
        calls = message.get("tool_calls") or ()
        if text and not calls and self._answer is not None:
            return _call_text(self._answer, {"text": text})
        lines = [text] if text else []
        for call in calls:
            name = str(call["function"].get("name"))
            lines.append(_call_text(name, _arguments(call["function"].get("arguments"))))
            self._calls[str(call.get("id"))] = (name, lines[-1])
        return "\n".join(lines)

    def _result(self, call_id: str, text: str) -> str:
        name, call = self._calls.get(call_id, ("", ""))
        pair = (call, _VARYING.sub("0", text))
        again = bool(name) and (pair in self._seen or call == self._last)
        self._seen.add(pair)
        self._last = call
        self.repeated = self.repeated | {name} if again else set()
        shown = shorten(text, _MOST_AGAIN if again else _MOST_READ if name == "read" else _MOST)
        return f"<tool_response>\n{shown}\n</tool_response>" + (_AGAIN if again else "")


def shorten(text: str, most: int) -> str:
    """The head and the tail of a long tool result, cut at line ends; the log keeps all of it.

    A small model reads some forty tokens a second on a CPU and is lost in a long text. The cut depends on the text
    alone, so that the beginning of the conversation stays as it was and need not be read again.
    """
    if len(text) <= most:
        return text
    head, tail = text[: most // 3], text[-(most - most // 3) :]
    head = head[: head.rfind("\n")] if "\n" in head else head
    tail = tail[tail.find("\n") + 1 :] if "\n" in tail[:-1] else tail
    return f"{head}\n... {len(text) - len(head) - len(tail)} characters left out ...\n{tail}"


def _call_text(name: Any, arguments: Any) -> str:
    return dump_json({"name": name, "arguments": arguments})


def _arguments(raw: Any) -> Any:
    if not isinstance(raw, str):
        return raw or {}
    value = parse_json(raw)
    return value if value is not None else raw


def _merged(messages: Any) -> list[Message]:
    """Join neighbours of one role and drop empty ones: many chat templates demand that roles alternate."""
    merged: list[Message] = []
    for message in messages:
        if not message["content"].strip():
            continue
        if message["role"] == "system" and merged and merged[0]["role"] != "system":
            message = {**message, "role": "user"}
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1] = {**message, "content": f"{merged[-1]['content']}\n{message['content']}"}
        else:
            merged.append(message)
    return merged
