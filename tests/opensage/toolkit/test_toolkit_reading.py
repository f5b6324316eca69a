from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from helpers_toolkit import Bench
from hypothesis import given
from hypothesis import strategies as st

from opensage.errors import ToolError
from opensage.toolkit.folder import content_hash, read_folder
from opensage.toolkit.signature import read_functions
from opensage.toolkit.spec import load_toolkit
from opensage.tools.schema import call_schema_example


def functions(source: str):
    return read_functions(source.encode(), "kit")


def schema(hint: str, more: str = "") -> dict:
    source = f'from __future__ import annotations\nfrom typing import *\nimport typing\n{more}\ndef f(x: {hint}):\n    """F."""\n'
    (function,) = functions(source)
    return dict(function.binding.schema()["properties"]["x"])


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("str", {"type": "string"}),
        ("bool", {"type": "boolean"}),
        ("'int'", {"type": "integer"}),
        ("None | float", {"type": "number"}),
        ("Optional[int]", {"type": "integer"}),
        ("typing.List[float]", {"type": "array", "items": {"type": "number"}}),
        ("list[list[float]]", {"type": "array", "items": {"type": "array", "items": {"type": "number"}}}),
        ("dict[str, int]", {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("dict", {"type": "object", "additionalProperties": True}),
        ("Literal['a', 'b']", {"type": "string", "enum": ["a", "b"]}),
        ("Annotated[int, 'how many']", {"type": "integer"}),
        ("tuple[float, ...]", {"type": "array", "items": {"type": "number"}}),
        ("Sequence[str]", {"type": "array", "items": {"type": "string"}}),
        ("int | str", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ("Union[int, list[int]]", {"anyOf": [{"type": "integer"}, {"items": {"type": "integer"}, "type": "array"}]}),
    ],
)
def test_a_hint_becomes_a_schema(hint: str, expected: dict) -> None:
    assert schema(hint) == expected


def test_a_name_that_the_module_gives_to_a_type_is_known() -> None:
    assert schema("Matrix", "Row = list[float]\nMatrix: TypeAlias = list[Row]")["items"]["items"] == {"type": "number"}


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        ("np.ndarray", "cannot come from JSON"),
        ("dict[int, str]", "keys"),
        ("Loop", "too deeply"),
        ("list[complex]", "complex"),
        ("Literal[f()]", "written out"),
        ("3", "no type"),
        ("'list['", "no type"),
    ],
)
def test_a_hint_that_json_cannot_fill_is_named_with_its_parameter(hint: str, why: str) -> None:
    with pytest.raises(ToolError, match=f"(?s)parameter 'x' of f.*{why}.*use str, int"):
        schema(hint, "Loop = list['Loop']\n")


def test_tools_are_the_public_functions_or_those_in_all() -> None:
    source = 'def a(): "A."\ndef _b(): ...\nclass C: ...\nasync def d(x: int = 1, *, y=len("x")): "D."\n'
    found = functions(source)
    assert [(f.title, f.documented) for f in found] == [("kit__a", True), ("kit__d", False)]
    assert found[1].signature == "d(x: int=1, *, y=len('x'))"
    assert found[1].binding.schema().get("required") is None
    assert [f.name for f in functions(source + '__all__ = ["a"]\n')] == ["a"]
    assert call_schema_example(found[1].binding.schema()) == '{"x": 1}'


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def f(:\n", "line 1"),
        ("x = 1\n__all__ = ['x']", "__all__ names x"),
        ("__all__ = [n for n in 'ab']", "written out"),
        ("def f(*args): ...", "name each"),
        ("def f(a, /): ...", "name each"),
        ("x = '\0'", "not a Python module|null bytes"),
        ("x = " + "(" * 300, "too many nested|not a Python module"),
        ("-" * 100_000 + "1", "not a Python module|too"),
    ],
)
def test_a_module_that_cannot_be_read_says_why(source: str, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        functions(source)


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(source: str) -> None:
    with contextlib.suppress(ToolError, UnicodeEncodeError):
        functions(source)


def test_reading_runs_no_code(bench: Bench) -> None:
    source = "import pathlib\npathlib.Path('ran').write_text('')\nraise SystemExit\ndef f(): 'F.'\n"
    spec = load_toolkit(bench.user("quiet", {"tools.py": source}))
    assert [tool.name for tool in spec.tools] == ["f"]
    assert not Path("ran").exists()


def test_a_skill_made_elsewhere_loads_unchanged(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    (bench.home / "hidden").mkdir()
    text = (
        "---\nname: pdf-forms\ndescription: Fill PDF forms.\nlicense: MIT\nallowed-tools: [Bash]\n---\n# PDF\nRun it.\n"
    )
    folder = bench.put(
        bench.home / "toolkits" / "pdf-forms",
        {
            "SKILL.md": text,
            "scripts/fill.py": "print('fill')\n",
            "scripts/latin.txt": "caf\xe9".encode("latin-1"),
            "assets/logo.bin": b"\0\x01\x02",
            "assets/huge.bin": b"x" * (10 << 20),
            ".git/config": "[core]",
            "scripts/__pycache__/fill.pyc": b"\0",
        },
    )
    os.symlink(secret, folder / "leak.txt")
    os.symlink(tmp_path, folder / "above")
    os.symlink("fill.py", folder / "scripts" / "same.py")
    os.mkfifo(folder / "pipe")
    spec = load_toolkit(folder)
    assert spec.description == "Fill PDF forms."
    assert spec.tools == ()
    assert "Run it." in spec.body
    assert "Run it." in spec.described()
    kept = ["SKILL.md", "assets/logo.bin", "scripts/fill.py", "scripts/latin.txt", "scripts/same.py"]
    assert sorted(spec.files) == kept
    assert {note.partition(" ")[0] for note in spec.notes} == {"assets/huge.bin", "leak.txt", "above", "pipe"}
    assert all("\n" not in note and len(note) < 300 for note in spec.notes)
    assert bench.new_shelf(bench.new_workshop()).prompt().endswith("- pdf-forms: Fill PDF forms.")


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "no SKILL.md"),
        ({"SKILL.md": "---\nname: [\n---\n"}, "not valid YAML"),
        ({"SKILL.md": "---\nname: x\n"}, "not closed"),
        ({"SKILL.md": "---\nname: '../up'\n---\n"}, "name '../up' is not valid"),
        ({"SKILL.md": b"\0\0"}, "binary"),
        ({"SKILL.md": "---\nname: x\n---\n", "tools.py": "def"}, "tools.py line 1"),
    ],
)
def test_a_broken_folder_is_one_line(bench: Bench, files: dict, why: str) -> None:
    with pytest.raises(ToolError, match=why) as caught:
        load_toolkit(bench.put(bench.workdir / "broken", files))
    assert len(str(caught.value).splitlines()) == 1


def test_a_broken_toolkit_hides_no_other(bench: Bench) -> None:
    bench.user("good", {})
    bench.put(bench.home / "toolkits" / "bad", {"SKILL.md": "---\nname: [\n---\n"})
    (bench.home / "toolkits" / "file").write_text("x")
    shelf = bench.new_shelf(bench.new_workshop())
    assert [item.spec.name for item in shelf.items()] == ["good"]
    states = {entry.name: entry.state for entry in shelf.workshop.library.entries()}
    assert "not valid YAML" in states["bad"]


def test_the_hash_is_of_paths_and_bytes() -> None:
    one = content_hash({"a": b"1", "b": b"2"})
    assert one == content_hash({"b": b"2", "a": b"1"})
    others = [{"a": b"12", "b": b""}, {"a": b"1", "c": b"2"}, {"a": b"1"}, {"a": b"1", "b": b"2", "c": b""}]
    assert len({one, *map(content_hash, others)}) == 5


def test_a_folder_that_is_gone_has_no_files(tmp_path: Path) -> None:
    assert read_folder(tmp_path / "gone").files == {}
