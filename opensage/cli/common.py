"""What `run`, `resume` and `chat` share: settings, and the model file that must be there."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opensage.approval import Approver, Policy
from opensage.cli import masking
from opensage.cli.trusting import trusted_settings
from opensage.config import Settings, read_layers
from opensage.engine import Engine, checked_folder
from opensage.errors import ConfigError
from opensage.log.folds import summarise
from opensage.log.store import SessionStore
from opensage.mcp import secrets_of, servers_of
from opensage.models import Fallback, default_model, open_model
from opensage.protocols import Model
from opensage.spec import AgentSpec
from opensage.topology.library import AgentLibrary, find_agent
from opensage.trust import check_settings


def open_engine(
    settings: Settings,
    workdir: Path,
    *,
    approve: str | Approver,
    session: str | None,
    ask: Any = None,
    agent: str | None = None,
) -> Engine:
    """An engine as the settings say, with the local model fetched first if it is needed."""
    spec = _agent(checked_folder(workdir), agent, session)
    model = default_model(os.environ, settings.model)
    if spec is not None and spec.model not in ("inherit", model, *settings.models):
        raise ConfigError(
            f"agent {spec.name} wants model {spec.model}; use it with --model {spec.model}, or add it to `models` in "
            "your ~/.opensage/config.toml"
        )
    if spec is not None and spec.model != "inherit":
        model = spec.model
    for name in (model, *settings.fallback):
        fetch_if_local(name)
    rules, servers = settings.permissions, servers_of(settings.mcp)
    return Engine(
        agent=spec,
        models=settings.models,
        mcp=servers,
        packages=settings.toolkits.allowed,
        wheels=settings.toolkits.wheels,
        model=_with_fallback(model, settings.fallback),
        sandbox=settings.sandbox,
        workdir=workdir,
        limits=settings.limits(),
        approve=approve,
        policy=Policy.parse(rules.allow, rules.ask, rules.deny),
        session=session,
        ask=ask,
        mask=masking.use_patterns(settings.secrets.patterns, secrets_of(servers, os.environ)),
        memory=settings.memory,
        tracing=settings.tracing,
    )


def _agent(folder: Path, wished: str | None, session: str | None) -> AgentSpec | None:
    """The saved agent that was asked for, or with which a session began; None is the usual one.

    Before a gigabyte is fetched for a session that is not there.
    """
    if session is not None:
        store = SessionStore(folder / ".opensage" / "sessions")
        began = summarise(store.load(store.path(session).stem).events).agent
        if wished is None and began != AgentSpec().name:
            saved = AgentLibrary(folder).find(began)
            return None if saved is None else saved.spec
    return None if wished is None else find_agent(wished, folder)


def _with_fallback(model: str, others: Sequence[str]) -> str | Model:
    return Fallback([open_model(name) for name in (model, *others)]) if others else model


def settings_for(workdir: Path, flags: Mapping[str, Any], config: Sequence[str], *, ask: bool = False) -> Settings:
    """The merged settings of a command; `ask`: whether somebody can be asked to trust the project's file."""
    folder = checked_folder(workdir)
    check_settings(folder)
    layers = read_layers(folder, overrides=config, flags=flags, env=os.environ)
    return trusted_settings(layers, folder, ask=ask)


def fetch_if_local(model: str) -> None:
    """Fetch the file of a `local/` model when it is not here, with a progress bar on stderr."""
    if not model.startswith("local/") or model.startswith("local//"):
        return
    from opensage.models import registry

    spec = registry.find(model)
    if registry.installed(spec):
        return
    from opensage.cli.machine import pull_with_bar

    print(f"{model} is not here yet; fetching {spec.bytes / 1e6:.0f} MB once", file=sys.stderr)
    pull_with_bar(model)
