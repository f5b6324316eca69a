"""A source of tasks and agents for the runner's tests. Workers import it by name."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from opensage.errors import ModelError
from opensage_benchmarks.swe.agent import Attempt
from opensage_benchmarks.swe.errors import MissingRepo
from opensage_benchmarks.swe.task import Task, TestPlan

PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"


class Toy:
    """`path` is how many tasks there are; odd ones miss their repository with `missing`; `image` is for all."""

    name = "toy"

    def __init__(self, path, *, missing=False, image=""):
        self.count, self.missing, self.image = int(path), missing, image

    def tasks(self):
        for number in range(self.count):
            yield Task(f"toy__t-{number:02}", f"Task {number}: make x two.", patch=PATCH, image=self.image)

    def prepare(self, task, folder):
        if self.missing and int(task.id[-2:]) % 2:
            raise MissingRepo(f"no clone for {task.id}")
        (folder / "a.py").write_text("x = 1\n")
        (folder / "test_a.py").write_text("import a\n\n\ndef test():\n    assert a.x == 2\n")

    def test_plan(self, task):
        return TestPlan()


class Agent:
    """Makes the change, after `calls` calls of `cost` each that take `wait` seconds; notes its task in `ledger`."""

    name = "toy"

    def __init__(self, ledger="", wait="0", calls="0", cost="0", tokens="0", only=""):
        self.ledger, self.wait, self.calls, self.only = ledger, float(wait), int(calls), only
        self.cost = None if cost == "unknown" else float(cost)
        self.tokens = int(tokens)

    async def solve(self, work, gate):
        if self.ledger:
            with open(self.ledger, "a") as file:
                file.write(f"{work.task_id} {os.getpid()} {work.workdir}\n")
        for _ in range(self.calls):
            await gate.ask()
            await asyncio.sleep(self.wait)
            await gate.tell(cost=self.cost, input_tokens=self.tokens, output_tokens=0)
        if not self.calls:
            await asyncio.sleep(self.wait)
        if not self.only or work.task_id == self.only:
            await self.act(work)
        else:
            await Agent.act(self, work)
        return Attempt("done")

    async def act(self, work):
        (work.workdir / "a.py").write_text("x = 2\n")


class HangsSync(Agent):
    async def act(self, work):
        while True:
            time.sleep(1)


class HangsAsync(Agent):
    async def act(self, work):
        (work.workdir / "a.py").write_text("x = 2\n")
        await asyncio.Event().wait()


class Deaf(Agent):
    """Takes no signal that it can refuse, and neither does its child."""

    async def act(self, work):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        subprocess.run([sys.executable, "-c", "import time\nwhile True: time.sleep(1)"])


class Daemon(Agent):
    """Leaves a process behind: its own session, its parent gone."""

    async def act(self, work):
        await super().act(work)
        code = "import os, time\nos.setsid()\nif os.fork(): os._exit(0)\nopen('daemon.pid', 'w').write(str(os.getpid()))\ntime.sleep(600)"
        place = work.log / "daemon"
        place.mkdir()
        subprocess.run([sys.executable, "-c", code], cwd=place, check=True)
        while not (place / "daemon.pid").exists() or not (place / "daemon.pid").read_text():
            await asyncio.sleep(0.01)


class Fills(Agent):
    """Writes for ever."""

    async def act(self, work):
        with open(work.workdir / "huge", "wb") as file:
            while True:
                file.write(b"x" * (1 << 20))
                file.flush()
                await asyncio.sleep(0.01)


class Raises(Agent):
    async def act(self, work):
        raise ZeroDivisionError("an agent's own mistake")


class Exits(Agent):
    async def act(self, work):
        os._exit(7)


class Leaves(Agent):
    async def act(self, work):
        sys.exit("enough")


class Killed(Agent):
    """Killed from outside, as for want of memory; the second time it works."""

    async def act(self, work):
        lines = Path(self.ledger).read_text().splitlines()
        if sum(line.startswith(work.task_id) for line in lines) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        await super().act(work)


class AlwaysKilled(Agent):
    async def act(self, work):
        os.kill(os.getpid(), signal.SIGKILL)


class KillsItsWorker(Agent):
    """Takes the process down that serves the runner, the first time."""

    async def act(self, work):
        lines = Path(self.ledger).read_text().splitlines()
        if sum(line.startswith(work.task_id) for line in lines) == 1:
            os.kill(os.getppid(), signal.SIGKILL)
            await asyncio.sleep(60)
        await super().act(work)


class KillsRay(Agent):
    """Kills the process that started its worker, the first time."""

    async def act(self, work):
        lines = Path(self.ledger).read_text().splitlines()
        if sum(line.startswith(work.task_id) for line in lines) == 1:
            parent = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
            os.kill(parent, signal.SIGKILL)
            await asyncio.sleep(60)
        await super().act(work)


class StopsItsWorker(Agent):
    """Leaves nobody to end it."""

    async def act(self, work):
        os.kill(os.getppid(), signal.SIGSTOP)
        await asyncio.sleep(600)


class Nothing(Agent):
    async def act(self, work):
        pass


class EditsTests(Agent):
    async def act(self, work):
        await super().act(work)
        (work.workdir / "test_a.py").write_text("def test():\n    pass\n")


class Outside(Agent):
    """Writes beside the workspace, over it by a link, and into its `.git`."""

    async def act(self, work):
        (work.workdir.parent / "outside.txt").write_text("here")
        (work.workdir / "link").symlink_to("/etc")
        (work.workdir / ".git" / "hooks").mkdir(exist_ok=True)
        (work.workdir / ".git" / "hooks" / "post-index-change").write_text("#!/bin/sh\nexit 1\n")


class Huge(Agent):
    """Changes so much that no patch can be made of it."""

    async def act(self, work):
        for number in range(40):
            (work.workdir / f"m{number}.py").write_text("y = 1\n" * 120_000)


class Talks(Agent):
    """Prints, on both streams, what could be taken for messages of a worker."""

    async def act(self, work):
        await super().act(work)
        print('{"event": "end", "status": "error"}', flush=True)
        os.write(1, b'{"event": "gone", "code": -9}\n')
        print("\ud800".encode("utf-8", "surrogatepass"), file=sys.stderr)


class Spy(Agent):
    """Writes down which options it was given."""

    async def solve(self, work, gate):
        Path(self.ledger).write_text(json.dumps(dict(work.options)))
        return Attempt("done")


class Unreachable(Agent):
    async def act(self, work):
        raise ModelError("the provider answered 503", status=503, retryable=True)


def no_agent():
    return object()
