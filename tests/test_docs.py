"""Every Python block of README and docs runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("*/README.md")), *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
DEFINED = re.compile(r"^(?:async )?def (test_\w+)", re.M)
BLOCKS = [(f"{p.name}-{n}", code) for p in PAGES for n, code in enumerate(BLOCK.findall(p.read_text("utf-8")), 1)]


def test_tests_that_a_page_names_exist() -> None:
    there = {name for path in (ROOT / "tests").rglob("test_*.py") for name in DEFINED.findall(path.read_text("utf-8"))}
    named = {name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text("utf-8"))}
    assert len(named) > 20
    assert named <= there, named - there


@pytest.mark.parametrize("code", [code for _, code in BLOCKS], ids=[name for name, _ in BLOCKS])
def test_block_runs(code: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if "DockerSandbox" in code:
        request.getfixturevalue("docker_host")
    script = tmp_path / "block.py"
    script.write_text(code, encoding="utf-8")
    folders = [ROOT, *(ROOT / name for name in ("memory", "toolkits", "agents", "benchmarks"))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
