"""`local/<name>`: a GGUF model through llama.cpp, in this process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from opensage.errors import ModelError, ModelNotFound
from opensage.messages import Delta, Request, Usage
from opensage.models import registry
from opensage.models.failures import classify
from opensage.models.local_engine import Engine, acquire, release
from opensage.models.local_prompt import Prompt, build
from opensage.models.local_server import ADDRESS, ServedEngine
from opensage.models.local_stream import ConstrainedReader
from opensage.models.openai_chunks import delta_from_chunk

DEFAULT_WINDOW = 16_384
_MOST_TOKENS = 4096


class LocalModel:
    """A model file run by llama.cpp. It is pulled and loaded at the first call, and costs 0.0.

    With OPENSAGE_LOCAL_SERVER set, the llama.cpp server at that address is asked instead.

    Args:
        name: a name that `opensage models list` knows, or the absolute path of a `.gguf` file.
        context_window: tokens; by default 16,384, less on a machine with little memory.

    Raises:
        ModelNotFound: no such name, or no such file.
    """

    needs_coach = True  # it answers too early: see opensage/coach.py
    idle_s: float | None = None  # a long prompt is read for minutes before the first token

    def __init__(self, name: str, *, context_window: int | None = None) -> None:
        self._name = name
        self._spec: registry.LocalModelSpec | None = None
        if name.startswith(("/", "~", "./", "../")):
            self._path = Path(name).expanduser().absolute()
            if not self._path.is_file():
                raise ModelNotFound(
                    f"no file {self._path}; give the path of a .gguf file, or a name such as {_EXAMPLE}"
                )
            self._spec = registry.by_file(self._path)
        else:
            self._spec = registry.find(name)
            self._path = registry.path_of(self._spec)
        self._window = context_window or default_window(self._spec.window if self._spec else DEFAULT_WINDOW)
        self._engine: Engine | None = None

    @property
    def name(self) -> str:
        """The model string."""
        return f"local/{self._name}"

    @property
    def context_window(self) -> int | None:
        """Tokens that fit."""
        return self._window

    @property
    def path(self) -> Path:
        """The model's file, whether or not it is there."""
        return self._path

    @property
    def pulled(self) -> bool:
        """Whether the file is there."""
        return self._path.is_file() if self._spec is None else registry.installed(self._spec) or self._path.is_file()

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream one reply; notes say when the model is being fetched or loaded."""
        served = os.environ.get(ADDRESS, "")
        engine: Engine | ServedEngine
        if served:
            engine = ServedEngine(served, self._name)
        else:
            async for note in self._fetch():
                yield note
            engine = self._engine = self._engine or acquire(self._path, self._window)
        if not engine.loaded:
            yield Delta(note=f"loading {self.name}")
        prompt = build(request, tools=self._spec.tools if self._spec else True)
        async with aclosing(engine.generate(self._body(prompt, request))) as chunks:
            async for delta in self._read(chunks, prompt, request):
                yield delta

    async def _fetch(self) -> AsyncIterator[Delta]:
        """Pull the file when it is missing, telling how far it is."""
        if self.pulled or self._spec is None:
            return
        pull = _Pull(self._spec.name)
        try:
            while (said := await pull.next()) is not None:
                yield Delta(note=f"fetching {self.name}: {said}")
        finally:
            pull.stop()

    def _body(self, prompt: Prompt, request: Request) -> dict[str, Any]:
        body: dict[str, Any] = {
            "messages": prompt.messages,
            "max_tokens": request.max_tokens or min(_MOST_TOKENS, self._window // 2),
            "temperature": _temperature(prompt, request),
            "top_p": 0.8,
            "top_k": 20,
            "cache_prompt": True,
            "stream_options": {"include_usage": True},
        }
        if prompt.grammar is not None:
            body["grammar"] = prompt.grammar
        return body

    async def _read(
        self, chunks: AsyncIterator[Mapping[str, Any]], prompt: Prompt, request: Request
    ) -> AsyncIterator[Delta]:
        names = [str(t.get("function", {}).get("name")) for t in request.tools]
        reader = ConstrainedReader(prompt.answer, names) if prompt.answer else None
        finish: str | None = None
        usage: Usage | None = None
        async for chunk in chunks:
            if chunk.get("error"):
                raise _failure(chunk["error"], self.name)
            delta = delta_from_chunk(chunk)
            finish, usage = delta.finish_reason or finish, delta.usage or usage
            shown = reader.feed(delta.text) if reader and delta.text else None if reader else Delta(text=delta.text)
            if shown is not None and shown.text:
                yield shown
        if finish is None:
            raise ModelError(f"{self.name}: llama.cpp ended without an answer", retryable=True)
        last = reader.finish(finish) if reader else Delta(finish_reason=finish)
        yield Delta(last.text, last.calls, last.finish_reason, usage)

    async def close(self) -> None:
        """Free the memory, unless another model uses the same file."""
        engine, self._engine = self._engine, None
        free = release(engine) if engine is not None else None
        if free is not None:
            await asyncio.to_thread(free)


_EXAMPLE = "local/qwen2.5-coder-1.5b"


class _Stopped(Exception):
    """Ends a pull that nobody waits for any more."""


class _Pull:
    """A pull in a thread, watched from the event loop. Stopping it keeps what came, for the next time."""

    def __init__(self, name: str) -> None:
        self._said, self._shown = "starting", ""
        self._stop, self._over = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        threading.Thread(target=self._run, args=(name,), name="opensage-pull", daemon=True).start()

    def _run(self, name: str) -> None:
        try:
            registry.pull(name, self._progress)
        except BaseException as error:  # noqa: BLE001 - carried to the event loop and raised there
            self._failure = error
        finally:
            self._over.set()

    def _progress(self, done: int, total: int) -> None:
        if self._stop.is_set():
            raise _Stopped
        self._said = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB"

    async def next(self) -> str | None:
        """The next thing to say, or None when it is done. Raises what the pull raised."""
        while not self._over.is_set():
            if self._said != self._shown:
                self._shown = self._said
                return self._shown
            await asyncio.sleep(0.2)
        if self._failure is not None:
            raise self._failure
        return None

    def stop(self) -> None:
        """Stop at the next part."""
        self._stop.set()


def _temperature(prompt: Prompt, request: Request) -> float:
    """Nearly greedy, since a call has to be exact; livelier when the model has begun to repeat itself."""
    if request.temperature is not None:
        return request.temperature
    return 0.8 if prompt.stuck else 0.1


def _failure(error: Any, name: str) -> ModelError:
    body = error if isinstance(error, Mapping) else {"message": str(error)}
    code = body.get("code")
    return classify(str(body.get("message", "")), status=code if isinstance(code, int) else None, model=name)


def default_window(trained: int) -> int:
    """Tokens of context to allocate: what the model was trained for, bounded by a default and by free memory."""
    free = free_memory()
    fits = DEFAULT_WINDOW if free is None or free > 3 << 30 else 8192 if free > 2 << 30 else 4096
    return min(trained, fits)


def free_memory() -> int | None:
    """Bytes of memory that can be had without swapping, or None when the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return None
    return None
