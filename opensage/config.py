"""Settings: flags over `OPENSAGE_*` over `./opensage.toml` over `~/.opensage/config.toml`.

A project's file comes with the folder, from whoever wrote it, an agent perhaps. Until the person trusts it (see
`trust.py`) it can tighten, and fill in a model or a limit that the person left open; what would give more than the
person's own settings do is left out.
"""

from __future__ import annotations

import difflib
import errno
import hashlib
import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from opensage.errors import ConfigError
from opensage.files import read_regular
from opensage.mcp.spec import McpServerSettings, ServerName
from opensage.memory.settings import MemorySettings
from opensage.models.providers import LOCAL_SCHEMES, default_model, provider_of
from opensage.secrets import compiled
from opensage.spec import Count, CountOrZero, Limits, Positive

SETTINGS = "opensage.toml"
_MOST_BYTES = 1 << 20
_LIMITS = (
    "max_turns", "max_cost", "max_tokens", "max_tool_calls", "max_seconds",
    "max_agents", "max_live_agents", "max_depth",
)  # fmt: skip
_ONLY_TIGHTEN = ("permissions.ask", "permissions.deny", "secrets.patterns")
_LOCAL_PATHS = ("local//", "local/.", "local/~")
_MAY_NOT_ISOLATE = ("auto", "local")


def _known_sandbox(name: str) -> str:
    if not re.fullmatch(r"auto|bubblewrap|local|docker(:\S+)?", name):
        raise ValueError("use auto, docker, docker:IMAGE, bubblewrap or local")
    return name


ModelName = Annotated[str, Field(min_length=1)]
SandboxName = Annotated[str, AfterValidator(_known_sandbox)]


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


class Toolkits(BaseModel):
    """What may be installed into a sandbox for a toolkit that needs more than is there."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    allowed: tuple[str, ...] = ()
    """Names of packages."""
    wheels: str | None = None
    """Folder with their wheels; nothing is fetched from a network."""


class Settings(BaseModel):
    """Everything that can be configured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: ModelName | None = None
    """A model string; see docs/models.md."""
    fallback: tuple[ModelName, ...] = ()
    """Model strings tried in order when the model fails for good."""
    models: tuple[ModelName, ...] = ()
    """Model strings that agents may give to agents they make, beside their own."""
    sandbox: SandboxName = "auto"
    """Where commands run: `auto`, `docker`, `docker:IMAGE`, `bubblewrap` or `local`."""
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
    max_agents: CountOrZero | None = 32
    """Agents called in a run, in all; 0 turns delegation off."""
    max_live_agents: Count | None = 8
    """Agents at work at one time."""
    max_depth: CountOrZero | None = 3
    """Levels of delegation."""
    permissions: Permissions = Field(default_factory=Permissions)
    """Permission rules."""
    secrets: Secrets = Field(default_factory=Secrets)
    """What is masked."""
    mcp: dict[ServerName, McpServerSettings] = Field(default_factory=dict)
    """MCP servers by name; see docs/mcp.md. A project's start programs on this machine, so they need trust."""
    toolkits: Toolkits = Field(default_factory=Toolkits)
    """What toolkits may install."""
    memory: MemorySettings = Field(default_factory=MemorySettings)
    """What is remembered between sessions; see docs/memory.md."""
    tracing: Literal["off", "on", "content"] = "off"
    """OpenTelemetry spans; "content" puts messages, arguments and results into them."""

    def limits(self) -> Limits:
        """The limits of a run."""
        return Limits(**{name: getattr(self, name) for name in _LIMITS})

    def get(self, key: str) -> Any:
        """The value of a key like `permissions.allow`."""
        value: Any = self
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else getattr(value, part)
        return value


@dataclass(frozen=True, slots=True)
class Layers:
    """What each source says, each checked alone.

    Attributes:
        user: of the user's own file.
        project: of the file in the workspace.
        given: for this start: environment, `-c`, flags.
        env: the environment, in which keys of providers stand.
        digest: SHA-256 of the project's file, hexadecimal; "" without one.
    """

    user: dict[str, Any]
    project: dict[str, Any]
    given: dict[str, Any]
    env: Mapping[str, str]
    digest: str = ""

    def settings(self, *, without: Collection[str] = ()) -> Settings:
        """All sources merged; `without` names keys of the project's file that do not count."""
        return Settings.model_validate(_merge(_merge(self.user, _without(self.project, without)), self.given))

    def loosening(self, isolates: Callable[[str], bool]) -> dict[str, Any]:
        """The keys of the project's file, with their values, that give more than the person did without it.

        Args:
            isolates: whether a kind of sandbox isolates on this machine.
        """
        leaves = _leaves(self.project)
        own, full = self.settings(without=leaves), self.settings()
        return {key: value for key, value in leaves.items() if self._loosens(key, own, full, isolates)}

    def _loosens(self, key: str, own: Settings, full: Settings, isolates: Callable[[str], bool]) -> bool:
        """Whether the key does; one that is not known to be harmless does."""
        mine, theirs = own.get(key), full.get(key)
        if mine == theirs or key in _ONLY_TIGHTEN:
            return False
        if key not in _leaves(self.user) and key not in _leaves(self.given):  # left open, so it may be filled in
            if key in _LIMITS:
                return False
            if key == "model":
                return not _harmless(theirs)
        if key in _LIMITS:
            return theirs is None or (mine is not None and theirs > mine)
        if key in ("model", "models", "fallback"):
            usual = default_model(self.env, own.model)
            wished = [theirs] if key == "model" else [model for model in theirs if model not in mine]
            return not all(_familiar(model, usual) for model in wished)
        if key == "sandbox":
            return _opens(own, full)
        if key == "memory.enabled":
            return bool(theirs)
        if key == "memory.budget_tokens":
            return bool(theirs > mine)
        if key == "permissions.allow":
            return not isolates((own if _opens(own, full) else full).sandbox)
        return True


def _opens(own: Settings, full: Settings) -> bool:
    return full.sandbox in _MAY_NOT_ISOLATE and own.sandbox not in (full.sandbox, "local")


def _familiar(model: str, usual: str) -> bool:
    """Whether a model runs and touches no file, and sends the conversation nowhere that it would not go anyway."""
    model = model.strip()
    if model.partition(":")[0] in LOCAL_SCHEMES or "://" in model:
        return False
    if model.startswith("local/"):
        return not model.startswith(_LOCAL_PATHS)
    return provider_of(model) == provider_of(usual.strip()) != ""


def _harmless(model: str) -> bool:
    """Whether naming this model runs no code of the folder, writes no file and names no address."""
    scheme, _, rest = model.strip().partition(":")
    if scheme == "script":
        return Path(rest).suffix == ".json"  # as the script is opened: `x.py/.` is a `.py` too
    if scheme == "replay":
        return True
    return scheme not in LOCAL_SCHEMES and "://" not in model and not model.strip().startswith(_LOCAL_PATHS)


def _leaves(data: Mapping[str, Any]) -> dict[str, Any]:
    sections = {key: value for key, value in data.items() if isinstance(value, dict)}
    inner = {f"{key}.{name}": value for key, section in sections.items() for name, value in section.items()}
    return {**{key: value for key, value in data.items() if key not in sections}, **inner}


def _without(data: Mapping[str, Any], keys: Collection[str], above: str = "") -> dict[str, Any]:
    return {
        key: _without(value, keys, f"{above}{key}.") if isinstance(value, dict) else value
        for key, value in data.items()
        if f"{above}{key}" not in keys
    }


def read_layers(
    workdir: Path, *, overrides: Sequence[str] = (), flags: Mapping[str, Any] | None = None, env: Mapping[str, str]
) -> Layers:
    """Read all sources; `overrides` are `key=value` of `-c`, `flags` the command's own options (None = not given).

    Raises:
        ConfigError: a file is malformed, a key unknown (the nearest is named) or a value of the wrong kind.
    """
    user = Path(env.get("OPENSAGE_HOME") or Path.home() / ".opensage") / "config.toml"
    project = workdir / SETTINGS
    # No link: an agent could put another in its place, which no sandbox can keep it from.
    data = _read(project, links=False)
    given = _merge(_validated(_from_env(env), "the environment"), _validated(_from_pairs(overrides), "-c"))
    named = {key: value for key, value in (flags or {}).items() if value is not None}
    return Layers(
        user=_validated(_parsed(_read(user), user), str(user)),
        project=_validated(_parsed(data, project), str(project)),
        given=_merge(given, _validated(named, "the command line")),
        env=env,
        digest="" if data is None else hashlib.sha256(data).hexdigest(),
    )


def load_settings(
    workdir: Path, *, overrides: Sequence[str] = (), flags: Mapping[str, Any] | None = None, env: Mapping[str, str]
) -> Settings:
    """The settings, with a project's file that nobody trusts: what loosens in it is left out. See `read_layers`."""
    layers = read_layers(workdir, overrides=overrides, flags=flags, env=env)
    return layers.settings(without=layers.loosening(lambda _kind: False))


def _read(path: Path, *, links: bool = True) -> bytes | None:
    try:
        return read_regular(path, _MOST_BYTES, links=links)
    except FileNotFoundError:
        return None
    except OSError as error:
        reason = "it is a link; put a regular file there" if error.errno == errno.ELOOP else error.strerror
        raise ConfigError(f"cannot read {path}: {reason}") from None


def _parsed(data: bytes | None, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((data or b"").decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def _from_env(env: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in Settings.model_fields:
        text = env.get(f"OPENSAGE_{name.upper()}")
        if text:
            found[name] = _value(text)
    inner = {name: text for name in MemorySettings.model_fields if (text := env.get(f"OPENSAGE_MEMORY_{name.upper()}"))}
    if inner and isinstance(table := found.setdefault("memory", {}), dict):
        table |= {name: _value(text) for name, text in inner.items()}
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
        return f"{place}: {first['msg'].removeprefix('Value error, ')} (got {first['input']!r})"
    section = Settings.model_fields.get(place.partition(".")[0])
    inner = section.annotation if section is not None and "." in place else Settings
    inner = McpServerSettings if place.startswith("mcp.") else inner
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
        elif key in ("patterns", "ask", "deny") and isinstance(old, list) and isinstance(value, list):
            merged[key] = [*old, *value]  # a project cannot show what its user hides, nor drop what they forbid
        else:
            merged[key] = value
    return merged
