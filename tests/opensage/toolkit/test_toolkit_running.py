from __future__ import annotations

import asyncio
import json
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
from helpers_toolkit import Bench

from opensage.errors import ToolError
from opensage.sandbox import BubblewrapSandbox, DockerSandbox
from opensage.toolkit.calls import toolkit_tools
from opensage.toolkit.inside.stage import _fits
from opensage.toolkit.spec import ToolkitSpec, load_toolkit
from opensage.toolkit.staging import Report, Staging
from opensage.tools import ToolContext

SHAPES = "import numpy as np\n\ndef ramp(n):\n    return np.arange(n) * 1.5\n"
TOOLS = '''
from __future__ import annotations
import ctypes, dataclasses, os, sys, threading, time

@dataclasses.dataclass
class Point:
    x: float
    y: tuple

def value(kind: str) -> object:
    """One of many values."""
    import numpy as np
    from .shapes import ramp
    return {
        "numbers": lambda: {"nan": float("nan"), "inf": [float("inf"), -float("inf")], "half": np.float32(0.5)},
        "keys": lambda: {1: "a", np.int64(2): True, None: None},
        "point": lambda: Point(1.0, ({3, 1, 2}, np.array([[1, 2], [3, 4]]))),
        "complex": lambda: 1 + 2j,
        "small": lambda: ramp(4),
        "large": lambda: ramp(5000).reshape(50, 100),
        "long": lambda: "é" * 300_000,
        "object": lambda: {"a": [object()]},
        "itself": lambda: (lambda held: held.append(held) or held)([]),
    }[kind]()

def end(how: str) -> object:
    """Ends in one of many ways."""
    print("noise from Python")
    os.system("echo noise from a program")
    if how == "segv":
        ctypes.string_at(0)
    if how == "exit":
        os._exit(3)
    if how == "sys.exit":
        sys.exit("bye")
    if how == "raise":
        raise KeyError("no such arm")
    if how == "memory":
        return bytearray(1 << 40)
    if how == "sleep":
        time.sleep(60)
    if how == "thread":
        threading.Thread(target=time.sleep, args=(60,)).start()
    return os.getpid()

def count(data: list[str], more: int = 0) -> int:
    """How many."""
    return len(data) + more

async def later(x: float) -> float:
    """Waits."""
    return x
'''


def toolkit(bench: Bench, *, pure: bool = False, extra: dict[str, Any] | None = None, seconds: int = 60) -> ToolkitSpec:
    head = f'---\nname: trial-kit\ndescription: Trials.\nmetadata:\n  opensage-pure: "{str(pure).lower()}"\n'
    head += f'  opensage-seconds: "{seconds}"\n---\n'
    files = {"SKILL.md": head, "tools.py": TOOLS, "shapes.py": SHAPES, **(extra or {})}
    return load_toolkit(bench.put(bench.home / "toolkits" / "trial-kit", files))


class Caller:
    """Calls functions of a toolkit through their tools."""

    def __init__(self, spec: ToolkitSpec, ctx: ToolContext, staging: Staging | None = None) -> None:
        self.tools = {tool.name: tool for tool in toolkit_tools(spec, staging or Staging())}
        self.ctx = ctx

    async def __call__(self, name: str, **arguments: Any) -> Any:
        return await self.tools[f"trial_kit__{name}"].invoke(arguments, self.ctx)

    async def error(self, name: str, **arguments: Any) -> str:
        with pytest.raises(ToolError) as caught:
            await self(name, **arguments)
        return str(caught.value)


@pytest.mark.parametrize("pure", [False, True])
def test_results_are_json_and_large_ones_files(bench: Bench, pure: bool) -> None:
    async def work(ctx: ToolContext) -> None:
        call = Caller(toolkit(bench, pure=pure), ctx)
        assert await call("value", kind="numbers") == {"nan": "NaN", "inf": ["Infinity", "-Infinity"], "half": 0.5}
        assert await call("value", kind="keys") == {"1": "a", "2": True, "None": None}
        assert await call("value", kind="point") == {"x": 1.0, "y": [[1, 2, 3], [[1, 2], [3, 4]]]}
        assert await call("value", kind="complex") == {"real": 1.0, "imag": 2.0}
        assert await call("value", kind="small") == [0.0, 1.5, 3.0, 4.5]
        assert await call("later", x=2) == 2.0
        large = await call("value", kind="large")
        assert (large["shape"], large["dtype"], large["head"][:2]) == ([50, 100], "float64", [0.0, 1.5])
        saved = await ctx.sandbox.read_bytes(large["file"])
        assert saved.startswith(b"\x93NUMPY")
        assert len(saved) == 5000 * 8 + 128
        long = await call("value", kind="long")
        assert (long["characters"], long["head"][:3]) == (300_002, '"éé')
        assert len(json.loads(await ctx.sandbox.read_bytes(long["file"]))) == 300_000
        assert "of type object, which JSON cannot say" in await call.error("value", kind="object")
        assert "holds itself" in await call.error("value", kind="itself")

    bench.run(work)


@pytest.mark.parametrize(("kind", "pure"), [("bubblewrap", False), ("bubblewrap", True), ("local", True)])
def test_every_end_of_a_call_is_a_tool_error(bench: Bench, kind: str, pure: bool) -> None:
    async def work(ctx: ToolContext) -> None:
        spec = toolkit(bench, pure=pure)
        call = Caller(spec, ctx)
        assert "ended by SIGSEGV" in await call.error("end", how="segv")
        gone = await call.error("end", how="exit")
        assert "exit code 3" in gone
        assert "noise from Python" not in gone.partition("printed:")[0]
        assert "sys.exit('bye')" in await call.error("end", how="sys.exit")
        raised = await call.error("end", how="raise")
        assert "KeyError: 'no such arm'" in raised
        assert "tools.py:" in raised
        assert "noise from a program" in raised
        assert "MemoryError" in await call.error("end", how="memory")
        hurried = Caller(spec.model_copy(update={"seconds": 2.0}), ctx)
        assert "did not end in 2 s" in await hurried.error("end", how="sleep")
        assert await call("end", how="thread") > 1  # what the tool left behind does not hold the call up
        left = await ctx.sandbox.exec("ps ax -o args | grep -c '[s]leep 60'")
        assert left.stdout.strip() == "0"

    bench.run(work, kind)


def test_wrong_arguments_name_the_parameter_and_start_nothing(bench: Bench) -> None:
    async def work(ctx: ToolContext) -> None:
        call = Caller(toolkit(bench), ctx)
        assert "'data'" in await call.error("count", data={"a": {}})
        assert "'data' is missing" in await call.error("count", dat=["a"])
        assert "'more'" in await call.error("count", data=[], more="many")
        assert ctx.sandbox.pid is None

    bench.run(work)


@pytest.mark.parametrize("pure", [False, True])
def test_ten_megabytes_of_arguments_arrive(bench: Bench, pure: bool) -> None:
    async def work(ctx: ToolContext) -> None:
        call = Caller(toolkit(bench, pure=pure), ctx)
        assert await call("count", data=["x" * 1000] * 10_000, more="2") == 10_002
        assert "its arguments have 68157773 bytes" in await call.error("count", data=["x" * (1 << 20)] * 65)

    bench.run(work)


@pytest.mark.parametrize("pure", [False, True])
def test_what_was_staged_may_be_deleted_or_changed_in_mid_run(bench: Bench, pure: bool) -> None:
    folder = "${TMPDIR:-/tmp}/opensage-toolkits"

    async def work(ctx: ToolContext) -> None:
        spec = toolkit(bench, pure=pure)
        call = Caller(spec, ctx)
        for harm in (
            f"rm -r {folder}",
            f"rm -r {folder}/*/trial_kit",
            f"echo broken > $(echo {folder}/*/trial_kit/shapes.py)",
            f"echo 'import (' > $(echo {folder}/*/opensage_runner/entry.py)",
            f"rm {folder}/*/.staged",
        ):
            assert await call("value", kind="small") == [0.0, 1.5, 3.0, 4.5]
            assert (await ctx.sandbox.exec(harm)).exit_code == 0, harm
        for path in sorted(spec.folder.rglob("*"), reverse=True):  # and the toolkit's own folder
            path.rmdir() if path.is_dir() else path.unlink()
        assert await call("value", kind="small") == [0.0, 1.5, 3.0, 4.5]

    bench.run(work)


def test_a_worker_serves_many_calls_at_once_each_in_a_process_of_its_own(bench: Bench) -> None:
    async def work(ctx: ToolContext) -> None:
        call = Caller(toolkit(bench, pure=True), ctx)
        pids = await asyncio.gather(*(call("end", how="") for _ in range(6)))
        assert len(set(pids)) == 6
        workers = await ctx.sandbox.exec("ps ax -o ppid,args | grep '[o]pensage_runner' | wc -l")
        assert workers.stdout.strip() == "1"
        killed = await ctx.sandbox.exec("kill -9 $(ps ax -o pid,args | grep '[o]pensage_runner' | awk '{print $1}')")
        assert killed.exit_code == 0
        assert await call("end", how="") > 1

    bench.run(work)


def test_a_cancelled_call_ends_inside(bench: Bench) -> None:
    async def work(ctx: ToolContext) -> None:
        call = Caller(toolkit(bench, pure=True), ctx)
        await call("end", how="")
        task = asyncio.create_task(call("end", how="sleep"))
        while (await ctx.sandbox.exec("ps ax -o args | grep -c '[o]pensage_runner'")).stdout.strip() < "3":
            await asyncio.sleep(0.05)  # worker, caller and the call itself
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(50):
            left = await ctx.sandbox.exec("ps ax -o args | grep -c '[o]pensage_runner'")
            if left.stdout.strip() == "1":
                return
            await asyncio.sleep(0.05)
        raise AssertionError("the call goes on")

    bench.run(work)


def test_modules_find_each_other_by_bare_name_too(bench: Bench) -> None:
    tests = "import shapes\nfrom tools import count\nfrom trial_kit import shapes as same\n\ndef test_names():\n    assert shapes is same and count(['a']) == 1\n"
    spec = toolkit(bench, extra={"tests/test_names.py": tests})
    report = bench.run(lambda ctx: Staging().test(ctx.sandbox, spec))
    assert (report.passed, report.failed) == (1, ())


RUNNER_TESTS = {
    "tests/test_all.py": """
import pathlib, pytest
from ..tools import count

def test_good(): assert count([]) == 0
def test_bad():
    have = count(['a'])
    assert have == 2
def test_path(tmp_path): assert isinstance(tmp_path, pathlib.Path)
async def later(): return 1
class TestMore:
    def test_in_class(self): assert count(['a']) == 1
"""
}


def test_the_report_has_what_failed(bench: Bench) -> None:
    spec = toolkit(bench, extra=RUNNER_TESTS)
    report = bench.run(lambda ctx: Staging().test(ctx.sandbox, spec))
    assert (report.runner, report.passed, len(report.failed)) == ("pytest", 3, 1)
    assert "test_bad" in report.failed[0]["name"]
    assert "assert 1 == 2" in report.failed[0]["text"]
    assert len(report.text(most=400)) < 700


class BareSandbox(BubblewrapSandbox):
    """Its Python has only the standard library."""

    @property
    def python(self) -> str:
        return f"{self.workdir}/bare/bin/python"


def test_the_report_without_pytest(bench: Bench) -> None:
    text = RUNNER_TESTS["tests/test_all.py"].replace(", pytest", "") + "def test_fixture(capsys): ...\n"
    spec = toolkit(bench, extra={"tests/test_all.py": text, "shapes.py": "ramp = None\n"})
    venv.create(bench.workdir / "bare", symlinks=True)

    async def work() -> Report:
        sandbox = BareSandbox(bench.workdir)
        try:
            return await Staging().test(sandbox, spec)
        finally:
            await sandbox.close()

    report = asyncio.run(work())
    assert (report.runner, report.passed) == ("opensage", 3)
    texts = {each["name"].rpartition(":")[2]: each["text"] for each in report.failed}
    assert "assert have == 2" in texts["test_bad"]
    assert "have = 1" in texts["test_bad"]
    assert "pytest is not installed here" in texts["test_fixture"]


def test_tests_that_never_end_are_named(bench: Bench) -> None:
    endless = "import time\ndef test_quick(): ...\ndef test_endless():\n    time.sleep(99)\n"
    spec = toolkit(bench, extra={"tests/test_slow.py": endless})
    report = bench.run(lambda ctx: Staging().test(ctx.sandbox, spec, 6))
    assert not report.good
    assert "test_endless" in report.failed[0]["name"]
    assert "did not end in 6 s" in report.failed[0]["text"]


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("1.26.4", "", True),
        ("1.26.4", ">=1.26,<2", True),
        ("1.26.4", ">=1.26 , <1.26.4", False),
        ("2.0.0rc1", ">=2", True),
        ("2.1", "~=2.0", True),
        ("3.0", "~=2.0", False),
        ("2.1.3+cu12", "==2.1.3", True),
        ("2.1.3", "==2.1.*", True),
        ("2.1.3", "!=2.1.3", False),
        ("2", "==2.0.0", True),
        ("10.0", ">9", True),
    ],
)
def test_versions_are_compared_by_number(version: str, wanted: str, fits: bool) -> None:
    assert _fits(version, wanted) is fits


def wheel(folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "tiny_dep-1.2-py3-none-any.whl", "w") as file:
        file.writestr("tiny_dep.py", "VALUE = 42\n")
        file.writestr("tiny_dep-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-dep\nVersion: 1.2\n")
        file.writestr("tiny_dep-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("tiny_dep-1.2.dist-info/RECORD", "")


def needing(bench: Bench, requirement: str) -> ToolkitSpec:
    head = (
        f"---\nname: trial-kit\ndescription: D.\nmetadata:\n  opensage-requirements: numpy>=1.20 {requirement}\n---\n"
    )
    tools = 'def value(kind: str) -> int:\n    "V."\n    import tiny_dep\n    return tiny_dep.VALUE\n'
    return toolkit(bench, extra={"SKILL.md": head, "tools.py": tools})


def test_requirements_are_installed_from_wheels_when_allowed(bench: Bench, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels")
    spec = needing(bench, "tiny-dep>=1.1")
    assert spec.requirements == ("numpy>=1.20", "tiny-dep>=1.1")

    async def work(ctx: ToolContext) -> None:
        refused = await Caller(spec, ctx, Staging(["scipy"])).error("value", kind="")
        assert "needs tiny-dep>=1.1" in refused
        assert "allowed to be installed: scipy" in refused
        assert "no folder of wheels" in await Caller(spec, ctx, Staging(["tiny_dep"])).error("value", kind="")
        staging = Staging(["Tiny.Dep"], tmp_path / "wheels")
        newer = await Caller(needing(bench, "tiny-dep>=2"), ctx, staging).error("value", kind="")
        assert "cannot be installed" in newer
        assert "tiny-dep>=2" in newer
        assert await Caller(spec, ctx, staging).__call__("value", kind="") == 42
        left = await ctx.sandbox.exec("ls -d ${TMPDIR:-/tmp}/opensage-toolkits/site-* | wc -l")
        assert left.stdout.strip() == "1"

    bench.run(work)


def test_docker_runs_toolkits(bench: Bench, docker_host: str) -> None:
    files = {
        "shapes.py": "ramp = None\n",
        "tests/test_a.py": "from ..tools import count\ndef test_a(): assert count([]) == 0\n",
    }
    spec = toolkit(bench, pure=True, extra=files)

    async def work() -> None:
        sandbox = DockerSandbox(bench.workdir)
        call = Caller(spec, bench.context(sandbox))
        try:
            assert await call("count", data=["a"] * 3) == 3
            assert "ended by SIGSEGV" in await call.error("end", how="segv")
            first, second = [await call("end", how="") for _ in range(2)]
            assert first != second
            workers = await sandbox.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'r[.]main'")
            assert workers.stdout.strip() == "1"
            assert (await Staging().test(sandbox, spec)).passed == 1
        finally:
            await sandbox.close()

    asyncio.run(work())


@pytest.mark.parametrize("pure", [False, True])
@pytest.mark.parametrize("name", ["json", "code"])
def test_a_toolkit_named_like_a_module_of_python_takes_nobodys_place(bench: Bench, name: str, pure: bool) -> None:
    head = f'---\nname: {name}\ndescription: Trials.\nmetadata:\n  opensage-pure: "{str(pure).lower()}"\n---\n'
    tools = (
        "import code, json\n\ndef dump(value: int) -> str:\n    return json.dumps([value, hasattr(code, 'interact')])\n"
    )
    spec = load_toolkit(bench.put(bench.home / "toolkits" / name, {"SKILL.md": head, "tools.py": tools}))

    async def work(ctx: ToolContext) -> None:
        (tool,) = toolkit_tools(spec, Staging())
        assert tool.name == f"{name}__dump"
        assert await tool.invoke({"value": 1}, ctx) == "[1, true]"

    bench.run(work)
