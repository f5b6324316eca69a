"""From a provider's words to our errors: overflow, missing key, try again later, or a plain failure."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from opensage.errors import ContextOverflow, MissingKey, ModelError, ModelNotFound

RETRYABLE = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})

# One line per wording seen in the field; each is specific enough not to match an ordinary bad request.
_OVERFLOW = re.compile(
    "|".join(
        (
            r"context[_ ]length[_ ]exceeded",
            r"maximum context length",
            r"maximum model length",
            r"max(?:imum)?[_ ]?(?:model|seq\w*)[_ ]?len(?:gth)? (?:of|is)",
            r"exceed\w* (?:the )?(?:available |model'?s? |maximum |configured |limit of )*"
            r"context (?:size|window|length|limit)",
            r"exceed_context_size",
            r"context (?:window|length|size|limit) (?:of \S+ )?(?:is |was |has been )?"
            r"(?:exceeded|overflow|too small|full)",
            r"prompt is too long",
            r"(?:prompt|input|request) (?:is )?too (?:long|large) for (?:the |this |requested )?model",
            r"input (?:is )?too long",
            r"input length (?:and|of|\().{0,80}exceed",
            r"(?:prompt|input) (?:token count|tokens?|length)[^.]{0,60}exceed",
            r"(?:prompt|messages?|request|conversation) (?:token count|tokens?|length)?"
            r"[^.]{0,60}exceed\w*[^.]{0,60}(?:token|context)",
            r"too many (?:input )?tokens(?!.{0,20}per (?:minute|day|hour))",
            r"reduce the length of (?:the|your) (?:messages|prompt|input)",
            r"range of input length should be",
            r"larger than the model'?s? context",
        )
    ),
    re.IGNORECASE | re.DOTALL,
)
_RATE = re.compile(r"per (?:minute|day|hour|second)|rate[_ ]?limit|\bTP[MD]\b|\bRP[MD]\b|quota", re.IGNORECASE)
_KEY = re.compile(
    r"api[_ -]?key|authenti?cation|unauthori[sz]ed|invalid x-api-key|credentials|no auth|permission denied",
    re.IGNORECASE,
)
_NO_KEY = re.compile(
    r"missing credentials|missing \S*\s?api[_ -]?key|no api[_ -]?key"
    r"|api[_ -]?key (?:is |was )?(?:not (?:valid|set|found"
    r"|provided)|missing|required|must be)|_api_key (?:is |was )?(?:not |missing|required|must )",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model[^.]{0,80}(?:does not exist|not found|not supported|is not a valid|unknown)|no such model|model_not_found"
    r"|unknown model|invalid model",
    re.IGNORECASE | re.DOTALL,
)


def is_overflow(message: str, status: int | None = None) -> bool:
    """Whether the words say that the request is larger than the model's window. An unknown 400 is not."""
    if status is not None and status not in (400, 413, 422, 500):
        return False
    return bool(_OVERFLOW.search(message)) and not _RATE.search(message)


def classify(
    message: str, *, status: int | None = None, retry_after: float | None = None, model: str = ""
) -> ModelError:
    """The error to raise for a provider's answer.

    Args:
        message: what the provider said; bounded and kept on one line.
        status: HTTP status, or None when the connection itself failed.
        retry_after: seconds the provider asked to wait.
        model: the model string, named in the message.
    """
    said = one_line(message)
    head = f"{model}: " if model else ""
    if status == 413 or is_overflow(said, status):  # too large is too large: waiting does not make it smaller
        return ContextOverflow(f"{head}the request is larger than the model's window ({said})", status=status)
    if status == 401 or (status == 403 and _KEY.search(said)) or _NO_KEY.search(said):
        return MissingKey(f"{head}the provider refused the key ({said}); set {key_names(model)}", status=status)
    if status in (400, 404) and _NO_MODEL.search(said):
        return ModelNotFound(f"{head}no such model at this provider ({said}); check its name", status=status)
    retryable = status in RETRYABLE or (status is not None and status >= 500 and status != 501)
    text = f"{head}{said or 'the provider gave no reason'}" + (f" (HTTP {status})" if status else "")
    return ModelError(text, status=status, retryable=retryable, retry_after=retry_after)


def one_line(text: str, limit: int = 600) -> str:
    """The text on one line, cut in the middle when longer than `limit` characters."""
    flat = " ".join(str(text).split())
    return flat if len(flat) <= limit else f"{flat[: limit - 100]} ... {flat[-90:]}"


def key_names(model: str) -> str:
    """The environment variable that holds the key of this model's provider."""
    from opensage.models.providers import PROVIDERS, provider_of

    provider = provider_of(model)
    for known in PROVIDERS:
        if known.name == provider:
            return known.key
    return f"{re.sub(r'[^A-Z0-9]', '_', provider.upper())}_API_KEY" if provider else "the provider's API key"


def retry_after(headers: Mapping[str, str] | None, now: float | None = None) -> float | None:
    """Seconds to wait from `retry-after-ms` or `Retry-After` (seconds or an HTTP date, RFC 9110 section 10.2.3).

    Args:
        headers: response headers, any case.
        now: seconds since the epoch, for HTTP dates; the clock by default.
    """
    found = {str(k).lower(): str(v) for k, v in (headers or {}).items()}
    millis = _seconds(found.get("retry-after-ms"))
    if millis is not None:
        return millis / 1000
    value = found.get("retry-after")
    seconds = _seconds(value)
    if seconds is not None or not value:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - (time.time() if now is None else now))
    except (ValueError, TypeError, OverflowError):
        return None


def _seconds(value: str | None) -> float | None:
    try:
        number = float((value or "").strip().removesuffix("s"))
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
