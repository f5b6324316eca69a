"""The installed kit: what stands on the module path of its interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ["opensage", "opensage_memory", "opensage_toolkits", "opensage_agents", "opensage_benchmarks"]


def test_no_folder_of_a_checkout_is_on_the_module_path(tmp_path: Path) -> None:
    """An agent at work there could write a `sitecustomize.py`, which the next start would run outside the sandbox."""
    code = f"import json, sys; [__import__(name) for name in {PACKAGES}]; print(json.dumps(sys.path))"
    done = subprocess.run([sys.executable, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    environment = Path(sys.prefix).resolve()
    for place in map(Path, json.loads(done.stdout)):
        inside = place.resolve().is_relative_to(ROOT) and not place.resolve().is_relative_to(environment)
        assert not inside, f"{place} is on the path; install again: make install, or make dev"
