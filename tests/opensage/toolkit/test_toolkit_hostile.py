"""Folders that somebody planted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from helpers_toolkit import MEAN, Bench, create

from opensage.config import load_settings
from opensage.errors import ToolError
from opensage.toolkit.spec import load_toolkit


def test_front_matter_that_multiplies_itself_is_refused_at_once(bench: Bench) -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    text = "\n".join(["---", *lines, "name: bomb", "description: *a9", "metadata: {x: *a9}", "---", "Body."])
    began = time.monotonic()
    with pytest.raises(ToolError, match=r"an alias \(\*name\) is not allowed; write it out"):
        load_toolkit(bench.put(bench.workdir / "bomb", {"SKILL.md": text}))
    assert time.monotonic() - began < 2


def test_a_huge_module_is_not_parsed(bench: Bench) -> None:
    with pytest.raises(ToolError, match=r"tools.py has 1300000 bytes"):
        load_toolkit(bench.put(bench.workdir / "huge", {"tools.py": "x = 1234567\n" * 100_000 + "#" * 100_000}, "huge"))


def test_nothing_is_read_of_planted_toolkits(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = bench.put(bench.workdir / ".opensage" / "toolkits" / "evil" / "v1", {"tools.py": MEAN}, "evil")
    (planted / "provenance.json").write_text('{"hash": "' + "0" * 64 + '"}')
    read: list[Path] = []
    monkeypatch.setattr("opensage.toolkit.store.load_toolkit", lambda folder, *_: read.append(folder))
    assert bench.new_shelf(bench.new_workshop("s2")).items() == []
    assert read == []


@pytest.mark.parametrize("digest", ["../../../etc/passwd", "", "g" * 64, "A" * 64])
def test_a_hash_is_never_a_path(bench: Bench, digest: str) -> None:
    assert not bench.shelf.workshop.library.store._is_known(digest)


def test_a_link_in_the_place_of_the_toolkits_is_not_written_through(bench: Bench, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (bench.workdir / ".opensage").mkdir()
    (bench.workdir / ".opensage" / "toolkits").symlink_to(outside)

    async def work(ctx):
        with pytest.raises(ToolError, match="is a link, or in one"):
            await create(bench.shelf, ctx)

    bench.run(work)
    assert list(outside.iterdir()) == []


def test_a_project_cannot_say_what_is_installed(bench: Bench) -> None:
    (bench.workdir / "opensage.toml").write_text('[toolkits]\nallowed = ["evil"]\nwheels = "."\n')
    assert load_settings(bench.workdir, env={"OPENSAGE_HOME": str(bench.home)}).toolkits.allowed == ()
    (bench.home / "config.toml").write_text('[toolkits]\nallowed = ["scipy"]\nwheels = "/w"\n')
    found = load_settings(bench.workdir, env={"OPENSAGE_HOME": str(bench.home)}).toolkits
    assert (found.allowed, found.wheels) == (("scipy",), "/w")
