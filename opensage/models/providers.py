"""Providers whose key in the environment makes them the default, in order."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

DEFAULT_LOCAL = "local/qwen2.5-coder-1.5b"
LOCAL_SCHEMES = ("script", "replay", "record")


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider: its name in model strings, its key's variable, the model used when none is named, other variables."""

    name: str
    key: str
    model: str
    aliases: tuple[str, ...] = ()


PROVIDERS = (
    Provider("openai", "OPENAI_API_KEY", "openai/gpt-5.6"),
    Provider("anthropic", "ANTHROPIC_API_KEY", "anthropic/claude-sonnet-latest"),
    Provider("gemini", "GEMINI_API_KEY", "gemini/gemini-3.8-flash", ("GOOGLE_API_KEY",)),
    Provider("openrouter", "OPENROUTER_API_KEY", "openrouter/anthropic/claude-sonnet-4.5"),
    Provider("mistral", "MISTRAL_API_KEY", "mistral/mistral-medium-latest"),
    Provider("groq", "GROQ_API_KEY", "groq/openai/gpt-oss-120b"),
    Provider("deepseek", "DEEPSEEK_API_KEY", "deepseek/deepseek-chat"),
    Provider("xai", "XAI_API_KEY", "xai/grok-4.7"),
)


def default_model(env: Mapping[str, str], config_model: str | None = None) -> str:
    """The model string to use when the user named none: the config's, a provider whose key is set, else a local one."""
    if config_model:
        return config_model
    for provider in PROVIDERS:
        if any(env.get(key, "").strip() for key in (provider.key, *provider.aliases)):
            return provider.model
    return DEFAULT_LOCAL


def provider_of(model: str) -> str:
    """The provider part of a model string; bare names are looked up in litellm's table, without importing it."""
    head, slash, _ = model.partition("/")
    if slash:
        return head
    return known_models().get(model, "")


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, Any]]:
    """The table of models that litellm ships, read as a file; empty when litellm is not installed."""
    folder = _litellm_folder()
    path = folder / "model_prices_and_context_window_backup.json" if folder else None
    if path is None or not path.is_file():
        return {}
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {name: row for name, row in table.items() if isinstance(row, dict)}


def table_row(model: str) -> Mapping[str, Any]:
    """What litellm's table says about a model, with or without its provider; empty when nothing."""
    table = _table()
    return table.get(model) or table.get(model.partition("/")[2]) or {}


@lru_cache(maxsize=1)
def known_models() -> Mapping[str, str]:
    """Model name to provider, from litellm's table."""
    return {name: str(row.get("litellm_provider", "")) for name, row in _table().items()}


@lru_cache(maxsize=1)
def known_providers() -> frozenset[str]:
    """Names that may stand before the slash of a model string."""
    folder = _litellm_folder()
    folders = {p.name for p in (folder / "llms").iterdir() if p.is_dir()} if folder else set()
    table = {provider.partition("-")[0] for provider in known_models().values()} | set(known_models().values())
    return frozenset(folders | table | {p.name for p in PROVIDERS} | {"ollama_chat", "lm_studio", "llamafile", "vllm"})


def near(name: str, names: list[str] | tuple[str, ...], count: int = 3) -> str:
    """`; did you mean a, b?` for the nearest names, or an empty string."""
    close = difflib.get_close_matches(name, names, n=count, cutoff=0.5)
    return f"; did you mean {', '.join(close)}?" if close else ""


def _litellm_folder() -> Path | None:
    spec = find_spec("litellm")
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None
