"""The HTTP client of a server's address: bounded answers, and the last refusal kept for the person."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
from mcp.client.streamable_http import streamable_http_client

from opensage.mcp.stdio import MOST_BYTES

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

_CONNECT_S, _SILENCE_S = 30.0, 300.0


class HttpServer:
    """A server at an address. `ended` is never set: that it is gone shows when it is next called.

    Args:
        url: the address.
        headers: sent with each request.
    """

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        self.ended = asyncio.Event()
        self._url, self._headers = url, {**headers, "accept-encoding": "identity"}
        self._refusal = ""

    @asynccontextmanager
    async def streams(self) -> AsyncGenerator[TransportStreams, None]:
        """The SDK's pair of streams."""
        client = httpx2.AsyncClient(
            headers=self._headers,
            timeout=httpx2.Timeout(_CONNECT_S, read=_SILENCE_S),
            event_hooks={"response": [self._see]},
        )
        async with (
            client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=MOST_BYTES) as streams,
        ):
            yield streams

    def kill(self) -> None:
        """Nothing of it runs here."""

    @property
    def last_words(self) -> str:
        """The last refusal, or that there was no answer."""
        return self._refusal or f"{self._url.partition('?')[0]} does not answer"

    async def _see(self, response: httpx2.Response) -> None:
        refused = response.status_code >= 400
        advice = "; set headers for it" if response.status_code in (401, 403) else ""
        self._refusal = f"HTTP {response.status_code} {response.reason_phrase[:60]}{advice}" if refused else ""
        if "content-encoding" in response.headers:
            raise httpx2.DecodingError("it sent a compressed answer, which was not asked for")
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            stream = response.stream
            assert isinstance(stream, httpx2.AsyncByteStream)
            response.stream = _Bounded(stream)


class _Bounded(httpx2.AsyncByteStream):
    """A body of at most `MOST_BYTES`; the SDK bounds the events of the other kind of answer itself."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for chunk in self._stream:
            seen += len(chunk)
            if seen > MOST_BYTES:
                raise httpx2.StreamError(f"it sent more than {MOST_BYTES} bytes")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
