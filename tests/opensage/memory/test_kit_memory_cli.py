"""`opensage memory`: each command, as table and as JSON, and what it says when it cannot."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from helpers_run import call, calls, go, say
from memory_helpers import items_of, memory_file, memory_of, sessions_of

from opensage.cli.main import main


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace whose one session told a fact."""
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "120")
    work = tmp_path / "work"
    work.mkdir()
    turns = [calls(call("remember", {"text": "The turbine is painted green"})), say("I see the turbine")]
    go(turns, work, "What colour has the turbine?")
    return work


class Ran:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def memory(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    def run(*words: str) -> Ran:
        capsys.readouterr()
        code = main(["memory", *words, "-w", str(folder)])
        said = capsys.readouterr()
        return Ran(code, said.out, said.err)

    return run


def fact_of(folder: Path) -> str:
    return items_of(folder, "fact")[0].id


def test_search_shows_what_fits(folder: Path, memory: Any) -> None:
    found = memory("search", "turbine green")
    assert found.code == 0
    assert "The turbine is painted green" in found.out
    assert fact_of(folder) in found.out
    rows = memory("search", "turbine", "--json", "--kind", "message", "--trust", "user").json
    assert [row["item"]["text"] for row in rows] == ["What colour has the turbine?"]
    nothing = memory("search", "zeppelin")
    assert (nothing.code, nothing.out) == (1, "nothing found\n")
    assert "parts" in memory("search", "turbine", "--json", "--explain").json[0]


@pytest.mark.parametrize("query", ["a-b", "C:\\x\\y", "AND", "*", '"', "col:val", "(", "NEAR(", "x" * 10_000, "}) //"])
def test_every_query_is_literal(memory: Any, query: str) -> None:
    assert memory("search", query).code in (0, 1)


def test_show_says_where_it_comes_from_and_draws_what_is_around(folder: Path, memory: Any) -> None:
    fact = fact_of(folder)
    shown = memory("show", fact)
    assert shown.out.startswith("The turbine is painted green\n")
    assert "trust            agent" in shown.out
    assert "add " in shown.out
    origin = memory("show", fact, "--json").json
    assert origin["item"]["id"] == fact
    assert origin["operations"][0]["name"] == "add"
    turn = next(item for item in items_of(folder, "turn") if item.text == "I see the turbine")
    drawn = memory("show", turn.id, "--graph")
    assert "-REPLY_TO->" in drawn.out
    assert "What colour has the turbine?" in drawn.out
    graph = memory("show", turn.id, "--graph", "--json").json
    assert {node["kind"] for node in graph["nodes"]} >= {"turn", "message", "run"}
    missing = memory("show", "nothing")
    assert missing.code == 2
    assert missing.err.count("\n") == 1
    assert "`opensage memory search` shows ids" in missing.err


def test_stats_count_by_scope_and_kind(memory: Any) -> None:
    assert "/main" in memory("stats").out
    told = memory("stats", "--json").json
    [kinds] = told["scopes"].values()
    assert (kinds["fact"], kinds["message"], kinds["run"]) == (1, 1, 1)
    assert told["items"] == sum(kinds.values())
    assert memory("stats", "--scope", "nobody", "--json").json["scopes"] == {}
    assert memory("stats", "--scope", "a//b").code == 2


def test_forget_and_undo(folder: Path, memory: Any) -> None:
    fact = fact_of(folder)
    refused = memory("forget", fact)
    assert refused.code == 2
    assert "pass --yes" in refused.err
    [done] = memory("forget", fact, "--yes", "--json").json
    assert memory("search", "painted green", "--kind", "fact").code == 1
    gone = memory("show", fact)
    assert "was forgotten" in gone.err
    assert memory("undo", done["id"]).code == 0
    assert memory("search", "painted green", "--kind", "fact").code == 0
    assert memory("undo", "nothing").code == 2
    assert memory("forget").code == 2
    assert memory("forget", "x", "--query", "y").code == 2


def test_forget_with_purge_leaves_no_byte(folder: Path, memory: Any) -> None:
    assert memory("forget", "--query", "turbine painted green", "--yes", "--purge").code == 0
    data = b"".join(path.read_bytes() for path in memory_file(folder).parent.iterdir())
    assert b"painted" not in data
    assert b"turbine" not in data


def test_publish(folder: Path, memory: Any) -> None:
    copy = memory("publish", fact_of(folder), "--to", "project", "--json").json
    assert copy["scope"].count("/") == 1
    assert memory("publish", copy["id"], "--to", "user").code == 0
    assert {item.scope.count("/") for item in items_of(folder, "fact")} == {0, 1, 2}
    assert memory("publish", copy["id"], "--to", "elsewhere").code == 2


def test_consolidate(memory: Any) -> None:
    assert "0 merged" in memory("consolidate").out
    assert memory("consolidate", "--json").json[0]["merged"] == 0


def test_export_and_import(folder: Path, memory: Any, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    assert memory("export", str(file)).code == 0
    assert memory("export", str(file)).code == 2  # never overwritten
    assert memory("export").out == file.read_text()
    graph = json.loads(memory("export", "--format", "node-link").out)
    assert len(graph["nodes"]) == len(items_of(folder))
    other = str(tmp_path / "other.db")
    taken = memory("import", str(file), "--store", other, "--json").json
    assert taken["items"] == len(items_of(folder))
    assert memory("import", str(file), "--store", other, "--json").json["items"] == 0
    file.write_text(file.read_text() + "broken\n")
    number = len(file.read_text().splitlines())
    third = str(tmp_path / "third.db")
    bad = memory("import", str(file), "--store", third)
    assert bad.code == 2
    assert f"line {number}: not JSON" in bad.err
    assert items_of(folder, store=third) == []
    skipped = memory("import", str(file), "--store", third, "--skip-bad")
    assert skipped.code == 1
    assert f"line {number} was left out" in skipped.err
    assert len(items_of(folder, store=third)) == len(items_of(folder))
    assert memory("import", str(tmp_path / "none")).code == 2
    assert memory("import").code == 2
    assert memory("export", "--format", "xml").code == 2


def test_an_export_hides_what_is_a_secret_by_now(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAINT_API_KEY", "painted green")
    file = tmp_path / "out.jsonl"
    assert memory("export", str(file)).code == 0
    assert "painted green" not in file.read_text()
    assert "[masked PAINT_API_KEY]" in file.read_text()
    assert memory("import", str(file), "--store", str(tmp_path / "other.db")).code == 0


def test_migrate(folder: Path, memory: Any, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    done = memory("migrate", str(other), "--json").json
    assert done["items"] == len(items_of(folder)) == len(items_of(folder, store=str(other)))
    assert memory("migrate", str(other)).code == 0
    assert memory("migrate", str(memory_file(folder))).code == 2


def test_reindex(memory: Any) -> None:
    refused = memory("reindex")
    assert refused.code == 2
    assert "no embedder is set" in refused.err
    done = memory("reindex", "-c", "memory.embedder=hashed", "--json").json
    assert done["embedded"] > 0
    assert memory("reindex", "-c", "memory.embedder=hashed", "--json").json == {"embedded": 0}
    assert "hashed" in str(memory("stats", "--json").json["vectors"])


def test_check_and_repair(folder: Path, memory: Any, tmp_path: Path) -> None:
    assert memory("check").out == "the memory is whole\n"
    with sqlite3.connect(memory_file(folder)) as link:
        link.execute("UPDATE items SET text = 'changed' WHERE kind = 'fact'")
    link.close()
    before = memory_file(folder).read_bytes()
    found = memory("check")
    assert found.code == 1
    assert "not the one that was stored" in found.out
    fixed = tmp_path / "fixed.db"
    told = memory("check", "--repair", str(fixed), "--json").json
    assert told["saved"] == len(items_of(folder)) - 1
    assert memory_file(folder).read_bytes() == before
    assert memory("check", "--store", str(fixed)).code == 0
    assert memory("check", "--repair", str(fixed)).code == 2  # never overwritten


def test_rebuild_from_the_logs(folder: Path, memory: Any, tmp_path: Path) -> None:
    other = str(tmp_path / "other.db")
    assert memory("rebuild", "--store", other, "--json").json == {"sessions": 1, "items": 7, "unreadable": []}
    assert memory("import", "--sessions", "--store", other).code == 0
    assert len(items_of(folder, "message", store=other)) == 1


def test_no_memory_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path / "home"))
    assert main(["memory", "search", "x", "-w", str(tmp_path)]) == 2
    assert "there is no memory yet" in capsys.readouterr().err
    assert not memory_file(tmp_path).exists()


def test_a_removed_session_is_forgotten(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [root] = sessions_of(folder).ids()
    assert main(["sessions", "rm", root, "-w", str(folder)]) == 0
    said = capsys.readouterr().out
    assert f"removed {root}" in said
    assert "forgot" in said
    assert {item.kind for item in items_of(folder)} <= {"fact", "entity"}
    with memory_of(folder) as found:
        assert found.check() == []


def test_the_memory_in_the_chat(folder: Path) -> None:
    import asyncio

    from opensage.cli.show import Screen
    from opensage.cli.slash import Slash
    from opensage.engine import Engine
    from opensage.models import ScriptedModel
    from opensage.sandbox import ScriptedSandbox

    class Told(Screen):
        lines: list[str] = []  # noqa: RUF012 one screen

        def say(self, text: str, style: str = "") -> None:
            self.lines.append(text)

    async def chat(**options: Any) -> None:
        engine = Engine(model=ScriptedModel([say("x")]), sandbox=ScriptedSandbox(), workdir=folder, **options)
        slash = Slash(engine, Told(), None)  # type: ignore[arg-type]
        await slash.run("/memory")
        await slash.run("/memory turbine")
        await engine.close()

    asyncio.run(chat())
    assert "1 fact" in Told.lines[0]
    assert any("The turbine is painted green" in line for line in Told.lines)
    Told.lines.clear()
    asyncio.run(chat(memory=False))
    assert "the memory is off" in Told.lines[0]


def test_the_memory_agent_is_found_and_reads_what_the_usual_agent_reads(folder: Path) -> None:
    from helpers_run import results

    from opensage.topology.library import find_agent

    spec = find_agent("memory", folder)
    turns = [calls(call("recall", {"query": "turbine painted"})), say("green")]
    _, model = go(turns, folder, "What do you know?", agent=spec)
    assert "painted green" in results(model)[0]
    assert {tool["function"]["name"] for tool in model.requests[0]["tools"]} == {
        "recall",
        "why",
        "remember",
        "forget",
        "link",
    }


def test_enrich_reads_facts_out_of_what_was_said(folder: Path, memory: Any, tmp_path: Path) -> None:
    fact = {"facts": [{"subject": "turbine", "relation": "has colour", "object": "green"}], "topics": ["turbine"]}
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps([{"text": json.dumps(fact)}]))
    bad.write_text(json.dumps([{"text": "I would rather not."}]))
    failed = memory("enrich", "--model", f"script:{bad}")
    assert failed.code == 1
    assert "was not read" in failed.err
    (row,) = memory("enrich", "--model", f"script:{good}", "--json").json
    assert (row["read"], row["facts"], row["left"], row["calls"]) == (1, 1, 0, 1)
    assert "turbine has colour green" in memory("search", "turbine colour", "--kind", "fact").out
    assert memory("enrich", "--model", f"script:{good}", "--json").json == []  # all is read


def test_enrich_needs_a_model_that_is_one(folder: Path, memory: Any) -> None:
    found = memory("enrich", "--model", "script:nowhere.json")
    assert found.code == 2
    assert "nowhere.json" in found.err


def test_of_a_declared_relation_the_newer_object_holds(folder: Path, memory: Any) -> None:
    assert memory("declare", "has colour", "--json").json == {"relation": "has colour", "functional": True}
    told = {"text": "The rotor is {}", "about": "rotor", "relation": "has colour", "object": "{}"}
    turns = [
        calls(call("remember", {key: text.format(colour) for key, text in told.items()})) for colour in ("red", "blue")
    ]
    go([*turns, say("noted")], folder, "note it")
    found = memory("search", "rotor colour", "--kind", "fact", "--json").json
    assert [row["item"]["text"] for row in found] == ["The rotor is blue"]
    assert memory("declare", " ").code == 2
