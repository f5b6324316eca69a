"""SWE-bench files: every published shape is read, kept and written; what is no task is said with its place."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage_benchmarks.swe.errors import MissingRepo, TaskError
from opensage_benchmarks.swe.records import names_of_tests
from opensage_benchmarks.swe.sources.base import unified
from opensage_benchmarks.swe.sources.reverse import reversed_patch
from opensage_benchmarks.swe.sources.swebench import SweBench, files_of_tests, write_tasks
from opensage_benchmarks.swe.sources.swebench_pro import SweBenchPro

PATCH = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\r\n"
FULL = {
    "instance_id": "ada__lib-1",
    "repo": "ada/lib",
    "base_commit": "a" * 40,
    "environment_setup_commit": None,
    "version": "1.0",
    "problem_statement": "It is wrong.\u2028Very.",
    "hints_text": "Look at x.",
    "created_at": "2024-01-01T00:00:00Z",
    "patch": PATCH,
    "test_patch": "",
    "FAIL_TO_PASS": '["tests/test_a.py::test_x[a b]", "test_y (module.Class)"]',
    "PASS_TO_PASS": '["A whole line, with: blanks"]',
    "difficulty": "<15 min fix",
    "mine": {"nested": [1, None, "é"]},
}
SHAPES = {
    "published": FULL,
    "lists": FULL | {"FAIL_TO_PASS": ["t.py::a"], "PASS_TO_PASS": []},
    "empty": FULL | {"FAIL_TO_PASS": "", "PASS_TO_PASS": ""},
    "null": dict.fromkeys(FULL, None) | {"instance_id": "x-1"},
    "least": {"instance_id": "x-1"},
    "live": FULL | {"test_cmds": ["pytest -rA tests"], "log_parser": "pytest", "docker_image": "i:1"},
}


def lines(path, *records, name="tasks.jsonl"):
    file = path / name
    file.write_text("".join(json.dumps(each) + "\n" for each in records))
    return file


def read(file, **options):
    return list(SweBench(file, **options).tasks())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_what_was_read_is_written_and_read_again(tmp_path, shape, suffix):
    tasks = read(lines(tmp_path, SHAPES[shape]))
    again = tmp_path / f"again.{suffix}"
    write_tasks(again, tasks)
    assert read(again) == tasks
    for field, value in SHAPES[shape].items():
        kept = tasks[0].record[field]
        assert kept == value or (field.endswith("_TO_PASS") and json.loads(kept) == list(value or []))
    assert len(again.read_text().splitlines()) == (
        1 if suffix == "jsonl" else 3
    )  # whatever a reader takes for a line's end


def test_ids_of_tests_keep_their_blanks(tmp_path):
    (task,) = read(lines(tmp_path, FULL))
    assert task.fail_to_pass == ("tests/test_a.py::test_x[a b]", "test_y (module.Class)")
    assert task.pass_to_pass == ("A whole line, with: blanks",)
    assert files_of_tests(task) == ["tests/test_a.py"]


@given(st.lists(st.text()))
@settings(max_examples=60, deadline=None)
def test_ids_in_any_form_are_the_same(ids):
    forms = (ids, tuple(ids), json.dumps(ids), f"  {json.dumps(ids)}\n", repr(ids))
    assert {names_of_tests(form, "x") for form in forms} == {tuple(ids)}


@pytest.mark.parametrize("value", ["a b", "[1]", [1], {"a": 1}, 3, '{"a": 1}', "__import__('os')", '"a"', "[" * 100000])
def test_what_is_no_list_of_tests(value):
    with pytest.raises(TaskError, match="here: test ids"):
        names_of_tests(value, "here")


def test_hints_are_off_unless_asked_for_and_images_are_found(tmp_path):
    file = lines(tmp_path, FULL, FULL | {"instance_id": "b-2", "image_name": "img:1"})
    plain, hinted = read(file), read(file, hints=True)
    assert "Look at x" not in plain[0].problem
    assert "Look at x" in hinted[0].problem
    assert [task.image for task in plain] == ["", "img:1"]


def test_a_json_list_a_gzipped_file_and_parquet_are_the_same(tmp_path):
    import pyarrow
    import pyarrow.parquet

    flat = {name: value for name, value in SHAPES["lists"].items() if name != "mine"}
    expected = read(lines(tmp_path, flat))
    (tmp_path / "t.json").write_text(json.dumps([flat]))
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress((tmp_path / "tasks.jsonl").read_bytes()))
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([flat]), tmp_path / "t.parquet")
    for name in ("t.json", "t.jsonl.gz", "t.parquet"):
        assert read(tmp_path / name) == expected


def test_parquet_without_pyarrow_names_what_to_install(tmp_path, monkeypatch):
    import sys

    (tmp_path / "t.parquet").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TaskError, match="pip install pyarrow"):
        read(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"instance_id": "a"}\n{"instance_id": \n', r"t\.jsonl:2: is no JSON"),
        (b'{"instance_id": "a"}\n\n[1]\n', r"t\.jsonl:3: is no JSON object"),
        (b'{"instance_id": "\xff"}\n', r"t\.jsonl:1: is no JSON"),
        (b"[" * 200000 + b"\n", r"t\.jsonl:1: is no JSON"),
        (b"{}\n", r"t\.jsonl:1: has no id"),
        (b'{"instance_id": " "}\n', r"t\.jsonl:1: has no id"),
        (b'{"instance_id": 3}\n', r"t\.jsonl:1: instance_id must be text, not int"),
        (b'{"instance_id": "a", "patch": ["x"]}\n', r"t\.jsonl:1: patch must be text"),
        (b'{"instance_id": ".."}\n', r"t\.jsonl:1: '\.\.' is no id"),
        (b'{"instance_id": "a\\u0000b"}\n', r"t\.jsonl:1: 'a\\x00b' is no id"),
        (json.dumps({"instance_id": "a" * 201}).encode(), r"t\.jsonl:1: .* is no id"),
        (b'{"instance_id": "a", "FAIL_TO_PASS": "a, b"}\n', r"t\.jsonl:1: FAIL_TO_PASS: test ids"),
    ],
)
def test_a_bad_line_ends_the_reading_or_is_left_out(tmp_path, content, said):
    file = tmp_path / "t.jsonl"
    file.write_bytes(content)
    with pytest.raises(TaskError, match=said):
        read(file)
    file.write_bytes(content.rstrip(b"\n") + b'\n{"instance_id": "last"}\n')
    source = SweBench(file, skip_bad=True)
    assert [task.id for task in source.tasks()][-1] == "last"
    assert len(source.bad) == 1


@pytest.mark.parametrize("second", ["ada__lib-1", "ada/lib-1"])
def test_the_same_id_twice_names_both_places(tmp_path, second):
    file = lines(tmp_path, FULL, {"instance_id": "b"}, FULL | {"instance_id": second})
    with pytest.raises(TaskError, match=r"tasks\.jsonl:3: task .* is at .*tasks\.jsonl:1 too"):
        read(file)
    source = SweBench(file, skip_bad=True)
    assert [task.id for task in source.tasks()] == ["ada__lib-1", "b"]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("t.json", b'[{"instance_id": "a"},\n{]', r"t\.json:2: is no JSON"),
        ("t.json", b"3", "is no list of tasks"),
        ("t.json", b'["a"]', "record 1: is no JSON object"),
        ("t.txt", b"", "ends in .json"),
        ("t.parquet", b"PAR1 no", "is no Parquet file"),
        ("t.jsonl.gz", b"no gzip", "cannot be read"),
        ("t.jsonl.gz", gzip.compress(b'{"instance_id": "a"}' * 99, mtime=0)[:-12], "cannot be read"),
        ("none.jsonl", None, "cannot be read"),
    ],
)
def test_a_file_that_is_none(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TaskError, match=said):
        read(tmp_path / name)


# Commands.


def plan_of(tmp_path, **fields):
    source = SweBench(lines(tmp_path, FULL | fields))
    (task,) = source.tasks()
    return source.test_plan(task)


def test_the_command_is_the_tasks_own_or_pytest_on_its_files(tmp_path):
    plan = plan_of(tmp_path)
    assert plan.junit
    assert plan.command[-1] == "tests/test_a.py"
    plan = plan_of(tmp_path, test_cmds=["pytest -rA 'a b.py'"])
    assert (plan.junit, list(plan.command[-2:])) == (True, ["-rA", "a b.py"])
    plan = plan_of(tmp_path, test_cmds=["make", "make test"])
    assert (plan.junit, list(plan.command)) == (False, ["bash", "-c", "make && make test"])
    plan = plan_of(tmp_path, test_cmds="pytest; true")
    assert not plan.junit


def test_django_has_a_runner_of_its_own(tmp_path):
    test_patch = (
        "--- a/tests/forms_tests/tests/test_a.py\n+++ b/tests/forms_tests/tests/test_a.py\n@@ -1 +1 @@\n-a\n+b\n"
    )
    plan = plan_of(
        tmp_path, repo="django/django", FAIL_TO_PASS=["test_x (m.C)"], PASS_TO_PASS=[], test_patch=test_patch
    )
    assert (plan.command[1], plan.command[-1], plan.junit) == ("tests/runtests.py", "forms_tests.tests.test_a", False)


def test_an_id_is_no_option_of_pytest(tmp_path):
    assert "-pevil" not in plan_of(tmp_path, FAIL_TO_PASS=["-pevil::x", "t.py::y"]).command


def test_without_ids_of_files_the_test_patch_names_them(tmp_path):
    test_patch = "diff --git a/t/test_b.py b/t/test_b.py\n--- a/t/test_b.py\n+++ b/t/test_b.py\n@@ -1 +1 @@\n-a\n+b\n"
    plan = plan_of(tmp_path, FAIL_TO_PASS=["test_x"], PASS_TO_PASS="", test_patch=test_patch)
    assert plan.command[-1] == "t/test_b.py"
    assert plan.patch == test_patch


# Repositories.


def git(folder, *words):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def commit(folder, **files):
    for name, content in files.items():
        (folder / f"{name}.py").write_text(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "commit")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path):
    """Base with one ancestor, a fix after it, a tag, another branch and a reflog."""
    folder = tmp_path / "repos" / "Ada__Lib"
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    commit(folder, a="x = 0\n")
    base = commit(folder, a="x = 1\n")
    commit(folder, a="x = 2  # FIXED\n")
    git(folder, "tag", "v2")
    git(folder, "checkout", "-q", "-b", "other")
    commit(folder, secret="FIXED = 1\n")
    return tmp_path / "repos", base


def one(tmp_path, repos, **fields):
    source = SweBench(lines(tmp_path, FULL | fields), repos=repos)
    (task,) = source.tasks()
    folder = tmp_path / "work"
    folder.mkdir()
    return source, task, folder


def test_a_clone_gives_the_base_and_its_ancestors_and_nothing_of_the_future(tmp_path, clone):
    repos, base = clone
    source, task, folder = one(tmp_path, repos, base_commit=base)
    source.prepare(task, folder)
    assert (folder / "a.py").read_text() == "x = 1\n"
    assert git(folder, "rev-parse", "HEAD") == base
    assert git(folder, "status", "--porcelain") == ""
    assert git(folder, "rev-list", "--all", "--count") == "2"
    objects = git(folder, "cat-file", "--batch-check", "--batch-all-objects").splitlines()
    assert sorted(line.split()[1] for line in objects) == ["blob", "blob", "commit", "commit", "tree", "tree"]
    assert git(folder, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert git(folder, "remote") == git(folder, "reflog") == git(folder, "tag") == ""
    assert not list((folder / ".git").rglob("logs")) + list((folder / ".git").rglob("alternates"))
    assert not (folder / ".git" / "FETCH_HEAD").exists()


def test_a_bare_a_shallow_and_a_worktree_clone_do_too(tmp_path, clone):
    repos, base = clone
    origin = repos / "Ada__Lib"
    ways = {
        "bare": ["clone", "-q", "--bare", str(origin), str(tmp_path / "bare" / "lib.git")],
        "shallow": [
            "clone",
            "-q",
            "--depth=3",
            "--no-single-branch",
            f"file://{origin}",
            str(tmp_path / "shallow" / "lib"),
        ],
        "tree": ["-C", str(origin), "worktree", "add", "-q", "--detach", str(tmp_path / "tree" / "ada" / "lib"), base],
    }
    for name, words in ways.items():
        git(tmp_path, *words)
        source = SweBench(lines(tmp_path, FULL | {"base_commit": base}), repos=tmp_path / name)
        folder = tmp_path / f"work-{name}"
        folder.mkdir()
        source.prepare(next(iter(source.tasks())), folder)
        assert (folder / "a.py").read_text() == "x = 1\n"
        assert git(folder, "rev-parse", "HEAD") == base


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"base_commit": "b" * 40}, "does not hold commit b+; fetch it"),
        ({"base_commit": "--upload-pack=x"}, "is no commit"),
        ({"repo": "eve/else"}, r"no eve/else in .*: put a clone"),
        ({"repo": None}, "names no repository"),
    ],
)
def test_a_repository_that_is_not_at_hand(tmp_path, clone, fields, said):
    source, task, folder = one(tmp_path, clone[0], **{"base_commit": clone[1], **fields})
    with pytest.raises(MissingRepo, match=said):
        source.prepare(task, folder)
    source, task = SweBench(tmp_path / "tasks.jsonl"), task
    with pytest.raises(MissingRepo):
        source.prepare(task, folder)


@pytest.mark.parametrize("repo", ["../repos/Ada__Lib", "/etc", "a/b/c", "a/..", "a b"])
def test_a_name_that_leads_elsewhere(tmp_path, clone, repo):
    source, task, folder = one(tmp_path, clone[0], repo=repo)
    with pytest.raises(TaskError, match="no name of a repository"):
        source.prepare(task, folder)


def test_a_plain_folder_is_copied_without_what_tools_left(tmp_path):
    plain = tmp_path / "repos" / "lib"
    (plain / "__pycache__").mkdir(parents=True)
    (plain / "__pycache__" / "a.pyc").write_bytes(b"old")
    (plain / "a.py").write_text("x = 1\n")
    (plain / "out").symlink_to("/etc/passwd")
    (plain / "in").symlink_to("a.py")
    (plain / "a.py").chmod(0o444)
    source, task, folder = one(tmp_path, tmp_path / "repos")
    source.prepare(task, folder)
    assert sorted(path.name for path in folder.rglob("*")) == ["a.py", "in"]
    (folder / "a.py").write_text("mine")
    assert (plain / "a.py").read_text() == "x = 1\n"


def test_a_clone_whose_history_holds_solutions_comes_without_it(tmp_path):
    repo = tmp_path / "repos" / "jkoppel" / "quixbugs"
    for name in ("python_programs/a.py", "correct_python_programs/a.py", "python_testcases/test_a.py", "conftest.py"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).write_text(f"# {name}\r\n")
    git(repo, "init", "-q", "-b", "main")
    base = commit(repo)
    (repo / "conftest.py").write_text("later")
    commit(repo)
    source, task, folder = one(tmp_path, tmp_path / "repos", repo="jkoppel/QuixBugs", base_commit=base)
    source.prepare(task, folder)
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    assert files == ["python_programs/a.py"]
    assert (folder / files[0]).read_bytes() == b"# python_programs/a.py\r\n"
    expected = {name: f"# {name}\r\n".encode() for name in ("python_testcases/test_a.py", "conftest.py")}
    assert source.test_plan(task).files == source.test_plan(task).files == expected


def test_a_patch_that_makes_the_bug(tmp_path, clone):
    repos, base = clone
    bug = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 666\n"
    fields = {"instance_id": "s", "repo": f"swesmith/ada__lib.{base[:8]}", "patch": bug}
    source = SweBench(lines(tmp_path, fields), repos=repos, reverse=True)
    (task,) = source.tasks()
    folder = tmp_path / "work"
    folder.mkdir()
    source.prepare(task, folder)
    assert (folder / "a.py").read_text() == "x = 666\n"
    assert not (folder / ".git").exists()
    subprocess.run(["git", "apply", "-"], input=task.patch.encode(), cwd=folder, check=True)
    assert (folder / "a.py").read_text() == "x = 1\n"


def test_a_reversed_patch_leads_back(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    before = {"a": "1\n-- 2\n3\n", "gone": "old\n", "end": "no end", "old": "".join(f"{n}\n" for n in range(20))}
    first = commit(tmp_path, **before)
    git(tmp_path, "mv", "old.py", "moved.py")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "a.py").chmod(0o755)
    commit(tmp_path, a="1\n++ 2\n3\n", end="no end\nat all", new="n\r\n")
    patch = git(tmp_path, "diff", "-M", first, "HEAD") + "\n"
    done = subprocess.run(["git", "diff", "-M", first, "HEAD"], cwd=tmp_path, check=True, capture_output=True)
    patch = done.stdout.decode()
    back = reversed_patch(patch, "x")
    subprocess.run(["git", "apply", "--index", "-"], input=back.encode(), cwd=tmp_path, check=True)
    assert git(tmp_path, "diff", "--cached", "--stat", first) == ""
    assert "rename" in back


@given(st.text("ab-+ \n\r"), st.text("ab-+ \n\r"))
@settings(max_examples=60, deadline=None)
def test_a_patch_reversed_twice_is_itself(before, after):
    patch = unified("x.py", before, after)
    assert reversed_patch(reversed_patch(patch, "x"), "x") == patch


@pytest.mark.parametrize("patch", ["@@ -1,3 +1 @@\n-a\n", "@@ -1 +1 @@\nX\n", "GIT binary patch\nliteral 3\n"])
def test_a_patch_that_cannot_be_reversed(patch):
    with pytest.raises(TaskError, match="here: patch cannot be reversed"):
        reversed_patch(patch, "here")


# SWE-bench Pro.

PRO = {
    "instance_id": "instance_ada__lib-1",
    "repo": "ada/lib",
    "base_commit": "a" * 40,
    "problem_statement": "It fails.",
    "requirements": "It must not.",
    "interface": "def f()",
    "fail_to_pass": "['t.py::a', \"t.py::b's\"]",
    "PASS_TO_PASS": "[]",
    "selected_test_files_to_run": "['t.py', 'u.py']",
    "patch": PATCH,
    "test_patch": "",
}


def test_pro_is_read_from_lines_and_csv_with_its_prompt_of_three_parts(tmp_path):
    with (tmp_path / "pro.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(PRO))
        writer.writeheader()
        writer.writerow(PRO)
    (task,) = SweBenchPro(tmp_path / "pro.csv").tasks()
    assert [task] == list(SweBenchPro(lines(tmp_path, PRO)).tasks())
    assert task.fail_to_pass == ("t.py::a", "t.py::b's")
    assert task.patch == PATCH
    assert [part in task.problem for part in ("It fails.", "It must not.", "def f()")] == [True] * 3
    assert list(SweBenchPro(tmp_path / "pro.csv").test_plan(task).command[-2:]) == ["t.py", "u.py"]


def test_a_csv_line_that_is_cut(tmp_path):
    (tmp_path / "pro.csv").write_text("instance_id,patch\na,b\nc\n")
    with pytest.raises(TaskError, match=r"pro\.csv:3"):
        list(SweBenchPro(tmp_path / "pro.csv").tasks())
    (tmp_path / "pro.csv").write_text('instance_id,patch\na,"b\n')
    with pytest.raises(TaskError, match="is no CSV"):
        list(SweBenchPro(tmp_path / "pro.csv").tasks())


@pytest.mark.parametrize(("status", "code"), [("PASSED", 0), ("FAILED", 1)])
def test_a_task_of_pro_with_its_own_script_and_parser(tmp_path, status, code):
    import sys

    folder = tmp_path / "scripts" / PRO["instance_id"]
    folder.mkdir(parents=True)
    (folder / "run_script.sh").write_text('echo "$1 $(cat mine)"\n')
    parser = (
        "import json, sys\nfiles, status = open(sys.argv[1]).read().split()\nassert files == 't.py,u.py'\n"
        "tests = [{'name': name, 'status': status} for name in ('t.py::a', \"t.py::b's\")]\n"
        "json.dump({'tests': tests}, open(sys.argv[3], 'w'))\n"
    )
    (folder / "parser.py").write_text(parser)
    source = SweBenchPro(lines(tmp_path, PRO), scripts=tmp_path / "scripts")
    (task,) = source.tasks()
    plan = source.test_plan(task)
    assert not plan.junit
    for name, content in plan.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "mine").write_text(status)
    command = [word.replace("{python}", sys.executable) for word in plan.command]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == code
