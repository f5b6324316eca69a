"""A server that speaks Bolt, for the tests: ArcadeDB with its own Java, from its wheel; or the Neo4j that is named."""

from __future__ import annotations

import base64
import contextlib
import ctypes
import importlib.util
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opensage_memory.store.neo4j import Neo4jStore
from opensage_memory.store.neo4j.values import LABELS

# As the tests were started: each of them clears its own environment.
GIVEN = {name: os.environ.get(f"OPENSAGE_NEO4J_{name}", "") for name in ("URI", "USER", "PASSWORD", "DATABASE")}
GIVEN["SQL"] = os.environ.get("OPENSAGE_ARCADEDB_HTTP", "")
PASSWORD = "opensage-test"
START_SECONDS = 120.0
OURS = ["Item", "Operation", "Tombstone", "Task", "Meta", "Model", "Lock", "Lease", *LABELS.values()]


@dataclass
class Address:
    """Where a server is, and who may ask it."""

    uri: str
    user: str
    password: str
    database: str | None
    sql: str = ""
    own: bool = False

    def open(self, **options: object) -> Neo4jStore:
        """A store there; of whatever is in the database."""
        known = {"address": self.uri, "user": self.user, "password": self.password, "database": self.database}
        return Neo4jStore(**{**known, "sql_address": self.sql, **options})  # type: ignore[arg-type]

    def empty(self) -> None:
        """Leave no node; not in a database that holds anything else than memories."""
        with contextlib.closing(self.open()) as store, store._session() as session:
            strange = session.run(
                "MATCH (n) WHERE none(label IN labels(n) WHERE label IN $ours) RETURN count(n)", ours=OURS
            ).single()[0]
            assert not strange, f"{self.uri} holds {strange} nodes that are no memory: name an empty database"
            few = session.run("MATCH (n) RETURN count(n) < 300").single()[0]
            if not self.own or (few and not session.run("SHOW VECTOR INDEXES YIELD name RETURN name").values()):
                session.run("MATCH (n) DETACH DELETE n").consume()
                return
        for verb in ("drop", "create"):  # quicker than to take so much out, and no index of an earlier test is left
            with ask(f"{self.sql}/api/v1/server", {"command": f"{verb} database {self.database}"}):
                pass


@dataclass
class ArcadeServer:
    """A process of ArcadeDB with its data in a folder; it ends with the tests, however they end."""

    folder: Path
    bolt: int = field(default_factory=lambda: free_port())
    http: int = field(default_factory=lambda: free_port())
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> Address:
        return Address(
            f"bolt://127.0.0.1:{self.bolt}", "root", PASSWORD, "memory", f"http://127.0.0.1:{self.http}", own=True
        )

    def start(self) -> None:
        """Start it, and wait until it answers."""
        package = importlib.util.find_spec("arcadedb_embedded")
        assert package is not None, "the tests of the neo4j store need a server: pip install arcadedb-embedded"
        home = Path(str(package.origin)).parent
        settings = {
            "server.rootPath": self.folder,
            "server.rootPassword": PASSWORD,
            "server.defaultDatabases": "memory[root]",
            "server.plugins": "Bolt:com.arcadedb.bolt.BoltProtocolPlugin",
            "bolt.host": "127.0.0.1",
            "bolt.port": self.bolt,
            "server.httpIncomingHost": "127.0.0.1",
            "server.httpIncomingPort": self.http,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(home / "jre" / "bin" / "java", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-cp", home / "jars" / "*"),
                    *(f"-Darcadedb.{name}={value}" for name, value in settings.items()),
                    "com.arcadedb.server.ArcadeDBServer",
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,
            )
        self._wait()

    def _wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            assert self.process is not None
            assert self.process.poll() is None, self.said()
            with contextlib.suppress(OSError):
                with ask(f"http://127.0.0.1:{self.http}/api/v1/databases") as answer:
                    if "memory" in json.load(answer)["result"]:
                        return
            time.sleep(0.1)
        raise AssertionError(f"ArcadeDB did not start in {START_SECONDS} s: {self.said()}")

    def said(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")[-2000:]

    def stop(self, *, at_once: bool = False) -> None:
        """End it; `at_once` as a power cut would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL if at_once else signal.SIGTERM)
            self.process.wait(60)
            self.process = None


def ask(url: str, body: dict[str, str] | None = None) -> Any:
    """What our ArcadeDB answers over HTTP."""
    secret = base64.b64encode(f"root:{PASSWORD}".encode()).decode()
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(url, data, {"Authorization": f"Basic {secret}"}), timeout=30)


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def free_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
