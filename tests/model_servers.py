"""A real HTTP server on the loopback that behaves, and misbehaves, like a provider."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Exchange:
    """One request, and what a behaviour may do with its connection."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        self._handler, self.body = handler, body

    def fail(self, status: int, message: str, headers: dict[str, str] | None = None) -> None:
        body = json.dumps({"error": {"message": message, "type": "invalid_request_error"}})
        self.answer(status, "application/json", body, headers)

    def answer(self, status: int, kind: str, body: str, headers: dict[str, str] | None = None) -> None:
        data = body.encode()
        self._handler.send_response(status)
        self._handler.send_header("Content-Type", kind)
        self._handler.send_header("Content-Length", str(len(data)))
        for name, value in (headers or {}).items():
            self._handler.send_header(name, value)
        self._handler.end_headers()
        self._handler.wfile.write(data)

    def hang_up(self) -> None:
        self._handler.close_connection = True

    def begin(self) -> None:
        self._handler.send_response(200)
        self._handler.send_header("Content-Type", "text/event-stream")
        self._handler.send_header("Connection", "close")
        self._handler.end_headers()
        self._handler.close_connection = True

    def delta(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> None:
        self.event(chunk(delta, finish, **more))

    def event(self, body: Any) -> None:
        self.raw(f"data: {json.dumps(body)}\n\n")

    def raw(self, text: str) -> None:
        self._handler.wfile.write(text.encode())
        self._handler.wfile.flush()

    def end(self, usage: dict[str, int] | None = None) -> None:
        if usage:
            self.event({**chunk({}, None), "choices": [], "usage": usage})
        self.raw("data: [DONE]\n\n")


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "fake",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        **more,
    }


Behaviour = Callable[[Exchange], None]


class Provider:
    """Plays one behaviour a request, the last one for ever; keeps every request body and its time."""

    def __init__(self, behaviours: list[Behaviour]) -> None:
        self.requests: list[dict[str, Any]] = []
        self.times: list[float] = []
        self._behaviours = behaviours
        self._lock = threading.Lock()
        self.url = ""

    def play(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self.requests.append(body)
            self.times.append(time.monotonic())
            behaviour = self._behaviours[min(len(self.requests), len(self._behaviours)) - 1]
        behaviour(Exchange(handler, body))


@contextmanager
def provider(*behaviours: Behaviour) -> Iterator[Provider]:
    played = Provider(list(behaviours))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            try:
                played.play(self)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    played.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield played
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
