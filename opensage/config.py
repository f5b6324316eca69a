"""Settings: flags over `OPENSAGE_*` over `./opensage.toml` over `~/.opensage/config.toml`."""

from __future__ import annotations

import difflib
import errno
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from opensage.errors import ConfigError
from opensage.files import read_regular
from opensage.secrets import compiled
from opensage.spec import Count, Limits, Positive

_MOST_BYTES = 1 << 20


class Permissions(BaseModel):
    """Rules like `shell(git *)`; deny beats ask beats allow."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    allow: tuple[str, ...] = ()
    """Calls that need no question."""
    ask: tuple[str, ...] = ()
    """Calls that a person must approve."""
    deny: tuple[str, ...] = ()
    """Calls that are never run."""


class Secrets(BaseModel):
    """What is masked beside the values of variables that are named like credentials."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    patterns: tuple[str, ...] = ()
    """Regular expressions; each whole match is masked. Those of all files and flags add up."""

    @field_validator("patterns")
    @classmethod
    def _usable(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in patterns:
            compiled(pattern)
        return patterns


class Settings(BaseModel):
    """Everything that can be configured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str | None = None
    """A model string; see docs/models.md."""
    fallback: tuple[str, ...] = ()
    """Model strings tried in order when the model fails for good."""
    sandbox: Literal["auto", "bubblewrap", "local"] = "auto"
    """Where commands run."""
    max_turns: Count | None = 100
    """Model calls a run may make."""
    max_cost: Positive | None = None
    """US dollars a run may spend."""
    max_tokens: Count | None = None
    """Tokens a run may use."""
    max_tool_calls: Count | None = None
    """Tool calls a run may make."""
    max_seconds: Positive | None = None
    """Seconds a run may take."""
    permissions: Permissions = Field(default_factory=Permissions)
    """Permission rules."""
    secrets: Secrets = Field(default_factory=Secrets)
    """What is masked."""
    tracing: Literal["off", "on", "content"] = "off"
    """OpenTelemetry spans; "content" puts messages, arguments and results into them."""

    def limits(self) -> Limits:
        """The limits of a run."""
        names = ("max_turns", "max_cost", "max_tokens", "max_tool_calls", "max_seconds")
        return Limits(**{name: getattr(self, name) for name in names})


def load_settings(
    workdir: Path, *, overrides: Sequence[str] = (), flags: Mapping[str, Any] | None = None, env: Mapping[str, str]
) -> Settings:
    """Merge all sources; `overrides` are `key=value` of `-c`, `flags` the command's own options (None = not given).

    Raises:
        ConfigError: a file is malformed, a key unknown (the nearest is named) or a value of the wrong kind.
    """
    home = Path(env.get("OPENSAGE_HOME") or Path.home() / ".opensage")
    merged: dict[str, Any] = {}
    merged = _merge(merged, _validated(_read(home / "config.toml"), str(home / "config.toml")))
    # No link: an agent could put another in its place, which no sandbox can keep it from.
    merged = _merge(merged, _validated(_read(workdir / "opensage.toml", links=False), str(workdir / "opensage.toml")))
    merged = _merge(merged, _validated(_from_env(env), "the environment"))
    merged = _merge(merged, _validated(_from_pairs(overrides), "-c"))
    given = {key: value for key, value in (flags or {}).items() if value is not None}
    merged = _merge(merged, _validated(given, "the command line"))
    return Settings.model_validate(merged)


def _read(path: Path, *, links: bool = True) -> dict[str, Any]:
    try:
        return tomllib.loads(read_regular(path, _MOST_BYTES, links=links).decode("utf-8-sig"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        reason = "it is a link; put a regular file there" if error.errno == errno.ELOOP else error.strerror
        raise ConfigError(f"cannot read {path}: {reason}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in Settings.model_fields:
        text = env.get(f"OPENSAGE_{name.upper()}")
        if text:
            found[name] = _value(text)
    return found


def _from_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"-c {pair!r} is not key=value")
        place = found
        *folders, last = key.strip().split(".")
        for folder in folders:
            place = place.setdefault(folder, {})
            if not isinstance(place, dict):
                raise ConfigError(f"-c {pair!r}: {folder} was given a value already")
        place[last] = _value(text)
    return found


def _value(text: str) -> Any:
    """A TOML value, or the text itself."""
    try:
        return tomllib.loads(f"x = {text}")["x"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _validated(data: dict[str, Any], where: str) -> dict[str, Any]:
    try:
        Settings.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{where}: {_explain(error)}") from None
    return data


def _explain(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return f"{place}: {first['msg']} (got {first['input']!r})"
    section = Settings.model_fields.get(place.partition(".")[0])
    inner = section.annotation if section is not None and "." in place else Settings
    fields = getattr(inner, "model_fields", Settings.model_fields)
    near = difflib.get_close_matches(place.rpartition(".")[2], fields, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(fields)}"
    return f"unknown key {place!r}; {hint}"


def _merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            merged[key] = _merge(old, value)
        elif key == "patterns" and isinstance(old, list) and isinstance(value, list):
            merged[key] = [*old, *value]  # a project cannot show what its user hides
        else:
            merged[key] = value
    return merged
