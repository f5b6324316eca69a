from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opensage.errors import ConfigError, ToolError
from opensage.tools import Tool, Toolbox, ToolContext, builtin_tools, load_instructions, tool
from opensage.tools.front_matter import FrontMatterError, split_front_matter
from opensage.tools.instructions import MAX_FILE, MAX_TOTAL
from opensage.tools.talk import ask, finish


@tool
def extra(a: int) -> int:
    """Do something."""
    return a


# --- the toolbox ---


def test_builtins_are_small_and_complete():
    names = [made.name for made in builtin_tools()]
    files = ["read", "write", "edit", "list", "search"]
    assert names == ["shell", *files, "tasks", "task_output", "task_wait", "task_kill", "ask", "finish"]
    assert {made.source for made in builtin_tools()} == {"builtin"}
    assert [made.name for made in builtin_tools() if made.changes] == ["shell", "write", "edit"]
    assert len(json.dumps(Toolbox(builtin_tools()).schemas())) < 4700  # about 1,100 tokens, in every prompt
    assert all(len(made.description) < 90 and "\n" not in made.description for made in builtin_tools())


def test_a_toolbox_is_looked_up_and_cached():
    box = Toolbox(builtin_tools())
    before = box.schemas()
    assert box.schemas() is before
    box.add(extra)
    assert [schema["function"]["name"] for schema in box.schemas()][-1] == "extra"
    assert box.get("extra") is extra
    assert "extra" in box
    box.remove("extra")
    assert box.get("extra") is None
    assert len(box.schemas()) == len(before) == len(box) == len(list(box)) == len(box.names)


def test_probe_j2_nothing_shadows_and_builtins_stay():
    box = Toolbox([*builtin_tools(), extra])
    mine = tool(name="shell", source="toolkit:mine")(lambda: 1)
    with pytest.raises(ConfigError, match="'shell' from toolkit:mine would hide the one from builtin"):
        box.add(mine)
    with pytest.raises(ConfigError, match="'extra' from python would hide the one from python"):
        box.add(extra)
    with pytest.raises(ConfigError, match="'read' is built in"):
        box.remove("read")
    with pytest.raises(ConfigError, match="did you mean 'extra'"):
        box.remove("Extr")
    for name in ("", "a b", "x" * 65, "é", "a.b", "a\n", None):
        with pytest.raises(ConfigError, match="not valid"):
            box.add(Tool(name, "", {}, extra.invoke))
    assert box.names[-1] == "extra"


def test_nearest_names():
    box = Toolbox(builtin_tools())
    for wrong, right in {"Shell": "shell", "reed": "read", "write_file": "write", "task": "tasks"}.items():
        assert box.nearest(wrong) == right
    assert box.nearest("zzzzzzz") is None
    assert box.nearest("") is None
    assert box.nearest("x" * 100_000) is None


# --- ask and finish ---


def test_ask_and_finish():
    async def answer(question: str) -> str:
        if question == "gone":
            raise EOFError
        return f" {question}! "

    def call(made, person=None, **arguments):
        return asyncio.run(made.invoke(arguments, ToolContext(None, Path("."), ask=person)))

    assert call(ask, answer, question="why") == "why!"
    for question, person in (("why", None), ("gone", answer)):
        with pytest.raises(ToolError, match="decide yourself"):
            call(ask, person, question=question)
    assert call(finish, text="done") == "done"


# --- instructions ---


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def skill_file(name: str, description: str = "does it") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\nBody of {name}.\n"


@pytest.fixture
def places(tmp_path):
    workdir, home = tmp_path / "repo" / "sub", tmp_path / "home"
    workdir.mkdir(parents=True)
    home.mkdir()
    (tmp_path / "repo" / ".git").mkdir()
    return workdir, home


def test_instruction_files_from_general_to_near(places):
    workdir, home = places
    put(workdir.parent.parent / "AGENTS.md", "above the root")
    put(home / "AGENTS.md", "of the user")
    put(workdir.parent / "AGENTS.md", "\ufeffof the root\r\n")
    put(workdir / "CLAUDE.md", "near")
    (workdir.parent / "CLAUDE.md").symlink_to("AGENTS.md")
    got = load_instructions(workdir, home)
    assert [line for line in got.text.split("\n") if line and line[0] != "#"] == ["of the user", "of the root", "near"]
    assert got.sources == (home / "AGENTS.md", workdir.parent / "AGENTS.md", workdir / "CLAUDE.md")
    assert got.warnings == ()


def test_without_git_only_the_workdir_counts(tmp_path):
    put(tmp_path / "AGENTS.md", "above")
    put(tmp_path / "sub" / "AGENTS.md", "here")
    assert "above" not in load_instructions(tmp_path / "sub", tmp_path / "home").text
    assert load_instructions(tmp_path / "none", tmp_path / "home").text == ""


def test_skills_are_listed_and_the_nearest_wins(places):
    workdir, home = places
    put(workdir / "skills" / "pdf" / "SKILL.md", skill_file("pdf", "reads PDF"))
    put(workdir / ".opensage" / "skills" / "x" / "SKILL.md", skill_file("xls"))
    put(workdir.parent / ".claude" / "skills" / "csv" / "SKILL.md", "No front matter here.\n")
    put(home / "skills" / "pdf" / "SKILL.md", skill_file("pdf", "of the user"))
    put(home / "skills" / "own" / "SKILL.md", "---\nname: own\ndescription: >\n  folded\n  text\n---\n")
    (home / "skills" / "empty").mkdir()
    got = load_instructions(workdir, home)
    assert got.skills_text.split("\n") == [
        "- skill:xls: does it",
        "- skill:pdf: reads PDF",
        "- skill:csv: No front matter here.",
        "- skill:own: folded text",
    ]
    assert got.skill_folders["pdf"] == workdir / "skills" / "pdf"
    assert len(got.warnings) == 1
    assert "'pdf' is in" in got.warnings[0]


def test_hostile_files_are_survived_and_said(places):
    workdir, home = places
    put(workdir / "CLAUDE.md", b"\0\1\2")
    os.mkfifo(workdir / "AGENTS.md")
    (workdir.parent / "AGENTS.md").symlink_to("/etc/passwd")
    (workdir.parent / "CLAUDE.md").symlink_to("CLAUDE.md")
    (home / "AGENTS.md").mkdir()
    skills = workdir / "skills"
    for name, content in {
        "open": "---\nname: open\n",
        "list": "---\n- a\n---\n",
        "bad": "---\nname: [\n---\n",
        "date": "---\nname: 2024-99-99\n---\n",
        "deep": "---\nname: " + "[" * 5000 + "\n---\n",
        "tag": "---\nname: !!python/object/apply:os.system ['touch x']\n---\n",
        "bomb": "---\na: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(f"{n}: [*a,*a,*a]\n" for n in range(9)) + "---\n",
        "Bad Name": "text",
        "binary": b"\0",
        "huge": b"---\n" + b"a: b\n" * 100_000 + b"---\n",
    }.items():
        put(skills / name / "SKILL.md", content)
    (skills / "loop").symlink_to(".")
    (skills / "out").symlink_to("/etc")
    (skills / "dangling").mkdir()
    (skills / "dangling" / "SKILL.md").symlink_to("nowhere")
    got = load_instructions(workdir, home)
    assert got.text == ""
    assert "root:" not in got.text
    for word in ("binary", "not a regular file", "link out of", "not closed", "not valid YAML", "'Bad Name'"):
        assert any(word in warning for warning in got.warnings), word
    assert all("\n" not in warning for warning in got.warnings)
    assert {skill.name for skill in got.skills} >= {"open", "list", "bad", "date", "deep", "tag", "bomb"}
    assert not (Path.cwd() / "x").exists()


def test_huge_files_are_cut(places):
    workdir, home = places
    for folder in (home, workdir.parent, workdir):
        put(folder / "AGENTS.md", f"{folder}" + "x" * 1_000_000)
    got = load_instructions(workdir, home)
    assert len(got.text) < MAX_TOTAL + 2000
    assert MAX_FILE < MAX_TOTAL
    assert len(got.warnings) >= 2
    for number in range(300):
        put(workdir / "skills" / f"s{number}" / "SKILL.md", skill_file(f"s{number}", "y" * 5000))
    got = load_instructions(workdir, home)
    assert len(got.skills) == 100
    assert max(len(skill.description) for skill in got.skills) <= 1024


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: f"---\n{text}\n---\nbody".encode("utf-8", "replace"))
)
def test_any_bytes_are_survived(places, data):
    workdir, home = places
    for name in ("AGENTS.md", "skills/a/SKILL.md"):
        put(workdir / name, data)
    got = load_instructions(workdir, home)
    assert all("\n" not in warning for warning in got.warnings)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=100), st.text(max_size=100))
def test_front_matter_never_fails_otherwise(block, body):
    try:
        fields, rest = split_front_matter(f"---\n{block}\n---\n{body}")
    except FrontMatterError:
        return
    assert isinstance(fields, dict)
    assert body.endswith(rest) or block


def test_front_matter_forms():
    assert split_front_matter("no block") == ({}, "no block")
    assert split_front_matter("---\nname: a\n---\nbody\n---\n") == ({"name": "a"}, "body\n---\n")
    assert split_front_matter("---\r\nname: a\r\n---\r\nbody") == ({"name": "a"}, "body")
    assert split_front_matter("---\n---\n") == ({}, "")
