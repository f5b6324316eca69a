"""What the scripted model says on each turn of the day: work, and every kind of trouble, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from opensage.messages import Request
from opensage.models import ScriptedModel
from opensage.models.turns import Turn, read_turn

WINDOW = 12_000
"""Tokens the model claims to hold: small, so that the history is compacted many times."""
Reply = dict[str, Any]


class DayModel(ScriptedModel):
    """Makes each turn when it is asked for, and keeps no request: what grows must be the kit's."""

    def __init__(self, seed: int, turns: int) -> None:
        super().__init__([], context_window=WINDOW, name="script:day")
        self._seed, self.turns = seed, turns
        self.at = 0
        self.kinds: dict[str, int] = {}
        self._queue: list[Reply] = []

    def _turn(self, request: Request) -> Turn:
        self._seen.clear()
        if request.agent != "main":
            return read_turn(_summary(random.Random(f"{self._seed}/side/{self.at}")), "the day's summaries")
        if not self._queue:
            chance = random.Random(f"{self._seed}/{self.at}")
            kind = chance.choices([name for name, _, _ in KINDS], [weight for _, weight, _ in KINDS])[0]
            self.kinds[kind] = self.kinds.get(kind, 0) + 1
            self._queue = next(make for name, _, make in KINDS if name == kind)(self.at, chance)
        self.at += 1
        return read_turn(self._queue.pop(0), f"turn {self.at}")


def call(name: str, arguments: Any, id: str | None = None) -> Reply:
    """One tool call of a turn."""
    return {"id": id, "name": name, "arguments": arguments}


def _calls(*items: Reply, **more: Any) -> list[Reply]:
    return [{"tool_calls": list(items), "usage": {"input_tokens": 0, "output_tokens": 20}, **more}]


def _summary(chance: random.Random) -> Reply:
    return chance.choice(
        [{"text": "worked on many files " * 5}, {"text": ""}, {"error": {"status": 400, "message": "no"}}]
    )


def _shell(n: int, command: str, **more: Any) -> Reply:
    return call("shell", {"command": f"{command} # {n}", **more})


def _work(n: int, chance: random.Random) -> Reply:
    """One call that does something, on one of fifty files."""
    path = f"src/f{chance.randrange(50)}.py"
    return chance.choice(
        [
            _shell(n, f"echo {n}; wc -l src/* 2>/dev/null | tail -1"),
            _shell(n, f"mkdir -p src && echo 'x = {n}' >> {path} && cat {path} | tail -3"),
            _shell(n, f"exit {n % 200 + 1}"),
            call("write", {"path": path, "content": f"x = {n}\ny = 'é{n}'\n" * chance.randint(1, 40)}),
            call("edit", {"path": path, "old": "x = ", "new": f"z{n} = "}),
            call("read", {"path": path}),
            call("list", {"path": "src"}),
            call("search", {"pattern": f"x = {n % 100}"}),
        ]
    )


def _parallel(n: int, chance: random.Random) -> list[Reply]:
    kinds: list[Callable[[], Reply]] = [
        lambda: _work(n, chance),
        lambda: call("fails", {"n": n}),
        lambda: call("gated", {"n": n + chance.randrange(9)}),
        lambda: call("read", {"path": f"src/f{chance.randrange(60)}.py"}),
    ]
    return _calls(*[chance.choice(kinds)() for _ in range(chance.randint(2, 6))])


def _bad(n: int, chance: random.Random) -> list[Reply]:
    arguments = chance.choice(
        ['{"n": ', "[]", '"x"', "3", "{'n': 1}", '{"n": "a\nb\0"}', "", '{"m": 1}', '{"n": [1]}', "[" * 3000]
    )
    return _calls(call(chance.choice(["fails", "shell", "write"]), arguments), text=f"bad {n}")


def _twice(n: int, chance: random.Random) -> list[Reply]:
    name = chance.choice(["c0", "c1", ""])
    return _calls(call("read", {"path": f"src/f{n % 50}.py"}, name), call("gated", {"n": n}, name))


def _trouble(n: int, chance: random.Random) -> list[Reply]:
    errors = [
        {"status": 503, "message": "busy", "retry_after": 0.001},
        {"status": 429, "message": "slow", "retry_after": 0.001},
    ]
    failing: Reply = {"error": chance.choice(errors)}
    if chance.random() < 0.5:
        failing |= {"text": "half a sen", "tool_calls": [call("fails", '{"n": 1')]}
    return [failing] * chance.randint(1, 3) + _calls(_work(n, chance))


def _fatal(n: int, chance: random.Random) -> list[Reply]:
    return [{"error": {"status": chance.choice([400, 401, 404]), "message": f"refused {n}"}}]


def _overflow(n: int, chance: random.Random) -> list[Reply]:
    words = ["maximum context length is 100 tokens", "prompt is too long: 200 tokens > 100 maximum"]
    return [{"error": {"status": 400, "message": chance.choice(words)}}, *_calls(_work(n, chance))]


def _cut(n: int, chance: random.Random) -> list[Reply]:
    whole = call("read", {"path": f"src/f{n % 50}.py"})
    half = call("write", '{"path": "src/half.py", "content": "' + "x" * chance.randint(1, 500))
    return _calls(*chance.choice([(whole, half), (half,)]), finish_reason="length")


def _empty(n: int, chance: random.Random) -> list[Reply]:
    return [{"text": chance.choice(["", "  "])}] * chance.randint(1, 2) + _calls(_work(n, chance))


def _stuck(n: int, chance: random.Random) -> list[Reply]:
    return _calls(call("fails", {"n": n})) * chance.choice([3, 6])


KINDS: list[tuple[str, float, Callable[[int, random.Random], list[Reply]]]] = [
    ("work", 40, lambda n, r: _calls(_work(n, r), text=r.choice(["", f"step {n}", "## Plan\n1. a\n2. b\n"]))),
    ("parallel calls", 12, _parallel),
    ("failing tool", 5, lambda n, r: _calls(call("fails", {"n": n}))),
    ("unknown tool", 3, lambda n, r: _calls(call(r.choice(["bash", "Read", "", "no_such" * 9]), {"n": n}))),
    ("bad arguments", 5, _bad),
    ("duplicate ids", 4, _twice),
    ("cut reply", 3, _cut),
    ("empty reply", 2, _empty),
    ("provider error", 4, _trouble),
    ("fatal provider error", 0.5, _fatal),
    ("overflow error", 0.5, _overflow),
    ("huge output", 4, lambda n, r: _calls(call("huge", {"n": n}), _shell(n, "head -c 400000 /dev/zero | tr '\\0' x"))),
    ("time-out", 1, lambda n, r: _calls(_shell(n, f"echo {n}; sleep 30 & wait", timeout=0.1))),
    (
        "denied",
        3,
        lambda n, r: _calls(
            _shell(n, f"true; \\rm -rf src/x{n}"), call("write", {"path": f"a{n}/../.env", "content": "x"})
        ),
    ),
    ("asked", 4, lambda n, r: _calls(*[call("gated", {"n": n + i}) for i in range(3)])),
    ("sandbox lost", 0.7, lambda n, r: _calls(call("lose_sandbox", {"n": n})) + _calls(_shell(n, "echo again"))),
    ("background", 1, lambda n, r: _calls(_shell(n, "sleep 0.05; echo x", background=True), call("tasks", {}))),
    ("stuck", 0.5, _stuck),
    ("odd text", 1, lambda n, r: _calls(_work(n, r), text="\ud800 \x1b[2J é漢\u2028" + "z" * r.randrange(5000))),
    (
        "answer",
        3,
        lambda n, r: [{"text": f"that was {n}", "usage": {"input_tokens": 9, "output_tokens": 9, "cost": 0.001}}],
    ),
    ("finish", 0.5, lambda n, r: _calls(call("finish", {"text": f"finished {n}"}), call("finish", {"text": "twice"}))),
]
"""Each kind of turn: its name, how often it comes (weights), and the replies it is made of."""
