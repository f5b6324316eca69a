"""Candidates that do harm, and those that show one outcome each; what becomes of them, and what they leave."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from opensage_agents.pgs.checking import acheck
from opensage_agents.pgs.properties import PropertySet
from opensage_agents.pgs.report import FAILED, Report

SECONDS = 40.0
"""Of wall clock for one candidate: only a busy machine needs as many."""
PROPERTIES = PropertySet.from_source("""
SECRET = "the checker's own text"
TARGET = "f"
STRATEGY = st.tuples(st.integers(0, 9))


def is_the_input(args, result):
    assert result == args[0]
""")
_ANY = frozenset(FAILED)
_SLOW = frozenset({"timeout", "hung"})
HOSTILE: dict[str, tuple[str, frozenset[str]]] = {
    "busy": ("def f(n):\n    while True: pass", _SLOW),
    "power": ("def f(n):\n    return 10**10**8", _SLOW | {"crashed", "inconclusive"}),
    "recursion": ("def f(n):\n    return f(n)", frozenset({"recursion"})),
    "memory": ("def f(n):\n    return len(bytearray(4 << 30))", frozenset({"crashed"})),
    "forks": ("import os\ndef f(n):\n    while True: os.fork()", _SLOW | {"crashed", "inconclusive"}),
    "os_exit": ("import os\ndef f(n):\n    os._exit(0)", frozenset({"crashed"})),
    "sys_exit": ("import sys\ndef f(n):\n    sys.exit(0)", frozenset({"crashed"})),
    "write": ("def f(n):\n    open('PLACE', 'w').write('x')\n    return n", _ANY),
    "read": ("import os\ndef f(n):\n    return [t for top in os.listdir('/tmp') if 'opensage' in top "
             "for d, _, fs in os.walk('/tmp/' + top) for x in fs "
             "if x != 'calls' for t in [open(d + '/' + x, errors='replace').read()] if 'SECRET' in t]",
             frozenset({"violated"})),
    "socket": ("import socket\ndef f(n):\n    return socket.create_connection(('127.0.0.1', PORT), 2)",
               frozenset({"crashed"})),
    "flood": ("import sys\ndef f(n):\n    for _ in range(100): sys.stdout.write('x' * 1000000)\n    return n",
              frozenset({"ok"})),
    "catches": ("def f(n):\n    while True:\n        try:\n            while True: pass\n"
                "        except BaseException: pass", _SLOW),
}  # fmt: skip
"""Name → the candidate, and what its report may say."""
_WORK = "import time\ndef f(n):\n    start = time.process_time()\n    while time.process_time() < start + 0.6: pass\n"
OUTCOMES = {
    "violated": "def f(n):\n    return n + 1",
    "crashed": "def f(n):\n    return n // 0",
    "recursion": "def f(n):\n    return f(n)",
    "timeout": _WORK,
    "hung": "def f(n):\n    while True: pass",
}
"""Status → a candidate that must have it, with `OUTCOME_SECONDS` a call."""
OUTCOME_SECONDS = 0.3


async def attack(name: str, sandbox: str, folder: Path) -> tuple[Report, bool]:
    """Check one hostile candidate. The second result: whether it wrote outside, or read what it must not."""
    place = folder / "written"
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = HOSTILE[name][0].replace("PORT", str(server.getsockname()[1])).replace("PLACE", str(place))
        report = await acheck(
            code, PROPERTIES, sandbox=sandbox, max_examples=3, call_timeout=0.3, total_timeout=SECONDS, memory_mb=256
        )
    found = report.counterexample
    stole = name == "read" and (found is None or found.result_repr != "[]")
    return report, place.exists() or stole


def descendants(pid: int) -> set[int]:
    """Processes below this one; empty for one that is gone."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return set()
    found = {int(each) for each in children.split()}
    return found.union(*(descendants(child) for child in found))


def standing() -> set[str]:
    """What this process has running: the processes below it, and its sandboxes, containers too."""
    from opensage.sandbox.inventory import all_sandboxes

    mine = {f"{each.kind} sandbox {each.name}" for each in all_sandboxes() if each.owner == os.getpid()}
    return mine | {f"process {pid}" for pid in descendants(os.getpid())}
