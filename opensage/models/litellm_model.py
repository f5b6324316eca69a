"""Remote models through litellm. Its import takes seconds, so it starts in a thread when the model is made."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import threading
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from opensage.errors import MissingKey, ModelError, ModelNotFound
from opensage.messages import Delta, Message, Request, Usage
from opensage.models.failures import classify, retry_after
from opensage.models.openai_chunks import count, delta_from_chunk
from opensage.models.providers import DEFAULT_LOCAL, PROVIDERS, known_models, near, provider_of, table_row

_MESSAGE_NOISE = frozenset({"role", "content", "tool_calls", "function_call", "audio", "images", "annotations"})
_NEVER_SENT = frozenset({"provider"})


class _Import:
    """The one import of litellm in this process, in a thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._over: Future[None] = Future()
        self.module: Any = None
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="opensage-litellm", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import goes to the network
        try:
            _ignore_warnings()
            self.module = importlib.import_module("litellm")
            _quieten(self.module)
        except BaseException as error:  # noqa: BLE001 - carried to whoever waits for the import
            self._failure = error
        finally:
            self._over.set_result(None)

    async def wait(self) -> Any:
        """The module, once imported; the event loop goes on meanwhile."""
        self.start()
        await asyncio.shield(asyncio.wrap_future(self._over))
        if self._failure is not None:
            raise ModelError(
                f"litellm cannot be imported ({self._failure}); pip install --upgrade litellm"
            ) from self._failure
        return self.module


_litellm = _Import()
_users: set[int] = set()
"""Models that have called and are not closed: litellm's connections are shared, so the last one closes them."""


def _ignore_warnings() -> None:
    """Keep warnings about litellm's inside from users, who cannot mend them. A filter set again adds nothing."""
    warnings.filterwarnings("ignore", module=r"litellm(\.|$)")
    warnings.filterwarnings(
        "ignore", message=r".*ReadOnly. qualifier|Pydantic serializer warnings", category=UserWarning
    )


def _quieten(module: Any) -> None:
    module.suppress_debug_info = True
    module.drop_params = True
    module.telemetry = False
    for name in ("LiteLLM", "LiteLLM Proxy", "LiteLLM Router", "litellm"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


class LitellmModel:
    """A model that litellm knows.

    Args:
        name: litellm's model string, e.g. `anthropic/claude-sonnet-latest`.
        context_window: tokens; by default what litellm's table says.
        api_base: address of an OpenAI-compatible server.
        options: further arguments of litellm's `acompletion`, e.g. `{"reasoning_effort": "low"}`.
    """

    def __init__(
        self,
        name: str,
        *,
        context_window: int | None = None,
        api_base: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._name, self._window, self._options = name, context_window, dict(options or {})
        if api_base:
            self._options["api_base"] = api_base
        self._asked_window = context_window is not None
        _litellm.start()

    @property
    def name(self) -> str:
        """The model string."""
        return self._name

    @property
    def secrets(self) -> dict[str, str]:
        """Keys that the caller gave, by name, to be masked."""
        return {k: v for k, v in self._options.items() if k == "api_key" and isinstance(v, str)}

    @property
    def provider(self) -> str:
        """The provider part of the model string."""
        return provider_of(self._name) or self._name

    @property
    def context_window(self) -> int | None:
        """Tokens that fit; None when unknown. Read from litellm's table without importing it."""
        if not self._asked_window:
            self._window, self._asked_window = _table_window(self._name), True
        return self._window

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream one reply."""
        self._check_key()
        litellm = await _litellm.wait()
        _users.add(id(self))
        _ignore_warnings()
        response: Any = None
        finished = heard = False
        try:
            response = await litellm.acompletion(**self._arguments(request))
            async for chunk in response:
                delta = self._delta(chunk, litellm)
                finished = finished or delta.finish_reason is not None
                heard = heard or _says_something(delta)
                yield delta
            if not heard and "json" in _kind(response):  # a server that does not stream
                whole = await litellm.acompletion(
                    **{**self._arguments(request), "stream": False, "stream_options": None}
                )
                yield (delta := self._delta(whole, litellm))
                heard = _says_something(delta)
        except Exception as error:  # litellm raises its own, the HTTP library's and plain exceptions
            raise self._failure(error, litellm) from error
        finally:
            await _close_response(response)
        if not finished:
            raise ModelError(f"{self._name}: the stream was cut before its end", retryable=True)
        if not heard:  # litellm calls this the end of a reply
            raise ModelError(f"{self._name}: the answer ({_kind(response)}) holds no reply", retryable=True)

    def _check_key(self) -> None:
        """Say that a well-known provider's key is missing without waiting for the import."""
        if _litellm.module is not None or {"api_key", "api_base"} & set(self._options):
            return
        known = next((p for p in PROVIDERS if p.name == self.provider), None)
        if known is not None and not any(os.environ.get(key) for key in (known.key, *known.aliases)):
            raise MissingKey(f"{self._name}: no key; set {known.key}, or use a local model ({DEFAULT_LOCAL})")

    def _arguments(self, request: Request) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "model": self._name,
            "messages": with_extras(request.messages, self.provider),
            "stream": True,
            "stream_options": {"include_usage": True},
            "num_retries": 0,
            "max_retries": 0,
            **self._options,
        }
        if request.tools:
            arguments["tools"] = list(request.tools)
            if request.tool_choice != "auto":
                arguments["tool_choice"] = request.tool_choice
        for field in ("max_tokens", "temperature"):
            if getattr(request, field) is not None:
                arguments[field] = getattr(request, field)
        return arguments

    def _delta(self, chunk: Any, litellm: Any) -> Delta:
        raw = chunk.model_dump(exclude_none=True, warnings=False)
        delta = delta_from_chunk(raw, price=None)
        usage = self._usage(raw.get("usage"), litellm) if delta.usage is not None else None
        extra = _opaque(delta.extra, self.provider)
        if delta.calls and any(call.extra for call in delta.calls):
            calls = tuple(
                type(c)(c.index, c.id, c.name, c.arguments, _opaque(c.extra, self.provider)) for c in delta.calls
            )
            return Delta(delta.text, calls, delta.finish_reason, usage, extra)
        return Delta(delta.text, delta.calls, delta.finish_reason, usage, extra)

    def _usage(self, raw: Mapping[str, Any], litellm: Any) -> Usage:
        tokens, written = count(raw.get("prompt_tokens")), count(raw.get("completion_tokens"))
        details = raw.get("prompt_tokens_details")
        cached = count(details.get("cached_tokens")) if isinstance(details, Mapping) else 0
        return Usage(tokens, written, cached, self._cost(raw, litellm))

    def _cost(self, raw: Mapping[str, Any], litellm: Any) -> float | None:
        """US dollars by litellm's price table; None when the model is not in it."""
        try:
            spent = litellm.Usage(**raw)
            into, out = litellm.cost_per_token(
                model=self._name,
                prompt_tokens=count(raw.get("prompt_tokens")),
                completion_tokens=count(raw.get("completion_tokens")),
                usage_object=spent,
            )
        except Exception:  # noqa: BLE001 - "not in the table" comes as a bare Exception; an unknown price is a value
            return None
        return float(into + out)

    def _failure(self, error: Exception, litellm: Any) -> ModelError:
        if isinstance(error, ModelError):
            return error
        message = _said(error)
        if "LLM Provider NOT provided" in message:
            close = near(self._name, list(known_models())) or "."
            return ModelNotFound(f"unknown model {self._name!r}{close} Write PROVIDER/MODEL")
        status = _answered(error) or _status(error, litellm)
        if isinstance(error, getattr(litellm, "ContextWindowExceededError", ())):
            message, status = f"{message} (context length exceeded)", 400
        if status is None and not isinstance(error, litellm.APIError):
            # No HTTP answer at all: a connection that failed or broke may hold the next time.
            lost = isinstance(error, (OSError, TimeoutError)) or _is_transport(error)
            return ModelError(f"{self._name}: {message or type(error).__name__}", retryable=lost)
        wait = retry_after(_headers(error))
        return classify(message, status=status, retry_after=wait, model=self._name)

    async def close(self) -> None:
        """Close litellm's connections that belong to this event loop."""
        _users.discard(id(self))
        if _litellm.module is not None and not _users:
            await _close_clients(_litellm.module)


def _said(error: Exception) -> str:
    text = str(getattr(error, "message", "") or error)
    return text.split("Traceback (most recent call last)")[0]


def _status(error: Exception, litellm: Any) -> int | None:
    """The HTTP status behind an exception; None when the connection itself failed."""
    if isinstance(error, (litellm.APIConnectionError, litellm.Timeout)) or "MidStreamFallback" in type(error).__name__:
        inner = getattr(error, "original_exception", None)
        return _status(inner, litellm) if isinstance(inner, Exception) else 503
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and 100 <= status < 600 else None


def _answered(error: BaseException | None) -> int | None:
    """The status of the provider's answer, which litellm's own error may have changed; None without an answer."""
    found = None
    for _ in range(8):
        status = getattr(getattr(error, "response", None), "status_code", None)
        found = status if isinstance(status, int) and 400 <= status < 600 else found
        error = None if error is None else error.__cause__ or error.__context__
    return found


def _says_something(delta: Delta) -> bool:
    return bool(delta.text or delta.calls or delta.extra or delta.usage)


def _kind(response: Any) -> str:
    """The content type of an answer, as far as litellm tells."""
    hidden = getattr(response, "_hidden_params", None)
    headers = hidden.get("additional_headers") if isinstance(hidden, dict) else None
    return str((headers or {}).get("llm_provider-content-type") or "of an unknown kind")


def _is_transport(error: Exception) -> bool:
    return type(error).__module__.partition(".")[0] in ("httpx", "httpcore", "aiohttp", "h11", "anyio", "ssl")


def _headers(error: Exception) -> Mapping[str, str] | None:
    for holder in (getattr(error, "response", None), error):
        headers = getattr(holder, "headers", None) or getattr(holder, "litellm_response_headers", None)
        if headers:
            return {str(k).lower().removeprefix("llm_provider-"): str(v) for k, v in dict(headers).items()}
    return None


def _table_window(name: str) -> int | None:
    row = table_row(name)
    value = row.get("max_input_tokens") or row.get("max_tokens")
    return value if isinstance(value, int) else None


# --- opaque provider fields: kept on the message, and given back to the same provider only


def _opaque(extra: Mapping[str, Any] | None, provider: str) -> dict[str, Any] | None:
    kept = {k: v for k, v in (extra or {}).items() if k not in _MESSAGE_NOISE and v not in (None, {}, [], "")}
    return {"provider": provider, **kept} if kept else None


def with_extras(messages: Sequence[Message], provider: str) -> list[Message]:
    """The messages to send: `_extra` merged back where this provider wrote it, dropped elsewhere."""
    return [_with_extra(message, provider) for message in messages]


def _with_extra(message: Message, provider: str) -> Message:
    calls = message.get("tool_calls")
    if "_extra" not in message and not calls:
        return message
    clean = {**{k: v for k, v in message.items() if k != "_extra"}, **_mine(message.get("_extra"), provider)}
    if isinstance(calls, list):
        clean["tool_calls"] = [_call_with_extra(call, provider) for call in calls]
    if isinstance(clean.get("thinking_blocks"), list):
        clean["thinking_blocks"] = joined_thinking(clean["thinking_blocks"])
    return clean


def _call_with_extra(call: Mapping[str, Any], provider: str) -> dict[str, Any]:
    mine = _mine(call.get("_extra"), provider)
    clean = {k: v for k, v in call.items() if k != "_extra"}
    inner = mine.pop("function", None)
    if isinstance(inner, Mapping) and isinstance(clean.get("function"), Mapping):
        clean["function"] = {**clean["function"], **inner}
    return {**clean, **mine}


def _mine(extra: Any, provider: str) -> dict[str, Any]:
    if not isinstance(extra, Mapping) or extra.get("provider") != provider:
        return {}
    return {k: v for k, v in extra.items() if k not in _NEVER_SENT}


def joined_thinking(pieces: Sequence[Any]) -> list[dict[str, Any]]:
    """Thinking blocks from their streamed pieces: a signature ends a block; redacted blocks stand for themselves."""
    blocks: list[dict[str, Any]] = []
    open_block: dict[str, Any] | None = None
    for piece in pieces:
        if not isinstance(piece, Mapping):
            continue
        if piece.get("type") != "thinking":
            blocks.append(dict(piece))
            open_block = None
            continue
        if open_block is None:
            open_block = {"type": "thinking", "thinking": "", "signature": ""}
            blocks.append(open_block)
        open_block["thinking"] += piece.get("thinking") or ""
        open_block["signature"] += piece.get("signature") or ""
        if piece.get("signature"):
            open_block = None
    return blocks


# --- closing


async def _close_response(response: Any) -> None:
    for holder in (response, getattr(response, "completion_stream", None)):
        close = getattr(holder, "aclose", None)
        if close is None:
            continue
        with contextlib.suppress(Exception):  # a broken stream may fail to close; there is nothing left to lose
            await close()


async def _close_clients(module: Any) -> None:
    close = getattr(module, "close_litellm_async_clients", None)
    if close is not None:
        await close()
        module.in_memory_llm_clients_cache.flush_cache()  # a closed client must not be found by the next call
