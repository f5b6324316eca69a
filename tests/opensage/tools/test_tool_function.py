from __future__ import annotations

import asyncio
import dataclasses
import enum
import functools
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from opensage.errors import ConfigError, ToolError
from opensage.tools import Tool, ToolContext, ToolOutput, call_schema_example, result_text, tool
from opensage.tools.workers import in_thread

CTX = ToolContext(None, Path("."))  # type: ignore[arg-type]


def call(made: Tool, **arguments: object) -> Any:
    return asyncio.run(made.invoke(arguments, CTX))


@tool
def add(a: int, b: int = 2, tags: list[str] | None = None) -> int:
    """Add two integers.

    Goes on here.

    Args:
        a: the first
        b (int): the second,
            on two lines
        tags: labels
    """
    return a + b


def test_schema_is_small_and_complete():
    schema = add.schema()["function"]
    assert schema["description"] == "Add two integers.\nGoes on here."
    assert schema["parameters"] == {
        "type": "object",
        "additionalProperties": False,
        "required": ["a"],
        "properties": {
            "a": {"type": "integer", "description": "the first"},
            "b": {"type": "integer", "description": "the second, on two lines", "default": 2},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "labels"},
        },
    }
    assert json.loads(json.dumps(add.schema())) == add.schema()


def test_docstring_forms_say_the_same():
    def numpy_form(a, b):
        """Add.

        Parameters
        ----------
        a : int
            the first
        b : int, optional
            the second

        Returns
        -------
        int
            c: not a parameter
        """

    def sphinx_form(a, b):
        """Add.

        :param a: the first
        :param int b: the
            second
        :returns: c
        """

    for function in (numpy_form, sphinx_form):
        made = tool(function)
        properties = made.schema()["function"]["parameters"]["properties"]
        assert made.description == "Add."
        assert {name: value["description"] for name, value in properties.items()} == {
            "a": "the first",
            "b": "the second",
        }


def test_tool_remains_a_function_and_hides_its_context():
    seen = []

    @tool(name="peek", approval="ask", changes=True, target="x")
    async def look(x: str, where: ToolContext | None = None) -> str:
        seen.append(where)
        return x

    assert (look.name, look.approval, look.changes, look.target, look.parallel) == ("peek", "ask", True, "x", True)
    assert list(look.schema()["function"]["parameters"]["properties"]) == ["x"]
    assert call(look, x="1") == "1"
    assert seen == [CTX]
    assert add(1, 2) == 3
    assert add.parallel is False
    with pytest.raises(ToolError, match="there is no argument 'where'"):
        call(look, x="1", where={})


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ({"a": "5"}, "7"),
        ({"a": 5.0}, "7"),
        ({"a": 5, "b": None}, "7"),
        ({"a": 5, "tags": "x"}, "7"),
        ({"a": 5, "tags": '["x", "y"]'}, "7"),
        ({"a": 5, "tags": None}, "7"),
        ({"a": " 5 ", "b": "3"}, "8"),
    ],
)
def test_probe_a8_small_slips_are_mended(arguments, result):
    assert call(add, **arguments) == result


def test_strings_become_what_the_parameter_asks_for():
    class Point(BaseModel):
        x: int
        y: int = 0

    @tool
    def kinds(flag: bool, names: list[str], data: dict[str, int], point: Point, text: str, numbers: list[int]) -> list:
        return [flag, names, data, point.x, text, numbers]

    got = call(kinds, flag="true", names="one, two", data='{"a": 1}', point='{"x": "3"}', text=12, numbers=["1", 2])
    assert json.loads(got) == [True, ["one, two"], {"a": 1}, 3, "12", [1, 2]]
    assert json.loads(call(kinds, flag="no", names='["a"]', data={}, point={"x": 1}, text='["a"]', numbers="4")) == [
        *(False, ["a"], {}, 1, '["a"]', [4])
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, ["'a' is missing", 'Example arguments: {"a": 1}']),
        ({"a": "x"}, ["'a': Input should be a valid integer", '"x"']),
        ({"a": 1, "c": 3}, ["no argument 'c'", "only: a, b, tags"]),
        ({"a": 1, "tag": 3, "b": [1]}, ["did you mean 'tags'?", "'b':"]),
        ({"a": None}, ["'a'", "null"]),
        ({"a": "y" * 5000}, ["'a'", "…"]),
        ({"a": 1, "tags": [1, {}]}, ["'tags.1'"]),
    ],
)
def test_probe_a7_wrong_arguments_are_explained(arguments, words):
    with pytest.raises(ToolError) as caught:
        call(add, **arguments)
    assert all(word in str(caught.value) for word in words)
    assert len(str(caught.value)) < 1000


def test_every_parameter_name_works():
    @tool
    def odd(schema: str, json: int, model_config: str, self_: int, _x: int, copy: bool = True) -> str:
        return f"{schema}{json}{model_config}{self_}{_x}{copy}"

    assert call(odd, schema="a", json=1, model_config="b", self_=2, _x=3) == "a1b23True"


def test_schema_inlines_models_and_keeps_recursive_ones():
    class Leaf(BaseModel):
        title: str
        kind: Literal["a", "b"] = "a"

    class Node(BaseModel):
        leaf: Leaf
        children: list[Node] = []

    Node.model_rebuild(_types_namespace={"Node": Node, "Leaf": Leaf})

    @tool
    def plant(leaf: Leaf, node: Node) -> str:
        return type(node.children[0]).__name__ + leaf.kind

    parameters = plant.schema()["function"]["parameters"]
    assert parameters["properties"]["leaf"]["properties"]["title"] == {"type": "string"}
    assert parameters["properties"]["leaf"]["properties"]["kind"]["enum"] == ["a", "b"]
    assert list(parameters["$defs"]) == ["Node"]
    node = {"leaf": {"title": "t"}, "children": [{"leaf": {"title": "u"}}]}
    assert call(plant, leaf={"title": "x"}, node=node) == "Nodea"


def test_callables_that_are_no_plain_functions():
    class Counter:
        """Counts."""

        def __init__(self):
            self.n = 0

        def step(self, by: int = 1) -> int:
            """Step on."""
            self.n += by
            return self.n

        async def __call__(self, by: int) -> int:
            return self.step(by)

    counter = Counter()
    assert call(tool(counter.step)) == "1"
    assert call(tool(name="counter")(counter), by="2") == "3"
    assert tool(name="counter")(counter).parallel is True
    partial = tool(name="plus")(functools.partial(add.func, b=10))
    assert call(partial, a=1) == "11"


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: tool(lambda *args: 1), "valid"),
        (lambda: tool(name="x")(lambda *args: 1), "no name"),
        (lambda: tool(name="x")(lambda **more: 1), "no name"),
        (lambda: tool(name="bad name")(lambda: 1), "not valid"),
        (lambda: tool(name="x" * 65)(lambda: 1), "not valid"),
        (lambda: tool(add), "already"),
        (lambda: tool(3), "function"),  # type: ignore[call-overload]
        (lambda: tool(name="x")(lambda self, a: 1), "method"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_once(make, word):
    with pytest.raises(ConfigError, match=word):
        make()


def test_generators_and_unknown_hints_are_refused():
    def generator():
        yield 1

    def unknown(a: Missing):  # noqa: F821
        pass

    def without_schema(a: threading.Lock):
        pass

    with pytest.raises(ConfigError, match="list"):
        tool(generator)
    with pytest.raises(ConfigError, match="Missing"):
        tool(unknown).schema()
    with pytest.raises(ConfigError, match="without_schema"):
        tool(without_schema).schema()


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Pair:
    left: int
    right: Path


class Opaque:
    def __repr__(self) -> str:
        return "<opaque>"


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("as it is", "as it is"),
        (None, "null"),
        (True, "true"),
        (float("nan"), "NaN"),
        ({"a": (1, 2)}, '{"a": [1, 2]}'),
        (Pair(1, Path("/x")), '{"left": 1, "right": "/x"}'),
        (b"abc", '"abc"'),
        (Path("a b"), '"a b"'),
        (Colour.RED, '"red"'),
        ([Opaque()], '["<opaque>"]'),
        ("é☃", "é☃"),
        (["é☃"], '["é☃"]'),
        (ToolOutput("text", "diff"), "text"),
        (2**70, str(2**70)),
    ],
)
def test_results_become_text(value, expected):
    assert result_text(value) == expected


def test_results_that_resist_still_become_text():
    loop: list[object] = []
    loop.append(loop)
    assert "[...]" in result_text(loop)
    assert "\\\\xff" in result_text(b"\xff")
    assert "Hostile" in result_text(Hostile())
    assert "Hostile" in result_text([Hostile()])
    assert result_text({Opaque(): 1})
    assert json.loads(result_text(__import__("numpy").arange(3))) == [0, 1, 2]


def test_plain_functions_run_in_a_thread_with_the_callers_context():
    var: __import__("contextvars").ContextVar[str] = __import__("contextvars").ContextVar("var")

    @tool
    def where() -> list:
        return [threading.current_thread() is threading.main_thread(), var.get()]

    var.set("here")
    assert json.loads(call(where)) == [False, "here"]


@pytest.mark.parametrize(
    "error", [ValueError("x"), TimeoutError("x"), StopIteration("x"), ToolError("x"), KeyError("x")]
)
def test_probe_b2_the_functions_own_error_comes_out(error):
    @tool
    def boom() -> str:
        raise error

    with pytest.raises(RuntimeError if isinstance(error, StopIteration) else type(error), match="x"):
        call(boom)


def test_a_hundred_hanging_functions_do_not_hold_up_one_more():
    gate = threading.Event()

    async def main() -> float:
        hanging = [asyncio.ensure_future(in_thread(gate.wait)) for _ in range(100)]
        await asyncio.sleep(0)
        start = time.monotonic()
        assert await in_thread(lambda: 5) == 5
        took = time.monotonic() - start
        gate.set()
        await asyncio.gather(*hanging)
        return took

    assert asyncio.run(main()) < 1


def test_functions_that_end_just_when_the_brief_wait_does_lose_nothing():
    async def main() -> list[int]:
        return [await in_thread(lambda n=n: (time.sleep(n % 8 * 0.0001), n)[1]) for n in range(400)]

    assert asyncio.run(main()) == list(range(400))


def test_probe_b3_a_cancelled_function_is_waited_for(tmp_path):
    mark = tmp_path / "mark"

    @tool
    def slow() -> str:
        time.sleep(0.4)
        mark.write_text("done")
        return ""

    async def main() -> bool:
        running = asyncio.ensure_future(slow.invoke({}, CTX))
        await asyncio.sleep(0.1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return mark.exists()

    assert asyncio.run(main()) is True


def test_example_fits_the_schema():
    @tool
    def many(a: int, b: list[float], c: Literal["x", "y"], d: dict[str, str], e: Annotated[bool, "flag"]) -> str:
        return "ok"

    example = json.loads(call_schema_example(many.parameters))
    assert call(many, **example) == "ok"


def test_importing_the_tools_imports_nothing_heavy():
    code = (
        "import sys, opensage.tools\n"
        "from opensage.tools import builtin_tools\n"
        "names = [t.name for t in builtin_tools()]\n"
        "heavy = {'pydantic', 'litellm', 'yaml', 'xllamacpp', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_call_is_cheap():
    async def main() -> float:
        for _ in range(200):
            await add.invoke({"a": 1, "b": 2}, CTX)
        best = 1.0
        for _ in range(5):
            start = time.process_time()
            for _ in range(400):
                await add.invoke({"a": 1, "b": 2}, CTX)
            best = min(best, (time.process_time() - start) / 400)
        return best

    assert asyncio.run(main()) < 0.3e-3  # 0.06 ms measured; the slack is for a busy machine


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from(["a", "b", "tags", "c", ""]), json_values, max_size=4))
def test_any_arguments_give_a_result_or_a_tool_error(arguments):
    try:
        got = call(add, **arguments)
    except ToolError as error:
        got = f"add was not called: {error}".removeprefix("add was not called: ")
    assert got.lstrip("-").isdigit() or got.startswith("add was not called: ")


@settings(max_examples=100, deadline=None)
@given(json_values)
def test_any_json_value_survives_the_way_through(value):
    @tool
    def echo(value: Any) -> Any:
        return [value]

    got = json.loads(call(echo, value=value))
    assert got == [value] or repr(got) == repr([value])


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=300))
def test_any_docstring_is_read(text):
    def function(a: int) -> int:
        return a

    function.__doc__ = text
    assert tool(function).schema()["function"]["parameters"]["required"] == ["a"]
