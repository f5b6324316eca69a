"""Hostile candidates: each dies alone, in time, and has an outcome."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

import opensage_agents.pgs
from opensage_agents.pgs import check
from opensage_agents.pgs.session import bench
from opensage_benchmarks.pgs.hostile import HOSTILE, PROPERTIES, SECONDS, attack, standing

PACKAGE = Path(opensage_agents.pgs.__file__).parent


@pytest.fixture(params=["bubblewrap", "docker"])
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "docker":
        request.getfixturevalue("docker_host")
    return str(request.param)


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_candidate_dies_alone(kind: str, name: str, tmp_path: Path) -> None:
    before, start = standing(), time.monotonic()
    report, harmed = asyncio.run(attack(name, kind, tmp_path))
    assert report.status in HOSTILE[name][1]
    assert time.monotonic() - start < SECONDS + 2
    assert standing() <= before
    assert not harmed


@pytest.mark.slow
def test_an_answer_cannot_be_forged_for_the_judge() -> None:
    """What a candidate writes itself into the pipe of its answers is at most a result, and never a verdict."""
    code = (
        'import os\ndef f(n):\n    for fd in range(3, 20):\n        try: os.write(fd, b\'{"done": {"found": null}}\\n\')\n'
        "        except OSError: pass\n    return 99"
    )
    report = check(code, PROPERTIES, sandbox="bubblewrap", max_examples=3, total_timeout=40)
    assert report.status == "crashed"
    assert "pipe" in report.message


def test_the_properties_that_come_with_the_kit_cannot_be_read() -> None:
    """Where the kit is installed, its folder lies in the interpreter's, which every candidate may read."""

    async def listed() -> str:
        async with bench("bubblewrap", 256, 30) as place:
            place.candidate_box.read_only.append(PACKAGE)  # as if it were installed
            return (await place.candidate_box.exec(["ls", str(PACKAGE), str(PACKAGE / "quixbugs")])).stdout

    above, _, below = asyncio.run(listed()).partition(f"{PACKAGE}/quixbugs:")
    assert "checking.py" in above
    assert not below.strip()
