"""The image that toolkits run in: the base image and the Python that the kit runs on, with its packages."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import platform
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from opensage.errors import SandboxError
from opensage.sandbox.docker.client import BASE_IMAGE, BASE_LABEL, PYTHON_LABEL, TOOLKITS_IMAGE, image_id, said
from opensage.sandbox.docker.container import Container
from opensage.sandbox.docker.packages import File, interpreter, interpreter_files, packages
from opensage.sandbox.docker.plan import HOME, Plan
from opensage.sandbox.state import state_root

ROOT = "/opt/opensage/toolkits"
"""A virtual environment in the image: at a path of its own, since a workspace may cover the one of this machine."""
LIBRARIES = "/opt/opensage/lib"
MOST_BYTES = 8 << 30
SECONDS = 1800
"""The engine may take for an answer: it says nothing while it saves some gigabytes."""
_COVERED = ("/tmp", "/var/tmp", "/dev", "/proc", "/sys", "/run", HOME)
_PATH = f"{ROOT}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CHECKED = {"numpy": "numpy", "_ssl": "ssl", "_sqlite3": "sqlite3", "_ctypes": "ctypes", "_lzma": "lzma", "_bz2": "bz2"}
"""Module that tells whether the Python here has it → what is imported at the end."""
_IMPORT = """import importlib, sys
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        print(name, error)"""


def build_toolkits(
    client: Any,
    *,
    name: str = TOOLKITS_IMAGE,
    base: str = BASE_IMAGE,
    only: Sequence[str] = (),
    folder: Path | None = None,
    tell: Callable[[str], None] = print,
) -> str:
    """Make the image for toolkits from what is on this machine: no registry, no network.

    Args:
        client: the engine's client.
        name: of the image.
        base: image to begin with.
        only: distributions that go in, with what they require; all but what only the kit needs without it.
        folder: where the files are packed for a while; `images` in the user's OpenSage folder when not given.
        tell: gets a line for each step.

    Returns:
        The image's name.

    Raises:
        SandboxError: it would be too large, or what is in it does not run there; nothing is left, an older image stays.
    """
    found = packages(only)
    tell(f"{len(found.names)} packages: {', '.join(found.names)}")
    if not only:
        tell(f"left out: {', '.join(found.left_out) or 'none'}")
    scratch = folder or state_root().parent / "images"
    scratch.mkdir(parents=True, exist_ok=True)
    with _patient(client), contextlib.closing(_started(client, base)) as container:
        box = _Box(container, scratch, tell)
        box.put_environment(found.files)
        box.put_libraries()
        box.check()
        return box.save(name, base)


@contextlib.contextmanager
def _patient(client: Any) -> Iterator[None]:
    before, client.timeout = client.timeout, SECONDS
    try:
        yield
    finally:
        client.timeout = before


def _started(client: Any, base: str) -> Container:
    """It ends with this program, whatever becomes of that. No label: the image would take it on."""
    return Container.start(client, Plan(base, "/"), f"opensage-build-{os.getpid()}-{os.urandom(3).hex()}", {})


@dataclass(slots=True)
class _Box:
    """The container that becomes the image."""

    container: Container
    scratch: Path
    tell: Callable[[str], None]
    _own: dict[str, str] = field(default_factory=dict)
    """Name → path of the interpreter's compiled modules that were put there."""

    def put_environment(self, files: Iterable[File]) -> None:
        """The interpreter, unless the image has it, and a virtual environment of it with the packages."""
        program = str(interpreter())
        version = ".".join(map(str, sys.version_info[:2]))
        there = self._run([program, "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
        parts: list[File] = []
        if there != (0, f"{version}\n"):
            if any(Path(program).is_relative_to(place) for place in _COVERED):
                raise SandboxError(f"the Python here, {program}, lies where a container has its own files: install one "
                                   "elsewhere, and OpenSage with it")  # fmt: skip
            parts = list(interpreter_files())
            self._own = {path.name.split(".")[0]: str(path) for _, path in parts if path.suffix == ".so"}
        below = f"{ROOT}/lib/python{version}/site-packages".lstrip("/")
        parts += [(f"{below}/{name}", path) for name, path in files]
        config = f"home = {os.path.dirname(program)}\ninclude-system-site-packages = false\n"
        links = {f"{ROOT}/bin/{each}": program for each in ("python", "python3", f"python{version}")}
        self._put(parts, {f"{ROOT}/pyvenv.cfg": config}, links)

    def put_libraries(self) -> None:
        """The shared libraries that the interpreter finds here and not in the image."""
        program = str(interpreter())
        done: set[str] = set()
        while self._own:  # one library may need another
            said = self._run([program, "-I", "-c", _IMPORT, *self._own])[1]
            lacking = set(re.findall(r"(\S+): cannot open shared object", said)) - done
            modules = [self._own[name] for name in re.findall(r"^(\S+) ", said, re.MULTILINE) if name in self._own]
            here = {name: path for name, path in _libraries([program, *modules]).items() if name in lacking}
            if not here:
                return
            self.tell(f"libraries that the base image lacks: {', '.join(sorted(here))}")
            files = [(f"{LIBRARIES}/{name}".lstrip("/"), path) for name, path in here.items()]
            self._put(files, {"/etc/ld.so.conf.d/opensage.conf": f"{LIBRARIES}\n"}, {})
            self._run(["ldconfig"])
            done |= set(here)

    def check(self) -> None:
        """Run it, as a user without rights.

        Raises:
            SandboxError: it does not start, is another version, or cannot import what it can here.
        """
        names = [module for key, module in _CHECKED.items() if importlib.util.find_spec(key) is not None]
        self.tell(f"checking: import {', '.join(names)}")
        code, said = self._run([f"{ROOT}/bin/python3", "-c", f"import {', '.join(names)}"], user="1000:1000")
        if code:
            lines = said.strip().splitlines() or [f"exit code {code}"]
            raise SandboxError(
                f"the Python of this machine does not run in the base image ({lines[-1][:300]}): build that anew, for "
                "this machine's Debian (`opensage sandbox build --fresh`), or use a Python made for older systems"
            )

    def save(self, name: str, base: str) -> str:
        """Commit, with what `default_image` looks at; an image of that name before is removed."""
        client = self.container.client
        repository, _, tag = name.partition(":")
        labels = {PYTHON_LABEL: platform.python_version(), BASE_LABEL: image_id(client, base)}
        # Empty is as good as not given: the engine would keep the entry point of this container.
        changes = [f"ENV PATH={_PATH}", 'ENTRYPOINT ["/usr/bin/env"]', 'CMD ["/bin/sh"]']
        changes += [f"LABEL {key}={value}" for key, value in labels.items()]
        before = image_id(client, name)
        self.tell(f"saving {name}")
        with said("saving the image"):
            client.commit(self.container.name, repository=repository, tag=tag or "latest", changes=changes)
        if before and before != image_id(client, name):
            _remove_unused(client, before)
        return name

    def _run(self, argv: Sequence[str], user: str = "0:0") -> tuple[int, str]:
        """Exit code and output of a command inside; what cannot be started has an exit code too."""
        client = self.container.client
        with said("looking into the container"):
            made = client.exec_create(self.container.name, list(argv), user=user)
            output = client.exec_start(made["Id"])
            return int(client.exec_inspect(made["Id"])["ExitCode"]), output.decode(errors="replace")

    def _put(self, files: Sequence[File], texts: Mapping[str, str], links: Mapping[str, str]) -> None:
        with _packing():
            total = sum(path.stat().st_size for _, path in files)
        if total > MOST_BYTES:
            raise SandboxError(
                f"the image would hold {total >> 30} GiB, {MOST_BYTES >> 30} may be: name the packages that toolkits "
                "need, as in `opensage sandbox build --toolkits --package scipy`"
            )
        self.tell(f"packing {len(files)} files ({total >> 20} MiB)")
        with _packed(files, texts, links, self.scratch) as tar, said("putting files into the container"):
            self.container.client.put_archive(self.container.name, "/", tar)


@contextlib.contextmanager
def _packed(
    files: Sequence[File], texts: Mapping[str, str], links: Mapping[str, str], folder: Path
) -> Iterator[IO[bytes]]:
    with tempfile.TemporaryFile(dir=folder) as file:
        with _packing(), tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, dereference=True) as tar:
            _pack(tar, files, texts, links)
        file.seek(0)
        yield file


@contextlib.contextmanager
def _packing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SandboxError(f"the files for the image cannot be packed: {error}; mend that and build again") from error


def _pack(tar: tarfile.TarFile, files: Sequence[File], texts: Mapping[str, str], links: Mapping[str, str]) -> None:
    for folder in sorted(_folders([name for name, _ in files] + [path.lstrip("/") for path in (*texts, *links)])):
        entry = _entry(folder, 0o755)
        entry.type = tarfile.DIRTYPE
        tar.addfile(entry)
    for name, path in files:
        info = tar.gettarinfo(path, name)
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mode = 0o755 if info.mode & 0o111 else 0o644
        info.mtime = int(info.mtime)  # compiled modules count whole seconds
        with path.open("rb") as file:
            tar.addfile(info, file)
    for name, text in texts.items():
        entry = _entry(name, 0o644)
        entry.size = len(text.encode())
        tar.addfile(entry, io.BytesIO(text.encode()))
    for name, target in links.items():
        entry = _entry(name, 0o777)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        tar.addfile(entry)


def _entry(name: str, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name.lstrip("/"))
    entry.mode = mode
    return entry


def _folders(names: Iterable[str]) -> set[str]:
    """Every folder above these: what lies in root's own folder must be readable for others inside."""
    found = {os.path.dirname(name) for name in names}
    for folder in list(found):
        while folder := os.path.dirname(folder):
            found.add(folder)
    return found - {""}


def _libraries(paths: Sequence[str]) -> dict[str, Path]:
    """Name → file of the shared libraries that these use here."""
    try:
        done = subprocess.run(["ldd", *paths], stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise SandboxError(f"the libraries of the Python here cannot be listed by ldd: {error}") from error
    rows = re.findall(r"^\s*(\S+) => (/\S+)", done.stdout.decode(errors="replace"), re.MULTILINE)
    return {name: Path(path) for name, path in rows}


def _remove_unused(client: Any, image: str) -> None:
    import docker

    with contextlib.suppress(docker.errors.APIError):  # a container uses it, or it has another name: it stays
        client.remove_image(image)
