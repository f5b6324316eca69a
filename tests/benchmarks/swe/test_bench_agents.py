"""The kit's agents and a peer under the runner, with scripted models and a small server."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import toy_bench

from opensage.errors import ConfigError
from opensage_benchmarks.swe.agents import open_agent
from opensage_benchmarks.swe.images import sandbox_for
from opensage_benchmarks.swe.run.caps import Caps
from opensage_benchmarks.swe.run.config import RunConfig
from opensage_benchmarks.swe.run.runner import RunOptions, run

MINI = os.environ.get("OPENSAGE_MINI_SWE_PYTHON", "")
WRITE = {"name": "write", "arguments": {"path": "a.py", "content": "x = 2\n"}}
USED = {"input_tokens": 10, "output_tokens": 5, "cost": 0.1}


def go(out, tmp_path, turns, count=1, agent="default", total=None, image="", **config):
    script = tmp_path / "script.json"
    script.write_text(json.dumps(turns))
    settings = RunConfig("toy_bench:Toy", str(count), agent=agent, model=f"script:{script}", **config)
    run(list(toy_bench.Toy(count, image=image).tasks()), settings, out, RunOptions(total=total or Caps()))
    return [json.loads(line) for line in (out / "status.jsonl").read_text().splitlines()]


def test_an_image_made_for_the_task_is_used_when_it_is_there(tmp_path, docker_host):
    turns = [{"tool_calls": [{"name": "shell", "arguments": {"command": "echo x = 2 > a.py"}}]}, {"text": "Done."}]
    (record,) = go(tmp_path / "out", tmp_path, turns, image="opensage/base:latest")
    assert (record["status"], record["sandbox"]) == ("done", "docker")
    (record,) = go(tmp_path / "other", tmp_path, turns, image="opensage/base:latest", sandbox="bubblewrap")
    assert record["sandbox"] == "bubblewrap"
    task = toy_bench.Toy(1, image="opensage/nowhere:1").tasks()
    assert sandbox_for(next(task), "auto") == "auto"


def test_the_default_agent(tmp_path):
    out = tmp_path / "out"
    turns = [{"tool_calls": [WRITE], "usage": USED}, {"text": "It is two now.", "usage": USED}]
    (record,) = go(out, tmp_path, turns)
    assert (record["status"], record["reason"]) == ("done", "")
    assert (record["model_calls"], record["tool_calls"], record["input_tokens"], record["output_tokens"]) == (
        2,
        1,
        20,
        10,
    )
    assert record["cost"] == pytest.approx(0.2)
    assert record["sandbox"] in ("bubblewrap", "docker")
    assert json.loads((out / "run.json").read_text())["runs"][0]["sandboxes"] == [record["sandbox"]]
    assert record["left_out"] == []
    trajectory = json.loads((out / "toy__t-00" / "toy__t-00.traj.json").read_text())
    assert [message["role"] for message in trajectory["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert trajectory["messages"][1]["content"] == "Task 0: make x two."
    assert trajectory["info"]["model_stats"]["api_calls"] == 2
    (log,) = (out / "toy__t-00" / "session").glob("*.jsonl")
    assert json.loads(log.read_text().splitlines()[-1])["type"] == "run.finished"
    assert "+x = 2" in json.loads((out / "preds.json").read_text())["toy__t-00"]["model_patch"]


LOOP = [
    {"repeat": {"tool_calls": [{"name": "shell", "arguments": {"command": "date +%N"}}], "usage": USED}, "times": -1}
]


def test_three_calls_for_35_cents(tmp_path):
    (record,) = go(tmp_path / "out", tmp_path, LOOP, limits=Caps(cost=0.35))
    assert (record["status"], record["model_calls"]) == ("limit", 3)
    assert record["reason"].startswith("cost_limit: 0.3 of 0.35")


def test_a_step_limit_and_the_total(tmp_path):
    (record,) = go(tmp_path / "steps", tmp_path, LOOP, limits=Caps(steps=2))
    assert (record["status"], record["model_calls"]) == ("limit", 2)
    (record,) = go(tmp_path / "total", tmp_path, LOOP, total=Caps(tokens=40))
    assert (record["status"], record["model_calls"]) == ("limit", 2)
    assert record["reason"].startswith("total_token_limit")


def test_every_try_of_a_call_is_asked_for_and_giving_up_is_a_model_error(tmp_path):
    turns = [{"repeat": {"error": {"status": 503, "message": "busy", "retry_after": 0.01}}, "times": -1}]
    (record,) = go(tmp_path / "out", tmp_path, turns)
    assert (record["status"], record["class"], record["model_calls"]) == ("model_error", "infra", 5)
    assert "busy" in record["reason"]


def test_a_saved_agent(tmp_path):
    library = tmp_path / "here" / ".opensage" / "agents"
    library.mkdir(parents=True)
    (library / "fixer.md").write_text("---\nname: fixer\ndescription: Fixes.\ntools: [write]\n---\nBe brief.\n")
    turns = [{"tool_calls": [WRITE]}, {"text": "Done."}]
    options = {"library": str(library.parent.parent)}
    (record,) = go(tmp_path / "out", tmp_path, turns, agent="fixer", options=options)
    assert record["status"] == "done"
    system = json.loads((tmp_path / "out" / "toy__t-00" / "toy__t-00.traj.json").read_text())["messages"][0]
    assert "Be brief." in system["content"]


def test_options_that_cannot_be_meant():
    with pytest.raises(ConfigError, match="context_window"):
        open_agent("default", {"context_window": "many"})
    with pytest.raises(ConfigError, match="agent-option python="):
        open_agent("mini-swe-agent", {})
    with pytest.raises(ConfigError, match="bubblewrap or local"):
        open_agent("mini-swe-agent", {"python": "/bin/sh", "environment": "moon"})


# --- mini-swe-agent ---------------------------------------------------------------------------------------------


class Server(ThreadingHTTPServer):
    """Answers chat completions with `replies` in turn, the last one for ever; a number is an HTTP error."""

    daemon_threads = True

    def __init__(self, replies):
        super().__init__(("127.0.0.1", 0), Handler)
        self.replies, self.seen = list(replies), []

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append(body)
        reply = self.server.replies.pop(0) if len(self.server.replies) > 1 else self.server.replies[0]
        if isinstance(reply, int):
            self.answer(reply, {"error": {"message": "no", "type": "x"}})
            return
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
        usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        self.answer(
            200,
            {"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": usage},
        )

    def answer(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(*replies):
        server = Server(replies)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def says(command):
    return f"THOUGHT: so be it.\n\n```mswea_bash_command\n{command}\n```"


def mini(tmp_path, server, **config):
    options = {"python": MINI, "api_base": server.address, **config.pop("options", {})}
    settings = RunConfig("toy_bench:Toy", "1", agent="mini-swe-agent", model="openai/m", options=options, **config)
    out = tmp_path / "out"
    run(list(toy_bench.Toy(1).tasks()), settings, out)
    (record,) = [json.loads(line) for line in (out / "status.jsonl").read_text().splitlines()]
    return record, out / "toy__t-00"


needs_mini = pytest.mark.skipif(not MINI, reason="name a Python with mini-swe-agent in OPENSAGE_MINI_SWE_PYTHON")


@needs_mini
@pytest.mark.parametrize("environment", ["bubblewrap", "local"])
def test_mini_swe_agent(tmp_path, serve, environment):
    server = serve(
        says("cat a.py && pwd && env"),
        says("sed -i 's/1/2/' a.py && python3 -c 'import a; print(a.x)'"),
        says("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"),
    )
    record, folder = mini(tmp_path, server, options={"environment": environment})
    assert (record["status"], record["reason"]) == ("done", "")
    assert (record["model_calls"], record["tool_calls"]) == (3, 3)
    assert (record["input_tokens"], record["output_tokens"], record["cost"]) == (300, 60, None)
    assert record["sandbox"] == environment
    assert "+x = 2" in (folder / "patch.diff").read_text()
    assert "Task 0: make x two." in server.seen[0]["messages"][1]["content"]
    assert "tools" not in server.seen[0]
    assert "x = 1" in server.seen[1]["messages"][-1]["content"]
    assert "2" in server.seen[2]["messages"][-1]["content"]
    own = json.loads((folder / "mini.traj.json").read_text())
    assert own["info"]["exit_status"] == "Submitted"
    assert json.loads((folder / "toy__t-00.traj.json").read_text())["messages"][0]["role"] == "system"


@needs_mini
def test_mini_swe_agent_has_no_network_and_no_keys(tmp_path, serve, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "sesame")
    port = 0
    server = serve("x")
    port = server.server_port
    look = f"env; python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 2)' 2>&1 | tail -1; ls {tmp_path}"
    server.replies = [says(look), says("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")]
    record, _ = mini(tmp_path, server)
    shown = server.seen[1]["messages"][-1]["content"]
    assert record["status"] == "empty_patch"
    assert "sesame" not in shown
    assert "Connection refused" in shown or "unreachable" in shown
    assert "out" not in shown.splitlines()


@needs_mini
def test_mini_swe_agent_within_limits(tmp_path, serve):
    record, _ = mini(tmp_path, serve(says("date")), limits=Caps(steps=2))
    assert (record["status"], record["model_calls"]) == ("limit", 2)


@needs_mini
def test_mini_swe_agent_that_writes_no_action(tmp_path, serve):
    record, _ = mini(tmp_path, serve("I do not feel like it."))
    assert (record["status"], record["model_calls"]) == ("stuck", 3)
    assert "RepeatedFormatError" in record["reason"]


@needs_mini
def test_mini_swe_agent_without_its_model(tmp_path, serve):
    record, _ = mini(tmp_path, serve(404))
    assert (record["status"], record["class"]) == ("model_error", "infra")
