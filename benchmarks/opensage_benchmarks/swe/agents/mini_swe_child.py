"""Runs mini-swe-agent (2.4) in its own Python: `python mini_swe_child.py`, an order on stdin, messages on stdout.

Nothing of OpenSage is imported here; of mini-swe-agent its agent, its models, its environments and its configuration.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


class Line:
    """The way to whoever started this: its stdin and stdout, taken away from everybody else."""

    def __init__(self) -> None:
        self._in, self._out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(2, 1)

    def hear(self) -> dict[str, Any]:
        """The next message."""
        found: dict[str, Any] = json.loads(self._in.readline() or b'{"refused": "the runner is gone"}')
        return found

    def say(self, event: str, **more: Any) -> None:
        """Send one."""
        self._out.write(json.dumps({"event": event, **more}, default=str).encode() + b"\n")
        self._out.flush()


def main() -> None:
    """Do what the order says."""
    line = Line()
    order = line.hear()
    failed: list[str] = []
    agent = build(order, asked_model(line, failed))
    try:
        status = agent.run(order["task"]).get("exit_status", "")
    except Exception as error:  # noqa: BLE001  # whatever it raises is how it ended, and is told
        status = type(error).__name__
    line.say(
        "end",
        exit_status=status,
        said=str(agent.messages[-1].get("content", "")) if agent.messages else "",
        model_failed=status in failed,
        actions=sum(len(message.get("extra", {}).get("actions", ())) for message in agent.messages),
        messages=[{k: v for k, v in message.items() if k != "extra"} for message in agent.messages],
    )


def asked_model(line: Line, failed: list[str]) -> type:
    """Its text-based model, every attempt asked of the budget first and told after; names of errors go to `failed`."""
    import openai
    from minisweagent.exceptions import LimitsExceeded
    from minisweagent.models.litellm_textbased_model import LitellmTextbasedModel

    class Asked(LitellmTextbasedModel):  # type: ignore[misc]
        # A refusal is not to be tried again.
        abort_exceptions = (*LitellmTextbasedModel.abort_exceptions, LimitsExceeded)

        def _query(self, messages: list[dict[str, str]], **kwargs: Any) -> Any:
            line.say("ask")
            if reason := line.hear().get("refused"):
                raise LimitsExceeded(
                    {"role": "exit", "content": reason, "extra": {"exit_status": "BudgetSpent", "submission": ""}}
                )
            used: dict[str, Any] = {"cost": 0.0, "input_tokens": 0, "output_tokens": 0}
            try:
                response = super()._query(messages, **kwargs)
                used = spent(response, self._calculate_cost(response)["cost"])
                return response
            except openai.OpenAIError as error:
                failed.append(type(error).__name__)
                raise
            finally:
                line.say("tell", **used)

    return Asked


def build(order: dict[str, Any], model_class: type) -> Any:
    """Its agent, by its configuration file and the order."""
    import yaml  # type: ignore[import-untyped]
    from minisweagent.agents.default import AgentConfig, DefaultAgent
    from minisweagent.config import builtin_config_dir

    config = yaml.safe_load(Path(order["config"] or builtin_config_dir / "mini_textbased.yaml").read_text())
    settings = {**config.get("model", {}), "model_name": order["model"], "cost_tracking": "ignore_errors"}
    settings["model_kwargs"] = {**settings.get("model_kwargs", {}), **order["model_kwargs"]}
    # Its files hold settings of its interactive agent too.
    wanted = {name: value for name, value in config["agent"].items() if name in AgentConfig.model_fields}
    wanted |= {"step_limit": int(order["step_limit"]), "cost_limit": 0.0}
    wanted |= {"wall_time_limit_seconds": round(order["time_limit"]), "output_path": Path(order["trajectory"])}
    return DefaultAgent(model_class(**settings), environment(order, dict(config.get("environment") or {})), **wanted)


def spent(response: Any, cost: float) -> dict[str, Any]:
    """What one call used. mini-swe-agent gives 0 for a price it does not know."""
    usage = response.usage
    return {"cost": cost or None, "input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}


def environment(order: dict[str, Any], settings: dict[str, Any]) -> Any:
    """Where its commands run: the workspace, without a network."""
    timeout = {"timeout": int(order["command_timeout"])} if order["command_timeout"] else {}
    settings = {**settings, "cwd": order["workdir"], **timeout}
    if order["environment"] == "local":
        from minisweagent.environments.local import LocalEnvironment

        return LocalEnvironment(**settings)
    from minisweagent.environments.extra.bubblewrap import BubblewrapEnvironment, BubblewrapEnvironmentConfig

    arguments = BubblewrapEnvironmentConfig().wrapper_args
    more = ["--unshare-net", "--unshare-pid", "--die-with-parent", "--clearenv"]
    # The Python that OpenSage's own sandbox offers, so that both can run the same tests.
    for prefix in order["prefixes"]:
        more += [] if Path(prefix).is_relative_to("/usr") else ["--ro-bind", prefix, prefix]
    places = ":".join([f"{prefix}/bin" for prefix in order["prefixes"]] + ["/usr/local/bin", "/usr/bin", "/bin"])
    return BubblewrapEnvironment(
        **settings,
        executable=order["bwrap"],
        wrapper_args=[*more[:4], *arguments, *more[4:], "--setenv", "PATH", places, "--setenv", "HOME", "/tmp"],
    )


if __name__ == "__main__":
    main()
