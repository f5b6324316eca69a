"""Spans for OpenTelemetry: a run, its model calls, tool calls and commands, named by the GenAI semantic conventions.

Everything here is a wrapper around what a run uses anyway, put there only when tracing is on. OpenTelemetry is imported
then, and not before. Source of the names: https://opentelemetry.io/docs/specs/semconv/gen-ai/.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Unpack

from opensage import __version__
from opensage.errors import ConfigError, ModelError
from opensage.log.events import Event, RunFinished
from opensage.messages import Delta, Message, Reply, Request
from opensage.models.assembler import Assembler
from opensage.models.providers import LOCAL_SCHEMES, provider_of
from opensage.models.retry import Wrapper, closable
from opensage.protocols import ExecOptions, ExecResult, Model, Sandbox
from opensage.sandbox.wrapper import SandboxWrapper
from opensage.secrets import Mask
from opensage.tools.base import Tool, ToolContext
from opensage.tools.result import result_text
from opensage.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider as OwnProvider
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span, TracerProvider

INSTALL = "tracing needs OpenTelemetry: pip install 'opensage[otel]', or set tracing to \"off\""
MODES = ("off", "on", "content")
_SEND_S = 5
"""Seconds that sending may take, where `OTEL_EXPORTER_OTLP_TIMEOUT` says nothing else."""
_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}


class Tracing:
    """Where spans go and what they hold.

    Args:
        provider: OpenTelemetry's; without it the one the program has set, and where it has set none, one that sends to
            a collector by OTLP over HTTP, as the `OTEL_*` variables say.
        content: whether spans hold messages, arguments and results. Secrets are masked in them.

    Raises:
        ConfigError: OpenTelemetry is not installed.
    """

    def __init__(self, provider: TracerProvider | None = None, *, content: bool = False) -> None:
        self.content = content
        self.exporter: _Exporter | None = None
        if provider is None:
            provider, self.exporter = _default_provider()
        self._provider = provider

    @classmethod
    def of(cls, wished: str | Tracing | None) -> Tracing | None:
        """The tracing of a setting: "on", "content", or None for "off".

        Raises:
            ConfigError: another word, or OpenTelemetry is not installed.
        """
        if wished is None or isinstance(wished, Tracing):
            return wished
        if wished not in MODES:
            raise ConfigError(f"tracing must be one of {', '.join(MODES)}, not {wished!r}")
        return None if wished == "off" else cls(content=wished == "content")

    def spans(self, mask: Mask) -> Spans:
        """The spans of one agent's runs."""
        return Spans(self._provider, mask, content=self.content)

    async def flush(self) -> str:
        """Send what waits, to a collector of our own finding; returns what to tell the person when it failed."""
        if self.exporter is None:
            return ""
        await asyncio.to_thread(self.exporter.provider.force_flush)
        return self.exporter.complaint()


class Spans:
    """Makes the spans of one agent's runs, one run at a time; `around` is the context of the one that is at work."""

    def __init__(self, provider: TracerProvider, mask: Mask, *, content: bool) -> None:
        self._tracer = provider.get_tracer("opensage", __version__)
        self._mask, self._content = mask, content
        self._agent, self._session = "main", ""
        self.around: Context | None = None

    def model(self, model: Model) -> Model:
        """The model with a span around each call."""
        return _TracedModel(model, self)

    def sandbox(self, sandbox: Sandbox) -> Sandbox:
        """The sandbox with a span around each command."""
        return _TracedSandbox(sandbox, self)

    def toolbox(self, box: Toolbox) -> Toolbox:
        """The tools with a span around each call."""
        return _TracedToolbox(box, self)

    async def run(
        self, agent: str, model: str, session: str, task: str | None, events: AsyncIterator[Event]
    ) -> AsyncIterator[Event]:
        """The events of a run, with a span around it."""
        self._agent, self._session = agent, session
        span = self._start(f"invoke_agent {agent}", "invoke_agent", "INTERNAL", _model_names(model))
        self.around = _context_of(span)
        self._hold(span, "gen_ai.input.messages", lambda: [_message("user", _text(task or ""))])
        try:
            async with aclosing(events) as running:  # type: ignore[type-var]
                async for event in running:
                    if isinstance(event, RunFinished):
                        self._finish(span, event)
                    yield event
        except BaseException as error:
            self.fail(span, error)
            raise
        finally:
            span.end()
            self.around = None

    def _finish(self, span: Span, event: RunFinished) -> None:
        used = {f"gen_ai.usage.{kind}_tokens": event.usage.get(f"{kind}_tokens", 0) for kind in ("input", "output")}
        span.set_attributes({**used, "opensage.run.status": event.status, "opensage.run.reason": event.reason})
        ending = {"finish_reason": "stop"}
        self._hold(span, "gen_ai.output.messages", lambda: [{**_message("assistant", _text(event.text)), **ending}])

    def chat(self, model: str, request: Request) -> Span:
        """The span of a model call."""
        names = _model_names(model)
        options = {
            "gen_ai.request.max_tokens": request.max_tokens,
            "gen_ai.request.temperature": request.temperature,
        }
        more = {key: value for key, value in options.items() if value is not None}
        name = f"chat {names['gen_ai.request.model']}"
        about = {**names, **more, "gen_ai.agent.name": request.agent}
        span = self._start(name, "chat", "CLIENT", about, self.around)
        self._hold(span, "gen_ai.input.messages", lambda: [_as_parts(message) for message in request.messages])
        return span

    def replied(self, span: Span, reply: Reply) -> None:
        """What a model call came to."""
        usage = reply.usage
        if usage.tokens:
            span.set_attribute("gen_ai.usage.input_tokens", usage.input_tokens)
            span.set_attribute("gen_ai.usage.output_tokens", usage.output_tokens)
        if usage.cached_tokens:
            span.set_attribute("gen_ai.usage.cache_read.input_tokens", usage.cached_tokens)
        if usage.cost is not None:
            span.set_attribute("opensage.usage.cost", usage.cost)
        span.set_attribute("gen_ai.response.finish_reasons", [reply.finish_reason])
        self._hold(span, "gen_ai.output.messages", lambda: [_output(self._mask.reply(reply))])

    async def tool(self, tool: Tool, arguments: dict[str, Any], context: ToolContext) -> object:
        """Call a tool inside a span; commands it runs are spans inside that."""
        named = {"name": tool.name, "type": "function", "call.id": context.call_id, "description": tool.description}
        told = {f"gen_ai.tool.{key}": value for key, value in named.items() if value}
        span = self._start(f"execute_tool {tool.name}", "execute_tool", "INTERNAL", told, self.around)
        self._hold(span, "gen_ai.tool.call.arguments", lambda: arguments)
        with self.inside(span):
            value = await tool.invoke(arguments, context)
            self._hold(span, "gen_ai.tool.call.result", lambda: result_text(value))
        return value

    def command(self, kind: str) -> Span:
        """The span of a command, inside that of the tool that runs it."""
        from opentelemetry.trace import get_current_span

        parent = None if get_current_span().get_span_context().is_valid else self.around
        return self._start(f"exec {kind}", "", "INTERNAL", {"opensage.sandbox.kind": kind}, parent)

    @contextmanager
    def inside(self, span: Span) -> Iterator[None]:
        """Make a span the parent of what begins in the block, and end it after."""
        try:
            with attached(_context_of(span)):
                yield
        except BaseException as error:
            self.fail(span, error)
            raise
        finally:
            span.end()

    def fail(self, span: Span, error: BaseException) -> None:
        """Mark a span: the provider's status, the kind of error, or "cancelled"."""
        from opentelemetry.trace import StatusCode

        ended = isinstance(error, (asyncio.CancelledError, GeneratorExit))
        status = error.status if isinstance(error, ModelError) else None
        span.set_attribute("error.type", "cancelled" if ended else str(status or type(error).__name__))
        span.set_status(StatusCode.ERROR, self._mask.text(str(error)))

    def _start(
        self, name: str, operation: str, kind: str, more: Mapping[str, Any], parent: Context | None = None
    ) -> Span:
        from opentelemetry.trace import SpanKind

        about = {"gen_ai.conversation.id": self._session, "gen_ai.agent.name": self._agent, **more}
        if operation:
            about["gen_ai.operation.name"] = operation
        return self._tracer.start_span(name, context=parent, kind=SpanKind[kind], attributes=about)

    def _hold(self, span: Span, name: str, value: Any) -> None:
        """Put content on a span, if it was asked for; `value` makes it, secrets still in it."""
        if self._content:
            held = self._mask.data(value())
            span.set_attribute(name, held if isinstance(held, str) else json.dumps(held, default=str))


class _TracedModel(Wrapper):
    """A model with a span around each call; a call that is tried again is another span."""

    def __init__(self, model: Model, spans: Spans) -> None:
        super().__init__(model)
        self._spans = spans

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream one reply."""
        span = self._spans.chat(self.name, request)
        context, assembler = _context_of(span), Assembler()
        try:
            async with aclosing(closable(self._model, request)) as deltas:
                while (delta := await _next(deltas, context)) is not None:
                    assembler.feed(delta)
                    yield delta
        except BaseException as error:
            self._spans.fail(span, error)
            raise
        finally:
            self._spans.replied(span, assembler.reply())
            span.end()


async def _next(deltas: Any, context: Context) -> Delta | None:
    """The next delta, made inside the span's context, so that what an HTTP library traces is inside it too."""
    with attached(context):
        try:
            delta: Delta = await anext(deltas)
        except StopAsyncIteration:
            return None
        return delta


class _TracedSandbox(SandboxWrapper):
    """A sandbox with a span around each command."""

    def __init__(self, sandbox: Sandbox, spans: Spans) -> None:
        super().__init__(sandbox)
        self._spans = spans

    async def exec(self, command: str | Sequence[str], **options: Unpack[ExecOptions]) -> ExecResult:
        """See `Sandbox.exec`. An exit code is data; only a command that did not come to its end is an error."""
        span = self._spans.command(self.kind)
        with self._spans.inside(span):
            result = await super().exec(command, **options)
            span.set_attribute("process.exit.code", result.exit_code)
            span.set_attribute("opensage.sandbox.truncated", result.truncated)
            if result.timed_out:
                self._spans.fail(span, TimeoutError("timed out"))
        return result


class _TracedToolbox(Toolbox):
    """A view of a toolbox: it holds the very same tools, whoever adds or removes one."""

    __slots__ = ("_call",)

    def __init__(self, box: Toolbox, spans: Spans) -> None:
        self.__dict__ = box.__dict__
        self._call = spans.tool

    def get(self, name: str) -> Tool | None:
        """The tool of that name with a span around its calls, or None."""
        tool = super().get(name)
        if tool is None:
            return None
        return replace(tool, invoke=partial(self._call, tool))


@contextmanager
def attached(context: Context) -> Iterator[None]:
    """Make a context the current one in the block, which must not yield to another task's."""
    from opentelemetry.context import attach, detach

    token = attach(context)
    try:
        yield
    finally:
        detach(token)


def _context_of(span: Span) -> Context:
    from opentelemetry.trace import set_span_in_context

    return set_span_in_context(span)


# --- names and messages as the conventions write them


def _model_names(model: str) -> dict[str, str]:
    """Provider and model of a model string."""
    scheme, _, rest = model.partition(":")
    if scheme in LOCAL_SCHEMES:
        return {"gen_ai.provider.name": scheme, "gen_ai.request.model": rest or model}
    provider = provider_of(model) or "_OTHER"
    return {
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider),
        "gen_ai.request.model": model.removeprefix(f"{provider}/"),
    }


def _message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "content": text}


def _call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def _as_parts(message: Message) -> dict[str, Any]:
    """A message of a request in the conventions' form."""
    if message["role"] == "tool":
        answer = {"type": "tool_call_response", "id": message["tool_call_id"], "response": message["content"]}
        return _message("tool", answer)
    parts = [_text(message["content"])] if message.get("content") else []
    for call in message.get("tool_calls", ()):
        parts.append(_call(call["id"], call["function"]["name"], call["function"]["arguments"]))
    return _message(message["role"], *parts)


def _output(reply: Reply) -> dict[str, Any]:
    parts = [_text(reply.text)] if reply.text else []
    parts += [_call(call.id, call.name, call.arguments) for call in reply.calls]
    reason = "tool_call" if reply.finish_reason == "tool_calls" else reply.finish_reason
    return {**_message("assistant", *parts), "finish_reason": reason}


# --- where spans go


def _default_provider() -> tuple[TracerProvider, _Exporter | None]:
    """The program's own provider, else one that sends to a collector."""
    try:
        from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider
    except ImportError:
        raise ConfigError(INSTALL) from None
    provider = get_tracer_provider()
    if not isinstance(provider, ProxyTracerProvider):
        return provider, None
    exporter = _collector()
    return exporter.provider, exporter


class _Exporter:
    """Sends to a collector, and remembers when that failed."""

    def __init__(self, inner: SpanExporter) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider as OwnProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._inner = inner
        self._lost = 0
        name = os.environ.get("OTEL_SERVICE_NAME", "opensage")
        self.provider: OwnProvider = OwnProvider(resource=Resource.create({"service.name": name}))
        self.provider.add_span_processor(BatchSpanProcessor(self))  # type: ignore[arg-type]

    def export(self, spans: Sequence[Any]) -> Any:
        """Send some spans."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        result = self._inner.export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._lost += len(spans)
        return result

    def shutdown(self) -> None:
        """The program ends."""
        self._inner.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Nothing waits here."""
        return True

    def complaint(self) -> str:
        """What to tell the person about spans that were lost since the last time."""
        lost, self._lost = self._lost, 0
        place = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
        return f"{lost} spans could not be sent to {place}; set OTEL_EXPORTER_OTLP_ENDPOINT" if lost else ""


@lru_cache(maxsize=1)
def _collector() -> _Exporter:
    """The process's one way to a collector."""
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError:
        raise ConfigError(INSTALL) from None
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what failed is said once, at the end
    seconds = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else _SEND_S
    return _Exporter(OTLPSpanExporter(timeout=seconds))


__all__ = ["INSTALL", "MODES", "Spans", "Tracing"]
