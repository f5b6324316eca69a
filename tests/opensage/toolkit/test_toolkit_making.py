from __future__ import annotations

import asyncio
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers_toolkit import MEAN, MEAN_TESTS, Bench, create, use

from opensage.errors import ConfigError, SandboxError, ToolError
from opensage.log.events import decode, encode
from opensage.log.toolkit_events import ToolkitMade, ToolkitRetired
from opensage.sandbox import ScriptedSandbox
from opensage.toolkit.gate import draft
from opensage.tools import ToolContext


def refusal(bench: Bench, **arguments: Any) -> str:
    """What the gate says before anything runs."""

    async def work() -> str:
        with pytest.raises(ToolError) as caught:
            await create(bench.shelf, bench.context(ScriptedSandbox()), **arguments)
        return str(caught.value)

    return asyncio.run(work())


def test_a_toolkit_is_made_tested_kept_and_logged(bench: Bench) -> None:
    async def work(ctx: ToolContext) -> None:
        said = await create(bench.shelf, ctx)
        assert "'stats-kit' version 1 is ready: 1 tests passed" in said
        assert "stats_kit__mean: mean(values: list[float]) -> float" in said
        assert await use(bench.shelf, ctx, "stats_kit__mean", values=[1, 2, 6]) == 3.0

    bench.run(work)
    folder = bench.workdir / ".opensage" / "toolkits" / "stats-kit" / "v1"
    assert sorted(path.name for path in folder.iterdir()) == ["SKILL.md", "provenance.json", "tests", "tools.py"]
    kept = json.loads((folder / "provenance.json").read_text())
    assert (kept["session"], kept["agent"], kept["version"], kept["report"]["passed"]) == ("s1", "main", 1, 1)
    (event,) = bench.events
    assert isinstance(event, ToolkitMade)
    assert (event.name, event.version, event.hash) == ("stats-kit", 1, kept["hash"])
    assert decode(encode(event)) == event
    assert not [path for path in folder.parent.parent.iterdir() if path.name.startswith(".half")]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"name": "Stats Kit"}, "not valid.*lower-case"),
        ({"name": "../up"}, "not valid"),
        ({"name": "x" * 41}, "not valid"),
        ({"name": "json"}, "module of Python"),
        ({"name": "task_output"}, "shadow the tool or agent 'task_output'"),
        ({"files": "def shell(x: int) -> int:\n    'S.'\n"}, "'shell' has the name of the tool 'shell'"),
        ({"files": "def f(x):\n    return x\n"}, "docstring and a type hint for each parameter"),
        ({"files": ""}, "tools.py must have a public function"),
        ({"files": "def f(:"}, "tools.py line 1"),
        ({"files": "def f(a: np.ndarray):\n    'F.'"}, "parameter 'a' of f.*cannot come from JSON"),
        ({"files": {"tools.py": MEAN, "../x.py": ""}}, "path '../x.py' is not valid"),
        ({"files": {"tools.py": MEAN, "/etc/x": ""}}, "path '/etc/x' is not valid"),
        ({"files": {"tools.py": MEAN, ".env": ""}}, "path '.env' is not valid"),
        ({"files": {"tools.py": MEAN, "a": "", "a/b": ""}}, "'a' cannot be a file and the folder"),
        ({"files": {"tools.py": MEAN, "provenance.json": ""}}, "written by the kit"),
        ({"files": {"tools.py": MEAN, "a.txt": "\ud800"}}, "a.txt is not valid Unicode"),
        ({"files": {"tools.py": MEAN, "big.txt": "x" * (1 << 20) + "x"}}, "big.txt has 1048577 bytes"),
        ({"files": {"tools.py": MEAN, **{f"{n}.txt": "x" * (1 << 20) for n in range(5)}}}, "bytes together"),
        ({"files": {"tools.py": MEAN, **{f"{n}.txt": "" for n in range(100)}}}, "files are too many"),
        ({"files": {"tools.py": MEAN, "helper.py": "def ("}}, "helper.py line 1"),
        ({"files": {"tools.py": MEAN, "SKILL.md": "---\nname: other\n---\n"}}, "says name: other"),
        ({"files": {"tools.py": MEAN, "SKILL.md": "---\nname: [\n---\n"}}, "not valid YAML"),
        ({"tests": ""}, "there are no tests"),
        ({"tests": "x = 1\n"}, "there are no tests"),
    ],
)
def test_the_gate_refuses_before_anything_runs(bench: Bench, arguments: dict[str, Any], why: str) -> None:
    assert re.search(f"(?s){why}", refusal(bench, **arguments))
    assert not (bench.workdir / ".opensage" / "toolkits").exists()


def test_probe_j2_no_toolkit_shadows_or_removes_what_the_developer_gave(bench: Bench) -> None:
    bench.user("theirs", {"tools.py": MEAN})
    shelf = bench.shelf = bench.new_shelf(bench.new_workshop(), reserved=lambda: ["tester"])
    assert "would shadow" in refusal(bench, name="shell")
    assert "would shadow the tool or agent 'tester'" in refusal(bench, name="tester")
    assert "there is a toolkit 'theirs' already: choose another name" in refusal(bench, name="theirs")

    async def work() -> None:
        ctx = bench.context(ScriptedSandbox())
        with pytest.raises(ToolError, match="not made by agents"):
            await use(shelf, ctx, "update_toolkit", name="theirs", files=MEAN)
        with pytest.raises(ToolError, match="cannot be retired"):
            await use(shelf, ctx, "retire_toolkit", name="theirs")

    asyncio.run(work())
    with pytest.raises(ConfigError, match="built in"):
        shelf.toolbox.remove("create_toolkit")


def test_what_models_write_is_brought_into_shape() -> None:
    for files in (
        MEAN,
        json.dumps({"tools.py": MEAN}),
        {"./tools.py": MEAN},
        {"stats-kit/tools.py": MEAN},
        {"stats_kit/tools.py": MEAN},
    ):
        for tests in (MEAN_TESTS, {"test_tools.py": MEAN_TESTS}, {"tests/test_tools.py": MEAN_TESTS}):
            made = draft("stats-kit", "About:\nnumbers", files, tests)
            assert sorted(made.files) == ["SKILL.md", "tests/test_tools.py", "tools.py"]
            assert made.spec(1).description == "About: numbers"


def test_failing_tests_go_back_to_the_model_and_nothing_is_left(bench: Bench) -> None:
    async def work(ctx: ToolContext) -> None:
        wrong = MEAN_TESTS.replace("== 2", "== 3")
        with pytest.raises(ToolError, match=r"(?s)was not registered.*FAILED.*test_mean.*assert .*3"):
            await create(bench.shelf, ctx, tests=wrong)
        with pytest.raises(ToolError, match=r"(?s)was not registered.*ModuleNotFoundError.*no_such"):
            await create(bench.shelf, ctx, tests="import no_such_module\ndef test_it(): ...\n")
        assert bench.shelf.items() == []
        assert "stats_kit__mean" not in bench.shelf.toolbox
        assert "version 1 is ready" in await create(bench.shelf, ctx)

    bench.run(work)


def test_update_makes_a_version_and_keeps_the_old_one(bench: Bench) -> None:
    async def work(ctx: ToolContext) -> None:
        shelf = bench.shelf
        await create(shelf, ctx, files={"tools.py": MEAN, "notes.txt": "old"})
        more = MEAN + '\ndef total(values: list[float]) -> float:\n    """Sum."""\n    return sum(values)\n'
        with pytest.raises(ToolError, match="nothing changes"):
            await use(shelf, ctx, "update_toolkit", name="stats-kit")
        with pytest.raises(ToolError, match=r"(?s)not registered.*assert"):
            await use(shelf, ctx, "update_toolkit", name="stats-kit", tests="def test_x(): assert 0\n")
        assert await use(shelf, ctx, "stats_kit__mean", values=[4]) == 4
        said = await use(shelf, ctx, "update_toolkit", name="stats_kit", files={"tools.py": more, "notes.txt": ""})
        assert "version 2 is ready" in said
        assert await use(shelf, ctx, "stats_kit__total", values=[4, 1]) == 5
        assert "notes.txt" not in shelf.get("stats-kit").spec.files
        assert "stats-kit v2" in await use(shelf, ctx, "list_toolkits")
        await use(shelf, ctx, "retire_toolkit", name="stats-kit")
        assert "stats_kit__mean" not in shelf.toolbox
        with pytest.raises(ToolError, match="there is no toolkit"):
            await use(shelf, ctx, "inspect_toolkit", name="stats-kit")

    bench.run(work)
    place = bench.workdir / ".opensage" / "toolkits" / "stats-kit"
    assert sorted(path.name for path in place.iterdir()) == ["retired.json", "v1", "v2"]
    assert (place / "v1" / "notes.txt").read_text() == "old"
    assert [type(event) for event in bench.events] == [ToolkitMade, ToolkitMade, ToolkitRetired]
    later = bench.new_shelf(bench.new_workshop("s2"))
    assert later.items() == []
    (entry,) = later.workshop.library.entries()
    assert entry.state == "retired"


def test_later_sessions_load_what_sessions_of_this_person_made(bench: Bench) -> None:
    bench.run(lambda ctx: create(bench.shelf, ctx))
    later = bench.new_shelf(bench.new_workshop("s2"))
    (item,) = later.items()
    assert (item.spec.source, item.spec.version, item.new) == ("project", 1, False)
    assert "stats_kit__mean" in later.toolbox
    assert "stats_kit__mean" not in later.toolbox.shown
    again = bench.new_shelf(bench.new_workshop("s1"))  # the same session, resumed: it goes on with its own tools
    assert "stats_kit__mean" in again.toolbox.shown
    bench.run(lambda ctx: use(later, ctx, "update_toolkit", name="stats-kit", files=MEAN + "\n# faster\n"))
    assert (bench.workdir / ".opensage" / "toolkits" / "stats-kit" / "v2").is_dir()


def test_planted_and_changed_toolkits_are_not_loaded(bench: Bench, tmp_path: Path) -> None:
    bench.run(lambda ctx: create(bench.shelf, ctx))
    made = bench.workdir / ".opensage" / "toolkits" / "stats-kit"
    shutil.copytree(made, tmp_path / "cloned")
    with (made / "v1" / "tools.py").open("a") as file:
        file.write("# changed\n")
    changed = bench.new_shelf(bench.new_workshop("s2"))
    assert changed.items() == []
    assert changed.prompt() == ""
    (entry,) = changed.workshop.library.entries()
    assert entry.state.startswith("untrusted")

    shutil.rmtree(made)
    shutil.copytree(tmp_path / "cloned", made)
    assert len(bench.new_shelf(bench.new_workshop("s3")).items()) == 1
    (bench.home / "toolkits-made").rename(bench.home / "away")  # another person's home
    stranger = bench.new_shelf(bench.new_workshop("s4"))
    assert stranger.items() == []

    async def work(ctx: ToolContext) -> None:
        assert "version 2 is ready" in await create(stranger, ctx)

    bench.run(work)
    assert len(bench.new_shelf(bench.new_workshop("s5")).items()) == 1


def test_of_two_sessions_with_one_name_one_wins(bench: Bench) -> None:
    one, two = bench.shelf, bench.new_shelf(bench.new_workshop("s2"))

    async def work(ctx: ToolContext) -> list[object]:
        return await asyncio.gather(create(one, ctx), create(two, ctx), return_exceptions=True)

    results = bench.run(work)
    lost = [result for result in results if isinstance(result, ToolError)]
    assert len(lost) == 1
    assert "another session has just made version 1 of 'stats-kit'" in str(lost[0])
    kept = sorted(path.name for path in (bench.workdir / ".opensage" / "toolkits").iterdir())
    assert kept == ["stats-kit"]


def test_a_disk_that_takes_nothing_is_a_tool_error(bench: Bench) -> None:
    (bench.workdir / ".opensage").mkdir()
    (bench.workdir / ".opensage" / "toolkits").write_text("in the way")

    async def work(ctx: ToolContext) -> None:
        with pytest.raises(ToolError, match="cannot be kept in"):
            await create(bench.shelf, ctx)

    bench.run(work)
    assert bench.shelf.items() == []


@pytest.mark.parametrize("damage", ["[]", '{"version": true, "hash": 3}', "\0", ""])
def test_damaged_provenance_is_no_trust(bench: Bench, damage: str) -> None:
    bench.run(lambda ctx: create(bench.shelf, ctx))
    (bench.workdir / ".opensage" / "toolkits" / "stats-kit" / "v1" / "provenance.json").write_text(damage)
    assert bench.new_shelf(bench.new_workshop("s2")).items() == []


def test_a_foreign_skill_is_read_and_copied_by_an_agent(bench: Bench) -> None:
    bench.user("pdf-forms", {"scripts/fill.py": "print('filled')\n", "raw.bin": b"\0"})
    shelf = bench.new_shelf(bench.new_workshop())

    async def work(ctx: ToolContext) -> None:
        assert "# Use it" in await use(shelf, ctx, "inspect_toolkit", name="pdf_forms")
        assert "filled" in await use(shelf, ctx, "inspect_toolkit", name="pdf-forms", file="scripts/fill.py")
        assert "binary" in await use(shelf, ctx, "inspect_toolkit", name="pdf-forms", file="raw.bin")
        with pytest.raises(ToolError, match=r"it has: SKILL.md, raw.bin"):
            await use(shelf, ctx, "inspect_toolkit", name="pdf-forms", file="../../secret")
        with pytest.raises(ToolError, match="did you mean 'pdf-forms'"):
            await use(shelf, ctx, "inspect_toolkit", name="pdf-form")
        await use(shelf, ctx, "inspect_toolkit", name="pdf-forms", copy_to="skill")
        done = await ctx.sandbox.exec([ctx.sandbox.python or "python3", "skill/scripts/fill.py"])
        assert done.stdout == "filled\n"

    bench.run(work)


def test_probe_h11_no_sandbox_starts_for_looking(bench: Bench) -> None:
    bench.user("stats-kit", {"tools.py": MEAN})
    shelf = bench.new_shelf(bench.new_workshop())

    class Never(ScriptedSandbox):
        def __getattribute__(self, name: str) -> Any:
            raise SandboxError(f"the sandbox was asked for {name}")

    async def work() -> None:
        ctx = bench.context(Never())
        assert "stats_kit__mean" in await use(shelf, ctx, "list_toolkits")
        assert "mean(values: list[float])" in await use(shelf, ctx, "inspect_toolkit", name="stats-kit")
        assert shelf.prompt()
        assert shelf.toolbox.schemas()
        with pytest.raises(SandboxError):
            await use(shelf, ctx, "stats_kit__mean", values=[1])

    asyncio.run(work())
