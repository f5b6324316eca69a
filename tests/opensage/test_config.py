"""Settings: order, unknown keys, and any text at all in the file or the flags."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opensage.approval import Policy, Rule
from opensage.config import Settings, load_settings
from opensage.errors import ConfigError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=8), x, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([*Settings.model_fields, "permissions.allow", "permissions", "modell", ""]) | st.text(
    max_size=12
)


def test_the_order_of_sources(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text("model = 'a'\nmax_turns = 9\nmax_cost = 9.0\nmax_tokens = 1\n")
    (tmp_path / "opensage.toml").write_text("model = 'b'\nmax_turns = 2\nmax_cost = 2.0\n")
    env = {"OPENSAGE_HOME": str(home), "OPENSAGE_MODEL": "c", "OPENSAGE_MAX_TURNS": "3"}
    found = load_settings(tmp_path, overrides=["model=d"], flags={"sandbox": "local", "model": None}, env=env)
    assert (found.model, found.max_turns, found.max_cost, found.max_tokens, found.sandbox) == ("d", 3, 2.0, 1, "local")


def test_permissions_of_all_files_are_merged_key_by_key(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[permissions]\ndeny = ['shell(rm *)']\n")
    (tmp_path / "opensage.toml").write_text("[permissions]\nask = ['write']\n")
    found = load_settings(tmp_path, env={"OPENSAGE_HOME": str(tmp_path)})
    assert (found.permissions.deny, found.permissions.ask) == (("shell(rm *)",), ("write",))


@pytest.mark.parametrize("text", ["", "()", "(x)", "shell(", "shell(git *"])
def test_a_malformed_rule_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="permission rule"):
        Policy.parse(allow=[text])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=120) | st.text(max_size=80).map(str.encode))
def test_fuzz_any_bytes_in_the_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "opensage.toml").write_bytes(data)
    try:
        load_settings(tmp_path, env={"OPENSAGE_HOME": str(tmp_path / "none")})
    except ConfigError as error:
        assert "opensage.toml" in str(error)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(KEYS, st.text(max_size=12)), max_size=3), st.dictionaries(KEYS, VALUES, max_size=3))
def test_fuzz_any_flags(tmp_path: Path, pairs: list[tuple[str, str]], flags: dict[str, object]) -> None:
    try:
        found = load_settings(
            tmp_path,
            overrides=[f"{key}={value}" for key, value in pairs],
            flags=flags,
            env={"OPENSAGE_HOME": str(tmp_path / "none"), "OPENSAGE_MAX_COST": pairs[0][1] if pairs else ""},
        )
    except ConfigError:
        return
    found.limits()


@given(st.text(max_size=20))
def test_fuzz_rules(text: str) -> None:
    try:
        rule = Rule.parse(text)
    except ConfigError:
        return
    assert Rule.parse(str(rule)) == rule


def test_a_key_cannot_be_a_value_and_a_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="already"):
        load_settings(tmp_path, overrides=["permissions=1", "permissions.allow=['x']"], env={})


def test_a_settings_file_that_is_no_plain_file_is_refused(tmp_path: Path) -> None:
    settings = tmp_path / "opensage.toml"
    for make, say in (
        (lambda: os.mkfifo(settings), "not a regular file"),
        (lambda: settings.symlink_to("/dev/zero"), "it is a link"),
        (lambda: settings.mkdir(), "opensage.toml"),
    ):
        make()
        with pytest.raises(ConfigError, match=say):
            load_settings(tmp_path, env={"OPENSAGE_HOME": str(tmp_path / "home")})
        settings.rmdir() if settings.is_dir() else settings.unlink()
    settings.write_bytes(b"#" * (2 << 20))
    with pytest.raises(ConfigError, match="more than"):
        load_settings(tmp_path, env={"OPENSAGE_HOME": str(tmp_path / "home")})
