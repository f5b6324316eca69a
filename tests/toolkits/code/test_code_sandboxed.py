"""Every tool in the sandbox it is made for, in one workspace with git."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from opensage.sandbox import open_sandbox
from opensage.toolkit import Staging, load_toolkit
from opensage_toolkits.code import tools

FILES = {
    "shop.py": "def mean(values: list[int]) -> float:\n    return sum(values) / len(values)\n\ndef report(rows):\n    return [mean(row) for row in rows]\n",
    "test_shop.py": "import shop\n\ndef test_mean():\n    assert shop.mean([1, 3]) == 2\n\ndef test_report():\n    assert shop.report([[1]]) == [2]\n",
}


@pytest.fixture
def work(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).write_text(text)
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    (tmp_path / "shop.py").write_text(FILES["shop.py"].replace("/ len", "// len"))
    subprocess.run(["git", *who, "commit", "-q", "-a", "-m", "second"], cwd=tmp_path, check=True)
    return tmp_path


def test_all_tools_in_bubblewrap(work):
    spec = load_toolkit(Path(tools.__file__).parent)

    async def main():
        sandbox = open_sandbox("bubblewrap", work)

        async def call(tool, **arguments):
            return await Staging().call(sandbox, spec, tool, arguments)

        try:
            report = await call("run_tests", timeout=60)
            assert (report["runner"], report["passed"], report["failed"]) == ("pytest", 1, 1)
            assert report["failures"][0]["file"] == "test_shop.py"
            stopped = await call(
                "debug", target="test_shop.py::test_report", breakpoint="shop.py:2", expressions=["len(values)"]
            )
            assert (stopped["locals"], stopped["expressions"]) == ({"values": "[1]"}, {"len(values)": "1"})
            reached = await call("covers", function="report")
            assert [row["test"] for row in reached["tests"]] == ["test_shop.py::test_report"]
            assert (await call("fuzz", target="mean", seconds=0.5))["crashes"][0]["call"] == "mean([])"
            assert [row["caller"] for row in (await call("callers", name="mean"))["callers"]] == ["report", "test_mean"]
            assert (await call("git_diff", revision="HEAD~1"))["files"][0]["file"] == "shop.py"
            assert (await call("git_blame", path="shop.py", line=2))["lines"][0]["summary"] == "second"
            check = "python3 -c 'import shop; assert shop.mean([1, 2]) == 1.5'"
            assert (await call("git_bisect", command=check, good="HEAD~1"))["summary"] == "second"
        finally:
            await sandbox.close()

    asyncio.run(main())
    status = subprocess.run(["git", "status", "--porcelain"], cwd=work, check=True, capture_output=True, text=True)
    assert {line[3:] for line in status.stdout.splitlines()} <= {".opensage/", "__pycache__/", ".pytest_cache/"}
