"""Starts the process with the peers."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError


def run_peers(python: str, scores: Any, seconds: float = 900) -> dict[str, Any]:
    """What `peers.py` measures in the environment of that Python.

    Raises:
        ConfigError: it cannot be started, fails, or takes too long.
    """
    root = Path(__file__).parents[3]
    folders = [root, *(root / name for name in ("memory", "toolkits", "agents", "benchmarks"))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    command = [python, "-m", "opensage_benchmarks.judge_irt.peers"]
    text = json.dumps({"scores": scores.astype(int).tolist()})
    try:
        done = subprocess.run(
            command, input=text, env=env, capture_output=True, text=True, timeout=seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"--peer {python}: {error}; install girth, mirt, scipy and opensage's needs there") from error
    if done.returncode:
        raise ConfigError(f"--peer {python} failed: {done.stderr.strip()[-300:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
