"""git helpers leave the working tree as it was."""

from __future__ import annotations

import subprocess

import pytest

from opensage_toolkits.code.git import GitError, bisect, blame, diff


def git(root, *words):
    who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", *who, *words], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repo(tmp_path):
    """Eight commits of `shop.py`; the fifth breaks it."""
    root = tmp_path / "repo"
    (root / "sub").mkdir(parents=True)
    git(root, "init", "-q")
    for number in range(1, 9):
        (root / "shop.py").write_text(f"VALUE = {number}\n\ndef total(a):\n    return a + {0 if number < 5 else 1}\n")
        (root / "sub" / "x.txt").write_text("x\n")
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", f"number {number}")
    return root


def state(root):
    files = {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file() and ".git" not in path.parts}
    return files, git(root, "status", "--porcelain"), git(root, "rev-parse", "HEAD"), git(root, "branch", "-a")


def test_bisect_finds_the_commit_and_leaves_all_as_it_was(repo):
    (repo / "shop.py").write_text("not committed\n")
    (repo / "new.txt").write_text("new\n")
    before = state(repo)
    found = bisect(repo, "python3 -c 'from shop import total; assert total(1) == 1'", "HEAD~7")
    assert (found["summary"], found["author"], found["files"]) == ("number 5", "Ada", ["shop.py"])
    assert len(found["tried"]) <= 5
    assert "AssertionError" in found["output"]
    assert state(repo) == before
    assert bisect(repo / "sub", "grep -q '+ 0' ../shop.py", "HEAD~7")["summary"] == "number 5"


def test_bisect_with_commits_that_cannot_be_tested(repo):
    command = "n=$(sed -n 's/VALUE = //p' shop.py); [ $n = 5 -o $n = 6 ] && exit 125; [ $n -lt 5 ]"
    found = bisect(repo, command, "HEAD~7")
    assert found["summary"] == "number 7"
    assert len(found["or_one_of"]) == 2


@pytest.mark.parametrize(
    ("command", "good", "bad", "said"),
    [
        ("false", "HEAD~3", "HEAD", "fails for the good commit already"),
        ("true", "HEAD~3", "HEAD", "does not fail for the bad commit"),
        ("true", "HEAD", "HEAD~3", "does not come after"),
        ("true", "HEAD", "HEAD", "does not come after"),
        ("true", "nothing", "HEAD", "nothing"),
        ("true", "--all", "HEAD", "is no revision"),
    ],
)
def test_bisect_says_what_is_wrong(repo, command, good, bad, said):
    with pytest.raises(GitError, match=said):
        bisect(repo, command, good, bad)


def test_diff_and_blame(repo):
    (repo / "shop.py").write_text("VALUE = 9\n\ndef total(a):\n    return a + 1\n")
    (repo / "new file.txt").write_text("x\n")
    found = diff(repo)
    assert found["files"] == [{"added": "1", "removed": "1", "file": "shop.py"}]
    assert found["new_files"] == ["new file.txt"]
    assert "+VALUE = 9" in found["diff"]
    assert diff(repo, "HEAD", "sub")["diff"] == ""
    lines = blame(repo, "shop.py", 1, 4)["lines"]
    assert [line["summary"] for line in lines] == ["not committed yet", "number 1", "number 1", "number 5"]
    assert (lines[3]["author"], lines[3]["text"]) == ("Ada", "    return a + 1")


def test_a_huge_diff_is_cut(repo):
    (repo / "shop.py").write_text("x = 1\n" * 100_000)
    assert len(diff(repo)["diff"]) < 20_100
    assert "characters left out" in diff(repo)["diff"]


def test_errors_are_gits_own(repo, tmp_path):
    with pytest.raises(GitError, match="has only 4 lines"):
        blame(repo, "shop.py", 99)
    with pytest.raises(ValueError, match="outside the workspace"):
        blame(repo, "../x", 1)
    with pytest.raises(GitError, match="not a git repository"):
        diff(tmp_path)
    with pytest.raises(GitError, match="no revision"):
        diff(repo, "--output=x")


def test_settings_of_the_repository_start_no_program(repo, tmp_path):
    mark = tmp_path / "mark"
    for key in ("core.fsmonitor", "diff.external"):
        git(repo, "config", key, f"touch {mark}")
    (repo / "shop.py").write_text("VALUE = 9\n")
    diff(repo)
    assert not mark.exists()
