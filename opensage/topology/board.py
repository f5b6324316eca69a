"""The message board of one tree of agents: an append-only file of posts, read by each agent from its own place on."""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opensage.errors import SessionError, ToolError
from opensage.files import why
from opensage.log.blobs import BlobStore

POST = 800
"""Characters of a post that readers are shown; of a longer one the rest is in a blob."""
DELTA = 4000
"""Characters of all posts that are delivered at one time."""
_LARGEST = 1_000_000
_TOPIC = 64


@dataclass(frozen=True, slots=True)
class Post:
    """One post. `text` is at most `POST` characters; `blob` names the whole of a longer one."""

    author: str
    topic: str
    text: str
    size: int = 0
    blob: str = ""
    time: float = 0.0

    def shown(self) -> str:
        """As a reader sees it."""
        more = f" [... {self.size} characters; all of it: read(path='blob:{self.blob[:16]}')]" if self.blob else ""
        return f"[{self.topic}] {self.author}: {self.text}{more}"


class Board:
    """Posts in one file, one JSON object a line. Any number of agents and processes may write at the same time."""

    def __init__(self, path: Path, blobs: BlobStore) -> None:
        self.path, self.blobs = path, blobs
        self._seen = -1

    def post(self, author: str, topic: str, text: str) -> Post:
        """Append a post.

        Raises:
            ToolError: it is empty or too large, or the topic is no word.
            SessionError: the file cannot be written.
        """
        topic, text = " ".join(topic.split())[:_TOPIC] or "general", text.strip()
        if not text:
            raise ToolError("the post is empty; write what the others should know")
        if len(text) > _LARGEST:
            raise ToolError(f"the post has {len(text)} characters, {_LARGEST} are allowed; write a file and name it")
        blob = self.blobs.put(text.encode("utf-8", "surrogatepass")) if len(text) > POST else ""
        post = Post(author, topic, text[:POST], len(text), blob, round(time.time(), 3))
        self._append(json.dumps(_fields(post)).encode() + b"\n")
        return post

    def _append(self, line: bytes) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(self.path, flags, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                size = os.fstat(fd).st_size
                torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"  # a writer died in the middle of its line
                data = b"\n" + line if torn else line
                while data:
                    data = data[os.write(fd, data) :]
            finally:
                os.close(fd)
        except OSError as error:
            raise SessionError(f"cannot write the message board {self.path}: {why(error)}.") from None

    def delta(self, reader: str, cursor: int) -> tuple[str, int]:
        """What others posted since, bounded, and the new cursor; what did not fit comes with the next delta.

        Args:
            reader: whose own posts are left out.
            cursor: byte of the file up to which was read.
        """
        size = self._size()
        if size == self._seen == cursor or size <= cursor:
            return "", cursor
        shown: list[str] = []
        used, at = 0, cursor
        for line in self._read(cursor):
            post = _parsed(line)
            text = "" if post is None or post.author == reader else post.shown()
            if shown and used + len(text) > DELTA:
                break
            at, used = at + len(line), used + len(text)
            shown += [text] if text else []
        self._seen = size
        return "\n".join(shown), at

    def posts(self, topic: str = "") -> list[Post]:
        """All posts, or those of a topic."""
        found = [post for line in self._read(0) if (post := _parsed(line)) is not None]
        return [post for post in found if not topic or post.topic == topic]

    def _size(self) -> int:
        try:
            return os.stat(self.path).st_size
        except OSError:
            return 0

    def _read(self, start: int) -> list[bytes]:
        """Whole lines from a byte on."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return []
        with open(fd, "rb") as file:
            file.seek(start)
            data = file.read(64 * DELTA if start else -1)
        return data[: data.rfind(b"\n") + 1].splitlines(keepends=True)


def _fields(post: Post) -> dict[str, Any]:
    fields = {"time": post.time, "author": post.author, "topic": post.topic, "text": post.text, "size": post.size}
    return {**fields, "blob": post.blob} if post.blob else fields


def _parsed(line: bytes) -> Post | None:
    """The post of a line, or None: a torn line is no post."""
    try:
        data = json.loads(line)
        author, topic, text = data["author"], data["topic"], data["text"]
        size, blob = data.get("size", 0), data.get("blob", "")
    except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
        return None
    if not all(isinstance(value, str) for value in (author, topic, text, blob)) or not isinstance(size, int):
        return None
    return Post(author, topic, text[:POST], size, blob)
