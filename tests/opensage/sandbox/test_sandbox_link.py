"""A supervisor that has fallen to an enemy can end its sandbox, and do nothing else to the host."""

from __future__ import annotations

import asyncio
import json
import os
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opensage.errors import PathRefused, SandboxLost
from opensage.sandbox.link import Link
from opensage.sandbox.output import BoundedOutput

VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just([]) | st.just({})
KINDS = st.sampled_from(["ready", "exit", "gone", "culled", "failed", "opened", "refused", "other"])
SHAPES = st.fixed_dictionaries(
    {"t": KINDS | VALUES, "id": st.integers(0, 3) | VALUES},
    optional={"code": VALUES, "errno": VALUES, "text": VALUES, "name": VALUES, "why": VALUES},
)
MESSAGES = st.binary(min_size=1, max_size=300) | SHAPES.map(lambda value: json.dumps(value).encode())


async def converse(messages, fds=()):
    """A link that waits for one command and one file, and gets these messages; what it gave to the waiting."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link = Link(ours, lambda: "ended")
    running = await link.execute({"argv": ["x"], "env": {}, "cwd": "."}, None, None, 1000, None)
    reply = asyncio.create_task(link.open("x", "read"))
    await asyncio.sleep(0)
    for message in messages:
        try:
            socket.send_fds(theirs, [message], list(fds))
        except OSError:
            break
    await asyncio.sleep(0.005)
    theirs.close()
    (result,) = await asyncio.gather(reply, return_exceptions=True)
    await asyncio.wait_for(running.gone.wait(), 5)
    link.leave(running)
    link.close()
    return link, running, result


@settings(max_examples=80, deadline=None)
@given(st.lists(MESSAGES, max_size=4))
def test_any_messages_end_in_an_answer(messages):
    before = len(os.listdir("/proc/self/fd"))
    link, running, result = asyncio.run(converse(messages))
    assert isinstance(result, SandboxLost | PathRefused | OSError)
    assert link.lost
    assert abs(running.code) <= 255
    assert len(os.listdir("/proc/self/fd")) == before


def test_descriptors_nobody_asked_for_are_closed():
    before = len(os.listdir("/proc/self/fd"))
    read, write = os.pipe()
    for message in (b'{"t": "gone", "id": 1}', b'{"t": "opened", "id": 77, "name": ""}', b"nonsense"):
        asyncio.run(converse([message], [read, write]))
    os.close(read)
    os.close(write)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", ["../x", "a/b", "..", "."])
def test_a_name_with_a_path_in_it_is_not_believed(name):
    read, write = os.pipe()
    link, _running, result = asyncio.run(
        converse([json.dumps({"t": "opened", "id": 2, "name": name}).encode()], [read])
    )
    os.close(read)
    os.close(write)
    assert isinstance(result, SandboxLost)
    assert "nonsense" in (link.lost or "")


@given(st.lists(st.binary(max_size=300), max_size=20), st.integers(1, 200))
def test_bounded_output_keeps_head_and_tail(chunks, limit):
    output = BoundedOutput(limit)
    for chunk in chunks:
        output.add(chunk)
    whole = b"".join(chunks)
    assert output.total == len(whole)
    assert output.dropped == max(0, len(whole) - 2 * limit)
    if not output.dropped:
        assert output.text() == whole.decode(errors="replace")
    else:
        assert f"{output.dropped} bytes cut" in output.text()


def test_a_character_is_not_cut_in_two():
    output = BoundedOutput(5)
    output.add("ééééééé".encode())
    assert "\ufffd" not in output.text()
    assert output.text().startswith("éé\n")
    assert output.text().endswith("\néé")
