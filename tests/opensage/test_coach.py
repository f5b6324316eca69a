"""A small model that answers too early is sent back to work; other models are not."""

from __future__ import annotations

from pathlib import Path

from helpers_run import call, calls, go, say

from opensage.coach import ACT, THINK
from opensage.models import ScriptedModel


class Small(ScriptedModel):
    needs_coach = True


def turns() -> list[dict[str, object]]:
    return [
        calls(call("shell", {"command": "test -f fixed"})),
        say("It is done."),
        say("The file is missing; make it."),
        calls(call("write", {"path": "fixed", "content": "x"})),
        say("Done."),
        calls(call("shell", {"command": "test -f fixed"})),
        say("Now it is done."),
    ]


def test_a_small_model_is_made_to_think_act_and_check(tmp_path: Path) -> None:
    result, model = go(Small(turns()), tmp_path, real=True, approve="allow")
    assert (result.status, result.text) == ("done", "Now it is done.")
    notes = [e.text for e in result.events if e.type == "note"]
    assert notes[:2] == [THINK, ACT]
    assert "did not check it" in notes[2]
    assert (tmp_path / "fixed").exists()
    assert len(model.requests) == 7


def test_it_gives_up_after_three(tmp_path: Path) -> None:
    script = [calls(call("shell", {"command": "false"})), {"repeat": say("no idea"), "times": -1}]
    result, model = go(Small(script), tmp_path, real=True, approve="allow")
    assert result.status == "done"
    assert len(model.requests) == 1 + 3 * 2 + 1


def test_a_large_model_is_believed(tmp_path: Path) -> None:
    script = [calls(call("shell", {"command": "false"})), say("it fails")]
    result, _ = go(script, tmp_path, real=True, approve="allow")
    assert result.text == "it fails"
