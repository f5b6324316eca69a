"""Cassettes: `record:DIR:<model>` keeps each exchange as one JSON file, `replay:DIR` plays them without a provider."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError, ModelError, ScriptError
from opensage.files import replace_file
from opensage.messages import CallChunk, Delta, Reply, Request, Usage
from opensage.models.assembler import Assembler
from opensage.models.failures import classify, one_line
from opensage.models.openai_chunks import count, wire
from opensage.models.retry import Wrapper, closable
from opensage.protocols import Model
from opensage.secrets import Mask

_SECRET_TEXT = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|\bgh[pousr]_[A-Za-z0-9]{20,}|\bgithub_pat_\w{20,}|\bxox[abposr]-[\w-]{10,}"
    r"|\bAKIA[0-9A-Z]{16}\b|\bAIza[\w-]{30,}|\bhf_[A-Za-z0-9]{20,}|\bgsk_[A-Za-z0-9]{20,}"
    r"|(?i:bearer\s+)[A-Za-z0-9._~+/-]{16,}=*|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    re.DOTALL,
)
HIDDEN = "[secret]"


def redact(value: Any, mask: Mask) -> Any:
    """A copy of JSON data without the secrets of a mask, nor texts shaped like a provider's key."""
    return _without_keys(mask.data(value))


def _without_keys(value: Any) -> Any:
    if isinstance(value, str):
        return _SECRET_TEXT.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {_without_keys(key): _without_keys(item) for key, item in value.items()}
    return [_without_keys(item) for item in value] if isinstance(value, (list, tuple)) else value


def canonical(request: Request, mask: Mask | None = None) -> dict[str, Any]:
    """The request as it is compared: without our own notes, without secrets, in plain JSON."""
    body = {
        "messages": wire(request.messages),
        "tools": list(request.tools),
        "tool_choice": request.tool_choice,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
    }
    plain: dict[str, Any] = json.loads(json.dumps(redact(body, mask or Mask.of(os.environ)), default=str))
    return plain


def fingerprint(body: Mapping[str, Any]) -> str:
    """Hash of a canonical request, 16 hex digits of SHA-256."""
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Recording(Wrapper):
    """Passes a model through and keeps each exchange under `folder`, as `<request hash>-<occurrence>.json`."""

    def __init__(self, model: Model, folder: str | Path) -> None:
        super().__init__(model)
        self._folder = Path(folder).expanduser()
        self._counts: dict[str, int] = {}
        self.mask = Mask.of(os.environ, more=getattr(model, "secrets", None))

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream the inner model's reply, then keep it. A reply that was broken off by us is not kept."""
        assembler, failure = Assembler(), None
        try:
            async with aclosing(closable(self._model, request)) as deltas:
                async for delta in deltas:
                    assembler.feed(delta)
                    yield delta
        except ModelError as error:
            failure = error
        self._keep(canonical(request, self.mask), assembler.reply(), failure)
        if failure is not None:
            raise failure

    def _keep(self, body: dict[str, Any], reply: Reply, failure: ModelError | None) -> None:
        key = fingerprint(body)
        number = self._counts.get(key, 0)
        self._counts[key] = number + 1
        record: dict[str, Any] = {"model": self.name, "context_window": self.context_window, "request": body}
        if getattr(self._model, "needs_coach", False):
            record["needs_coach"] = True
        if failure is None:
            record["reply"] = redact(asdict(self.mask.reply(reply)), self.mask)
        else:
            record["error"] = redact(
                {"status": failure.status, "message": str(failure), "retry_after": failure.retry_after}, self.mask
            )
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            replace_file(self._folder / f"{key}-{number}.json", json.dumps(record, indent=1, default=str) + "\n")
        except OSError as error:
            raise ConfigError(f"cannot record to {self._folder} ({error.strerror}); give a writable folder") from error


class Replaying:
    """Answers from a cassette; needs no provider, no key and no network.

    Raises:
        ScriptError: the folder is no cassette, or it holds no such request (the message says what differs).
    """

    idle_s: float | None = None

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder).expanduser()
        if not self._folder.is_dir():
            raise ScriptError(f"cassette {self._folder} is not a folder; record one with record:{folder}:<model>")
        self._counts: dict[str, int] = {}
        self._window: int | None = None
        self.needs_coach = False
        """Whether the recorded model was coached: else the same run would take another way."""
        first = next(iter(sorted(self._folder.glob("*.json"))), None)
        if first is not None:
            record = _load(first)
            window = record.get("context_window")
            self._window = window if isinstance(window, int) else None
            self.needs_coach = record.get("needs_coach") is True

    @property
    def name(self) -> str:
        """The model string."""
        return f"replay:{self._folder}"

    @property
    def context_window(self) -> int | None:
        """The recorded model's window."""
        return self._window

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream the recorded reply to this request."""
        yield self._find(canonical(request))

    async def close(self) -> None:
        """Nothing to free."""

    def _find(self, body: dict[str, Any]) -> Delta:
        key = fingerprint(body)
        number = self._counts.get(key, 0)
        path = self._folder / f"{key}-{number}.json"
        if not path.is_file():
            raise ScriptError(self._miss(body, number))
        self._counts[key] = number + 1
        record = _load(path)
        if isinstance(record.get("error"), dict):
            error = record["error"]
            raise classify(str(error.get("message")), status=error.get("status"), retry_after=error.get("retry_after"))
        return _delta(record.get("reply"), path)

    def _miss(self, body: dict[str, Any], number: int) -> str:
        """Say how the request differs from the nearest recorded one."""
        head = f"cassette {self._folder}"
        if number:
            return f"{head}: this request is recorded {number} times and came once more; record again"
        recorded = [_load(p).get("request") for p in sorted(self._folder.glob("*.json"))]
        bodies = [r for r in recorded if isinstance(r, dict)]
        if not bodies:
            return f"{head} is empty; record one with record:{self._folder}:<model>"
        nearest = max(bodies, key=lambda other: _agreement(other, body))
        return f"{head} holds no such request: {_difference(nearest, body)}; record again"


def _agreement(recorded: Mapping[str, Any], body: Mapping[str, Any]) -> tuple[int, int]:
    """How many messages agree from the start, and how near the lengths are."""
    old, new = recorded.get("messages") or [], body["messages"]
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    return same, -abs(len(old) - len(new))


def _difference(recorded: Mapping[str, Any], body: Mapping[str, Any]) -> str:
    old, new = recorded.get("messages") or [], body["messages"]
    for number, (a, b) in enumerate(zip(old, new, strict=False), 1):
        if a != b:
            return f"message {number} ({b.get('role')}) {_first_change(json.dumps(a), json.dumps(b))}"
    if len(old) != len(new):
        return f"it has {len(new)} messages where the nearest recorded one has {len(old)}"
    for field in ("tools", "tool_choice", "max_tokens", "temperature"):
        if recorded.get(field) != body[field]:
            return f"'{field}' {_first_change(json.dumps(recorded.get(field)), json.dumps(body[field]))}"
    return "the recorded request was edited by hand"


def _first_change(old: str, new: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, at - 20)
    return f"was {one_line(old[start : at + 60])!r} when recorded and is now {one_line(new[start : at + 60])!r}"


def _load(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ScriptError(f"cassette file {path} cannot be read: {error}; record it again") from error
    if not isinstance(record, dict):
        raise ScriptError(f"cassette file {path} holds no exchange; record it again")
    return record


def _delta(raw: Any, path: Path) -> Delta:
    try:
        calls = tuple(
            CallChunk(i, c["id"], c["name"], c["arguments"], c.get("extra")) for i, c in enumerate(raw["calls"])
        )
        spent = raw["usage"]
        tokens, written, cached = (count(spent[f"{kind}_tokens"]) for kind in ("input", "output", "cached"))
        usage = Usage(tokens, written, cached, spent["cost"])
        return Delta(raw["text"], calls, raw["finish_reason"], usage, raw.get("extra"))
    except (KeyError, TypeError) as error:
        raise ScriptError(f"cassette file {path} holds no reply ({error!r}); record it again") from error
