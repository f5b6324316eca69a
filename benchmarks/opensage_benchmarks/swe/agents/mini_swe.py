"""mini-swe-agent as a peer: its own agent, model and environment classes, in a Python of its own.

Its text form of actions is used (`LitellmTextbasedModel` with the prompts of its `config/mini_textbased.yaml`), which
is what its documentation names for models without tool calls. Commands run in its bubblewrap environment without a
network, or, with `environment=local`, in its local one.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError, ModelError
from opensage_benchmarks.swe.agent import Assignment, Attempt, Gate
from opensage_benchmarks.swe.errors import BenchError, BudgetSpent

CHILD = Path(__file__).with_name("mini_swe_child.py")
_MOST_LINE = 64 << 20
_LIMITS = ("LimitsExceeded", "TimeExceeded", "BudgetSpent")


class MiniSwe:
    """mini-swe-agent.

    Args:
        python: the interpreter of an environment with `mini-swe-agent` in it.
        api_base: address of an OpenAI-compatible server; without it litellm's own for the model.
        api_key: for that server.
        config: a YAML file of mini-swe-agent instead of its text-based one.
        environment: "bubblewrap" or "local".
        bwrap: the bubblewrap program; the kit's own one when it is not given.
        temperature: of the model; its own without it.
    """

    name = "mini-swe-agent"

    def __init__(
        self,
        *,
        python: str = "",
        api_base: str = "",
        api_key: str = "none",
        config: str = "",
        environment: str = "bubblewrap",
        bwrap: str = "",
        temperature: str = "",
    ) -> None:
        if not python or not os.access(python, os.X_OK):
            raise ConfigError(
                f"mini-swe-agent runs in a Python of its own, and {python or 'none'} is no program: make an "
                "environment, `pip install mini-swe-agent` there, and pass --agent-option python=ENV/bin/python"
            )
        if environment not in ("bubblewrap", "local"):
            raise ConfigError(f"environment is bubblewrap or local, not {environment!r}")
        self._python, self._environment, self._bwrap = python, environment, bwrap
        kwargs: dict[str, Any] = {"api_base": api_base, "api_key": api_key} if api_base else {}
        self._model_kwargs = kwargs | ({"temperature": float(temperature)} if temperature else {})
        self._config = config

    async def solve(self, work: Assignment, gate: Gate) -> Attempt:
        """Run its agent to the end.

        Raises:
            ModelError: its model gave up.
            BenchError: it cannot be run.
        """
        process = await asyncio.create_subprocess_exec(
            self._python,
            "-P",
            str(CHILD),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=_MOST_LINE,
            env={
                **{name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                "MSWEA_SILENT_STARTUP": "1",
                "MSWEA_COST_TRACKING": "ignore_errors",
                "MSWEA_GLOBAL_CONFIG_DIR": str(work.log / "mini"),
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            },
        )
        try:
            return await self._talk(process, self._order(work), gate)
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()

    def _order(self, work: Assignment) -> dict[str, Any]:
        return {
            "task": work.problem,
            "workdir": str(work.workdir),
            "trajectory": str(work.log / "mini.traj.json"),
            "model": work.model,
            "model_kwargs": self._model_kwargs,
            "config": self._config,
            "environment": self._environment,
            "bwrap": self._bwrap or (_bwrap() if self._environment == "bubblewrap" else ""),
            "prefixes": list(dict.fromkeys((sys.prefix, sys.base_prefix))),
            "command_timeout": work.command_timeout,
            "step_limit": work.limits.max_turns or 0,
            "time_limit": work.limits.max_seconds or 0,
        }

    async def _talk(self, process: asyncio.subprocess.Process, order: Mapping[str, Any], gate: Gate) -> Attempt:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(order).encode() + b"\n")
        calls = tokens_in = tokens_out = 0
        cost: float | None = 0.0
        while line := await process.stdout.readline():
            message = json.loads(line)
            if message["event"] == "ask":
                process.stdin.write(json.dumps({"refused": await _refusal(gate)}).encode() + b"\n")
            elif message["event"] == "tell":
                calls += 1
                tokens_in, tokens_out = tokens_in + message["input_tokens"], tokens_out + message["output_tokens"]
                cost = None if cost is None or message["cost"] is None else cost + message["cost"]
                spent = {name: message[name] for name in ("cost", "input_tokens", "output_tokens")}
                await gate.tell(**spent)
            elif message["event"] == "end":
                status, reason = _status(message)
                return Attempt(
                    status,
                    reason,
                    model_calls=calls,
                    tool_calls=message["actions"],
                    input_tokens=tokens_in,
                    output_tokens=tokens_out,
                    cost=cost,
                    sandbox=self._environment,
                    messages=message["messages"],
                )
        raise BenchError(f"mini-swe-agent ended with code {await process.wait()} and said nothing; see log.txt")


async def _refusal(gate: Gate) -> str:
    try:
        await gate.ask()
    except BudgetSpent as error:
        return str(error)
    return ""


def _status(message: Mapping[str, Any]) -> tuple[str, str]:
    """What its exit status is called here."""
    status, said = str(message["exit_status"]), str(message["said"])
    if message["model_failed"]:
        raise ModelError(f"mini-swe-agent: {status}: {said}"[:2000], retryable=True)
    if status == "Submitted":
        return "done", ""
    if status in _LIMITS:
        return "limit", f"{status}: {said}"
    return ("stuck" if status == "RepeatedFormatError" else "failed"), f"{status}: {said}"[:2000]


def _bwrap() -> str:
    from opensage.sandbox.bubblewrap import working_bwrap

    return working_bwrap()
