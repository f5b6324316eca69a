"""The same toolkits on every backend, the container with the image that is made from this Python."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers_toolkit import Bench, create, use

import opensage_toolkits
from opensage.errors import ToolError
from opensage.sandbox.docker.toolkits import ROOT, build_toolkits
from opensage.toolkit.spec import ToolkitSpec, load_toolkit
from opensage.toolkit.staging import Staging
from opensage.tools import ToolContext

SHIPPED = Path(opensage_toolkits.__file__).parent
PICK = '''
import numpy as np

def pick(weights: list[float], seed: int) -> dict[str, object]:
    """Draw some, and say what drew them.

    Args:
        weights: of each
        seed: of the draws
    """
    rng = np.random.default_rng(seed)
    p = np.array(weights) / sum(weights)
    return {"drawn": rng.choice(len(p), 20, p=p), "noise": rng.normal(size=3), "numpy": np.__version__}
'''
PICK_TESTS = 'from ..tools import pick\n\ndef test_pick():\n    assert pick([1, 0], 0)["drawn"].sum() == 0\n'


@pytest.fixture(scope="module")
def image(docker_engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Built once, under a name of its own: what `docker` means for other tests stays as it is."""
    import docker

    name = f"opensage/toolkits-test-{os.getpid()}:latest"
    folder = tmp_path_factory.mktemp("images")
    with contextlib.closing(docker.APIClient(docker_engine)) as client:
        assert build_toolkits(client, name=name, only=["numpy"], folder=folder, tell=lambda _: None) == name
        yield name
        client.remove_image(name, force=True)
    assert list(folder.iterdir()) == []


@pytest.fixture
def kinds(docker_host: str, image: str) -> list[str]:
    return ["bubblewrap", "local", f"docker:{image}"]


def test_a_shipped_toolkit_gives_the_same_in_every_sandbox(bench: Bench, kinds: list[str]) -> None:
    spec = load_toolkit(SHIPPED / "matching_bandits", "shipped")

    async def work(ctx: ToolContext) -> Any:
        staging = Staging()
        market = await staging.call(ctx.sandbox, spec, "random_market", {"players": 3, "arms": 3, "seed": 7})
        return await staging.call(ctx.sandbox, spec, "run", {**market, "T": 512, "seeds": 2})

    results = [bench.run(work, kind) for kind in kinds]
    assert results[0]["algos"]["wayse"]["worst_regret"][-1] > 0
    assert results[1] == results[0]
    assert results[2] == results[0]


def test_a_toolkit_that_an_agent_makes_gives_the_same_in_every_sandbox(bench: Bench, kinds: list[str]) -> None:
    async def work(ctx: ToolContext) -> Any:
        shelf, name = bench.new_shelf(bench.new_workshop()), f"picker-{len(results)}"
        assert "1 tests passed" in await create(shelf, ctx, name, PICK, PICK_TESTS)
        return await use(shelf, ctx, f"{name.replace('-', '_')}__pick", weights=[1, 2, 3], seed=4)

    results: list[Any] = []
    for kind in kinds:
        results.append(bench.run(work, kind))
    assert len(results[0]["drawn"]) == 20
    assert results[1] == results[0]
    assert results[2] == results[0]


def test_the_container_runs_this_python(bench: Bench, kinds: list[str]) -> None:
    async def work(ctx: ToolContext) -> str:
        shown = "import json, sys, numpy; print(json.dumps([sys.version, sys.prefix]))"
        done = await ctx.sandbox.exec(f"python3 -c '{shown}'")
        assert ctx.sandbox.python == f"{ROOT}/bin/python3"
        return done.stdout

    version, prefix = json.loads(bench.run(work, kinds[-1]))
    assert (version.split()[0], prefix) == (sys.version.split()[0], ROOT)


def wheels(folder: Path) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(folder / "far_dep-1.2-py3-none-any.whl", "w") as file:
        file.writestr("far_dep.py", "VALUE = 42\n")
        file.writestr("far_dep-1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: far-dep\nVersion: 1.2\n")
        file.writestr("far_dep-1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("far_dep-1.2.dist-info/RECORD", "")
    return folder


def needing(bench: Bench, name: str, requirement: str) -> ToolkitSpec:
    head = f"---\nname: {name}\ndescription: D.\nmetadata:\n  opensage-requirements: {requirement}\n---\n"
    tools = 'def value(add: int) -> int:\n    "V."\n    import far_dep\n    return far_dep.VALUE + add\n'
    return load_toolkit(bench.put(bench.home / "toolkits" / name, {"SKILL.md": head, "tools.py": tools}))


@pytest.mark.parametrize("at", [0, 2])
def test_requirements_come_from_a_folder_of_wheels_once(
    bench: Bench, kinds: list[str], at: int, tmp_path: Path
) -> None:
    first, second = needing(bench, "first-kit", "far-dep>=1.1"), needing(bench, "second-kit", "far-dep>=1.1")
    folder = wheels(tmp_path / "wheels")

    async def work(ctx: ToolContext) -> None:
        async def call(spec: ToolkitSpec, staging: Staging) -> int:
            return await staging.call(ctx.sandbox, spec, "value", {"add": 1})

        with pytest.raises(ToolError, match=r"needs far-dep>=1\.1, .*; allowed to be installed: scipy, near-dep\."):
            await call(first, Staging(["scipy", "near-dep"], folder))
        assert await call(first, Staging(["far-dep"], folder)) == 43
        # Installed once: another toolkit, and another session in the same sandbox, need neither leave nor wheels.
        assert await call(second, Staging()) == 43
        left = await ctx.sandbox.exec("ls -d ${TMPDIR:-/tmp}/opensage-toolkits/site-*")
        assert len(left.stdout.split()) == 1

    bench.run(work, kinds[at])


def test_an_image_without_the_packages_names_what_makes_one(bench: Bench, docker_host: str, tmp_path: Path) -> None:
    spec = load_toolkit(SHIPPED / "matching_bandits", "shipped")
    folder = wheels(tmp_path / "wheels")

    async def work(ctx: ToolContext) -> None:
        with pytest.raises(ToolError, match=r"needs numpy>=1\.26.*`opensage sandbox build --toolkits`"):
            await Staging().call(ctx.sandbox, spec, "random_market", {})
        with pytest.raises(ToolError, match=r"No module named pip.*`opensage sandbox build --toolkits`"):
            await Staging(["far-dep"], folder).call(
                ctx.sandbox, needing(bench, "far-kit", "far-dep"), "value", {"add": 1}
            )

    bench.run(work, "docker:opensage/base:latest")
