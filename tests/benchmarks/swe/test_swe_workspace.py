"""Workspaces without a trace of the future, and patches taken from what agents leave behind."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest

from opensage_benchmarks.swe import survey
from opensage_benchmarks.swe.errors import MissingRepo, PatchError
from opensage_benchmarks.swe.litter import is_test, why_not
from opensage_benchmarks.swe.task import Task, TestPlan
from opensage_benchmarks.swe.workspace import check_patch, prepare, take_patch

FILES = {
    "pkg/a.py": b"one\ntwo\nthree\n",
    "pkg/crlf.py": b"a\r\nb\r\n",
    "pkg/end.py": b"no newline",
    "tests/test_a.py": b"def test_a(): pass\n",
    ".gitignore": b"build/\n*.dat\n",
    "logo.png": b"\x89PNG\0\1",
}
TASK = Task("t", "p")


class Files:
    """A source of plain files."""

    name = "files"

    def __init__(self, files=FILES):
        self.files = files

    def tasks(self):
        return iter([TASK])

    def prepare(self, task, folder):
        for path, data in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)

    def test_plan(self, task):
        return TestPlan()


class Clone(Files):
    """A source that copies a whole repository, with all that is in it."""

    def __init__(self, origin, dirty=None):
        self.origin, self.dirty = origin, dirty

    def prepare(self, task, folder):
        shutil.copytree(self.origin, folder, dirs_exist_ok=True, symlinks=True)
        if self.dirty:
            os.unlink(folder / self.dirty)


def run(folder, *words, check=True):
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    config = (
        "-c",
        "user.name=x",
        "-c",
        "user.email=x@y",
        "-c",
        "init.defaultBranch=main",
        "-c",
        "protocol.file.allow=always",
    )
    done = subprocess.run(["git", *config, *words], cwd=folder, env=env, capture_output=True, check=False)
    assert not check or done.returncode == 0, done.stderr
    return done.stdout.decode(errors="surrogateescape")


def make(tmp_path, source=None):
    (tmp_path / "work").mkdir()
    return prepare(source or Files(), TASK, tmp_path / "work", tmp_path / "trusted")


@pytest.fixture
def space(tmp_path):
    return make(tmp_path)


def names(taken):
    return {item.path: item.why for item in taken.left_out}


def applied(space, patch, tmp_path):
    """The files of a clean checkout after the patch."""
    folder = tmp_path / "clean"
    folder.mkdir()
    run(folder, f"--git-dir={space.trusted}", f"--work-tree={folder}", "checkout", "-q", "-f", space.base, "--", ".")
    (tmp_path / "p").write_bytes(patch)
    run(folder, "apply", "-p1", str(tmp_path / "p"))
    return folder


# --- preparing ---


def test_plain_files_get_the_same_base_each_time_and_are_clean(tmp_path):
    one = make(tmp_path)
    (tmp_path / "again").mkdir()
    two = make(tmp_path / "again")
    assert one.base == two.base == run(one.folder, "rev-parse", "HEAD").strip()
    assert run(one.folder, "status", "--porcelain") == ""
    assert (one.folder / "pkg/crlf.py").read_bytes() == FILES["pkg/crlf.py"]
    assert run(one.folder, "remote") == ""
    assert run(one.folder, "reflog") == ""
    assert take_patch(one) == take_patch(two)
    assert take_patch(one).patch == b""
    assert take_patch(one).left_out == ()


def history(tmp_path):
    """A repository with everything that may give a fix away, at its base."""
    origin = tmp_path / "origin"
    origin.mkdir()
    Files().prepare(TASK, origin)
    run(origin, "init", "-q")
    run(origin, "add", "-A")
    run(origin, "commit", "-qm", "first")
    (origin / "pkg/a.py").write_bytes(b"one\ntwo\nbase\n")
    run(origin, "commit", "-qam", "base")
    base = run(origin, "rev-parse", "HEAD").strip()
    for number, way in enumerate(("branch", "tag", "stash", "reflog", "remote", "note", "pack")):
        (origin / "pkg/a.py").write_text(f"FUTURE {way} {number}\n")
        if way == "stash":
            run(origin, "stash", "-q")
            continue
        run(origin, "commit", "-qam", f"FUTURE {way}")
        if way == "branch":
            run(origin, "branch", "fix")
        elif way == "tag":
            run(origin, "tag", "-a", "v2", "-m", "FUTURE")
        elif way == "remote":
            run(origin, "update-ref", "refs/remotes/origin/main", "HEAD")
            run(origin, "remote", "add", "origin", "https://example.org/x")
        elif way == "note":
            run(origin, "notes", "add", "-m", "FUTURE note", base)
        elif way == "pack":
            run(origin, "gc", "-q")
        run(origin, "reset", "-q", "--hard", base)
    donor = tmp_path / "donor"
    run(tmp_path, "clone", "-q", "--bare", str(origin), str(donor))
    (origin / ".git/objects/info/alternates").write_text(f"{donor}/objects\n")
    (origin / ".git/hooks").mkdir(exist_ok=True)
    hook = origin / ".git/hooks/post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hooked\n")
    hook.chmod(0o755)
    return origin, base


def every_object(repository):
    listed = run(repository, "cat-file", "--batch-all-objects", "--batch-check", "--unordered").split("\n")
    return {line.split()[0]: line.split()[1] for line in listed if line}


def test_of_a_repository_only_the_base_and_its_ancestors_remain(tmp_path):
    origin, base = history(tmp_path)
    assert any(
        "FUTURE" in run(origin, "cat-file", "-p", sha) for sha in every_object(origin)
    )  # it is there to be found
    space = make(tmp_path, Clone(origin))
    assert space.base == base
    for repository in (space.folder, space.trusted):
        objects = every_object(repository)
        assert objects
        assert not any("FUTURE" in run(repository, "cat-file", "-p", sha) for sha in objects)
        walked = {
            line.split()[0]
            for line in run(repository, "rev-list", "--all", "--objects", "--reflog").split("\n")
            if line
        }
        assert walked == set(objects)
        assert run(repository, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]
    assert run(space.folder, "log", "--format=%s").split() == ["base", "first"]
    assert run(space.folder, "remote") == run(space.folder, "stash", "list") == run(space.folder, "tag") == ""
    assert not (space.folder / ".git/objects/info/alternates").exists()
    assert not (space.folder / ".git/logs").exists()
    assert run(space.folder, "status", "--porcelain") == ""
    assert not (tmp_path / "hooked").exists()
    found = subprocess.run(["grep", "-rl", "FUTURE", str(space.folder)], capture_output=True, check=False)
    assert found.stdout == b""


def test_what_a_source_took_out_of_a_repository_is_in_no_history(tmp_path):
    origin, base = history(tmp_path)
    space = make(tmp_path, Clone(origin, dirty="pkg/crlf.py"))
    assert space.base != base
    contents = [run(space.folder, "cat-file", "-p", sha) for sha in every_object(space.folder)]
    assert not any("crlf" in content for content in contents)
    assert run(space.folder, "rev-list", "--count", "HEAD").strip() == "1"


def test_a_worktree_of_another_repository_becomes_its_own(tmp_path):
    origin, base = history(tmp_path)
    run(origin, "worktree", "add", "-q", "--detach", str(tmp_path / "tree"), base)
    space = make(tmp_path, Clone(tmp_path / "tree"))
    assert space.base == base
    assert (space.folder / ".git").is_dir()
    assert not any("FUTURE" in run(space.folder, "cat-file", "-p", sha) for sha in every_object(space.folder))


def test_attributes_of_a_repository_change_no_byte(tmp_path):
    files = FILES | {
        ".gitattributes": b"* text=auto eol=crlf\n*.py filter=evil diff=evil working-tree-encoding=UTF-16\n"
    }
    space = make(tmp_path, Files(files))
    assert (space.folder / "pkg/a.py").read_bytes() == FILES["pkg/a.py"]
    (space.folder / "pkg/crlf.py").write_bytes(b"a\r\nB\r\n")
    patch = take_patch(space).patch
    assert b"-b\r\n+B\r\n" in patch
    assert (applied(space, patch, tmp_path) / "pkg/crlf.py").read_bytes() == b"a\r\nB\r\n"


def test_a_repository_that_cannot_be_used_is_a_missing_one(tmp_path):
    origin = tmp_path / "origin"
    origin.mkdir()
    Files().prepare(TASK, origin)
    for words in (["init", "-q", "--object-format=sha256"], ["add", "-A"], ["commit", "-qm", "base"]):
        run(origin, *words)
    with pytest.raises(MissingRepo, match=r"task t.*SHA-256"):
        make(tmp_path, Clone(origin))


def test_a_repository_without_a_commit_gets_one(tmp_path):
    origin = tmp_path / "origin"
    origin.mkdir()
    Files().prepare(TASK, origin)
    run(origin, "init", "-q")
    (tmp_path / "plain").mkdir()
    assert make(tmp_path, Clone(origin)).base == make(tmp_path / "plain").base


# --- taking the patch ---


def test_a_change_is_taken_whatever_the_agent_did_to_its_repository(tmp_path):
    space = make(tmp_path)
    work = space.folder
    (work / "pkg/a.py").write_bytes(b"one\nTWO\nthree\n")
    (work / "pkg/end.py").write_bytes(b"still none")
    (work / "pkg/new.py").write_bytes(b"x = 1\n")
    expected = take_patch(space).patch
    assert expected.endswith(b"\n")
    assert b"+TWO" in expected
    assert b"b/pkg/new.py" in expected
    run(work, "checkout", "-q", "-b", "mine")
    run(work, "add", "-A")
    run(work, "commit", "-qm", "done")
    assert take_patch(space).patch == expected
    run(work, "reset", "-q", "--soft", "HEAD~1")
    run(work, "update-index", "--assume-unchanged", "pkg/a.py")
    assert take_patch(space).patch == expected
    trap = f"touch {tmp_path}/trapped; cat"
    for key, value in {
        "core.fsmonitor": trap, "core.hooksPath": str(work), "filter.evil.clean": trap, "filter.evil.smudge": trap,
        "diff.evil.textconv": trap, "diff.external": trap, "core.sshCommand": trap, "core.worktree": "/",
    }.items():  # fmt: skip
        run(work, "config", key, value)
    (work / ".git/info/attributes").write_text("* filter=evil diff=evil\n")
    assert take_patch(space).patch == expected
    (work / ".git/HEAD").write_text("nonsense")
    assert take_patch(space).patch == expected
    shutil.rmtree(work / ".git")
    assert take_patch(space).patch == expected
    assert not (tmp_path / "trapped").exists()
    clean = applied(space, expected, tmp_path)
    assert (clean / "pkg/end.py").read_bytes() == b"still none"
    assert (clean / "pkg/new.py").read_bytes() == b"x = 1\n"


def test_attributes_that_name_filters_run_nothing(tmp_path):
    space = make(tmp_path)
    (space.folder / ".gitattributes").write_text("* filter=evil diff=evil -text\npkg/a.py binary\n")
    (space.folder / "pkg/a.py").write_text("changed\n")
    assert b"+changed" in take_patch(space).patch


def test_what_does_not_belong_is_left_out_and_listed(space, tmp_path):
    work = space.folder
    made = {
        "plot.png": b"\x89PNG\0", "__pycache__/a.cpython-311.pyc": b"\0", ".pytest_cache/v": b"x", "pkg/a.py.orig": b"x",
        "pkg/a.py.rej": b"x", "big.txt": b"x" * (1 << 20) + b"x", "build/out.py": b"x\n", "some.dat": b"x\n",
        "reproduce.py": b"r\n", "repro_issue.py": b"r\n", "test_repro.py": b"t\n", "scratch/x.py": b"s\n", "run.log": b"l\n",
        "tests/test_new.py": b"new test\n", "pkg/kept.py": b"kept = 1\n", "opensage.toml": b"x\n",
    }  # fmt: skip
    for path, data in made.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_bytes(data)
    (work / "tests/test_a.py").write_bytes(b"def test_a(): assert True\n")
    (work / "logo.png").write_bytes(b"\x89PNG\0changed")
    run(work, "init", "-q", "vendor")
    (work / "vendor/file.py").write_text("v")
    taken = take_patch(space)
    why = names(taken)
    assert why.keys() == (made.keys() - {"pkg/kept.py", "__pycache__/a.cpython-311.pyc", ".pytest_cache/v"}) | {
        "__pycache__/", ".pytest_cache/", "vendor/", "tests/test_a.py", "logo.png"
    }  # fmt: skip
    assert [why[p] for p in ("big.txt", "vendor/", "build/out.py", "plot.png", "tests/test_a.py", "reproduce.py")] == [
        "over 1 MiB", "nested repository", "ignored by git", "binary", "test", "scratch"
    ]  # fmt: skip
    assert next(item.bytes for item in taken.left_out if item.path == "big.txt") == (1 << 20) + 1
    assert taken.patch.count(b"diff --git") == 1
    assert b"+kept = 1" in taken.patch
    for text in (b"+new test", b"+def test_a(): assert True", b"+r\n", b"b/build/out.py"):
        assert text in taken.left_out_diff
    (tmp_path / "left").mkdir()
    assert (applied(space, taken.left_out_diff, tmp_path / "left") / "tests/test_new.py").read_bytes() == b"new test\n"
    assert b"test_new" in take_patch(space, keep_tests=True).patch


def test_a_removed_file_is_in_the_patch_and_a_removed_test_is_not(space):
    os.unlink(space.folder / "pkg/a.py")
    shutil.rmtree(space.folder / "tests")
    taken = take_patch(space)
    assert b"deleted file" in taken.patch
    assert names(taken) == {"tests/test_a.py": "test, removed"}
    assert b"test_a.py" not in taken.patch
    assert b"tests/test_a.py" in taken.left_out_diff


def test_pipes_sockets_links_and_odd_names_do_no_harm(space):
    work = space.folder
    os.mkfifo(work / "pipe")
    os.mkfifo(work / "pkg/.gitignore")
    os.unlink(work / ".gitignore")
    os.mkfifo(work / ".gitignore")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(work)
        try:
            server.bind("sock")
        finally:
            os.chdir(here)
    (work / "out").symlink_to("/etc/passwd")
    (work / "up").symlink_to("../../secret")
    (work / "repo").symlink_to(".git/config")
    (work / "fine").symlink_to("pkg/a.py")
    for name in (b"new\nline.py", b'quo"te.py', b"caf\xe9.py", b"back\\slash.py"):
        (Path(os.fsdecode(os.fsencode(work) + b"/" + name))).write_bytes(b"x\n")
    (work / "ünï.py").write_bytes(b"u\n")
    (work / 'quo"te2 and blank.py').write_bytes(b"q\n")
    started = time.monotonic()
    taken = take_patch(space)
    assert time.monotonic() - started < 20
    why = names(taken)
    assert why["pipe"] == why["sock"] == why[".gitignore"] == "no regular file"
    assert why["out"] == why["up"] == why["repo"] == "link out of the tree"
    assert why["new\nline.py"] == why["caf\\xe9.py"] == why["back\\slash.py"] == "odd name"
    assert b"new file mode 120000" in taken.patch
    assert b"root:" not in taken.patch
    assert taken.patch.count(b"new file mode") == 4  # fine, two quoted names, and one in unicode


def test_a_link_in_the_place_of_a_folder_is_not_followed(space, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.py").write_text("SECRET\n")
    shutil.rmtree(space.folder / "pkg")
    (space.folder / "pkg").symlink_to(outside)
    taken = take_patch(space)
    assert b"SECRET" not in taken.patch + taken.left_out_diff
    assert names(taken)["pkg"] == "link out of the tree"
    assert taken.patch.count(b"deleted file") == 3


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_was_made_unreadable_is_read_as_its_owner_may(space, what):
    (space.folder / "pkg/a.py").write_text("changed\n")
    os.chmod(space.folder / "pkg/a.py" if what == "file" else space.folder / "pkg", 0)
    patch = take_patch(space).patch
    assert b"+changed" in patch
    assert b"mode" not in patch


def test_a_file_and_a_folder_change_places(space):
    shutil.rmtree(space.folder / "tests")
    (space.folder / "tests").write_text("a file now\n")
    os.unlink(space.folder / "pkg/a.py")
    (space.folder / "pkg/a.py").mkdir()
    (space.folder / "pkg/a.py/b.py").write_text("b\n")
    taken = take_patch(space)
    assert names(taken)["tests"] == "in the place of something that stays"
    assert b"b/pkg/a.py/b.py" in taken.patch


def test_a_huge_heap_of_new_files_hides_no_change(space, monkeypatch):
    monkeypatch.setattr(survey, "MOST_NEW", 2000)
    heap = space.folder / "heap"
    heap.mkdir()
    for number in range(2500):
        os.close(os.open(heap / f"f{number}.txt", os.O_CREAT | os.O_WRONLY))
    for number in range(100):
        (space.folder / f"data{number}.log").write_text("x\n")
    (space.folder / "pkg/a.py").write_text("changed\n")
    (space.folder / "wanted.py").write_text("w\n")
    taken = take_patch(space)
    assert b"+changed" in taken.patch
    assert b"b/wanted.py" in taken.patch
    assert any("beyond the first" in why for why in names(taken).values())
    assert names(taken)["*"] == "left behind by a program (100 of them)"
    assert len(taken.left_out) < 10


def test_too_much_and_nothing_at_all(space):
    for number in range(20):
        (space.folder / f"m{number}.py").write_bytes(b"# comment\n" * 100_000)
    with pytest.raises(PatchError, match="MiB"):
        take_patch(space)
    shutil.rmtree(space.folder)
    with pytest.raises(PatchError, match="cannot be read any more"):
        take_patch(space)


def test_a_patch_is_checked_on_a_clean_checkout(space):
    (space.folder / "pkg/a.py").write_text("changed\n")
    patch = take_patch(space).patch
    check_patch(patch, space)
    with pytest.raises(PatchError, match="newline"):
        check_patch(patch.rstrip(b"\n"), space)
    with pytest.raises(PatchError, match="does not apply"):
        check_patch(patch.replace(b"-one", b"-uno"), space)


def test_a_workspace_costs_little(tmp_path):
    started = os.times()
    make(tmp_path)
    spent = os.times()
    assert sum(spent[:4]) - sum(started[:4]) < 0.3  # CPU of git included


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("tests/x.py", True), ("pkg/test_x.py", True), ("x_test.go", True), ("src/a.spec.ts", True), ("FooTest.java", True),
        ("conftest.py", True), ("django/test/client.py", False), ("src/_pytest/pytester.py", False), ("latest.py", False),
        ("contest.py", False), ("Testament.py", False), ("attestation.go", False),
    ],
)  # fmt: skip
def test_what_is_a_test(path, test):
    assert is_test(path) is test


@pytest.mark.parametrize(
    "path", ["run.py", "temperature.py", "pkg/debug.py", "demography.py", "checkout.py", "docs/tmp.md"]
)
def test_what_is_no_scratch(path):
    assert why_not(path) == ""
