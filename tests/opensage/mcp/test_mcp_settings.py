"""`[mcp.NAME]`: what it may say, and that a project's waits for trust."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from mcp_helpers import raw_server
from test_cli import one_line, opensage, script

from opensage.config import load_settings, read_layers
from opensage.errors import ConfigError
from opensage.mcp import McpServer, McpServers, secrets_of, servers_of
from opensage.secrets import Mask
from opensage.tools import Toolbox
from opensage.trust import trust

GITHUB = "[mcp.github]\ncommand = 'npx'\nargs = ['-y', 'x']\nenv = {GITHUB_TOKEN = '${MY_TOKEN}'}\ntools = ['a']\n"


def load(folder: Path, project: str = "", own: str = "", *overrides: str, **env: str):
    (folder / "home").mkdir(exist_ok=True)
    (folder / "home/config.toml").write_text(own)
    (folder / "opensage.toml").write_text(project)
    return load_settings(folder, overrides=overrides, env={"OPENSAGE_HOME": str(folder / "home"), **env})


def test_a_persons_own_servers_are_read(tmp_path: Path) -> None:
    web = "[mcp.web]\nurl = 'https://x/mcp'\nheaders = {Authorization = 'Bearer abcdefgh'}\n"
    found = servers_of(load(tmp_path, "", GITHUB + web, "mcp.github.timeout_s=5").mcp)
    assert [(s.name, s.command, s.url, s.timeout_s) for s in found] == [
        ("github", "npx", None, 5.0),
        ("web", None, "https://x/mcp", 60.0),
    ]
    assert "abcdefgh" not in repr(found)


@pytest.mark.parametrize(
    "project",
    [
        GITHUB,
        "[mcp.web]\nurl = 'http://elsewhere/'\n",
        "[mcp.mine]\nargs = ['evil']\n",
        "[mcp.mine]\nenv = {LD_PRELOAD = './evil.so'}\n",
        "[mcp.mine]\ncwd = '.'\n",
        "mcp = {mine = {command = 'evil'}}\n",
        "mcp.mine.timeout_s = 1\n",
    ],
)
def test_what_a_project_says_of_servers_waits_for_trust(tmp_path: Path, project: str) -> None:
    own = "[mcp.mine]\ncommand = 'true'\n"
    before = load(tmp_path, "", own)
    assert load(tmp_path, project, own) == before
    layers = read_layers(tmp_path, env={"OPENSAGE_HOME": str(tmp_path / "home")})
    assert [key.startswith("mcp.") for key in layers.loosening(lambda _kind: True)] == [True]
    assert layers.settings() != before


def test_a_command_names_what_is_left_out_and_trust_shows_it(tmp_path: Path) -> None:
    (tmp_path / "opensage.toml").write_text(GITHUB)
    done = opensage("run", "x", "-m", script(tmp_path, {"text": "ok"}), cwd=tmp_path)
    assert done.returncode == 0
    assert 'left out: mcp.github = {"command": "npx"' in done.stderr
    assert 'mcp.github = {"command": "npx"' in opensage("trust", cwd=tmp_path).stdout
    trust(tmp_path, read_layers(tmp_path, env={}).digest)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[mcp.github]\ncomand = 'x'\n", "unknown key 'mcp.github.comand'; did you mean 'command'?"),
        ("[mcp.github]\nzzz = 'x'\n", "unknown key 'mcp.github.zzz'; known keys: command, args, env"),
        ("[mcp.github]\nargs = 'x'\n", "mcp.github.args: "),
        ("[mcp.github]\ntimeout_s = -1\n", "mcp.github.timeout_s: "),
        ("[mcp.github]\nenv = {A = 5}\n", "mcp.github.env.A: "),
        ("[mcp.'a.b']\ncommand = 'x'\n", "mcp.a.b"),
        ("[mcp.'']\ncommand = 'x'\n", "mcp."),
        ("mcp = 5\n", "mcp: "),
        ("mcp = [1]\n", "mcp: "),
        ("mcp.github = 5\n", "mcp.github: "),
    ],
)
def test_a_wrong_section_is_named(tmp_path: Path, text: str, said: str) -> None:
    for project, own in ((text, ""), ("", text)):
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, project, own)
        assert said in str(caught.value)
    if "comand" in text:
        assert said in one_line(opensage("run", "x", cwd=tmp_path))


def test_keys_of_the_configuration_are_masked() -> None:
    servers = (
        McpServer(name="a", command="x", env={"GITHUB_TOKEN": "ghp_written_there", "MODE": "fast-and-loose"}),
        McpServer(name="b", url="http://x", headers={"Authorization": "Bearer ${MINE}", "X-Api-Key": "key-12345678"}),
    )
    mask = Mask(secrets_of(servers, {"MINE": "from-the-environment"}))
    said = mask.text("ghp_written_there fast-and-loose Bearer from-the-environment key-12345678")
    assert said == "[masked GITHUB_TOKEN] fast-and-loose Bearer [masked b_Authorization] [masked X_Api_Key]"


def test_warnings_hide_secrets(tmp_path: Path) -> None:
    server = McpServer(name="a", command="sh", args=("-c", "echo bad key $KEY >&2; exit 1"), env={"KEY": "${A_TOKEN}"})
    env = {"PATH": os.environ["PATH"], "A_TOKEN": "very-secret-token"}
    servers = McpServers([server, raw_server(tmp_path, "pid")], Mask.of(env), env=env)

    async def main() -> list[str]:
        try:
            return await servers.start(Toolbox())
        finally:
            await servers.close()

    [said] = asyncio.run(main())
    assert said.endswith("exit code 1; it said: bad key [masked A_TOKEN]")
