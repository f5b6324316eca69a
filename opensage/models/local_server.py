"""A llama.cpp server of another process in the place of the one in this process: one loaded model for many runs."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from opensage.errors import ModelError

ADDRESS = "OPENSAGE_LOCAL_SERVER"
"""Where `local/NAME` is served, e.g. http://127.0.0.1:8081/v1, as `opensage models serve NAME` prints it."""
KEY = "OPENSAGE_SERVE_KEY"
_CONNECT_S = 10.0
_MOST_ERROR = 500


class ServedEngine:
    """Streams chat completions from a server; has the methods of `local_engine.Engine` that `LocalModel` uses.

    Args:
        address: base URL that ends in /v1.
        name: of the model, as the server calls it.
    """

    loaded = True

    def __init__(self, address: str, name: str) -> None:
        self._url = f"{address.rstrip('/')}/chat/completions"
        self._name = name

    async def generate(self, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Run a streaming chat completion; closing the iterator closes the connection, and the server stops.

        Raises:
            ModelError: the server cannot be reached, refuses the request, or breaks off.
        """
        import httpx

        key = os.environ.get(KEY, "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        timeout = httpx.Timeout(None, connect=_CONNECT_S)  # a long prompt is read for minutes before the first token
        try:
            async with httpx.AsyncClient(timeout=timeout, headers=headers, trust_env=False) as client:
                sent = client.stream("POST", self._url, json={**body, "model": self._name, "stream": True})
                async with sent as answer:
                    if answer.status_code >= 400:
                        yield await _refused(answer)
                        return
                    async with aclosing(_chunks(answer)) as chunks:
                        async for chunk in chunks:
                            self._check(str(chunk.get("model") or self._name))
                            yield chunk
        except httpx.HTTPError as error:
            raise ModelError(
                f"the server at {self._url} does not answer ({type(error).__name__}: {error}); start it with `opensage "
                f"models serve {self._name}`, or unset {ADDRESS}",
                retryable=True,
            ) from error

    def _check(self, serving: str) -> None:
        """llama.cpp answers with the model it has, whatever model it is asked for."""
        if serving != self._name:
            raise ModelError(
                f"{self._url} serves {serving}, not {self._name}: use local/{serving}, or serve the other one with "
                f"`opensage models serve {self._name}`"
            )


async def _refused(answer: Any) -> dict[str, Any]:
    text = (await answer.aread()).decode("utf-8", "replace")
    try:
        error = json.loads(text)["error"]
    except (ValueError, KeyError, TypeError):
        error = {"message": text[:_MOST_ERROR] or f"HTTP {answer.status_code}"}
    return {"error": error if isinstance(error, dict) else {"message": str(error), "code": answer.status_code}}


async def _chunks(answer: Any) -> AsyncGenerator[dict[str, Any], None]:
    """The JSON objects of a stream of server-sent events."""
    async for line in answer.aiter_lines():
        data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
        if not data or data == "[DONE]":
            continue
        try:
            chunk = json.loads(data)
        except ValueError as error:
            raise ModelError(f"the local server sent a line that is no JSON: {data[:200]!r}", retryable=True) from error
        if isinstance(chunk, dict):
            yield chunk
