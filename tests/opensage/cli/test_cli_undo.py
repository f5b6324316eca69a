"""Undo on real folders: what a turn did goes, what the user has stays, and the user's repository is not touched."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from opensage.cli import undo
from opensage.cli.undo import Checkpoints, UndoError, Undone


def turn(workdir: Path, *steps: Callable[[], object], between: Callable[[], object] = lambda: None) -> Undone:
    """Do the steps as a turn, then what happens after it, then undo the turn."""

    async def work() -> Undone:
        points = Checkpoints(workdir)
        try:
            before = await points.save()
            for step in steps:
                step()
            after = await points.save()
            between()
            return await points.undo(before, after)
        finally:
            points.close()

    (workdir / ".opensage").mkdir(exist_ok=True)
    return asyncio.run(work())


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def state(folder: Path) -> dict[str, object]:
    """Everything below a folder, the kit's own apart."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if name.startswith(".opensage"):
            continue
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = (path.read_bytes() if path.is_file() else None, path.stat().st_mode)
    return found


def test_changed_added_removed_and_moved_files_come_back(tmp_path: Path) -> None:
    (tmp_path / "crlf.txt").write_bytes(b"a\r\nb\xff\r\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "old é\n.txt").write_text("old")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("crlf.txt")
    (tmp_path / ".gitattributes").write_text("* text=auto eol=lf filter=x\n")
    before = state(tmp_path)

    def work() -> None:
        (tmp_path / "crlf.txt").write_text("other\n")
        (tmp_path / "run.sh").chmod(0o644)
        (tmp_path / "sub" / "old é\n.txt").unlink()
        (tmp_path / "sub").rmdir()
        (tmp_path / "sub").write_text("now a file")
        (tmp_path / "new" / "deep").mkdir(parents=True)
        (tmp_path / "new" / "deep" / "x").write_text("x")
        (tmp_path / "empty" / "y").write_text("y")
        (tmp_path / "link").unlink()
        (tmp_path / "link").symlink_to("/etc/passwd")

    done = turn(tmp_path, work)
    assert not done.left
    assert state(tmp_path) == before


def test_what_was_changed_since_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("1")
    done = turn(
        tmp_path,
        lambda: [(tmp_path / name).write_text("2") for name in ("a", "b", "c")],
        between=lambda: [(tmp_path / name).write_text("mine") for name in ("a", "c", "d")],
    )
    assert done == Undone(removed=[], restored=["b"], left=["a", "c"])
    assert [(tmp_path / name).read_text() for name in "abcd"] == ["mine", "1", "mine", "mine"]


def test_the_users_repository_is_not_touched(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    (tmp_path / ".gitignore").write_text("*.log\n.opensage\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    (tmp_path / "a").write_text("stashed")
    git(tmp_path, "stash")
    (tmp_path / "a").write_text("staged")
    git(tmp_path, "add", "a")
    (tmp_path / "a").write_text("uncommitted")
    (tmp_path / "x.log").write_text("ignored")
    index = (tmp_path / ".git" / "index").read_bytes()

    def facts() -> list[str]:
        commands = (["rev-parse", "HEAD"], ["stash", "list"], ["for-each-ref"], ["diff", "--cached"], ["status", "-s"])
        return [git(tmp_path, *command) for command in commands]

    before = facts()
    turn(tmp_path, lambda: (tmp_path / "a").write_text("agent"), lambda: (tmp_path / "x.log").write_text("more"))
    assert (tmp_path / "a").read_text() == "uncommitted"
    assert (tmp_path / "x.log").read_text() == "more"
    assert (tmp_path / ".git" / "index").read_bytes() == index
    assert facts() == before
    assert not (tmp_path / ".opensage" / "undo").exists()


def test_files_that_were_ignored_before_the_turn_survive_a_changed_gitignore(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text("secret\ndata/\n")
    (tmp_path / "secret").write_text("keep")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "d").write_text("keep")
    done = turn(tmp_path, (tmp_path / ".gitignore").unlink, lambda: (tmp_path / "new").write_text("n"))
    assert (tmp_path / "secret").read_text() == "keep"
    assert (tmp_path / "data" / "d").read_text() == "keep"
    assert done.restored == [".gitignore"]
    assert done.removed == ["new"]


def test_rules_of_the_repository_around_the_workspace_hold(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("*.bin\n")
    (tmp_path / ".git" / "info" / "exclude").write_text("*.own\n")
    inner, outer = tmp_path / "inner", tmp_path / "outer.txt"
    inner.mkdir()
    done = turn(
        inner,
        *[lambda n=name: (inner / n).write_text("x") for name in ("a.bin", "b.own", "c.txt")],  # type: ignore[misc]
        lambda: outer.write_text("not of the workspace"),
    )
    assert done.removed == ["inner/c.txt"]
    assert sorted(os.listdir(inner)) == [".opensage", "a.bin", "b.own"]
    assert outer.exists()


def test_a_workspace_that_its_repository_ignores_can_be_undone(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".gitignore").write_text("scratch/\n")
    inner = tmp_path / "scratch"
    inner.mkdir()
    assert turn(inner, lambda: (inner / "a").write_text("x")).removed == ["a"]


def test_nested_repositories_are_left_alone(tmp_path: Path) -> None:
    for name in ("full", "empty"):
        (tmp_path / name).mkdir()
        git(tmp_path / name, "init", "-q")
        (tmp_path / name / "f").write_text("mine")
    git(tmp_path / "full", "add", "-A")
    git(tmp_path / "full", "commit", "-qm", "x")
    done = turn(
        tmp_path,
        lambda: [subprocess.run(["rm", "-rf", tmp_path / name / ".git"], check=True) for name in ("full", "empty")],
        lambda: (tmp_path / "new").write_text("n"),
    )
    assert (tmp_path / "full" / "f").read_text() == (tmp_path / "empty" / "f").read_text() == "mine"
    assert done.removed == ["new"]


def test_nothing_is_written_or_removed_through_a_link(tmp_path: Path) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    (work / "sub").mkdir(parents=True)
    outside.mkdir()
    (work / "sub" / "f").write_text("inside")
    (outside / "f").write_text("outside")

    def swap() -> None:
        (work / "sub" / "f").unlink()
        (work / "sub").rmdir()
        (work / "sub").symlink_to(outside)

    turn(work, swap)
    assert (outside / "f").read_text() == "outside"
    assert (work / "sub" / "f").read_text() == "inside"
    assert not (work / "sub").is_symlink()

    def swap_later() -> None:
        (work / "sub" / "f").rename(tmp_path / "kept")
        (work / "sub").rmdir()
        (work / "sub").symlink_to(outside)

    done = turn(work, lambda: (work / "sub" / "f").write_text("agent"), between=swap_later)
    assert done.left == ["sub/f"]
    assert (outside / "f").read_text() == "outside"


def test_no_program_that_the_workspace_names_is_started(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "-A")
    (tmp_path / "a").write_text("2")
    trap = tmp_path.parent / f"{tmp_path.name}-trap"
    for key in ("core.fsmonitor", "filter.x.clean", "filter.x.smudge", "diff.external", "core.sshCommand"):
        git(tmp_path, "config", key, f"touch {trap}")
    (tmp_path / ".gitattributes").write_text("* filter=x\n")
    hook = tmp_path / ".git" / "hooks" / "post-index-change"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {trap}\n")
    hook.chmod(0o755)
    nested = tmp_path / "nested"
    nested.mkdir()
    git(nested, "init", "-q")
    (nested / "f").write_text("1")
    git(nested, "add", "-A")
    git(nested, "commit", "-qm", "x")
    git(nested, "config", "core.fsmonitor", f"touch {trap}")
    (nested / "f").write_text("2")
    turn(tmp_path, lambda: (tmp_path / "a").write_text("3"))
    assert (tmp_path / "a").read_text() == "2"
    assert not trap.exists()


def test_a_folder_too_large_to_copy_is_refused_before_anything_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo, "_MOST_BYTES", 1000)
    (tmp_path / "big").write_bytes(b"x" * 2000)
    with pytest.raises(UndoError, match=r"not ignored.*\.gitignore"):
        turn(tmp_path)
    (tmp_path / ".gitignore").write_text("big\n")
    assert turn(tmp_path, lambda: (tmp_path / "a").write_text("1")).removed == ["a"]


def test_without_git_the_fix_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UndoError, match="apt install git"):
        turn(tmp_path)


def test_what_a_crashed_chat_left_is_swept(tmp_path: Path) -> None:
    left = tmp_path / ".opensage" / "undo" / "999999999-1"
    left.mkdir(parents=True)
    turn(tmp_path)
    assert not left.exists()


def test_ignore_rules_that_are_a_pipe_are_not_waited_for(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    os.mkfifo(tmp_path / "pipe")
    git(tmp_path, "config", "core.excludesFile", str(tmp_path / "pipe"))
    (tmp_path / ".git" / "info" / "exclude").unlink(missing_ok=True)
    (tmp_path / ".git" / "info" / "exclude").symlink_to("/dev/zero")
    (tmp_path / "a").write_text("old")
    done = turn(tmp_path, lambda: (tmp_path / "a").write_text("new"))
    assert (done.restored, (tmp_path / "a").read_text()) == (["a"], "old")


@pytest.mark.parametrize("name", [".gitignore", "sub/.gitignore", "sub/.gitattributes"])
def test_a_pipe_that_git_would_wait_for_is_named_soon(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.txt").write_text("x")
    os.mkfifo(tmp_path / name)
    began = time.monotonic()
    with pytest.raises(UndoError, match=f"{name} is a pipe or a device"):
        turn(tmp_path)
    assert time.monotonic() - began < 10


def test_a_pipe_in_the_users_repository_is_not_waited_for(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / ".git/config").unlink()
    os.mkfifo(tmp_path / ".git/config")
    (tmp_path / "a.txt").write_text("old")
    began = time.monotonic()
    assert turn(tmp_path, lambda: (tmp_path / "a.txt").write_text("new")).restored == ["a.txt"]
    assert time.monotonic() - began < 15
