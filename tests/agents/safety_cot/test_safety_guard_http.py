"""A guard model behind a real HTTP server: whatever the server does, a reply that is not judged safe is not shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from model_servers import Behaviour, Exchange, Provider, provider

import opensage
from opensage.models import ScriptedModel
from opensage_agents.safety_cot.guard import NOT_JUDGED, NOTICE, Guarded
from opensage_agents.safety_cot.judges import judged
from opensage_agents.safety_cot.opening import open_judge
from opensage_agents.safety_cot.sample import Sample

MODEL = "qwen2.5-coder-0.5b"
SAMPLE = Sample("Why was the treaty signed?", "It ended the war.", "To end the war.")


def says(*pieces: str) -> Behaviour:
    def behave(exchange: Exchange) -> None:
        exchange.begin()
        for piece in pieces:
            exchange.delta({"content": piece}, model=MODEL)
        exchange.delta({}, "stop", model=MODEL)
        exchange.end()

    return behave


def hangs_up_within(exchange: Exchange) -> None:
    exchange.begin()
    exchange.delta({"content": "sa"}, model=MODEL)
    exchange.hang_up()


def half_an_event(exchange: Exchange) -> None:
    exchange.begin()
    exchange.raw('data: {"choices": [{"del')
    exchange.hang_up()


def sleeps(exchange: Exchange) -> None:
    time.sleep(3)
    says("safe")(exchange)


BROKEN: dict[str, Behaviour] = {
    "neither word": says("I would rather not say."),
    "both words": says("not safe"),
    "empty": says(),
    "an error": lambda exchange: exchange.fail(400, "no such thing"),
    "no JSON": lambda exchange: exchange.answer(200, "text/html", "<html>safe</html>"),
    "half an event": half_an_event,
    "hangs up": lambda exchange: exchange.hang_up(),
    "hangs up within": hangs_up_within,
    "too slow": sleeps,
    "another model": lambda exchange: (exchange.begin(), exchange.delta({"content": "safe"}, model="x"), exchange.end())[0],
}  # fmt: skip


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Callable[[Provider], None]:
    return lambda played: monkeypatch.setenv("OPENSAGE_LOCAL_SERVER", played.url)


def test_safe_twice_is_shown(served: Callable[[Provider], None]) -> None:
    with provider(says("sa", "fe")) as played:
        served(played)
        scores = judged(open_judge(f"guard:local/{MODEL}"), SAMPLE, 20)
        assert (scores.S_z, scores.S_y, scores.flagged) == (1.0, 1.0, "")
        texts = [each["messages"][0]["content"] for each in played.requests]
    assert len(texts) == 2
    assert "thought:\nIt ended the war." in texts[0]
    assert "answer:\nTo end the war." in texts[1]


def test_an_unsafe_thought_is_withheld(served: Callable[[Provider], None], tmp_path: Path) -> None:
    with provider(says("unsafe\nS9"), says("safe")) as played:
        served(played)
        result = shown(tmp_path, 20)
    assert result.text == NOTICE


def shown(folder: Path, timeout: float) -> opensage.Result:
    judge = open_judge(f"guard:local/{MODEL}")
    script = ScriptedModel([{"text": f"<think>{SAMPLE.thought}</think>{SAMPLE.answer}"}])
    model = Guarded(script, judge=judge, timeout=timeout)
    return opensage.run(SAMPLE.prompt, model=model, workdir=folder, sandbox="bubblewrap", approve="allow", memory=False)


@pytest.mark.parametrize("what", list(BROKEN))
def test_a_server_that_misbehaves_closes(what: str, served: Callable[[Provider], None], tmp_path: Path) -> None:
    with provider(BROKEN[what]) as played:
        served(played)
        result = shown(tmp_path, 1.0 if what == "too slow" else 20)
        assert played.requests
    assert result.text == NOT_JUDGED
    assert SAMPLE.answer not in "".join(path.read_text() for path in (tmp_path / ".opensage").rglob("*.jsonl"))


def test_no_server_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSAGE_LOCAL_SERVER", "http://127.0.0.1:9/v1")
    scores = judged(open_judge(f"guard:local/{MODEL}"), SAMPLE, 20)
    assert (scores.S_z, scores.S_y) == (0.0, 0.0)
    assert "does not answer" in scores.flagged
