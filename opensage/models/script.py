"""Scripted models: replies from a list, a JSON file or a Python function. Tests and docs run on them."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opensage.errors import ScriptError
from opensage.messages import Delta, Request
from opensage.models.openai_chunks import wire
from opensage.models.turns import Repeat, Turn, read_turn, read_turns


class _Reel:
    """One list of turns and how far it has been played."""

    def __init__(self, turns: tuple[Repeat, ...], where: str) -> None:
        self._turns, self._where = turns, where
        self._at = self._played = self._total = 0

    def next(self) -> Turn:
        while self._at < len(self._turns):
            current = self._turns[self._at]
            if current.times < 0 or self._played < current.times:
                self._played += 1
                self._total += 1
                return current.turn
            self._at, self._played = self._at + 1, 0
        raise ScriptError(
            f"{self._where}: the script is past its end: call {self._total + 1} came, and it has {self._total} turns; "
            'add a turn, or repeat the last one with {"repeat": turn, "times": -1}'
        )


class ScriptedRequest(dict[str, Any]):
    """One request in OpenAI form, `{model, messages, tools}`; keys can be read as attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class ScriptedModel:
    """Plays turns in order and keeps every request.

    Args:
        turns: a list of turns, or `{"agents": {name: turns}, "default": turns}` (DESIGN section 8). An agent that is
            not named plays its own copy of `default`.
        context_window: tokens that this model claims to hold.
        name: the model string that it answers to.
        where: what errors call the script.

    Raises:
        ScriptError: at once when a turn is malformed; at the call when the script is past its end.
    """

    idle_s: float | None = None  # a script says itself how long it takes

    def __init__(
        self,
        turns: Sequence[Mapping[str, Any]] | Mapping[str, Any],
        *,
        context_window: int | None = None,
        name: str = "script",
        where: str = "script",
    ) -> None:
        self._name, self._window, self._where = name, context_window, where
        self._seen: list[Request] = []
        self._default: tuple[Repeat, ...] | None = None
        self._reels: dict[str, _Reel] = {}
        self._all: _Reel | None = None
        if isinstance(turns, Mapping):
            self._read_agents(turns)
        else:
            self._all = _Reel(read_turns(turns, where), where)

    def _read_agents(self, raw: Mapping[str, Any]) -> None:
        unknown = sorted(str(key) for key in raw if key not in ("agents", "default"))
        agents = raw.get("agents", {})
        if unknown or not isinstance(agents, Mapping) or not raw:
            raise ScriptError(
                f'{self._where}: a script is a list of turns or {{"agents": {{name: turns}}, "default": turns}}'
            )
        if raw.get("default") is not None:
            self._default = read_turns(raw["default"], f"{self._where}, default")
        for agent, turns in agents.items():
            place = f"{self._where}, agent {agent!r}"
            self._reels[str(agent)] = _Reel(read_turns(turns, place), place)

    @property
    def name(self) -> str:
        """The model string."""
        return self._name

    @property
    def context_window(self) -> int | None:
        """Tokens that fit, as given."""
        return self._window

    @property
    def requests(self) -> list[dict[str, Any]]:
        """Every request so far, `{model, messages, tools}` in OpenAI chat-completions form, made when asked for."""
        return [self._as_dict(request) for request in self._seen]

    def _as_dict(self, request: Request) -> ScriptedRequest:
        return ScriptedRequest(model=self._name, messages=wire(request.messages), tools=list(request.tools))

    def _turn(self, request: Request) -> Turn:
        if self._all is not None:
            return self._all.next()
        reel = self._reels.get(request.agent)
        if reel is None:
            if self._default is None:
                known = ", ".join(sorted(self._reels)) or "none"
                raise ScriptError(
                    f"{self._where}: no turns for agent {request.agent!r} (it has: {known}) and no 'default'"
                )
            reel = self._reels[request.agent] = _Reel(self._default, f"{self._where}, default for {request.agent!r}")
        return reel.next()

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream the next turn."""
        self._seen.append(request)
        turn = self._turn(request)
        async for delta in _play(turn, self._name):
            yield delta

    async def close(self) -> None:
        """Nothing to free."""


class ScriptedFunction(ScriptedModel):
    """Asks `reply(request)` for each turn; the request is `{model, messages, tools, agent}`."""

    def __init__(self, reply: Callable[[ScriptedRequest], Any], *, name: str = "script", where: str = "script") -> None:
        super().__init__([], name=name, where=where)
        self._reply = reply

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream what the function returns."""
        self._seen.append(request)
        place = f"{self._where}, call {len(self._seen)}"
        asked = self._as_dict(request)
        asked["agent"] = request.agent
        try:
            raw = self._reply(asked)
            raw = await raw if inspect.isawaitable(raw) else raw
        except Exception as error:  # the user's function may raise anything; it leaves as our error
            raise ScriptError(f"{place}: reply() raised {type(error).__name__}: {error}") from error
        async for delta in _play(read_turn(raw, place), self._name):
            yield delta


async def _play(turn: Turn, name: str) -> AsyncIterator[Delta]:
    if turn.delay_s:
        await asyncio.sleep(turn.delay_s)
    for wait, delta in turn.deltas:
        if wait:
            await asyncio.sleep(wait)
        yield delta
    failure = turn.failure(name)
    if failure is not None:
        raise failure


def load_script(path: str | Path, *, context_window: int | None = None) -> ScriptedModel:
    """The model of `script:FILE`: a `.json` file of turns, or a `.py` file that defines `reply(request)`.

    Raises:
        ScriptError: the file cannot be read or is malformed; the message names the place.
    """
    file = Path(path).expanduser()
    name = f"script:{path}"
    try:
        source = file.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        raise ScriptError(
            f"script {file} cannot be read ({_why(error)}); give the path of a .json or .py script"
        ) from error
    if file.suffix == ".py":
        return ScriptedFunction(_load_reply(file, source), name=name, where=str(file))
    try:
        raw = json.loads(source)
    except (ValueError, RecursionError) as error:
        raise ScriptError(f"script {file} is not valid JSON: {error}") from error
    return ScriptedModel(raw, context_window=context_window, name=name, where=str(file))


def _why(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "it is not UTF-8 text"


def _load_reply(file: Path, source: str) -> Callable[[ScriptedRequest], Any]:
    space: dict[str, Any] = {"__name__": f"opensage_script_{file.stem}", "__file__": str(file)}
    try:
        exec(compile(source, str(file), "exec"), space)
    except Exception as error:  # the user's file may raise anything; it leaves as our error
        raise ScriptError(f"script {file} cannot be loaded: {type(error).__name__}: {error}") from error
    reply = space.get("reply")
    if not callable(reply):
        raise ScriptError(f"script {file} must define `def reply(request) -> dict`")
    found: Callable[[ScriptedRequest], Any] = reply
    return found
