"""The index: what it takes up, what it leaves out, how it follows the files."""

from __future__ import annotations

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import opensage_toolkits.code.files as files_module
from opensage_toolkits.code.files import inside, list_sources
from opensage_toolkits.code.index import Index


@pytest.fixture
def repo(tmp_path):
    root = tmp_path / "repo"
    root.mkdir()
    (root / "a.py").write_text("def one():\n    return two()\n")
    (root / "b.py").write_text("def two():\n    return 2\n")
    return root


@pytest.fixture
def index(repo, tmp_path):
    with Index(repo, tmp_path / "index.sqlite") as made:
        made.update()
        yield made


def git(root, *words):
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True)


def names(index):
    return {one.name for one in index.symbols("1")}


def old(path):
    """As if nobody had touched it for long: files that are new are read twice, for clocks are coarse."""
    then = time.time() - 100
    os.utime(path, (then, then))


def test_only_what_changed_is_read_again(repo, index):
    for path in repo.iterdir():
        old(path)
    assert index.update().read == 0
    (repo / "a.py").write_text("def three():\n    pass\n")
    (repo / "b.py").unlink()
    done = index.update()
    assert (done.files, done.read, done.removed) == (1, 1, 1)
    assert names(index) == {"three"}


def test_a_change_within_the_clock_and_of_the_same_size_is_seen(repo, index):
    status = (repo / "a.py").stat()
    (repo / "a.py").write_text("def owe():\n    return two()\n")
    os.utime(repo / "a.py", ns=(status.st_atime_ns, status.st_mtime_ns))
    index.update()
    assert "owe" in names(index)


def test_a_content_that_comes_back_is_not_parsed_again(repo, index):
    (repo / "a.py").rename(repo / "moved.py")
    assert index.update().read == 0
    assert {one.path for one in index.symbols("s.name = 'one'")} == {"moved.py"}
    (repo / "copy.py").write_bytes((repo / "moved.py").read_bytes())
    assert index.update().read == 0
    assert {one.path for one in index.symbols("s.name = 'one'")} == {"moved.py", "copy.py"}


def test_contents_nobody_has_are_dropped(repo, index):
    for number in range(90):
        (repo / "a.py").write_text(f"def f{number}(): pass\n")
        index.update()
    assert index.rows("SELECT COUNT(*) FROM content")[0][0] < 85
    assert names(index) == {"f89", "two"}


def test_what_git_ignores_is_left_out(repo, tmp_path):
    (repo / ".gitignore").write_text("made/\n")
    (repo / "made").mkdir()
    (repo / "made" / "c.py").write_text("def three(): pass\n")
    git(repo, "init", "-q")
    git(repo, "add", "a.py")
    assert set(list_sources(repo).files) == {"a.py", "b.py"}
    assert set(list_sources(repo / "made").files) == {"c.py"}, "a workspace that is ignored as a whole is still read"


def test_without_git_build_folders_are_left_out(repo):
    for folder in ("node_modules/x", ".venv", "src"):
        (repo / folder).mkdir(parents=True)
        (repo / folder / "c.js").write_text("function f() {}\n")
    assert set(list_sources(repo).files) == {"a.py", "b.py", "src/c.js"}


def test_odd_files_do_no_harm(repo, tmp_path):
    secret = tmp_path / "outside.py"
    secret.write_text("def outside(): pass\n")
    (repo / "link.py").symlink_to(secret)
    (repo / "folder").symlink_to(tmp_path)
    (repo / "loop.py").symlink_to("loop.py")
    os.mkfifo(repo / "pipe.py")
    (repo / "binary.py").write_bytes(b"\0\1\2def x(): pass")
    (repo / "huge.py").write_bytes(b"#" * (files_module.MOST_BYTES + 1))
    (repo / "latin.py").write_bytes(b"# \xe9\ndef latin(): pass\n")
    (repo / "dir.py").mkdir()
    with open(os.fsencode(repo) + b"/\xff.py", "w") as file:
        file.write("def x(): pass\n")
    with Index(repo, tmp_path / "i.sqlite") as index:
        done = index.update()
        assert names(index) == {"one", "two", "latin"}
    assert done.notes == ["1 larger than 1 MiB left out: huge.py", "1 files left out: their names are not UTF-8"]


def test_more_files_than_may_be_are_said(repo, tmp_path, monkeypatch):
    monkeypatch.setattr(files_module, "MOST_FILES", 1)
    with Index(repo, tmp_path / "i.sqlite") as index:
        assert index.update().notes == ["1 source files are left out: only the first 1 are indexed"]


def test_what_was_not_done_in_time_is_done_by_the_next_update(repo, tmp_path):
    with Index(repo, tmp_path / "i.sqlite") as index:
        done = index.update(seconds=0.0)
        assert (done.left, done.notes) == (2, ["2 of 2 files are not indexed yet: call again to go on"])
        assert index.update().left == 0
        assert names(index) == {"one", "two"}


def test_a_missing_grammar_is_named_and_the_others_go_on(repo, tmp_path, monkeypatch):
    (repo / "c.go").write_text("package m\nfunc three() {}\n")
    import opensage_toolkits.code.index as index_module

    real = index_module.grammar
    monkeypatch.setattr(index_module, "grammar", lambda language: None if language.name == "Go" else real(language))
    with Index(repo, tmp_path / "i.sqlite") as index:
        assert index.update().notes == ["1 files are left out: install tree-sitter-go to index them"]
        assert names(index) == {"one", "two"}
        monkeypatch.setattr(index_module, "grammar", real)
        assert index.update().notes == []
        assert names(index) == {"one", "two", "three"}


def test_several_updates_at_once(repo, tmp_path):
    for number in range(60):
        (repo / f"m{number}.py").write_text(f"def f{number}():\n    return {number}\n")
    place = tmp_path / "i.sqlite"

    def update(_number):
        with Index(repo, place) as index:
            index.update()
            return len(names(index))

    with ThreadPoolExecutor(6) as pool:
        assert set(pool.map(update, range(12))) == {62}


@pytest.mark.parametrize("broken", [b"no database", b"SQLite format 3\0" + b"\xff" * 5000, b""])
def test_a_broken_index_is_made_anew(repo, tmp_path, broken):
    place = tmp_path / "i.sqlite"
    place.write_bytes(broken)
    with Index(repo, place) as index:
        index.update()
        assert names(index) == {"one", "two"}


def test_an_index_of_other_grammars_is_made_anew(repo, tmp_path):
    place = tmp_path / "i.sqlite"
    with Index(repo, place) as index:
        index.update()
        index.rows("UPDATE about SET key = 'other'")
    with Index(repo, place) as index:
        assert names(index) == set()


def test_paths_that_lead_out_are_refused(repo, tmp_path):
    (repo / "link").symlink_to(tmp_path)
    for path in ("..", "/etc/passwd", "link/x", "link"):
        with pytest.raises(ValueError, match="outside the workspace"):
            inside(repo, path)
    with pytest.raises(ValueError, match=r"there is no file nope\.py"):
        inside(repo, "nope.py")
    assert inside(repo, str(repo / "a.py")) == "a.py"
