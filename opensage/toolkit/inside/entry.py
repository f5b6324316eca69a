"""Answers one request: a call of a function, a run of the tests or of the benchmark."""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

from .stage import whole

UNSTAGED = 75


def main(place: str, mode: str, package: str, warm: str) -> NoReturn:
    """Answer the request on standard input and end the process."""
    if not whole(place):
        os.write(1, b"unstaged\n")
        os._exit(UNSTAGED)
    if warm == "warm":
        from .worker import through_worker

        through_worker(place, package)
    with_packages(place, package)
    run(place, mode, package)


def with_packages(place: str, package: str) -> None:
    """Make installed packages importable (the process began without them), and the toolkit's modules by bare name."""
    import site

    site.main()
    extra = os.path.join(place, ".site")
    if os.path.isdir(extra):
        sys.path.insert(1, extra)
    sys.meta_path.append(Siblings(os.path.join(place, package), package))


class Siblings:
    """Finds `from market import x` among the toolkit's own modules, after everything that is installed."""

    def __init__(self, folder: str, package: str) -> None:
        self.folder, self.package = folder, package

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """A spec that stands for the toolkit's module of that name, or None."""
        from importlib.machinery import ModuleSpec

        here = os.path.join(self.folder, name)
        if path is not None or "." in name or not (os.path.isfile(here + ".py") or os.path.isdir(here)):
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> None:
        """The import system makes a module that `exec_module` replaces."""

    def exec_module(self, module: Any) -> None:
        """Put the real module into its place."""
        import importlib

        name = module.__spec__.name
        sys.modules[name] = importlib.import_module(f"{self.package}.{name}")


def run(place: str, mode: str, package: str) -> NoReturn:
    """Read the request, run it with standard output moved away, answer, end."""
    import contextlib
    import json

    with open(0, "rb", closefd=False) as file:
        request = json.loads(file.read())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if mode == "bench":
        os._exit(bench(package, request))
    real = os.dup(1)
    os.dup2(2, 1)
    reply = call(place, package, request) if mode == "call" else _test(place, package)
    data = json.dumps(reply).encode()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    while data:
        data = data[os.write(real, data) :]
    os._exit(0)  # a thread that the tool left behind cannot keep the process


def _test(place: str, package: str) -> dict[str, Any]:
    from .testing import test

    return test(place, package)


def call(place: str, package: str, request: dict[str, Any]) -> dict[str, Any]:
    """Call one function: {"ok": result} or {"error": text}."""
    import importlib

    from .plain import Plain

    try:
        function = getattr(importlib.import_module(f"{package}.tools"), request["tool"])
        value = function(**request["arguments"])
        if hasattr(value, "__await__"):
            value = awaited(value)
        return {"ok": Plain(place, request).whole(value)}
    except BaseException as error:  # noqa: BLE001 foreign code: whatever it raises is an answer
        return {"error": explain(error, os.path.join(place, package))}


def awaited(value: Any) -> Any:
    """What an async function returns."""
    import asyncio

    async def wait() -> Any:
        return await value

    return asyncio.run(wait())


def explain(error: BaseException, folder: str) -> str:
    """Type, message, and where in the toolkit it happened."""
    import traceback

    if isinstance(error, SystemExit):
        text = f"it called sys.exit({error.code!r}): return a value instead"
    else:
        text = f"{type(error).__name__}: {str(error)[:4000]}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(folder)]
    lines = [f"  {os.path.relpath(f.filename, folder)}:{f.lineno} in {f.name}: {f.line}" for f in frames[-5:]]
    if isinstance(error, SyntaxError) and error.filename:
        lines.append(f"  {os.path.basename(error.filename)}:{error.lineno}: {(error.text or '').strip()}")
    return "\n".join([text, *lines])


def bench(package: str, request: dict[str, Any]) -> int:
    """Run bench.py; what it prints is the result."""
    import importlib
    import runpy
    import traceback

    try:
        module = importlib.import_module(f"{package}.bench")
        if hasattr(module, "main"):
            code = module.main(list(request["argv"]))
        else:
            sys.argv = ["bench", *request["argv"]]
            runpy.run_module(f"{package}.bench", run_name="__main__", alter_sys=True)
            code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 foreign code
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    return int(code or 0) & 255
