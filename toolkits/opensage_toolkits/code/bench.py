"""How long the index takes on a generated repository, beside universal-ctags and jedi where they are installed."""

from __future__ import annotations

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .lookup import Lookup

FILES = 1000
_FUNCTIONS = 12


def generate(root: Path, files: int, seed: int = 0) -> None:
    """Write a repository of Python modules, about 150 lines each, whose functions call each other, and commit it."""
    dice = random.Random(seed)
    for number in range(files):
        path = root / f"package{number // 50}" / f"module{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_module(number, files, dice))
    for words in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *words], cwd=root, check=True)


def _module(number: int, files: int, dice: random.Random) -> str:
    others = [dice.randrange(files) for _ in range(3)]
    lines = [f"from package{other // 50}.module{other} import function_{other}_0" for other in others]
    lines += ["", f"LIMIT_{number} = {number}", "", f"class Worker{number}:"]
    for method in range(4):
        lines += [f"    def method_{method}(self, value: int) -> int:", f'        """Method {method} of {number}."""']
        lines += [f"        return self.method_{(method + 1) % 4}(value) + function_{number}_{method}(value)", ""]
    for function in range(_FUNCTIONS):
        lines += [f"def function_{number}_{function}(value: int) -> int:", "    # adds what the others give"]
        lines += [f"    total = value + LIMIT_{number}", "    for index in range(value):"]
        lines += [f"        total += function_{dice.choice(others)}_0(index)", "    if total > 100:"]
        lines += [f"        return function_{number}_{(function + 1) % _FUNCTIONS}(total)", "    return total", ""]
    return "\n".join(lines) + "\n"


def _timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What it gives, seconds of wall time, seconds of CPU with those of programs it started."""
    begun, used = time.perf_counter(), _used()
    value = work()
    return value, round(time.perf_counter() - begun, 3), round(_used() - used, 3)


def _used() -> float:
    own, other = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + other.ru_utime + other.ru_stime


def measure(root: Path, place: Path) -> dict[str, Any]:
    """Seconds (wall, CPU) of the first index, of an update after one edit, and of each question."""
    lookup, first, first_cpu = _timed(lambda: Lookup(root, place))
    with lookup:
        table: dict[str, Any] = {"first": [first, first_cpu]}
        time.sleep(2.1)  # files written just now are read twice, for clocks are coarse
        lookup.index.update()
        table["nothing changed"] = list(_timed(lookup.index.update)[1:])
        changed = root / "package3" / "module170.py"
        changed.write_text(changed.read_text() + "\ndef added(value):\n    return function_170_0(value)\n")
        done, update, update_cpu = _timed(lookup.index.update)
        table["one edit"] = [update, update_cpu]
        questions: dict[str, Callable[[], Any]] = {
            "definition": lambda: lookup.definition("added", 5),
            "references": lambda: lookup.references("function_170_0", 100),
            "callers": lambda: lookup.callers("function_170_0", 100),
            "call_path": lambda: lookup.call_path("added", "function_999_0"),
            "repo_map": lambda: lookup.repo_map(1000, ""),
        }
        table |= {name: list(_timed(ask)[1:]) for name, ask in questions.items()}
        counts = [lookup.index.rows(f"SELECT COUNT(*) FROM {name}")[0][0] for name in ("file", "symbol", "call")]
    size = {"files": counts[0], "symbols": counts[1], "calls": counts[2], "bytes": place.stat().st_size}
    ok = first_cpu <= 10 and update_cpu <= 0.3 and done.read == 1  # of one core: others may be at work here
    return {"seconds [wall, cpu]": table, "index": size, "ok": ok}


def ctags(root: Path) -> dict[str, Any] | None:
    """The same files by universal-ctags: definitions only, all of them again after an edit."""
    if shutil.which("ctags") is None:
        return None
    argv = ["ctags", "-R", "--fields=+n", "-f", "-", "."]
    found, wall, cpu = _timed(lambda: subprocess.run(argv, cwd=root, check=True, capture_output=True).stdout)
    return {"first": [wall, cpu], "one edit": [wall, cpu], "symbols": found.count(b"\n")}


def jedi(root: Path) -> dict[str, Any] | None:
    """The same questions by jedi, which keeps no index of names."""
    try:
        import jedi as peer
    except ImportError:
        return None
    path = root / "package3" / "module170.py"
    project = peer.Project(str(root))
    text = path.read_text()
    line = next(n for n, each in enumerate(text.split("\n"), 1) if each.startswith("def function_170_0"))
    _, search, search_cpu = _timed(lambda: list(project.search("function_170_0")))
    script = peer.Script(text, path=str(path), project=project)
    found, wall, cpu = _timed(lambda: script.get_references(line, 5))
    return {"search": [search, search_cpu], "references": [wall, cpu], "found": len(found)}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print one JSON object; 1 if the index is slower than it should be."""
    parser = argparse.ArgumentParser(prog="code.bench", description=__doc__)
    parser.add_argument("--files", type=int, default=FILES, help="modules of the generated repository, at least 200")
    wish = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="opensage-bench-") as folder:
        root = Path(folder) / "repository"
        generate(root, max(200, wish.files))
        lines = sum(path.read_bytes().count(b"\n") for path in root.rglob("*.py"))
        report = {"files": wish.files, "lines": lines, "code": measure(root, Path(folder) / "index.sqlite")}
        report |= {"universal-ctags": ctags(root), "jedi": jedi(root)}
    print(json.dumps(report, indent=1))
    return 0 if report["code"]["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
