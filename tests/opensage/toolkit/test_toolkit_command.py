from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers_toolkit import MEAN, Bench, create

from opensage.cli.main import main
from opensage.toolkit import library

SHIPPED = library._shipped_entries


@pytest.fixture
def here(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(bench.workdir)
    return bench.workdir


def toolkit(*words: str) -> int:
    return main(["toolkit", *words])


def test_new_makes_a_folder_that_works(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert toolkit("new", "my-kit") == 0
    assert capfd.readouterr().out.splitlines() == [
        f"my-kit/{name}" for name in ("SKILL.md", "statistics_of.py", "tools.py", "tests/test_tools.py", "bench.py")
    ]
    assert toolkit("test", "./my-kit") == 0
    assert "2 tests passed, 0 failed" in capfd.readouterr().out
    assert toolkit("call", "./my-kit", "average", "--json", '{"values": [1, 2, 6]}') == 0
    assert json.loads(capfd.readouterr().out) == 3.0
    assert toolkit("bench", "./my-kit", "1000") == 0
    assert json.loads(capfd.readouterr().out)["numbers"] == 1000
    assert toolkit("show", "./my-kit", "--json") == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["pure"] is True
    assert shown["tools"][0]["parameters"]["required"] == ["values"]
    assert toolkit("new", "my-kit") == 2
    assert "is there already" in capfd.readouterr().err
    assert not [path for path in here.iterdir() if path.name.startswith(".my-kit")]


def test_call_says_how_it_ended(bench: Bench, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tools = MEAN + '\ndef many(n: int) -> list[int]:\n    """Numbers."""\n    return list(range(n))\n'
    bench.user("stats-kit", {"tools.py": tools})
    (here / "arguments.json").write_text('{"values": [4]}')
    assert toolkit("call", "stats_kit", "mean", "--json", "@arguments.json") == 0
    assert capfd.readouterr().out == "4.0\n"
    for words, code, said in (
        (("call", "stats-kit", "mean", "--json", '{"values": []}'), 1, "ZeroDivisionError"),
        (("call", "stats-kit", "mean", "--json", "{"), 2, "not valid JSON"),
        (("call", "stats-kit", "mean", "--json", '{"value": []}'), 2, "did you mean 'values'"),
        (("call", "stats-kit", "meen"), 2, "did you mean 'mean'"),
        (("call", "stat-kit", "mean"), 2, "did you mean 'stats-kit'"),
        (("call", "stats-kit", "mean", "--json", "@gone"), 2, "gone"),
        (("call", "./gone", "mean"), 2, "no SKILL.md"),
        (("test", "stats-kit"), 1, "no tests"),
        (("bench", "stats-kit"), 2, "no bench.py"),
        (("show", "stats-kit", "--workdir", "gone"), 2, "not a folder"),
    ):
        assert toolkit(*words) == code, words
        assert said in capfd.readouterr().err
    assert toolkit("call", "stats-kit", "many", "--json", '{"n": 100000}') == 0
    large = json.loads(capfd.readouterr().out)
    assert len(json.loads(Path(large["file"]).read_text())) == 100_000
    assert Path(large["file"]).parent == here / "toolkit-results"


def test_list_says_what_may_be_used(bench: Bench, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert toolkit("list") == 0
    assert "opensage toolkit new NAME" in capfd.readouterr().out
    bench.user("user-kit", {"tools.py": MEAN})
    bench.put(bench.home / "toolkits" / "bad-kit", {"SKILL.md": "---\nname: [\n---\n"})
    bench.run(lambda ctx: create(bench.shelf, ctx))
    assert toolkit("list") == 0
    table = capfd.readouterr().out
    assert "stats-kit" in table
    assert "ready" in table
    assert "mean" in table
    tools = here / ".opensage" / "toolkits" / "stats-kit" / "v1" / "tools.py"
    tools.write_text(tools.read_text() + "# changed\n")
    assert toolkit("list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    assert rows["user-kit"]["state"] == "ready"
    assert rows["user-kit"]["source"] == "user"
    assert "not valid YAML" in rows["bad-kit"]["state"]
    assert rows["stats-kit"]["state"].startswith("untrusted")
    assert toolkit("call", "stats-kit", "mean", "--json", '{"values": [1]}', "--sandbox", "local") == 2
    assert "use a sandbox that isolates" in capfd.readouterr().err
    assert toolkit("call", "stats-kit", "mean", "--json", '{"values": [1]}', "--sandbox", "bubblewrap") == 0


def test_a_shipped_toolkit_is_found_without_being_imported(
    bench: Bench, here: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A distribution with an entry point, as one that is installed has it."""
    site = tmp_path / "site"
    bench.put(site / "some_kits" / "bad_import", {"tools.py": MEAN, "__init__.py": "raise SystemError\n"}, "bad-import")
    bench.put(site / "some_kits" / "gone_later", {})
    files = {
        "METADATA": "Metadata-Version: 2.1\nName: some-kits\nVersion: 1\n",
        "entry_points.txt": "[opensage.toolkits]\nbad_import = some_kits.bad_import\nlost = some_kits.lost\n",
        "RECORD": "",
    }
    bench.put(site / "some_kits-1.dist-info", files)
    bench.put(site / "some_kits", {"__init__.py": ""})
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(library, "_shipped", library._shipped.__wrapped__)
    monkeypatch.setattr(library, "_shipped_entries", SHIPPED.__wrapped__)
    assert toolkit("list", "--json") == 0
    rows = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    assert (rows["bad-import"]["source"], rows["bad-import"]["state"]) == ("shipped", "ready")
    assert "has no folder" in rows["lost"]["state"]
    shelf = bench.new_shelf(bench.new_workshop())
    assert shelf.get("bad_import").spec.tools[0].title == "bad_import__mean"
