"""Names and descriptions that servers give, and what becomes of them. Probe K3 and its neighbours."""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from mcp_helpers import raw_server, started, stdio_server, use

import opensage
from opensage.approval import Policy
from opensage.mcp import McpServers
from opensage.mcp.names import Names
from opensage.mcp.schema import MOST_CHARS, bounded_schema, clean
from opensage.models import ScriptedModel
from opensage.sandbox import ScriptedSandbox
from opensage.tools import Toolbox, builtin_tools, tool

RULE = re.compile(r"[a-zA-Z0-9_-]{1,64}")
WILD = ["get-user", "get.user", "get_user", "x" * 70, "x" * 71, "öffne", "查询", "搜索"]


def test_probe_k3_every_name_is_one_that_providers_take_and_reaches_its_own_tool(tmp_path: Path) -> None:
    @tool(name="one__get_user")
    def mine() -> str:
        """A function of the developer's."""
        return "mine"

    async def main() -> None:
        box = Toolbox([*builtin_tools(), mine])
        two = raw_server(tmp_path, *WILD, "b__c", name="two")
        names = {"a": "two__b"}  # so that a server and a tool's name may say the same in two ways
        other = raw_server(tmp_path, "c", name="two__b")
        async with started(stdio_server("one", "wild"), two, other, box=box) as (_, warnings):
            assert warnings == []
            assert box.get("one__get_user") is mine
            assert all(map(RULE.fullmatch, box.names))
            assert "one__get-user" in box
            assert names["a"] + "__c" in box
            for server in ("one", "two"):
                mine_too = [
                    t
                    for t in box
                    if t.source == f"mcp:{server}"
                    and t.description.endswith(("evil", "x", "user", "索", "询", "öffne", "b__c"))
                ]
                said = [await use(box, t.name) for t in mine_too]
                for name in WILD:
                    assert len([text for text in said if text in (f"I am {name}", f"{name} {{}}")]) == 1, name
            assert await use(box, "two__get_user") == "get_user {}"
            assert len([t for t in box if t.source == "mcp:two__b"]) == 1
            assert await use(box, next(t.name for t in box if t.source == "mcp:two__b")) == "c {}"
            assert "evil" in next(t for t in box if t.source == "mcp:one" and "evil" in t.description).description
            assert not any("\x07" in t.description or "\u202e" in t.description for t in box)

    asyncio.run(main())


def test_probe_k3_a_run_calls_a_tool_by_the_name_it_was_shown(tmp_path: Path) -> None:
    async def main() -> opensage.Result:
        box = Toolbox()
        async with started(raw_server(tmp_path, "get.user", "x" * 70), box=box):
            model = ScriptedModel(
                [
                    {"tool_calls": [{"name": name, "arguments": {"id": 7}} for name in box.names]},
                    {"text": "done"},
                ]
            )
            policy = Policy.parse(allow=["raw__*"])
            return await opensage.arun(
                "go", model=model, tools=list(box), workdir=tmp_path, sandbox=ScriptedSandbox(), policy=policy
            )

    result = asyncio.run(main())
    texts = [event.text for event in result.events if type(event).__name__ == "ToolResult"]
    assert texts == ['get.user {"id": 7}', "x" * 70 + ' {"id": 7}']
    assert result.status == "done"


def test_without_a_rule_a_person_is_asked_even_inside_a_sandbox(tmp_path: Path) -> None:
    async def main() -> opensage.Result:
        box = Toolbox()
        async with started(raw_server(tmp_path, "pid"), box=box):
            model = ScriptedModel([{"tool_calls": [{"name": "raw__pid"}]}, {"text": "done"}])
            return await opensage.arun("go", model=model, tools=list(box), workdir=tmp_path, sandbox=ScriptedSandbox())

    texts = [event.text for event in asyncio.run(main()).events if type(event).__name__ == "ToolResult"]
    assert "default of raw__pid, and nobody is there to approve it" in texts[0]


@given(
    st.lists(st.tuples(st.sampled_from(["a", "a__b", "a_b", "A"]), st.text(max_size=90)), max_size=12, unique=True),
    st.sets(st.sampled_from(["a__x", "a__tool", "a__", "a___"])),
)
def test_names_are_valid_different_and_the_same_in_any_order(pairs: list[tuple[str, str]], taken: set[str]) -> None:
    def given_in(order: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
        names, found = Names(), {}
        for server in ("a", "a__b", "a_b", "A"):
            mine = [name for owner, name in order if owner == server]
            found.update({(server, key): name for key, name in names.assign(server, mine, taken.__contains__).items()})
            assert names.assign(server, mine, lambda _name: False) == {n: found[server, n] for n in mine}
        return found

    found = given_in(pairs)
    assert len(set(found.values())) == len(pairs)
    assert all(map(RULE.fullmatch, found.values()))
    assert not taken & set(found.values())
    shuffled = pairs[:]
    random.Random(1).shuffle(shuffled)
    assert given_in(shuffled) == found


def test_an_agent_gets_only_the_tools_that_it_names(tmp_path: Path) -> None:
    async def main() -> None:
        servers = McpServers([raw_server(tmp_path, "get.user", "pid", name="my-raw")])
        box = Toolbox()
        assert servers.owns("my-raw__get_user")
        assert not servers.owns("my_raw__x")
        assert not servers.owns("shell")
        await servers.start(box, only=("my-raw__get_user", "shell"))
        assert box.names == ["my-raw__get_user"]
        await servers.close()

    asyncio.run(main())


def test_a_name_is_never_another_tools_later() -> None:
    names = Names()
    assert names.assign("s", ["get.user"], lambda _n: False) == {"get.user": "s__get_user"}
    assert names.assign("s", ["get_user"], lambda _n: False)["get_user"] != "s__get_user"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda x: (
        st.lists(x, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    *("type", "properties", "items", "$ref", "$defs", "anyOf", "allOf", "required", "enum", "pattern"),
                    *("additionalProperties", "description", "minimum", "default", "not", "$id", "a"),
                )
            ),
            x | st.sampled_from(["#", "#/$defs/a", "#/properties/a", "http://evil/x", "object", "string"]),
            max_size=4,
        )
    ),
    max_leaves=25,
)


@settings(max_examples=150, deadline=None)
@given(JSON)
@example({"properties": {"$ref": None}})
@example({"properties": {"a": {"default": {"$ref": "x"}}}})
def test_any_schema_becomes_one_that_providers_take(schema: Any) -> None:
    made, _ = bounded_schema(schema)
    Draft202012Validator.check_schema(made)
    assert made["type"] == "object"
    assert isinstance(made["properties"], dict)
    text = json.dumps(made)
    assert '"$ref"' not in text
    assert len(text) <= 6 * MOST_CHARS


def test_a_good_schema_passes_through_with_references_in_their_place() -> None:
    schema = {
        "type": "object",
        "title": "Args",
        "properties": {
            "when": {"$ref": "#/$defs/Date", "description": "The day."},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            "title": {"type": "string"},
            "tree": {"$ref": "#/$defs/Node"},
        },
        "required": ["when", "gone"],
        "additionalProperties": False,
        "$defs": {
            "Date": {"type": "string", "format": "date", "description": "A date."},
            "Node": {"type": "object", "properties": {"left": {"$ref": "#/$defs/Node"}}},
        },
    }
    assert bounded_schema(schema) == (
        {
            "type": "object",
            "properties": {
                "when": {"type": "string", "format": "date", "description": "The day."},
                "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
                "title": {"type": "string"},
                "tree": {"type": "object", "properties": {"left": {}}},
            },
            "additionalProperties": False,
            "required": ["when"],
        },
        "",
    )
    at_top = {
        "$ref": "#/definitions/A",
        "definitions": {"A": {"type": "object", "properties": {"x": {"type": "number"}}}},
    }
    assert bounded_schema(at_top)[0]["properties"] == {"x": {"type": "number"}}
    choice = {"oneOf": [{"properties": {"a": {"type": "string"}}}, {"properties": {"b": {"type": "string"}}}]}
    assert set(bounded_schema(choice)[0]["properties"]) == {"a", "b"}


def _bomb() -> dict[str, Any]:
    defs = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 10} for n in range(12)}
    return {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": {**defs, "d12": {"type": "string"}}}


def _deep(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        found = {"type": "object", "properties": {"x": found}}
    return found


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ({"properties": {"x": {"$ref": "#/properties/x"}}}, ["x"]),
        ({"properties": {"x": {"$ref": "#/properties/y"}, "y": {"$ref": "#/properties/x"}}}, ["x", "y"]),
        ({"$ref": "#"}, []),
        ({"properties": {"x": {"$ref": "file:///etc/passwd"}, "y": {"$ref": 7}}}, ["x", "y"]),
        ({"properties": {"x": {"type": "strnig"}, "y": {"type": "string", "minLength": "many"}}}, ["x", "y"]),
        ({"properties": {"x": {"type": "string", "pattern": "((("}}}, ["x"]),
        ({"properties": {"x": {"enum": "abc", "required": "x"}}}, ["x"]),
        ({"type": "array", "properties": []}, []),
        (_bomb(), ["x"]),
        (_deep(900), ["x"]),
        ({"properties": {f"p{n}": {"type": "string", "description": "d" * 900} for n in range(100)}}, None),
        ({"properties": {"n" * 65: {}, "ok": {}, "e\x1bsc": {}}}, ["ok"]),
        ({"properties": {"x": {"default": float("nan"), "minimum": float("inf"), "maximum": 10**5000}}}, ["x"]),
        ({"properties": {"x": {"enum": [10**5000, -(10**400), 1.5, True, None]}}}, ["x"]),
        (None, []),
        (5, []),
    ],
)
def test_a_hostile_schema_is_bounded_quickly(schema: Any, names: list[str] | None) -> None:
    began = time.process_time()
    made, _ = bounded_schema(schema)
    assert time.process_time() - began < 1
    Draft202012Validator.check_schema(made)
    assert len(json.dumps(made, allow_nan=False)) <= MOST_CHARS
    assert list(made["properties"]) == ([f"p{n}" for n in range(100)] if names is None else names)


def test_a_schema_that_is_too_large_for_any_window_is_replaced_and_the_model_is_told() -> None:
    made, note = bounded_schema({"properties": {f"p{n}": {"enum": ["x" * 90]} for n in range(400)}})
    assert made == {"type": "object", "properties": {}}
    assert "any arguments" in note


def test_clean_text() -> None:
    assert clean("a\x1b[2Jb\u202ec\U000e0041d\te\nf\0", 99) == "a[2Jbcd\te\nf"
    assert clean("x" * 5000, 10) == "x" * 9 + "…"


def test_ten_thousand_tools_and_pages_without_end(tmp_path: Path) -> None:
    many = [{"name": f"t{n}", "description": "d" * 1100, "inputSchema": {"type": "object"}} for n in range(10_000)]

    async def main() -> None:
        crowd = raw_server(tmp_path, *many, name="crowd", page=1000)
        loop = raw_server(tmp_path, "pid", name="loop", endless=True)
        chosen = raw_server(tmp_path, *many, name="chosen", page=1000, more={"tools": ("t9999", "nothing")})
        async with started(crowd, loop, chosen) as (box, warnings):
            assert len(box) == 128 + 1 + 1
            assert "chosen__t9999" in box
            assert all(len(t.description) <= 1024 for t in box)
            assert warnings == [
                "MCP server crowd offers 10000 tools, of which 128 are taken; name those you want in mcp.crowd.tools",
                "MCP server chosen has no tool nothing; mend mcp.chosen.tools",
            ]

    asyncio.run(main())


def test_lists_that_are_none(tmp_path: Path) -> None:
    wrong = [{"name": 5}, "text", {"inputSchema": {}}]

    async def main() -> None:
        for n, item in enumerate(wrong):
            server = raw_server(tmp_path, {"x": 1} if isinstance(item, str) else item, name=f"wrong{n}")
            async with started(server) as (box, [warning]):
                assert len(box) == 0
                assert "is it an MCP server?" in warning

    asyncio.run(main())
