"""A real model's run, replayed: the root makes a toolkit and an agent, and the agent calls the toolkit."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from opensage.cli.show import Screen
from opensage.log.events import ToolResult
from opensage.log.journal import load
from opensage.log.toolkit_events import ToolkitMade
from opensage_benchmarks.self_generated.__main__ import MESSAGES, WORKDIR, move, talk

CASSETTE = Path(__file__).parent.parent / "cassettes" / "self_generated"


def test_the_recorded_model_makes_a_toolkit_and_an_agent_that_calls_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strict: every request must be the recorded one; `--record` of the program makes the cassette anew."""
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path / "home"))
    workdir = tmp_path / "work"
    workdir.mkdir()
    move(CASSETTE, tmp_path / "tape", WORKDIR, str(workdir))
    told = io.StringIO()
    root = asyncio.run(talk(f"replay:{tmp_path / 'tape'}", workdir, Screen(Console(file=told, width=200))))
    sessions = workdir / ".opensage" / "sessions"
    made = [e for e in load(sessions / f"{root.session}.jsonl").events if isinstance(e, ToolkitMade)]
    assert [(e.name, e.report["failed"]) for e in made] == [("stats", [])]
    [child] = root.children
    assert (child.agent, child.status) == ("tester", "done")
    called = [e for e in load(sessions / f"{child.session}.jsonl").events if isinstance(e, ToolResult)]
    assert any(e.name == "stats__median" and e.ok and e.text == "15.5" for e in called)
    assert "15.5" in root.text
    assert all(message in told.getvalue().replace("\n", " ") for message in MESSAGES)
