from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers_toolkit import MEAN, MEAN_TESTS, Bench, create, use
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage.engine import Engine
from opensage.errors import ConfigError, ToolError
from opensage.log import SessionStore, ToolkitMade
from opensage.log.events import ApprovalAsked, RunFinished, ToolResult
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox
from opensage.toolkit.folder import Contents
from opensage.toolkit.spec import ToolkitSpec, make_spec
from opensage.toolkit.workshop import Shelf, Workshop
from opensage.tools import Toolbox


def spec(name: str, version: int = 1, tools: str = MEAN) -> ToolkitSpec:
    files = {"SKILL.md": f"---\nname: {name}\ndescription: D.\n---\n".encode(), "tools.py": tools.encode()}
    return make_spec(Contents(files), Path(name), "session", version)


def names(shelf: Shelf) -> list[str]:
    return sorted(item.spec.name for item in shelf.items())


def test_who_sees_a_new_toolkit(bench: Bench) -> None:
    workshop = bench.new_workshop()
    root = Shelf(workshop, Toolbox())
    open_child = Shelf(workshop, Toolbox(), None, "open", root)
    closed_child = Shelf(workshop, Toolbox(), [], "closed", root)
    below_closed = Shelf(workshop, Toolbox(), None, "below", closed_child)
    workshop.register(spec("one"), below_closed)
    assert [names(each) for each in (root, open_child, closed_child, below_closed)] == [["one"]] * 4
    workshop.register(spec("two"), root)
    assert [names(each) for each in (root, open_child, closed_child, below_closed)] == [
        ["one", "two"],
        ["one", "two"],
        ["one"],
        ["one"],
    ]
    assert "two__mean" in open_child.toolbox.shown
    assert "two__mean" not in closed_child.toolbox


def test_a_child_gets_a_part_of_what_is_above_it(bench: Bench) -> None:
    bench.user("a-kit", {"tools.py": MEAN})
    bench.user("b-kit", {"tools.py": MEAN})
    workshop = bench.new_workshop()
    root = Shelf(workshop, Toolbox(), ["a_kit", "b-kit"])
    child = Shelf(workshop, Toolbox(), ["a-kit"], "child", root)
    assert (names(root), names(child)) == (["a-kit", "b-kit"], ["a-kit"])
    assert child.toolbox.shown == ["a_kit__mean"]  # named, so shown
    with pytest.raises(ConfigError, match="agent x wants unknown toolkits b-kit; there are: a-kit"):
        Shelf(workshop, Toolbox(), ["b-kit"], "x", child)
    assert names(Shelf(workshop, Toolbox(), [], "none", root)) == []


def test_only_what_is_open_is_in_the_prompt_but_all_can_be_called(bench: Bench) -> None:
    bench.user("stats-kit", {"tools.py": MEAN}, description="Means of numbers.")
    shelf = bench.new_shelf(bench.new_workshop())
    assert "- stats-kit: Means of numbers." in shelf.prompt()
    box = shelf.toolbox
    assert box.get("stats_kit__mean") is not None
    before = box.schemas()
    assert "stats_kit__mean" not in [schema["function"]["name"] for schema in before]
    assert box.schemas() is before  # nothing is built again
    asyncio.run(use(shelf, bench.context(ScriptedSandbox()), "inspect_toolkit", name="stats-kit"))
    assert box.schemas()[-1]["function"]["name"] == "stats_kit__mean"


def test_more_than_twenty_are_searched(bench: Bench) -> None:
    workshop = bench.new_workshop()
    shelf = bench.new_shelf(workshop)
    for number in range(20):
        workshop.register(spec(f"kit-{number}"), shelf)
    assert "search_toolkits" not in shelf.toolbox
    workshop.register(
        spec("matrix-kit", tools='def invert(m: list[list[float]]) -> str:\n    "Invert a matrix."\n'), shelf
    )
    assert "search_toolkits" in shelf.toolbox.shown
    assert shelf.prompt().splitlines()[-1] == "- and 1 more: search_toolkits finds them"
    assert len(shelf.prompt().splitlines()) == 22

    async def work() -> None:
        ctx = bench.context(ScriptedSandbox())
        found = await use(shelf, ctx, "search_toolkits", query="inverse of matrices")
        assert found.splitlines()[0].startswith("matrix-kit")
        assert len(found.splitlines()) == 1
        assert "no toolkit is about" in await use(shelf, ctx, "search_toolkits", query="zebra")

    asyncio.run(work())


def test_only_the_maker_and_those_above_it_retire(bench: Bench) -> None:
    workshop = bench.new_workshop()
    root = bench.new_shelf(workshop)
    child = bench.new_shelf(workshop, agent="child", above=root)

    async def work(ctx: Any) -> None:
        await create(root, ctx, "root-kit")
        await create(child, ctx, "child-kit")
        with pytest.raises(ToolError, match="only its maker"):
            await use(child, ctx, "retire_toolkit", name="root-kit")
        await use(root, ctx, "retire_toolkit", name="child-kit")
        assert names(child) == ["root-kit"]

    bench.run(work)


trees = st.lists(
    st.tuples(st.integers(0, 5), st.none() | st.sets(st.integers(0, 3)), st.integers(0, 3)), min_size=1, max_size=8
)


@settings(max_examples=60, deadline=None)
@given(trees)
def test_no_agent_sees_more_than_the_agent_above_it(tree: list[tuple[int, set[int] | None, int]]) -> None:
    """Agents are created, make toolkits and update them in any order; what is seen and what can be called agree."""
    workshop = Workshop(Path("/nonexistent"), Path("/nonexistent"), "s")
    shelves = [Shelf(workshop, Toolbox())]
    for parent, wanted, kit in tree:
        above = shelves[parent % len(shelves)]
        there = [item.spec.name for item in above.items()]
        given_names = None if wanted is None else [f"kit-{n}" for n in wanted if f"kit-{n}" in there]
        shelves.append(Shelf(workshop, Toolbox(), given_names, "child", above))
        maker = shelves[(parent + kit) % len(shelves)]
        if f"kit-{kit}" not in workshop.items or maker.sees(workshop.items[f"kit-{kit}"]):
            workshop.register(spec(f"kit-{kit}"), maker)
        for shelf in shelves:
            callable_ones = {tool.source.partition(":")[2] for tool in shelf.toolbox}
            assert callable_ones == set(names(shelf))
            if shelf.above is not None:
                assert set(shelf.toolbox.names) <= set(shelf.above.toolbox.names)


def engine(bench: Bench, turns: Any, **options: Any) -> tuple[Engine, ScriptedModel]:
    model = ScriptedModel(turns)
    built = Engine(model=model, workdir=bench.workdir, **{"sandbox": "bubblewrap", **options})
    return built, model


def go(built: Engine) -> list[Any]:
    async def whole() -> list[Any]:
        try:
            return [event async for event in built.turn("go")]
        finally:
            await built.close()

    return asyncio.run(whole())


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


MAKE = call("create_toolkit", name="stats-kit", description="Numbers.", files=MEAN, tests=MEAN_TESTS)


def test_probe_j1_a_new_toolkit_is_there_on_the_very_next_model_call(bench: Bench) -> None:
    built, model = engine(bench, [MAKE, call("stats_kit__mean", values=[1, 2]), {"text": "1.5"}])
    folder = bench.workdir / ".opensage" / "sessions"
    events = go(built)
    assert isinstance(events[-1], RunFinished)
    assert events[-1].status == "done"
    offered = [[tool["function"]["name"] for tool in request["tools"]] for request in model.requests]
    assert ["stats_kit__mean" in each for each in offered] == [False, True, True]
    assert [event.text for event in events if isinstance(event, ToolResult)][1] == "1.5"
    (made,) = [event for event in SessionStore(folder).load(built.session.id).events if isinstance(event, ToolkitMade)]
    assert made.tools == {"stats_kit__mean": "mean(values: list[float]) -> float"}


def test_probe_j3_its_tools_take_the_same_path_as_any_other(bench: Bench) -> None:
    where = 'import os\n\ndef where(path: str) -> str:\n    """Where it runs."""\n    return os.getcwd() + " " + os.readlink("/proc/self/ns/net")\n'
    tests = "from ..tools import where\ndef test_where(): assert where('.')\n"
    make = call("create_toolkit", name="place-kit", description="D.", files=where, tests=tests)
    use_it = call("place_kit__where", path=".")
    built, _ = engine(
        bench, [make, use_it, call("shell", command="echo $PWD $(readlink /proc/self/ns/net)"), {"text": "ok"}]
    )
    results = [event for event in go(built) if isinstance(event, ToolResult)]
    assert results[1].text == results[2].text.strip()  # folder and network of the sandbox, as the shell's

    built, _ = engine(bench, [use_it, {"text": "ok"}], sandbox="local", approve="deny")
    events = go(built)
    assert any(isinstance(event, ApprovalAsked) and event.name == "place_kit__where" for event in events)
    assert [event.synthetic for event in events if isinstance(event, ToolResult)] == ["denied"]
