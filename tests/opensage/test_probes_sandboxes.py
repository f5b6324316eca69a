"""Probes of whole runs in each real sandbox: what the shell does there reaches the model whole, bounded and in order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers_run import assert_paired, call, calls, go, results, say

import opensage
from opensage.models import ScriptedModel


@pytest.fixture(params=["docker", "bubblewrap", "local"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        request.getfixturevalue("docker_host")
    return str(request.param)


def shell(command: str, **more: Any) -> dict[str, Any]:
    return call("shell", {"command": command, **more})


def test_probe_b6_an_exit_code_cancels_nobody(tmp_path: Path, kind: str) -> None:
    turns = [calls(*[shell(f"echo {n}; exit {int(n == 3)}") for n in range(10)]), say("done")]
    result, model = go(turns, tmp_path, sandbox=kind, approve="allow")
    assert result.status == "done"
    assert [text.splitlines()[0] for text in results(model)] == [str(n) for n in range(10)]
    assert "exit code 1" in results(model)[3]


def test_probe_f8_five_megabytes_of_output_are_kept_in_a_file(tmp_path: Path, kind: str) -> None:
    turns = [calls(shell("echo begin; head -c 5000000 /dev/zero | tr '\\0' x; echo end")), say("done")]
    result, model = go(turns, tmp_path, sandbox=kind, approve="allow")
    (text,) = results(model)
    assert result.status == "done"
    assert len(text) < 60_000
    assert "begin" in text
    assert "end" in text


def test_probe_i1_h9_h10_bytes_floods_and_children_in_one_turn(tmp_path: Path, kind: str) -> None:
    turns = [
        calls(
            shell("printf '\\377\\376\\200'"),
            shell("yes", timeout=1),
            shell("sleep 300 & wait", timeout=1),
        ),
        say("done"),
    ]
    result, model = go(turns, tmp_path, sandbox=kind, approve="allow")
    found = results(model)
    assert result.status == "done"
    assert "\ufffd" in found[0]
    assert "timed out" in found[1]
    assert len(found[1]) < 60_000
    assert "timed out" in found[2]


def test_probe_e3_e2_a_cancelled_run_had_one_effect_and_its_history_is_accepted(tmp_path: Path, kind: str) -> None:
    effects = tmp_path / "effects"
    model = ScriptedModel([calls(*[shell("echo x >> effects; sleep 5")] * 5), say("hi yourself")])

    async def main() -> None:
        run = asyncio.create_task(opensage.arun("go", model=model, workdir=tmp_path, sandbox=kind, approve="allow"))
        while not effects.exists():
            await asyncio.sleep(0.05)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await asyncio.sleep(0.5)

    asyncio.run(main())
    assert effects.read_text() == "x\n"
    (log,) = (tmp_path / ".opensage" / "sessions").glob("*.jsonl")
    again = opensage.run("hi", model=model, workdir=tmp_path, sandbox=kind, session=log.stem, approve="allow")
    assert (again.status, again.text) == ("done", "hi yourself")
    assert_paired(model)
