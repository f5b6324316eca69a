"""A small model that answers too early is sent back to work; other models are not."""

from __future__ import annotations

from pathlib import Path

from helpers_run import call, calls, go, results, say

from opensage.models import ScriptedModel


class Small(ScriptedModel):
    needs_coach = True


CHECK = calls(call("shell", {"command": "grep -q right program.txt"}))


def test_a_small_model_is_given_a_second_look_and_made_to_check(tmp_path: Path) -> None:
    (tmp_path / "program.txt").write_text("wrong\n")
    main = [
        CHECK,
        calls(call("read", {"path": "program.txt"})),
        say("It is done."),
        calls(call("edit", {"path": "program.txt", "old": "wrong", "new": "right"})),
        say("Done."),
        CHECK,
        say("Now it is done."),
    ]
    used = {"input_tokens": 5, "output_tokens": 7, "cost": 0.0}
    model = Small({"agents": {"main": main, "coach": [say("The word is wrong; write right.", usage=used)]}})
    result, model = go(model, tmp_path, real=True, approve="allow")
    assert (result.status, result.text) == ("done", "Now it is done.")
    notes = [e.text for e in result.events if e.type == "note"]
    assert "The word is wrong; write right." in notes[0]
    assert "did not check it" in notes[1]
    assert len(model.requests) == 8
    assert result.usage["model_calls"] == 8
    assert result.usage["output_tokens"] >= 7
    question = next(r for r in model.requests if "You find bugs" in r["messages"][0]["content"])
    assert "Program program.txt:\nwrong" in question["messages"][1]["content"]


def test_a_failed_call_must_be_mended(tmp_path: Path) -> None:
    script = [
        calls(call("edit", {"path": "none", "old": "a", "new": "b"})),
        say("done"),
        calls(call("write", {"path": "none", "content": "b"})),
        say("really done"),
    ]
    result, _ = go(Small(script), tmp_path, real=True, approve="allow")
    assert result.text == "really done"


def test_it_gives_up_after_four(tmp_path: Path) -> None:
    script = [calls(call("shell", {"command": "false"})), {"repeat": say("no idea"), "times": -1}]
    result, model = go(Small(script), tmp_path, real=True, approve="allow")
    assert result.status == "done"
    assert len(model.requests) == 1 + 4 + 1


def test_a_large_model_is_believed(tmp_path: Path) -> None:
    script = [calls(call("shell", {"command": "false"})), say("it fails")]
    result, _ = go(script, tmp_path, real=True, approve="allow")
    assert result.text == "it fails"


def test_an_edit_needs_a_look_and_must_not_break_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    return 1\n")
    edit = call("edit", {"path": "a.py", "old": "    return 1", "new": "return 2"})
    good = call("edit", {"path": "./a.py", "old": "return 1", "new": "return 2"})
    script = [calls(edit), calls(call("read", {"path": "a.py"})), calls(edit), calls(good), say("done")]
    _, model = go(Small(script), tmp_path, real=True, approve="allow")
    texts = results(model)
    assert "you had not read a.py. It holds:\ndef f()" in texts[0]
    assert "was not changed" in texts[2]
    assert (tmp_path / "a.py").read_text() == "def f():\n    return 2\n"


def test_a_change_that_does_not_help_is_looked_at_at_once(tmp_path: Path) -> None:
    (tmp_path / "program.txt").write_text("wrong\n")
    bad = calls(call("write", {"path": "program.txt", "content": "worse"}))
    good = calls(call("write", {"path": "program.txt", "content": "right"}))
    main = [CHECK, bad, CHECK, good, CHECK, say("done")]
    result, _ = go(
        Small({"agents": {"main": main, "coach": [say("worse is worse")]}}), tmp_path, real=True, approve="allow"
    )
    assert result.text == "done"
    assert sum("worse is worse" in e.text for e in result.events if e.type == "note") == 1


def test_a_program_that_prints_nothing_is_not_done(tmp_path: Path) -> None:
    write = calls(call("write", {"path": "p.sh", "content": "x=1"}))
    ran = calls(call("shell", {"command": "sh p.sh"}))
    more = calls(call("write", {"path": "p.sh", "content": "echo 1"}))
    result, _ = go(Small([write, ran, say("It printed 3."), more, ran, say("1")]), tmp_path, real=True, approve="allow")
    assert result.text == "1"
