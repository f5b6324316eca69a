"""OpenTelemetry: names and nesting of spans, real runs in a real sandbox, nothing at all when it is off."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import aclosing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from helpers_run import call, calls, say
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import opensage
from opensage import tool
from opensage.engine import Engine
from opensage.errors import ConfigError, ModelError
from opensage.log.events import TextDelta
from opensage.models import Gate, ScriptedModel, retry
from opensage.tracing import Tracing

ROOT = Path(__file__).parents[2]
KEY = "sk-live-0123456789"


class Seen:
    """A provider of its own for a test, and the spans that ended."""

    def __init__(self, *, content: bool = False) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(self.provider, content=content)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def tree(self) -> list[str]:
        """`parent > child` for every span, in the order in which they began."""
        names = {span.context.span_id: span.name for span in self.spans}
        ordered = sorted(self.spans, key=lambda span: span.start_time or 0)
        return [f"{names[span.parent.span_id] if span.parent else '-'} > {span.name}" for span in ordered]


def about(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def go(turns: Any, folder: Path, seen: Seen, **options: Any) -> opensage.Result:
    options.setdefault("sandbox", "bubblewrap")
    model = turns if isinstance(turns, ScriptedModel) else ScriptedModel(turns)
    return opensage.run("look around", model=model, workdir=folder, tracing=seen.tracing, **options)


@tool
async def nap(seconds: float) -> str:
    """Sleep."""
    await asyncio.sleep(seconds)
    return f"slept {seconds}"


def test_a_run_in_a_sandbox_with_parallel_tools(tmp_path: Path) -> None:
    seen = Seen()
    (tmp_path / "f").write_text("x")
    turns = [
        calls(call("nap", {"seconds": 0.05}, "n1"), call("nap", {"seconds": 0.05}, "n2"), usage={"input_tokens": 10}),
        calls(call("shell", {"command": "cat f; exit 3"}, "s1"), usage={"input_tokens": 20, "output_tokens": 5}),
        say("done", usage={"input_tokens": 30, "output_tokens": 7, "cached_tokens": 4, "cost": 0.5}),
    ]
    result = go(turns, tmp_path, seen, tools=[nap])
    assert result.status == "done"
    assert seen.tree() == [
        "- > invoke_agent main",
        "invoke_agent main > chat script",
        "invoke_agent main > execute_tool nap",
        "invoke_agent main > execute_tool nap",
        "invoke_agent main > chat script",
        "invoke_agent main > execute_tool shell",
        "execute_tool shell > exec bubblewrap",
        "invoke_agent main > chat script",
    ]
    assert len({span.context.trace_id for span in seen.spans}) == 1
    first, second = seen.named("execute_tool nap")
    assert first.start_time < second.end_time
    assert second.start_time < first.end_time  # they overlap, and neither is inside the other
    run, chat, shell = (seen.named(name)[-1] for name in ("invoke_agent main", "chat script", "execute_tool shell"))
    assert (run.kind, chat.kind, shell.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL)
    assert about(run) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "script",
        "gen_ai.request.model": "script",
        "gen_ai.agent.name": "main",
        "gen_ai.conversation.id": result.session_id,
        "gen_ai.usage.input_tokens": 60,
        "gen_ai.usage.output_tokens": 12,
        "opensage.run.status": "done",
        "opensage.run.reason": "",
    }
    assert about(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "script",
        "gen_ai.request.model": "script",
        "gen_ai.agent.name": "main",
        "gen_ai.conversation.id": result.session_id,
        "gen_ai.usage.input_tokens": 30,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.response.finish_reasons": ("stop",),
        "opensage.usage.cost": 0.5,
    }
    told = about(shell)
    assert told.pop("gen_ai.tool.description").startswith("Run a shell command")
    assert told == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "shell",
        "gen_ai.tool.type": "function",
        "gen_ai.tool.call.id": "s1",
        "gen_ai.agent.name": "main",
        "gen_ai.conversation.id": result.session_id,
    }
    command = about(seen.named("exec bubblewrap")[0])
    assert command["process.exit.code"] == 3
    assert command["opensage.sandbox.kind"] == "bubblewrap"
    assert all(span.status.status_code is StatusCode.UNSET for span in seen.spans)


def test_content_only_when_asked_for_and_never_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_API_KEY", KEY)
    (tmp_path / ".env").write_text(f"KEY={KEY}\n")

    @tool
    def breaks() -> str:
        """Fail."""
        raise RuntimeError(f"no login with {KEY}")

    turns = [
        {"text": "I look", **calls(call("shell", {"command": "cat .env"}, "s1"), call("breaks", {}, "b1"))},
        say(f"it is {KEY}"),
    ]
    plain, full = Seen(), Seen(content=True)
    for seen in (plain, full):
        go(turns, tmp_path, seen, tools=[breaks], memory=False)
        assert KEY not in " ".join(span.to_json() for span in seen.spans)
    assert not any(
        "messages" in name or name.endswith(("arguments", "result")) for s in plain.spans for name in about(s)
    )
    assert "look around" not in " ".join(span.to_json() for span in plain.spans)
    chat = [about(span) for span in full.named("chat script")]
    asked = json.loads(chat[1]["gen_ai.input.messages"])
    assert [message["role"] for message in asked] == ["system", "user", "assistant", "tool", "tool"]
    assert asked[1]["parts"] == [{"type": "text", "content": "look around"}]
    assert asked[2]["parts"] == [
        {"type": "text", "content": "I look"},
        {"type": "tool_call", "id": "s1", "name": "shell", "arguments": '{"command": "cat .env"}'},
        {"type": "tool_call", "id": "b1", "name": "breaks", "arguments": "{}"},
    ]
    assert asked[3]["parts"] == [{"type": "tool_call_response", "id": "s1", "response": "KEY=[masked DEMO_API_KEY]"}]
    answer = [{"type": "text", "content": "it is [masked DEMO_API_KEY]"}]
    said = [{"role": "assistant", "parts": answer, "finish_reason": "stop"}]
    assert json.loads(chat[1]["gen_ai.output.messages"]) == said
    assert json.loads(chat[0]["gen_ai.output.messages"])[0]["finish_reason"] == "tool_call"
    run = about(full.named("invoke_agent main")[0])
    assert json.loads(run["gen_ai.input.messages"])[0]["parts"] == [{"type": "text", "content": "look around"}]
    assert json.loads(run["gen_ai.output.messages"]) == said
    shell = about(full.named("execute_tool shell")[0])
    assert json.loads(shell["gen_ai.tool.call.arguments"]) == {"command": "cat .env"}
    assert shell["gen_ai.tool.call.result"] == "KEY=[masked DEMO_API_KEY]"
    broken = full.named("execute_tool breaks")[0]
    assert about(broken)["error.type"] == "RuntimeError"
    assert broken.status.description == "no login with [masked DEMO_API_KEY]"


def test_a_sub_agent_is_inside_the_call_that_asked_for_it(tmp_path: Path) -> None:
    seen = Seen()
    agents = {
        "main": [
            calls(call("create_agent", {"name": "w", "instruction": "x"})),
            calls(call("call_agent", {"name": "w", "task": "t"})),
            calls(call("nap", {"seconds": 0})),
            say("over"),
        ],
        "w": [calls(call("shell", {"command": "true"})), say("done")],
    }
    assert go(ScriptedModel({"agents": agents}), tmp_path, seen, tools=[nap]).status == "done"
    tree = seen.tree()
    assert "execute_tool call_agent > invoke_agent w" in tree
    assert "invoke_agent w > execute_tool shell" in tree
    assert "execute_tool shell > exec bubblewrap" in tree
    assert tree.count("invoke_agent w > chat script") == 2
    assert "invoke_agent main > execute_tool nap" in tree
    assert about(seen.named("execute_tool shell")[0])["gen_ai.agent.name"] == "w"
    assert about(seen.named("execute_tool nap")[0])["gen_ai.agent.name"] == "main"


def test_errors_of_model_tool_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Seen()
    monkeypatch.setitem(retry._gates, "script", Gate(base=0.01))
    turns = [
        {"error": {"status": 429, "message": "slow down"}},
        calls(call("read", {"path": "no such file"}), call("shell", {"command": "sleep 9", "timeout": 0.2})),
        {"error": {"status": 400, "message": "bad request"}},
    ]
    with pytest.raises(ModelError):
        go(turns, tmp_path, seen)
    tried = seen.named("chat script")
    assert [about(span).get("error.type") for span in tried] == ["429", None, "400"]
    assert [span.status.status_code for span in tried] == [StatusCode.ERROR, StatusCode.UNSET, StatusCode.ERROR]
    assert about(seen.named("execute_tool read")[0])["error.type"]
    assert about(seen.named("exec bubblewrap")[-1])["error.type"] == "TimeoutError"
    run = seen.named("invoke_agent main")[0]
    assert (about(run)["error.type"], run.status.status_code) == ("400", StatusCode.ERROR)


def test_a_cancelled_run_ends_all_its_spans(tmp_path: Path) -> None:
    seen = Seen()

    async def stopped() -> None:
        model = ScriptedModel([{"chunks": [{"content": "half"}, {"content": " more", "delay_s": 30}]}])
        options: Any = {"model": model, "workdir": tmp_path, "sandbox": "local", "tracing": seen.tracing}
        async with aclosing(opensage.stream("x", **options)) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, TextDelta):
                    break

    asyncio.run(stopped())
    assert {span.name: about(span)["error.type"] for span in seen.spans} == {
        "chat script": "cancelled",
        "invoke_agent main": "cancelled",
    }


def test_a_span_of_the_callers_own_is_the_parent_and_background_tasks_belong_to_their_tool(tmp_path: Path) -> None:
    seen = Seen()
    turns = [
        calls(call("shell", {"command": "sleep 0.3; echo late", "background": True})),
        calls(call("task_wait", {"id": "t1", "timeout": 9})),
        say("done"),
    ]
    with seen.provider.get_tracer("mine").start_as_current_span("mine"):
        go(turns, tmp_path, seen)
    tree = seen.tree()
    assert tree[:2] == ["- > mine", "mine > invoke_agent main"]
    assert "execute_tool shell > exec bubblewrap" in tree


def test_the_turns_of_a_chat_are_spans_of_their_own_and_tools_may_be_added(tmp_path: Path) -> None:
    seen = Seen()

    async def chat() -> None:
        model = ScriptedModel([say("one"), calls(call("nap", {"seconds": 0})), say("two")])
        engine = Engine(model=model, workdir=tmp_path, sandbox="local", tracing=seen.tracing)
        for text in ("first", "second"):
            async for _ in engine.turn(text):
                if "nap" not in engine.toolbox:
                    engine.toolbox.add(nap)
        await engine.close()

    asyncio.run(chat())
    assert [span.parent for span in seen.named("invoke_agent main")] == [None, None]
    assert len(seen.named("execute_tool nap")) == 1
    assert len({about(span)["gen_ai.conversation.id"] for span in seen.spans}) == 1


@pytest.mark.parametrize(
    ("model", "provider", "name"),
    [
        ("openai/gpt-4o", "openai", "gpt-4o"),
        ("gpt-4o", "openai", "gpt-4o"),
        ("gemini/gemini-2.5-flash", "gcp.gemini", "gemini-2.5-flash"),
        ("openrouter/anthropic/claude", "openrouter", "anthropic/claude"),
        ("local/qwen2.5-coder-1.5b", "local", "qwen2.5-coder-1.5b"),
        ("script:a/b.json", "script", "a/b.json"),
        ("whatever", "_OTHER", "whatever"),
    ],
)
def test_providers_have_the_conventions_names(model: str, provider: str, name: str) -> None:
    from opensage.tracing import _model_names

    assert _model_names(model) == {"gen_ai.provider.name": provider, "gen_ai.request.model": name}


def python(code: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    folders = os.pathsep.join(str(ROOT / name) for name in ("", "memory"))
    extra = {"PYTHONPATH": folders, "OPENSAGE_HOME": str(cwd / "home"), **env}
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=cwd,
        env={**os.environ, **extra},
        capture_output=True,
        text=True,
    )


RUN = """
import sys, opensage
from opensage.models import ScriptedModel
opensage.run("x", model=ScriptedModel([{"text": "ok"}]), sandbox="local", tracing=%s)
"""


def test_off_imports_nothing_of_it(tmp_path: Path) -> None:
    check = "print([name for name in sys.modules if 'opentelemetry' in name or name == 'opensage.tracing'])"
    done = python(RUN % '"off"' + check, tmp_path)
    assert done.stdout.strip() == "[]", done.stderr


def test_without_the_extra_the_install_is_named(tmp_path: Path) -> None:
    hide = "import sys\nsys.modules['opentelemetry'] = None\n"
    done = python(hide + RUN % '"on"', tmp_path)
    assert "ConfigError: tracing needs OpenTelemetry: pip install 'opensage[otel]'" in done.stderr


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tracing must be one of off, on, content"):
        opensage.run("x", model=ScriptedModel([say("ok")]), workdir=tmp_path, sandbox="local", tracing="loud")


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, bytes]]]]:
    """An HTTP server that takes what an OTLP exporter sends."""
    taken: list[tuple[str, bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            taken.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def cli(cwd: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    (cwd / "s.json").write_text(json.dumps([{"text": f"the key is {KEY}"}]))
    command = f"import sys; from opensage.cli.main import main; sys.exit(main({list(words)!r}))"
    return python(command, cwd, **env)


def test_the_command_line_sends_to_a_collector(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text('tracing = "content"\n')
    with collector() as (url, taken):
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "DEMO_API_KEY": KEY}
        done = cli(tmp_path, "run", "hello", "-m", "script:s.json", "--sandbox", "local", **env)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert {path for path, _ in taken} == {"/v1/traces"}
    sent = b"".join(body for _, body in taken)
    assert b"invoke_agent main" in sent
    assert b"the key is [masked DEMO_API_KEY]" in sent
    assert KEY.encode() not in sent


def test_a_collector_that_is_not_there_is_said_once_and_costs_seconds_at_most(tmp_path: Path) -> None:
    env = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "OPENSAGE_TRACING": "on",
    }
    done = cli(tmp_path, "run", "hello", "-m", "script:s.json", "--sandbox", "local", **env)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        "2 spans could not be sent to http://127.0.0.1:9; set OTEL_EXPORTER_OTLP_ENDPOINT"
    ]
