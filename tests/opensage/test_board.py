"""The message board: nothing lost, nothing echoed, nothing huge in a prompt."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
from helpers_run import call, calls, say
from topology_helpers import answers, create, delegate, seen, team

from opensage.errors import ToolError
from opensage.log.blobs import BlobStore
from opensage.topology.board import DELTA, POST, Board


def board(folder: Path) -> Board:
    return Board(folder / "x.board", BlobStore(folder / "blobs"))


def _write(folder: Path, writer: int, count: int) -> None:
    mine = board(folder)
    for number in range(count):
        mine.post(f"w{writer}", "t", f"{writer}:{number}")


def test_no_line_is_lost_with_eight_writers(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(tmp_path, n, 100)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    posts = [post.text for post in board(tmp_path).posts()]
    assert len(posts) == 800
    for n in range(8):
        assert [p for p in posts if p.startswith(f"{n}:")] == [f"{n}:{k}" for k in range(100)]


def test_a_reader_sees_each_post_once_and_never_its_own(tmp_path: Path) -> None:
    mine = board(tmp_path)
    cursors = {"a": 0, "b": 0}
    got: dict[str, list[str]] = {"a": [], "b": []}
    for number in range(20):
        mine.post("a" if number % 3 else "b", "t", f"n{number}")
        for reader in cursors if number % 4 == 0 else ():
            text, cursors[reader] = mine.delta(reader, cursors[reader])
            got[reader] += text.splitlines()
    for reader in cursors:
        text, cursors[reader] = mine.delta(reader, cursors[reader])
        got[reader] += text.splitlines()
        assert mine.delta(reader, cursors[reader]) == ("", cursors[reader])
    assert got["a"] == [f"[t] b: n{n}" for n in range(20) if n % 3 == 0]
    assert got["b"] == [f"[t] a: n{n}" for n in range(20) if n % 3]


def test_a_huge_post_is_cut_with_a_pointer_and_blocks_nobody(tmp_path: Path) -> None:
    mine = board(tmp_path)
    mine.post("a", "t", "x" * 500_000)
    mine.post("a", "t", "short")
    text, cursor = mine.delta("b", 0)
    assert len(text) < POST + 300
    assert text.endswith("short")
    assert "500000 characters" in text
    assert mine.delta("b", cursor)[0] == ""
    blob = text.split("blob:")[1].split("'")[0]
    assert mine.blobs.get(blob) == b"x" * 500_000


def test_a_delta_is_bounded_and_the_rest_comes_later(tmp_path: Path) -> None:
    mine = board(tmp_path)
    for number in range(100):
        mine.post("a", "t", f"{number:03}" + "y" * 200)
    cursor, seen_posts = 0, []
    while True:
        text, cursor = mine.delta("b", cursor)
        if not text:
            break
        assert len(text) <= DELTA + 400
        seen_posts += [line[len("[t] a: ") :][:3] for line in text.splitlines()]
    assert seen_posts == [f"{n:03}" for n in range(100)]


def test_a_torn_line_is_skipped_and_the_next_post_is_whole(tmp_path: Path) -> None:
    mine = board(tmp_path)
    mine.post("a", "t", "one")
    with mine.path.open("ab") as file:
        file.write(b'{"author": "a", "text": "tor')
    assert mine.delta("b", 0)[0] == "[t] a: one"
    board(tmp_path).post("a", "t", "two")
    assert board(tmp_path).delta("b", 0)[0] == "[t] a: one\n[t] a: two"
    with mine.path.open("ab") as file:
        file.write(b'[1]\n{"author": 3, "topic": "t", "text": "x"}\nnull\n\xff\n')
    assert [post.text for post in mine.posts()] == ["one", "two"]


def test_bad_posts_are_refused(tmp_path: Path) -> None:
    mine = board(tmp_path)
    with pytest.raises(ToolError, match="empty"):
        mine.post("a", "t", " \n")
    with pytest.raises(ToolError, match="write a file"):
        mine.post("a", "t", "x" * 2_000_000)
    assert mine.post("a", "x\ny " * 100, "ok").topic.count("\n") == 0


def test_agents_read_the_board_with_their_tool_results(tmp_path: Path) -> None:
    agents = {
        "main": [create("a"), create("b"), delegate("a"), delegate("b"), calls(call("tasks")), say("over")],
        "a": [calls(call("post", {"topic": "plan", "text": "I take parser.py"})), say("a")],
        "b": [calls(call("tasks")), calls(call("read", {"path": "blob:none"})), say("b")],
    }
    result, model = team(agents, tmp_path)
    assert result.status == "done"
    shown = [m["content"] for m in seen(model, "b")[-1]["messages"] if m["role"] == "user"]
    assert shown[1:] == ["[Message board]\n[plan] a: I take parser.py"]
    assert not any(
        "I take parser" in str(m["content"]) for m in seen(model, "a")[-1]["messages"] if m["role"] == "user"
    )
    assert "a1 a: done" in answers(model)[2]
