"""Machines: properties of an object, whose counterexample is a sequence of calls."""

from __future__ import annotations

from typing import Any

import pytest

from opensage.errors import ConfigError
from opensage_agents.pgs import Property, PropertyError, PropertySet, Report, check, find_vacuous

STACK = '''TARGET = "Stack"

class Machine(StatefulMachine):
    """The last in is the first out."""

    def __init__(self):
        super().__init__()
        self.model = []

    @rule(value=st.integers(0, 9))
    def push(self, value):
        self.call("push", value)
        self.model.append(value)

    @precondition(lambda self: self.model)
    @rule()
    def pop(self):
        assert self.call("pop") == self.model.pop(), "not the last"

    @precondition(lambda self: not self.model)
    @rule()
    def pop_of_nothing(self):
        self.raises(IndexError, "pop")

    @invariant()
    def size(self):
        assert self.call("__len__") == len(self.model)
'''
RIGHT = """class Stack:
    def __init__(self):
        self.items = []
    def push(self, value):
        self.items.append(value)
    def pop(self):
        return self.items.pop()
    def __len__(self):
        return len(self.items)
"""


def checked(code: str, text: str, **options: Any) -> Report:
    options = {"sandbox": "bubblewrap", "max_examples": 20, "total_timeout": 60, "call_timeout": 0.3, **options}
    return check(code, PropertySet.from_source(text), **options)


def shown(code: str, text: str, **options: Any) -> tuple[str, str, str, str]:
    report = checked(code, text, **options)
    found = report.counterexample
    assert found is not None, report
    assert found.stateful
    assert found.written("any") == found.args_repr
    return report.status, found.args_repr, found.result_repr, found.message


def test_a_right_stack_holds() -> None:
    report = checked(RIGHT, STACK)
    assert report.status == "ok", report
    assert report.stats.evaluations == {"Machine": 20}
    assert report.notes == ()


def test_the_sequence_is_shrunk_and_the_same_in_each_run() -> None:
    code = RIGHT.replace("return self.items.pop()", "return self.items.pop(0)")
    first = checked(code, STACK)
    found = first.counterexample
    assert found is not None
    assert first.status == "violated"
    assert (found.property, found.message) == ("Machine", "pop: not the last")
    assert found.args_repr == "s = Stack(); s.push(0); s.push(1); s.pop()"
    assert found.result_repr == "0"
    assert found.args == ("Machine", (("push", {"value": 0}), ("push", {"value": 1}), ("pop", {})))
    assert found.shrunk
    assert first.broken == ("Machine",)
    assert checked(code, STACK).to_dict(times=False) == first.to_dict(times=False)


CACHE = """TARGET = "LRUCache"
from hypothesis.stateful import rule, initialize, invariant, RuleBasedStateMachine

class Machine(RuleBasedStateMachine):
    keys = Bundle("keys")

    @initialize(capacity=st.integers(1, 3))
    def start(self, capacity):
        self.make(capacity)
        self.capacity, self.model = capacity, {}

    @rule(target=keys, key=st.integers(0, 3), value=st.integers(0, 5))
    def put(self, key, value):
        self.call("put", key, value)
        self.model.pop(key, None)
        self.model[key] = value
        while len(self.model) > self.capacity:
            self.model.pop(next(iter(self.model)))
        return key

    @rule(key=keys)
    def get(self, key):
        wanted = self.model.pop(key, None)
        if wanted is not None:
            self.model[key] = wanted
        got = self.call("get", key)
        assert got == wanted, f"{key} holds {wanted}"
"""
LRU = """class LRUCache:
    def __init__(self, capacity):
        self.capacity, self.items = capacity, {}
    def put(self, key, value):
        self.items.pop(key, None)
        self.items[key] = value
        if len(self.items) > self.capacity:
            del self.items[next(iter(self.items))]
    def get(self, key):
        if key not in self.items:
            return None
        self.items[key] = self.items.pop(key)
        return self.items[key]
"""


@pytest.mark.slow
def test_a_cache_that_forgets_what_was_used_last() -> None:
    assert checked(LRU, CACHE).status == "ok"
    status, calls, result, message = shown(
        LRU.replace("self.items[key] = self.items.pop(key)", "pass"), CACHE, max_examples=80
    )
    assert status == "violated"
    assert calls == "l = LRUCache(2); l.put(0, 0); l.put(2, 0); l.get(0); l.put(1, 0); l.get(2)"
    assert (result, message) == ("0", "get: 2 holds None")


QUEUE = """TARGET = "Queue"
class Machine(StatefulMachine):
    count = 0
    @rule(value=st.integers(0, 1))
    def put(self, value):
        self.call("put", value)
        self.count += 1
    @precondition(lambda self: self.count)
    @rule()
    def take(self):
        self.call("take")
        self.count -= 1
"""
FIFO = """class Queue:
    def __init__(self):
        self.left, self.right = [], []
    def put(self, value):
        self.right.append(value)
    def take(self):
        BODY
        return self.left.pop()
"""
REFILL = "if not self.left:\n            self.left, self.right = self.right[::-1], []"


@pytest.mark.parametrize(
    ("body", "status", "calls", "said"),
    [
        ("self.left, self.right = self.right[::-1], []", "crashed", "q.put(0); q.put(0); q.take(); q.take()", "pop from"),
        ("import os; os._exit(3)", "crashed", "q.put(0); q.take()", "exit code 3"),
        ("return self.take()", "recursion", "q.put(0); q.take()", "RecursionError"),
        ("while len(self.right) > 1: pass\n        " + REFILL, "hung", "q.put(0); q.put(0); q.take()", "does not end"),
        pytest.param(
            "import time; end = time.process_time() + 0.6\n        while time.process_time() < end: pass\n        " + REFILL,
            "timeout", "q.put(0); q.take()", "more than", marks=pytest.mark.slow,
        ),
    ],
)  # fmt: skip
def test_each_outcome_of_a_method(body: str, status: str, calls: str, said: str) -> None:
    code = FIFO.replace("BODY", body)
    found = shown(code, QUEUE)
    assert found[0] == status
    assert found[1] == f"q = Queue(); {calls}"
    assert said in found[3]


def test_a_right_queue_holds() -> None:
    assert checked(FIFO.replace("BODY", REFILL), QUEUE).status == "ok"


ACCOUNT = """TARGET = "Account"
class Machine(StatefulMachine):
    @initialize(owner=st.sampled_from(["ann", "bob"]))
    def open(self, owner):
        self.make(owner, start=0)
        self.money = 0
    @rule(amount=st.integers(1, 100))
    def deposit(self, amount):
        self.call("deposit", amount)
        self.money += amount
    @rule(amount=st.integers(1, 100))
    def withdraw(self, amount):
        if amount > self.money:
            return self.raises(ValueError, "withdraw", amount)
        self.call("withdraw", amount)
        self.money -= amount
    @invariant()
    def balance(self):
        assert self.attribute("balance") == self.money
"""
BANK = """class Account:
    def __init__(self, owner, start):
        self.balance = start
    def deposit(self, amount):
        self.balance += amount
    def withdraw(self, amount):
        if amount > self.balance:
            raise TooLittle(amount)
        self.balance -= amount
class TooLittle(ValueError):
    pass
"""


@pytest.mark.parametrize(
    ("old", "new", "calls", "said"),
    [
        ("raise TooLittle(amount)", "return", "a.withdraw(1)", "withdraw: a.withdraw(1) must raise ValueError, but returns"),
        ("TooLittle(ValueError)", "TooLittle(KeyError)", "a.withdraw(1)", "but raises TooLittle: 1"),
        ("            raise", "            self.balance -= 1\n            raise",
         "raises(ValueError, a.withdraw, 1); a.balance", "balance: does not hold: assert self.attribute("),
    ],
)  # fmt: skip
def test_what_a_method_must_refuse(old: str, new: str, calls: str, said: str) -> None:
    status, text, _result, message = shown(BANK.replace(old, new), ACCOUNT)
    assert status == "violated"
    assert text == f"a = Account('ann', start=0); {calls}"
    assert said in message


def test_a_right_account_holds() -> None:
    assert checked(BANK, ACCOUNT).status == "ok"


@pytest.mark.parametrize(
    "line",
    [
        '{"done": {"found": null}}',
        '{"id": %d, "outcome": "ok", "value": {"zz": 1}}',
        '{"id": %d, "outcome": "ok"}',
        '{"id": %d, "outcome": "ok", "value": "forged"}',
    ],
)
def test_a_forged_answer_is_no_verdict(line: str) -> None:
    """At most it is a result, which then is wrong."""
    body = f"import os\n        for n in range(99):\n            for fd in range(3, 20):\n                try: os.write(fd, b'{line}\\n' % n)\n                except (OSError, TypeError): pass"
    report = checked(RIGHT.replace("return self.items.pop()", body), STACK, max_examples=5)
    assert report.status in ("crashed", "violated"), report


def test_state_that_objects_share_is_told() -> None:
    code = RIGHT.replace("        self.items = []", "        pass").replace(
        "class Stack:", "class Stack:\n    items = []"
    )
    report = checked(code, STACK)
    assert report.status == "violated"
    assert report.notes == ("it fails only after other objects were used: objects share state",)
    assert checked(code, STACK, fresh_per_call=True, max_examples=5).status == "ok"


def test_what_changes_by_itself_is_no_counterexample() -> None:
    code = RIGHT.replace(
        "def push", "def __init__(self):\n        self.items = [0] * (next(count) % 3 == 2)\n    def push"
    )
    report = checked(f"import itertools\ncount = itertools.count()\n{code}", STACK)
    assert report.status == "inconclusive"
    assert any(note.startswith("flaky") for note in report.notes)


def test_earlier_sequences_are_replayed() -> None:
    code = RIGHT.replace("self.items.append(value)", "self.items.append(value % 1000)")
    text = STACK.replace("st.integers(0, 9)", "st.integers()").replace("max_value", "")
    steps = ("Machine", (("push", {"value": 7777}), ("pop", {})))
    other = [
        ("Machine", (("none", {}),)),
        ("Machine", (("push", {"no": 1}),)),
        ("Machine", (("pop", {}),)),
        ("Other", ()),
    ]
    report = checked(code, text, replay=[*other, steps], max_examples=0)
    assert report.counterexample is not None
    assert report.counterexample.args == steps
    assert not report.counterexample.shrunk
    assert checked(RIGHT, text, replay=[steps], max_examples=0).status == "ok"
    assert "no sequence of calls" in checked(RIGHT, text, replay=[(3,)]).message


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('self.call("push", value)', "return 1 / 0", "push: ZeroDivisionError"),
        ('self.call("push", value)', "while True: pass", "CPU time"),
        ('self.call("push", value)', 'self.call("push", print)', "plain data"),
        ("self.model = []", 'self.call("push", 1)', "in rules and invariants only"),
        ("super().__init__()", "pass", "AttributeError"),
        ("lambda self: self.model", "lambda self: self.nothing", "nothing"),
        ("value=st.integers(0, 9)", "value=3", "value"),
        ("@rule", "@role", "role"),
        ("def push(self, value):", "def push(self):", "TypeError"),
    ],
)
def test_a_bad_machine_is_the_testers_fault(old: str, new: str, said: str) -> None:
    report = checked(RIGHT, STACK.replace(old, new), max_examples=5)
    assert report.status == "invalid_property", report
    assert said in report.message


def test_rules_that_no_run_reaches_are_named() -> None:
    text = STACK + "\n    @precondition(lambda self: False)\n    @rule()\n    def never(self):\n        assert False\n"
    report = checked(RIGHT, text, max_examples=5)
    assert (report.status, report.notes) == ("ok", ("no run reached Machine.never",))


def test_a_file_of_machines_is_read_and_written() -> None:
    propset = PropertySet.from_source("import math\n" + CACHE)
    assert propset.stateful
    assert (propset.names, propset.strategy, propset.properties[0].kind) == (["Machine"], "", "stateful")
    assert PropertySet.from_source(propset.to_source()) == propset
    by_hand = PropertySet(
        "Stack", properties=[Property("M", "class M(StatefulMachine):\n    pass", kind="stateful", source="human")]
    )
    assert PropertySet.from_source(by_hand.to_source()).properties[0].source == "human"


def test_machines_stand_alone() -> None:
    with pytest.raises(PropertyError, match="STRATEGY beside a machine"):
        PropertySet.from_source("STRATEGY = st.tuples()\n" + STACK)
    with pytest.raises(PropertyError, match="plain beside a machine"):
        PropertySet.from_source(STACK + "def plain(args, result):\n    return True\n")
    with pytest.raises(PropertyError, match="must be one class"):
        PropertySet("Stack", properties=[Property("M", "def M(args, result): pass", kind="stateful")]).to_source()
    with pytest.raises(ConfigError, match="1 to 200"):
        checked(RIGHT, STACK, steps=0)


@pytest.mark.slow
def test_a_machine_that_no_mutant_breaks_is_vacuous() -> None:
    idle = STACK.partition("class Machine")[0] + (
        "class Idle(StatefulMachine):\n    @rule(value=st.integers())\n    def push(self, value):\n"
        '        self.call("push", value)\n'
    )
    code = RIGHT.replace(
        "return len(self.items)", "n = 0\n        for _ in self.items:\n            n += 1\n        return n"
    )
    report = find_vacuous(
        code, PropertySet.from_source(STACK + idle.partition("\n\n")[2]), sandbox="bubblewrap", inputs=8
    )
    assert report.vacuous == ("Idle",)
    assert PropertySet.from_source(STACK).validate([]).undecided == ("Machine",)
