"""The `docker` sandbox."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, ClassVar

from opensage.errors import SandboxError, SandboxLost, ToolError
from opensage.protocols import ExecResult, OutputHook
from opensage.sandbox import paths
from opensage.sandbox.commands import request
from opensage.sandbox.docker import archive, files, reaper
from opensage.sandbox.docker.client import BASE_IMAGE, TOOLKITS_IMAGE, connect, default_image, need_image, said
from opensage.sandbox.docker.command import Stdin
from opensage.sandbox.docker.container import Container
from opensage.sandbox.docker.images import Commits
from opensage.sandbox.docker.outputs import Outputs, Raw
from opensage.sandbox.docker.plan import Plan, user_of
from opensage.sandbox.docker.runner import Runner
from opensage.sandbox.limits import SandboxLimits
from opensage.sandbox.process import HIDDEN
from opensage.sandbox.snapshots import Snapshots
from opensage.sandbox.state import StateFolder


class DockerSandbox:
    """Commands run in a container: the workspace, and of the rest only what its image holds, read-only.

    Args:
        workdir: a folder of the host, which is the workspace; or None for a path of the image itself.
        image: name of the image.
        inside: the workspace's path inside; the host's own when not given.
        container: use this running container, as it is, and leave it running; no `workdir` of the host then.
        network: whether there is one.
        limits: of memory, processes, CPUs, time and output.
        read_only: more folders of the host that may be read inside, at their own paths.
        client: of the engine (`docker.APIClient`), closed with the sandbox; without it the first command makes one.

    A folder of the host is mounted when the engine runs on this machine; else it is copied in at the start and back
    when the sandbox closes. A workspace of the image is saved by committing the container.
    """

    kind: ClassVar[str] = "docker"
    isolated: ClassVar[bool] = True

    def __init__(
        self,
        workdir: Path | None = None,
        *,
        image: str = BASE_IMAGE,
        inside: str = "",
        container: str = "",
        network: bool = False,
        limits: SandboxLimits | None = None,
        read_only: Sequence[Path] = (),
        client: Any = None,
    ) -> None:
        if (workdir is None and not inside.startswith("/")) or (container and workdir is not None):
            raise SandboxError("a Docker sandbox is given a folder of the host, or a path `inside=` its image")
        self.host_workdir = workdir
        self.run = ""
        """The session that it works for: a label of its containers; set before the first command."""
        self.limits = limits or SandboxLimits()
        folders = tuple(Path(os.path.realpath(path)) for path in read_only)
        place = inside or str(workdir)
        self._plan = Plan(image, place, workdir, network=network, limits=self.limits, read_only=folders)
        self._attach_to = container
        self._client = client
        self._pruned = False
        self._runner: Runner | None = None
        self._state: StateFolder | None = None
        self._commits: Commits | None = None
        self._starting: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._losses = 0
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else self.name or "idle"
        return f"<docker sandbox of {self.workdir}, {state}>"

    # --- the protocol ---

    @property
    def workdir(self) -> str:
        """The workspace's path inside."""
        return self._plan.workdir

    @property
    def python(self) -> str | None:
        """The image's Python; before the start it is known of our own images only."""
        if self._runner is None:
            return "python3" if self._plan.image in (BASE_IMAGE, TOOLKITS_IMAGE) else None
        return self._runner.container.facts.python

    @property
    def name(self) -> str | None:
        """The container's name; None before the start."""
        return None if self._runner is None else self._runner.container.name

    async def exec(
        self,
        command: str | Sequence[str],
        *,
        timeout: float | None = None,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        on_output: OutputHook | None = None,
    ) -> ExecResult:
        """See `Sandbox.exec`. What a command leaves in the background lives until the sandbox closes."""
        runner = await self._started()
        body, script = request(command, env, cwd, runner.container.facts.shell)
        argv = body["argv"]
        if script is not None:
            argv = [argv[0], await self._script(runner, script)]
        outputs = Outputs(self.limits.output, on_output)
        folder = files.place(body["cwd"], self.workdir)
        began = time.monotonic()
        with self._lost_named():
            code, timed_out = await runner.run(argv, outputs, cwd=folder, timeout=timeout, stdin=stdin, env=body["env"])
        return outputs.result(code, timed_out, time.monotonic() - began, await runner.notes())

    async def read_bytes(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """See `Sandbox.read_bytes`.

        Raises:
            OSError: also for more than 256 MiB at once.
        """
        if offset < 0 or (limit is not None and limit < 0):
            raise ToolError("offset and limit must not be negative")
        most = files.MOST + 1 if limit is None else min(limit, files.MOST)
        data = await self._file(await self._started(), files.READ, path, offset + 1, most)
        if len(data) > files.MOST:
            raise OSError(27, f"more than {files.MOST >> 20} MiB: read it in parts", path)
        return data

    async def write_bytes(self, path: str, data: bytes) -> None:
        """See `Sandbox.write_bytes`. A link inside the workspace is written through."""
        runner = await self._started()
        await self._file(runner, files.WRITE, path, secrets.token_hex(6), len(data), stdin=data)

    async def copy_in(self, source: Path, path: str) -> None:
        """See `Sandbox.copy_in`. An existing folder is merged into."""
        real = await asyncio.to_thread(source.resolve, strict=True)
        await self._put(await self._started(), real, path)

    async def copy_out(self, path: str, target: Path) -> None:
        """See `Sandbox.copy_out`."""
        name = os.path.basename(files.place(path, self.workdir))
        with tempfile.TemporaryFile() as file:
            await self._file(await self._started(), files.GET, path, into=file)
            await asyncio.to_thread(archive.unpack, file, name, target)

    async def snapshot(self) -> str:
        """See `Sandbox.snapshot`. The id names the content: an unchanged workspace has the same id."""
        runner = await self._started()
        if self.host_workdir is None:
            return await asyncio.to_thread(self._committed().save, runner.container.name)
        if not self._plan.shared:
            await self._fetch()
        try:
            return await asyncio.to_thread(self._stored().save)
        except OSError as error:
            raise SandboxError(f"the workspace cannot be saved: {error}; free space or make it readable") from error

    async def restore(self, snapshot: str) -> None:
        """See `Sandbox.restore`. A workspace of the image is restored by a new container: what ran in it ends."""
        await self._started()
        if self.host_workdir is None:
            await self._replace(self._committed().image(snapshot))
            return
        try:
            await asyncio.to_thread(self._stored().load, snapshot)
        except OSError as error:
            raise SandboxError(f"the workspace is restored in part only: {error}; mend that and repeat") from error
        if not self._plan.shared:
            await self._replace(self._plan.image)

    async def close(self) -> None:
        """See `Sandbox.close`. A copied workspace is read back first."""
        if self._closed:
            return
        try:
            if self._runner is not None and self.host_workdir is not None and not self._plan.shared:
                await self._fetch()
        finally:
            self._closed = True
            async with self._lock():
                await asyncio.to_thread(self._end)

    def renew(self) -> None:
        """Let earlier losses count no more: a person has read of them and goes on."""
        self._losses = 0

    # --- starting and ending ---

    async def _started(self) -> Runner:
        """What runs commands in a live container. The first loss is mended here, a second one is final."""
        async with self._lock():
            if self._closed:
                raise SandboxError("the sandbox is closed; open a new one")
            if self._runner is not None and not self._runner.container.warden.ended.is_set():
                return self._runner
            if self._runner is not None:
                self._losses += 1
                await asyncio.to_thread(self._drop)
            if self._losses > 1:
                raise SandboxLost("the sandbox was lost twice; stop: what runs in it kills it")
            runner = await asyncio.to_thread(self._begin)
            if self.host_workdir is not None and not self._plan.shared:
                await asyncio.to_thread(self._fill, runner.container, self.host_workdir)
            self._runner = runner
            return runner

    def _drop(self) -> None:
        if self._runner is not None:
            self._runner.close()
            self._runner.container.close()
            self._runner = None

    def _lock(self) -> asyncio.Lock:
        """The lock on starting and closing; a lock belongs to one event loop."""
        loop = asyncio.get_running_loop()
        if self._starting is None or self._starting[0] is not loop:
            self._starting = loop, asyncio.Lock()
        return self._starting[1]

    def _begin(self) -> Runner:
        """Blocking: connect, clean up after others once, start."""
        if self._client is None:
            self._client = connect()
        if not self._pruned:
            self._pruned = True
            atexit.register(self._end)
            with said("cleaning up after dead owners"):
                reaper.prune(self._client)
        name = self._attach_to
        container = Container.attach(self._client, name, self.workdir) if name else self._start()
        return Runner(container, self.limits, self._plan.user)

    def _start(self) -> Container:
        if self.host_workdir is not None and not self._plan.user:
            with said("asking about the engine"):
                self._plan = replace(self._plan, user=user_of(self.host_workdir, self._client.info()))
        need_image(self._client, self._plan.image)
        if self.host_workdir is not None and self._plan.shared:
            container = self._shared(self.host_workdir)
            if container is not None:
                return container
            self._plan = replace(self._plan, shared=False)
        return Container.start(self._client, self._plan, *self._labels())

    def _shared(self, host: Path) -> Container | None:
        """A container with the folder mounted, or None when the engine's machine has another folder there, or none."""
        (host / HIDDEN).mkdir(exist_ok=True)  # else the engine makes it, as root
        try:
            container = Container.start(self._client, self._plan, *self._labels())
        except SandboxError as error:
            if "bind source path does not exist" in str(error):
                return None
            raise
        if container.facts.inode == host.stat().st_ino:
            return container
        container.close()
        return None

    def _labels(self) -> tuple[str, dict[str, str]]:
        name = f"opensage-{os.getpid()}-{secrets.token_hex(4)}"
        return name, reaper.labels(self.workdir, self.run)

    async def _replace(self, image: str) -> None:
        async with self._lock():
            await asyncio.to_thread(self._drop)
            self._plan = replace(self._plan, image=image)
        await self._started()

    def _end(self) -> None:
        self._closed = True
        self._drop()
        if self._commits is not None:
            self._commits.remove()
        if self._state is not None:
            self._state.remove()
            self._state = None
        if self._client is not None:
            self._client.close()
            atexit.unregister(self._end)

    def _stored(self) -> Snapshots:
        assert self.host_workdir is not None
        if self._state is None:
            self._state = StateFolder(self.kind, self.workdir)
        return Snapshots(self.host_workdir, self._state.path / "snapshots", _apart(self.host_workdir))

    def _committed(self) -> Commits:
        if self._attach_to:
            raise SandboxError("a container that was there already is not saved or restored: start one from its image")
        if self._commits is None:
            self._commits = Commits(self._client)
        return self._commits

    # --- commands ---

    @contextlib.contextmanager
    def _lost_named(self) -> Iterator[None]:
        try:
            yield
        except SandboxLost as error:
            if self._closed:
                raise SandboxLost("the sandbox was closed while a command ran") from error
            then = "the next command starts a new one" if self._losses == 0 else "stop: it was lost twice"
            raise SandboxLost(f"the sandbox was lost: {error}; {then}") from error

    # --- files ---

    async def _script(self, runner: Runner, script: bytes) -> str:
        """Put a script that is too long for an argument where the shell can read it."""
        path = f"/tmp/.opensage-{secrets.token_hex(6)}"
        await self._file(runner, files.WRITE, path, secrets.token_hex(6), len(script), stdin=script)
        return path

    async def _file(
        self,
        runner: Runner,
        script: str,
        path: str,
        *more: object,
        stdin: Stdin = None,
        into: IO[bytes] | None = None,
    ) -> bytes:
        """Run one of the file scripts; returns what it prints, unless that goes to a file."""
        target = files.place(path, self.workdir)
        outputs = Raw(into)
        argv = files.argv(script, target, self._plan.roots(), *more)
        with self._lost_named():
            code, timed_out = await runner.run(argv, outputs, timeout=self.limits.timeout_ceiling, stdin=stdin)
        files.check(code, path, "it took too long" if timed_out else outputs.errors())
        return outputs.data()

    async def _put(self, runner: Runner, source: Path, path: str) -> None:
        name = os.path.basename(files.place(path, self.workdir))
        with await asyncio.to_thread(archive.pack, source, name) as file:
            await self._file(runner, files.PUT, path, stdin=file)

    def _fill(self, container: Container, source: Path) -> None:
        """Copy the workspace in through the engine: only it may give the volume to the user inside."""
        uid, gid = map(int, self._plan.user.split(":"))
        with archive.pack(source, ".", _apart(source), (uid, gid)) as file, said("copying the workspace in"):
            file.seek(0)
            container.client.put_archive(container.name, self.workdir, file)
            # The volume's own folder is root's until it is given away.
            command = ["chown", self._plan.user, self.workdir]
            made = container.client.exec_create(container.name, command, user="0:0")
            container.client.exec_start(made["Id"])

    async def _fetch(self) -> None:
        """Read a copied workspace back: the host's folder becomes what it is inside."""
        assert self.host_workdir is not None
        with tempfile.TemporaryDirectory(prefix="opensage-") as folder:
            target = Path(folder) / "workspace"
            await self.copy_out(self.workdir, target)
            skip = (HIDDEN, *paths.own_code(self.host_workdir))
            await asyncio.to_thread(archive.mirror, target, self.host_workdir, skip)


def _apart(workdir: Path) -> tuple[str, ...]:
    """What is neither saved nor copied: the kit's own state and interpreter."""
    return (HIDDEN, *paths.inside(workdir, paths.interpreter_folders()))


def open_docker(workdir: Path, image: str = "", **options: Any) -> DockerSandbox:
    """A sandbox of a folder of the host, once an engine answers and holds the image; without a name, `default_image`.

    Raises:
        SandboxUnavailable: it does not; the message says what to do.
    """
    client = connect()
    try:
        if not image:
            with said("looking for the image"):
                image = default_image(client) or BASE_IMAGE
        need_image(client, image)
    except SandboxError:
        client.close()
        raise
    return DockerSandbox(workdir, image=image, client=client, **options)
