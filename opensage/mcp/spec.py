"""An MCP server as the configuration names it: a program to start, or an address."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from opensage.errors import ConfigError
from opensage.secrets import is_secret
from opensage.spec import Positive

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_AUTHORITY = frozenset({"authorization", "proxy-authorization", "cookie"})
INHERITED = ("PATH", "HOME", "LANG")
"""What a server's process gets of the caller's environment, beside its own `env`: never a key."""

ServerName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")]


class McpServerSettings(BaseModel):
    """`[mcp.NAME]`: either `command` (a program that speaks on its standard streams) or `url` (streamable HTTP)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: str | None = None
    """The program; it runs on this machine, outside the sandbox."""
    args: tuple[str, ...] = ()
    """Its arguments."""
    env: dict[str, str] = Field(default_factory=dict, repr=False)
    """Its environment, beside PATH, HOME and LANG. `${VAR}` is the caller's variable VAR."""
    cwd: str | None = None
    """Its folder; relative to the workspace. `/` without it: started in the workspace, many a program would run code
    that the agent put there (`npx` from `node_modules`, `python -m` from a module beside it), outside the sandbox."""
    url: str | None = None
    """The address, http:// or https://."""
    headers: dict[str, str] = Field(default_factory=dict, repr=False)
    """Headers of each request; `${VAR}` as in `env`."""
    timeout_s: Positive = 60.0
    """Seconds the server has to start, and for each call."""
    tools: tuple[str, ...] | None = None
    """The server's names of the tools to take; all without it."""


class McpServer(McpServerSettings):
    """A server with its name."""

    name: ServerName
    """What its tools' names begin with."""

    def checked(self) -> None:
        """Check that it says how to reach the server.

        Raises:
            ConfigError: it says neither or both, or the address is no HTTP address.
        """
        where = f"[mcp.{self.name}]"
        if (self.command is None) == (self.url is None):
            raise ConfigError(f"{where} needs either command (a program) or url (an address), and not both")
        if self.command is not None and not self.command.strip():
            raise ConfigError(f"{where}: command is empty; name the program")
        if any("\0" in text for text in (self.command or "", self.cwd or "", *self.args)):
            raise ConfigError(f"{where}: a NUL character cannot be part of a command; remove it")
        if self.url is not None and not re.match(r"https?://[^/\s]", self.url):
            raise ConfigError(f"{where}: {self.url!r} is no address; write http://... or https://...")


def filled(values: Mapping[str, str], env: Mapping[str, str], where: str) -> dict[str, str]:
    """The values with each `${VAR}` taken from the environment.

    Raises:
        ConfigError: a variable is not set, or a value cannot be given to a process.
    """
    found = {name: _filled(value, env, f"{where}.{name}") for name, value in values.items()}
    for name, value in found.items():
        if "\0" in name + value or "=" in name or not name or any(c in "\r\n" for c in name):
            raise ConfigError(f"{where}.{name[:40]!r} cannot be passed on; remove special characters from it")
    return found


def _filled(text: str, env: Mapping[str, str], where: str) -> str:
    return _VARIABLE.sub(lambda match: _value(match[1], env, where), text)


def _value(name: str, env: Mapping[str, str], where: str) -> str:
    if name not in env:
        raise ConfigError(f"{where} needs the variable {name}, which is not set; export it first")
    return env[name]


def servers_of(settings: Mapping[str, McpServerSettings]) -> tuple[McpServer, ...]:
    """The servers of a configuration's section `mcp`."""
    return tuple(McpServer(name=name, **dict(found)) for name, found in settings.items())


def secrets_of(servers: tuple[McpServer, ...], env: Mapping[str, str]) -> dict[str, str]:
    """What must be masked of the servers' configuration: keys that are written there, or filled in from `env`."""
    found: dict[str, str] = {}
    for server in servers:
        for name, value in (*server.env.items(), *server.headers.items()):
            text = _VARIABLE.sub(lambda match: env.get(match[1], ""), value)
            if name.lower() in _AUTHORITY:
                found[f"{server.name}_{name}"] = text.partition(" ")[2] or text
            elif is_secret(name.replace("-", "_"), text):
                found[name] = text
    return found
