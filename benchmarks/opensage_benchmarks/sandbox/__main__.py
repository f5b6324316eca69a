"""`python -m opensage_benchmarks.sandbox`: prints one JSON object; needs a Docker engine and the base image."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opensage.sandbox import open_sandbox
from opensage.sandbox.docker import BASE_IMAGE
from opensage.sandbox.docker.client import connect
from opensage_benchmarks.sandbox.soak import soak

LIMIT = 1.2


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _summary(kit: list[float], raw: list[float]) -> dict[str, Any]:
    """Medians in milliseconds and their ratio, with the quartiles of each."""
    ratio = statistics.median(kit) / statistics.median(raw)
    return {
        "kit_ms": round(statistics.median(kit) * 1e3, 2),
        "raw_ms": round(statistics.median(raw) * 1e3, 2),
        "kit_quartiles_ms": [round(value * 1e3, 2) for value in statistics.quantiles(kit, n=4)],
        "raw_quartiles_ms": [round(value * 1e3, 2) for value in statistics.quantiles(raw, n=4)],
        "times_raw": round(ratio, 3),
        "holds": ratio <= LIMIT,
        "repeats": len(kit),
    }


def _raw_container(client: Any) -> str:
    """A container as `docker run --detach --rm --network none` makes it, waiting for commands."""
    host = client.create_host_config(network_mode="none", auto_remove=True)
    made = client.create_container(BASE_IMAGE, ["sleep", "infinity"], host_config=host)
    client.start(made["Id"])
    return str(made["Id"])


def _raw_exec(client: Any, container: str) -> None:
    made = client.exec_create(container, ["true"])
    client.exec_start(made["Id"])
    if client.exec_inspect(made["Id"])["ExitCode"] != 0:
        raise RuntimeError("`true` failed in the raw container")


def measure_exec(client: Any, repeats: int) -> dict[str, Any]:
    """`true` through the kit and through the SDK's three calls, in turns."""
    container = _raw_container(client)
    kit: list[float] = []
    raw: list[float] = []

    async def main() -> None:
        with tempfile.TemporaryDirectory() as folder:
            sandbox = open_sandbox("docker", Path(folder))
            try:
                await sandbox.exec(["true"])
                for _ in range(repeats):
                    raw.append(_seconds(lambda: _raw_exec(client, container)))
                    began = time.perf_counter()
                    result = await sandbox.exec(["true"])
                    kit.append(time.perf_counter() - began)
                    if result.exit_code != 0:
                        raise RuntimeError(f"`true` failed in the sandbox: {result}")
            finally:
                await sandbox.close()

    try:
        asyncio.run(main())
    finally:
        client.remove_container(container, force=True, v=True)
    return _summary(kit, raw)


def measure_start(client: Any, repeats: int) -> dict[str, Any]:
    """From nothing to the end of a first `true`, through the kit and through the SDK, in turns."""
    kit: list[float] = []
    raw: list[float] = []

    async def one(folder: str) -> None:
        began = time.perf_counter()
        sandbox = open_sandbox("docker", Path(folder))
        try:
            await sandbox.exec(["true"])
            kit.append(time.perf_counter() - began)
        finally:
            await sandbox.close()

    for _ in range(repeats):
        began = time.perf_counter()
        container = _raw_container(client)
        _raw_exec(client, container)
        raw.append(time.perf_counter() - began)
        client.remove_container(container, force=True, v=True)
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(one(folder))
    return _summary(kit, raw)


def main() -> None:
    """Read the flags, measure, print."""
    parser = argparse.ArgumentParser(prog="opensage_benchmarks.sandbox")
    parser.add_argument("--execs", type=int, default=100)
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--soak", type=int, default=0, help="start this many sandboxes with owners killed at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", default="docker", help="of the soak: docker or bubblewrap")
    args = parser.parse_args()
    found: dict[str, Any] = {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version()}
    client = connect()
    found["engine"] = client.version()["Version"]
    found["docker_sdk"] = version("docker")
    if args.execs:
        found["exec_true"] = measure_exec(client, args.execs)
    if args.starts:
        found["start_and_first_true"] = measure_start(client, args.starts)
    if args.soak:
        found["soak"] = soak(client, args.kind, args.soak, args.seed)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
