"""Runs toolkits in a sandbox, from outside: puts their files there, asks the runner (`inside`), reads its answer."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import re
import secrets
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from opensage.errors import ToolError
from opensage.protocols import ExecResult, Sandbox
from opensage.toolkit.folder import content_hash
from opensage.toolkit.inside.entry import UNSTAGED
from opensage.toolkit.spec import ToolkitSpec

RESULT_BYTES = 256 << 10
"""A larger result goes to a file."""
ARGUMENT_BYTES = 64 << 20
TEST_SECONDS = 60.0
STAGE_SECONDS = 120.0
INSTALL_SECONDS = 600.0
_TAIL = 2000
_PACKAGE = "opensage_runner"
# -S: importing what .pth files name costs more than the rest of the start; the runner does it when it is needed.
_BOOT = f"""import os, sys
p = os.path.join(os.environ.get("TMPDIR") or "/tmp", "opensage-toolkits", sys.argv[1])
sys.path.insert(0, p)
try:
    import {_PACKAGE}.entry as r
except Exception:
    os.write(1, b"unstaged\\n")
    os._exit({UNSTAGED})
r.main(p, *sys.argv[2:])"""


@dataclass(frozen=True, slots=True)
class Report:
    """What the tests of a toolkit came to. `failed` are `{name, text}`; `seconds` is wall time."""

    passed: int
    failed: tuple[Mapping[str, str], ...] = ()
    skipped: int = 0
    seconds: float = 0.0
    runner: str = ""

    @property
    def good(self) -> bool:
        """Whether there were tests, and none failed."""
        return self.passed > 0 and not self.failed

    def text(self, most: int = 6000) -> str:
        """One line, and what failed, bounded; without seconds, so that the same run is the same text."""
        line = f"{self.passed} tests passed, {len(self.failed)} failed, {self.skipped} skipped"
        share = max(300, most // max(1, min(len(self.failed), 5)))
        shown = [f"FAILED {each['name']}\n{_cut(each['text'], share)}" for each in self.failed[:5]]
        more = [f"and {len(self.failed) - 5} more"] if len(self.failed) > 5 else []
        return "\n\n".join([line, *shown, *more])


@dataclass(slots=True)
class Staging:
    """Puts toolkits into sandboxes and calls them there. It remembers nothing of a sandbox: the runner looks each time.

    Attributes:
        allowed: names of packages that may be installed into a sandbox for a toolkit.
        wheels: folder with their wheels; nothing is fetched from a network.
    """

    allowed: Sequence[str] = ()
    wheels: Path | None = None
    _installing: dict[str, asyncio.Lock] = field(default_factory=dict, init=False, repr=False)

    async def call(
        self,
        sandbox: Sandbox,
        spec: ToolkitSpec,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        results: str = "",
        most: int = RESULT_BYTES,
    ) -> Any:
        """The result of one function, as JSON values.

        Args:
            sandbox: where it runs.
            spec: the toolkit.
            tool: name of the function.
            arguments: checked against its signature already.
            results: folder inside for what is too large; one below the temporary folder without it.
            most: bytes of JSON that come back at most.

        Raises:
            ToolError: it raised, crashed, ran out of time, or cannot be staged; the message says which.
        """
        request = {"tool": tool, "arguments": arguments, "results": results, "most": most}
        data = json.dumps(request).encode()
        if len(data) > ARGUMENT_BYTES:
            raise ToolError(
                f"{tool} was not called: its arguments have {len(data)} bytes, {ARGUMENT_BYTES} may be. {_BIG}"
            )
        done = await self.run(sandbox, spec, "call", data, spec.seconds)
        return _answer(done, f"{spec.name.replace('-', '_')}__{tool}", spec.seconds)

    async def test(self, sandbox: Sandbox, spec: ToolkitSpec, seconds: float = TEST_SECONDS) -> Report:
        """Run the toolkit's tests.

        Raises:
            ToolError: it cannot be staged.
        """
        done = await self.run(sandbox, spec, "test", b"{}", seconds)
        try:
            found = _answer(done, "the tests", seconds)
        except ToolError as error:
            running = re.findall(r"^running (.+)$", done.stderr, re.MULTILINE)
            name = running[-1] if running else "tests"
            return Report(0, ({"name": name, "text": str(error)},), seconds=done.duration)
        failed = tuple({"name": str(f["name"]), "text": str(f["text"])} for f in found["failed"])
        return Report(int(found["passed"]), failed, int(found["skipped"]), done.duration, str(found["runner"]))

    async def bench(
        self, sandbox: Sandbox, spec: ToolkitSpec, argv: Sequence[str], seconds: float = 3600.0
    ) -> ExecResult:
        """Run the toolkit's bench.py; what it prints is the result."""
        return await self.run(sandbox, spec, "bench", json.dumps({"argv": list(argv)}).encode(), seconds)

    async def run(self, sandbox: Sandbox, spec: ToolkitSpec, mode: str, request: bytes, seconds: float) -> ExecResult:
        """Send the runner a request; the toolkit is staged first when it is not there, or not as it was."""
        key = _key(spec)
        warm = "warm" if spec.pure and mode == "call" else "cold"
        for again in (True, False):
            argv = [await interpreter(sandbox), "-I", "-S", "-c", _BOOT, key, mode, spec.package, warm]
            done = await sandbox.exec(argv, stdin=request, timeout=seconds)
            if (done.exit_code, done.stdout) != (UNSTAGED, "unstaged\n"):
                return done
            if again:
                await self._stage(sandbox, spec, key)
        raise ToolError(
            f"toolkit {spec.name} cannot be kept in the sandbox: its temporary folder is full or not writable"
        )

    async def _stage(self, sandbox: Sandbox, spec: ToolkitSpec, key: str) -> None:
        site = _site(spec.requirements)
        files = await asyncio.to_thread(_staged_files, spec)
        request = {"key": key, "site": site, "requirements": spec.requirements, "files": files}
        data = json.dumps(request).encode()
        found = await self._ask_to_stage(sandbox, data, spec)
        if found["missing"]:
            async with self._installing.setdefault(f"{id(sandbox)} {site}", asyncio.Lock()):
                found = await self._ask_to_stage(sandbox, data, spec)  # another call may have installed them
                if found["missing"]:
                    await self._install(sandbox, spec, found["missing"], f"{found['home']}/{site}")
                    found = await self._ask_to_stage(sandbox, data, spec)
        if found["missing"]:
            raise ToolError(
                f"toolkit {spec.name}: {', '.join(found['missing'])} cannot be found even after its installation"
            )

    async def _ask_to_stage(self, sandbox: Sandbox, data: bytes, spec: ToolkitSpec) -> Any:
        script = _inside()[f"{_PACKAGE}/stage.py"].decode()
        argv = [await interpreter(sandbox), "-I", "-c", script]
        done = await sandbox.exec(argv, stdin=data, timeout=STAGE_SECONDS)
        return _answer(done, f"putting toolkit {spec.name} into the sandbox", STAGE_SECONDS)

    async def _install(self, sandbox: Sandbox, spec: ToolkitSpec, missing: list[str], target: str) -> None:
        """Install into a folder inside; afterwards it is there whole, or not at all."""
        permitted = {_plain_name(name) for name in self.allowed}
        refused = [name for name in missing if _plain_name(name) not in permitted]
        if refused or self.wheels is None:
            allowed = ", ".join(self.allowed) or "none"
            why = f"allowed to be installed: {allowed}" if refused else "no folder of wheels is configured"
            raise ToolError(
                f"toolkit {spec.name} needs {', '.join(missing)}, not installed in this sandbox; {why}. "
                f"Do without, or ask the person to install it{_into_image(sandbox)}."
            )
        half = f"{target}.{secrets.token_hex(4)}"
        await sandbox.copy_in(self.wheels, f"{half}.wheels")
        options = ["--no-index", "--find-links", f"{half}.wheels", "--no-compile", "--disable-pip-version-check"]
        pip = [await interpreter(sandbox), "-I", "-m", "pip", "install", "-q", *options, "--target", half, *missing]
        done = await sandbox.exec(pip, timeout=INSTALL_SECONDS)
        move = 'rm -rf "$1.wheels"; [ "$3" = 0 ] || { rm -rf "$1"; exit; }; mv -T "$1" "$2" || rm -rf "$1"'
        await sandbox.exec(["/bin/sh", "-c", move, "sh", half, target, str(done.exit_code)])
        if done.exit_code:
            raise ToolError(
                f"toolkit {spec.name}: {', '.join(missing)} cannot be installed: {_cut(done.stderr, _TAIL).strip()}. "
                f"Ask the person to install it{_into_image(sandbox)}."
            )


_BIG = "Write the data to a file of the workspace and pass its path."
_BUILD = "`opensage sandbox build --toolkits`"


def _into_image(sandbox: Sandbox) -> str:
    """A container does not have what is installed beside OpenSage, unless its image was made from that."""
    return f" beside OpenSage and to build the image with it: {_BUILD}" if sandbox.kind == "docker" else ""


async def interpreter(sandbox: Sandbox) -> str:
    """The Python 3 inside.

    Raises:
        ToolError: there is none.
    """
    if sandbox.python is None:  # a container knows after its start
        await sandbox.exec(["true"])
    if sandbox.python is None:
        image = f"; {_BUILD} makes one" if sandbox.kind == "docker" else ""
        raise ToolError(
            f"there is no Python 3 in this sandbox, which toolkits need: choose another image or sandbox{image}"
        )
    return sandbox.python


@cache
def _inside() -> dict[str, bytes]:
    """The modules of the kit that go along with each toolkit."""
    folder = Path(__file__).with_name("inside")
    return {f"{_PACKAGE}/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.py"))}


@cache
def _inside_hash() -> str:
    return content_hash(_inside())


def _key(spec: ToolkitSpec) -> str:
    return hashlib.sha256(f"{spec.hash} {_inside_hash()} {spec.package}".encode()).hexdigest()[:24]


def _site(requirements: Sequence[str]) -> str:
    return "site-" + hashlib.sha256(" ".join(sorted(requirements)).encode()).hexdigest()[:16]


def _staged_files(spec: ToolkitSpec) -> dict[str, str]:
    """Path → base64; every folder with modules becomes a package, so that relative imports work everywhere."""
    files = {f"{spec.package}/{path}": data for path, data in spec.files.items()}
    for path in list(files):
        folder = path.rpartition("/")[0]
        while path.endswith(".py") and folder:
            files.setdefault(f"{folder}/__init__.py", b"")
            folder = folder.rpartition("/")[0]
    return {path: base64.b64encode(data).decode() for path, data in {**files, **_inside()}.items()}


def _answer(done: ExecResult, what: str, seconds: float) -> Any:
    """What the runner answered.

    Raises:
        ToolError: it answered an error, or nothing.
    """
    try:
        reply = json.loads(done.stdout)
    except ValueError:
        reply = None
    if isinstance(reply, dict) and "ok" in reply and not done.timed_out:
        return reply["ok"]
    printed = re.sub(r"\n*^running .+\n", "\n", done.stderr, flags=re.MULTILINE).strip()
    tail = f"\nprinted: {_cut(printed, _TAIL, tail=True)}" if printed else ""
    if isinstance(reply, dict) and "error" in reply:
        raise ToolError(f"{what} failed: {_cut(str(reply['error']), 6000)}{tail}")
    raise ToolError(f"{what} {_end(done, seconds)}{tail}")


def _end(done: ExecResult, seconds: float) -> str:
    if done.timed_out:
        return f"did not end in {seconds:g} s and was killed: give it less to do"
    if done.exit_code >= 0:
        return f"ended its process (exit code {done.exit_code}) instead of returning"
    try:
        name = signal.Signals(-done.exit_code).name
    except ValueError:
        name = f"signal {-done.exit_code}"
    hint = ", perhaps for want of memory" if name == "SIGKILL" else ""
    return f"crashed: its process was ended by {name}{hint}"


def _plain_name(requirement: str) -> str:
    name = re.match(r"[A-Za-z0-9._-]*", requirement)
    return re.sub(r"[-_.]+", "-", name[0] if name else "").lower()


def _cut(text: str, most: int, *, tail: bool = False) -> str:
    if len(text) <= most:
        return text
    return f"[...] {text[-most:]}" if tail else f"{text[: most * 2 // 3]}\n[...]\n{text[-most // 3 :]}"
