"""Keeps secrets out of what is kept, shown and sent: log, blobs, terminal, traces, exports, requests to the model.

A secret is the value of a variable whose name says so, or what matches a configured pattern. It is replaced by
`[masked NAME]` where text comes in, so that nothing behind that place ever holds it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from opensage.errors import ConfigError
from opensage.messages import Reply, ToolCall
from opensage.models.providers import PROVIDERS

if TYPE_CHECKING:
    from opensage.log.events import Event

SHORTEST = 8
"""Characters; a shorter value is part of too many ordinary words to be masked."""
_LINE = 16
"""Characters of a line of a secret of several lines (a private key) that is masked where it stands alone."""
_HELD = 4000
"""Characters of an unfinished line that are held back, at most, while patterns wait for its end."""
_SAYS_SECRET = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIAL|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY|(?:^|_)(?:TOKEN|PAT|PWD)(?:_|$)"
    r"|(?:^|_)(?:ACCOUNT|AUTH|DEPLOY|ENCRYPTION|FERNET|JWT|LICENSE|MASTER|SERVICE|SESSION|SIGNING|STORAGE"
    r"|SUBSCRIPTION|WEBHOOK)_KEY(?:_|$)"
)
_SAYS_ABOUT = re.compile(
    r"_(?:ARN|BUDGET|COUNT|DIR|ENDPOINT|EXPIRY|FILE|HOST|ID|LENGTH|LIMIT|NAME|PATH|PORT|SIZE|STORE|TTL|TYPE|UR[IL])$"
)
_NO_SECRETS = frozenset({"disabled", "required", "optional", "undefined", "anonymous"})
_PLACE = re.compile(r"\[masked [A-Za-z0-9_]+\]")
_AS_IT_IS = frozenset(
    (
        *("seq", "time", "id", "session", "parent", "blob", "elided"),
        *("model", "kit", "agent", "name", "sandbox", "purpose", "status", "finish_reason", "synthetic"),
    )
)
"""Fields of events that are names: hiding one would tear apart what belongs together."""
_OPAQUE = frozenset({"id", "provider", "signature", "thought_signature", "encrypted_content", "data"})
"""Fields of a provider that it wants back unchanged."""


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of the environment is taken for a secret: by its name, unless its value cannot be one."""
    known = any(name in (provider.key, *provider.aliases) for provider in PROVIDERS)
    upper = name.upper()
    if not known and (not _SAYS_SECRET.search(upper) or _SAYS_ABOUT.search(upper) or upper == "PWD"):
        return False
    text = value.strip()
    return len(text) >= SHORTEST and text.lower() not in _NO_SECRETS and not (text[0] == "/" and os.path.exists(text))


def compiled(pattern: str) -> re.Pattern[str]:
    """A configured pattern.

    Raises:
        ConfigError: it is no regular expression, or matches where nothing is.
    """
    try:
        made = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"secrets.patterns: {pattern!r} is not a regular expression: {error}; mend it") from None
    if any(found.start() == found.end() for found in made.finditer("a1 -_.\n")) or made.match(""):
        raise ConfigError(f"secrets.patterns: {pattern!r} matches the empty string; write at least one character")
    return made


class Mask:
    """Replaces secrets. False when there are none, and then it need not be asked.

    Args:
        values: secrets by name; blanks at their ends do not count, nor values under eight characters.
        patterns: regular expressions; each whole match is masked.

    Raises:
        ConfigError: a pattern that cannot be used.
    """

    def __init__(self, values: Mapping[str, str] | None = None, patterns: Sequence[str] = ()) -> None:
        self._places: dict[str, str] = {}
        for name, value in (values or {}).items():
            place = f"[masked {re.sub(r'[^A-Za-z0-9_]', '_', name) or 'secret'}]"
            for form in _forms(value):
                self._places.setdefault(form, place)
        self._forms = sorted(self._places, key=len, reverse=True)  # of two that begin alike, the longer one
        self._bytes = [form.encode("utf-8", "surrogatepass") for form in self._forms]
        self._known = re.compile("|".join((_PLACE.pattern, *map(re.escape, self._forms))))
        self._patterns = [compiled(pattern) for pattern in patterns]

    @classmethod
    def of(cls, env: Mapping[str, str], patterns: Sequence[str] = (), more: Mapping[str, str] | None = None) -> Mask:
        """The mask of an environment: its provider keys and what else is named like a credential."""
        found = {name: value for name, value in env.items() if is_secret(name, value)}
        return cls({**found, **(more or {})}, patterns)

    def __bool__(self) -> bool:
        return bool(self._forms or self._patterns)

    def __repr__(self) -> str:
        return f"Mask({', '.join(sorted(set(self._places.values())))}, {len(self._patterns)} patterns)"

    def text(self, text: str) -> str:
        """The text without secrets."""
        for form in self._forms:  # a loop: `any` over a generator costs more than the search
            if form in text:
                text = self._known.sub(lambda found: self._places.get(found[0], found[0]), text)
                break
        return self._by_pattern(text) if self._patterns else text

    def _by_pattern(self, text: str) -> str:
        for pattern in self._patterns:
            kept, start = [], 0
            for place in _PLACE.finditer(text):
                kept += [pattern.sub(_masked, text[start : place.start()]), place[0]]
                start = place.end()
            text = "".join((*kept, pattern.sub(_masked, text[start:])))
        return text

    def data(self, value: Any) -> Any:
        """JSON data without secrets, keys of objects included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.data(key): self.data(item) for key, item in value.items()}
        return [self.data(item) for item in value] if isinstance(value, (list, tuple)) else value

    def arguments(self, raw: str) -> str:
        """The arguments of a call, as JSON text: what JSON's escapes hide is found too."""
        raw = self.text(raw)
        if "\\" not in raw:
            return raw
        try:
            data = json.loads(raw, strict=False)
            clean = self.data(data)
            return raw if clean == data else json.dumps(clean, ensure_ascii=False)
        except (ValueError, RecursionError):
            return raw

    def reply(self, reply: Reply) -> Reply:
        """A model's reply without secrets."""
        calls = tuple([self._tool_call(call) for call in reply.calls])
        extra = self._opaque(reply.extra) if reply.extra else reply.extra
        return Reply(self.text(reply.text), calls, reply.finish_reason, reply.usage, extra)

    def _tool_call(self, call: ToolCall) -> ToolCall:
        arguments = self.arguments(call.arguments)
        if arguments == call.arguments and not call.extra:
            return call
        return ToolCall(call.id, call.name, arguments, self._opaque(call.extra))

    def _opaque(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: item if key in _OPAQUE else self._opaque(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._opaque(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def hits(self, line: bytes) -> bool:
        """Whether an encoded event must be looked at."""
        for form in self._bytes:
            if form in line:
                return True
        return bool(self._patterns)

    def event(self, event: Event) -> None:
        """Take the secrets out of an event, in place."""
        for spec in fields(event):
            value: Any = getattr(event, spec.name)
            if spec.name in _AS_IT_IS or not isinstance(value, (str, list, dict)):
                continue
            if spec.name == "calls":
                setattr(event, spec.name, [self._call(call) for call in value])
            else:
                setattr(event, spec.name, self._opaque(value) if spec.name == "extra" else self.data(value))

    def _call(self, call: Any) -> dict[str, Any]:
        hidden = {"arguments": self.arguments(call["arguments"])}
        return {**call, **hidden, **({"extra": self._opaque(call["extra"])} if "extra" in call else {})}

    def error(self, error: BaseException) -> None:
        """Take the secrets out of what an error says, in place."""
        error.args = tuple(self.text(part) if isinstance(part, str) else part for part in error.args)

    def placeholder(self, text: str) -> str:
        """The first placeholder of a secret of this mask that the text holds, else ""."""
        if "[masked " not in text:
            return ""
        mine = {*self._places.values(), *(["[masked pattern]"] if self._patterns else [])}
        return next((found[0] for found in _PLACE.finditer(text) if found[0] in mine), "")

    def safe_end(self, text: str) -> int:
        """How much of a text whose rest is still to come can be shown: what may be a secret's beginning waits."""
        end = self._waiting(text, 0)
        if end < len(text):
            for found in self._known.finditer(text):
                if found.start() < end < found.end():  # the end of a whole secret is no beginning
                    end = self._waiting(text, found.end())
        if self._patterns and len(text) - (line := text.rfind("\n") + 1) < _HELD:
            end = min(end, line)
        return end

    def _waiting(self, text: str, start: int) -> int:
        end = len(text)
        for form in self._forms:
            at = text.find(form[0], max(start, len(text) - len(form) + 1))
            while 0 <= at < end:
                if form.startswith(text[at:]):
                    end = at
                at = text.find(form[0], at + 1)
        return end

    def safe_start(self, text: str) -> int:
        """Where a text begins that lost its beginning: behind what may be the end of a secret."""
        lengths = [
            size for form in self._forms for size in range(1, len(form)) if text.startswith(form[len(form) - size :])
        ]
        return max(lengths, default=0)


class MaskedStream:
    """Text that comes in pieces: a secret that lies in two of them is found."""

    def __init__(self, mask: Mask) -> None:
        self._mask, self._held = mask, ""

    def feed(self, text: str) -> str:
        """Take a piece; returns what can be shown now."""
        text = self._held + text
        end = self._mask.safe_end(text)
        self._held = text[end:]
        return self._mask.text(text[:end])

    def end(self) -> str:
        """What was held back; the next piece begins anew."""
        held, self._held = self._held, ""
        return self._mask.text(held)


def _forms(value: str) -> set[str]:
    """A value as it stands in text, in JSON, and in JSON within JSON."""
    text = value.strip()
    lines = [line.strip() for line in text.splitlines()]
    found = {text, *(line for line in lines if len(line) >= _LINE and "-----" not in line)}
    for _ in range(2):
        found |= {json.dumps(form, ensure_ascii=ascii)[1:-1] for form in found for ascii in (True, False)}
    return {form for form in found if len(form) >= SHORTEST}


def _masked(found: re.Match[str]) -> str:
    return "[masked pattern]" if found[0] else ""


__all__ = ["SHORTEST", "Mask", "MaskedStream", "compiled", "is_secret"]
