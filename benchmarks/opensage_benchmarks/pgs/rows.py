"""The figures of a run beside what is required of them."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opensage_agents.pgs.report import FAILED
from opensage_benchmarks.checks import Row
from opensage_benchmarks.pgs import hostile, jobs

Records = Mapping[str, Mapping[str, Any]]
Groups = Callable[[str], Records]

DEFECTS = ("next_palindrome", "wrap")
"""Corrected programs that have a defect: `next_palindrome([1, 0])` is no palindrome, `wrap(' a', 1)` never ends."""
SHAPES = {
    "bitcount": "1", "mergesort": "[0]", "quicksort": "[0, 0]", "sieve": "2", "lis": "[1, 2, 0]",
    "levenshtein": "'a', 'a'", "max_sublist_sum": "[-1, 1]", "rpn_eval": "[1.0, 2.0, '-']",
}  # fmt: skip
"""Shrunk inputs that other tools came to with properties of their own."""
LARGE = 50
"""Characters from which a first failing input counts as large."""
FEWEST = 3
"""Large inputs whose mean is worth a verdict."""


def rows(groups: Groups, seeds: Sequence[int], busy: bool = False) -> list[Row]:
    """All figures of a run that has records of these groups; on a busy machine none is too slow."""
    found = [row for seed in seeds for row in _exposed(groups(f"buggy, seed {seed}"), f"seed {seed}, 100 inputs", 38)]
    found += _exposed(groups("buggy, 25 inputs"), f"seed {seeds[0]}, 25 inputs", 36)
    found += _kinds(groups(f"buggy, seed {seeds[0]}"), groups("outcomes"))
    found += [row for seed in seeds for row in _alarms(groups(f"corrected, seed {seed}"), seed)]
    found += [row for seed in seeds for row in _shrunk(groups(f"buggy, seed {seed}"), seed)]
    found += [*_large([groups(f"buggy, seed {seed}") for seed in seeds])]
    found += _least(groups(f"buggy, seed {seeds[0]}"), groups("least drawn"))
    found += [*_shapes(groups(f"buggy, seed {seeds[0]}")), *_calls([groups(f"buggy, seed {seed}") for seed in seeds])]
    for what in ("buggy", "corrected"):
        for seed in seeds:
            found += _time(groups(f"{what}, seed {seed}"), f"{what}, seed {seed}", busy)
    found += _same(groups(f"buggy, seed {seeds[0]}"), groups("again"))
    found += _scripted(groups("scripted"))
    found += [*_filtered(groups("filter")), *_vacuous(groups("vacuity")), *_isolated(groups("isolation"))]
    return [*found, *_fixes(groups("HumanEvalFix, buggy"), groups("HumanEvalFix, canonical"))]


def late(records: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[Row]:
    """Checks whose time was over before they had decided: what they say is no measurement."""
    found = [f"{name} ({group})" for (group, name), record in records.items() if record.get("late")]
    text = f"{len(found)}: {', '.join(found)}; started again, they are repeated" if found else "none"
    return [Row("checks that ran out of time", text, "none", not found)]


def _failed(record: Mapping[str, Any]) -> bool:
    return record["report"]["status"] in FAILED


def _names(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _exposed(records: Records, title: str, least: int) -> Iterator[Row]:
    if not records:
        return
    missed = sorted(name for name, each in records.items() if not _failed(each))
    number = len(records) - len(missed)
    text = f"{number} of {len(records)}" + (f", not {', '.join(missed)}" if missed else "")
    yield Row(f"bugs exposed, {title}", text, f">= {least} of 40", 40 * number >= least * len(records))


def _scripted(records: Records) -> Iterator[Row]:
    """The whole loop with a scripted model; a corrected program with a defect must end unsolved."""
    if not records:
        return
    good = {name: each for name, each in records.items() if name not in DEFECTS}
    solved = [name for name, each in good.items() if (each["status"], each["generator_calls"]) == ("solved", 2)]
    missed = sorted(set(good) - set(solved))
    text = f"{len(solved)} of {len(good)}" + (f", not {', '.join(missed)}" if missed else "")
    others = ", ".join(f"{name} {each['status']}" for name, each in records.items() if name in DEFECTS)
    yield Row("repaired in 2 calls by a scripted model", f"{text}; {others}" if others else text, "all", not missed)
    longest = max(each["feedback_tokens"] for each in records.values())
    yield Row("longest feedback in tokens", str(longest), "< 400", longest < 400)


def _kinds(records: Records, outcomes: Records) -> Iterator[Row]:
    if records:
        counts = Counter(each["report"]["status"] for each in records.values() if _failed(each))
        yield Row("last failures by kind", ", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    if outcomes:
        right = [name for name, each in outcomes.items() if each["report"]["status"] == name]
        text = f"{len(right)} of {len(outcomes)} told apart"
        yield Row("five kinds of failure", text, "5 of 5", len(right) == len(hostile.OUTCOMES))


def _alarms(records: Records, seed: int) -> Iterator[Row]:
    if not records:
        return
    raised = sorted(name for name, each in records.items() if _failed(each))
    false = [name for name in raised if name not in DEFECTS]
    open_ = sorted(name for name, each in records.items() if not _failed(each) and each["report"]["status"] != "ok")
    text = f"{len(false)} false{_names(false)}, {len(raised) - len(false)} right"
    text += _names([name for name in raised if name in DEFECTS]) + (f", undecided: {', '.join(open_)}" if open_ else "")
    fits = 40 * len(false) <= len(records) and not open_
    yield Row(f"alarms on {len(records)} corrected, seed {seed}", text, "<= 1 of 40 false", fits)


def _lengths(records: Records) -> list[tuple[int, int]]:
    found = [each["report"]["counterexample"] for each in records.values() if _failed(each)]
    return [(len(each["shrunk_from"]), len(each["args_repr"])) for each in found]


def _shrunk(records: Records, seed: int) -> Iterator[Row]:
    sizes = _lengths(records)
    if not sizes:
        return
    first, last = [size[0] for size in sizes], [size[1] for size in sizes]
    less, more = (sum(sign * (b - a) > 0 for a, b in sizes) for sign in (-1, 1))
    text = f"median {statistics.median(first):g} -> {statistics.median(last):g}"
    text += f", mean {statistics.mean(first):.1f} -> {statistics.mean(last):.1f}; less in {less}"
    text += f", equal in {len(sizes) - less - more}, more in {more}"
    yield Row(f"characters of the input, first -> shown, seed {seed}", text, "never more", more == 0)
    cut = 1 - sum(last) / sum(first)
    yield Row(f"mean reduction, seed {seed}", f"{cut:.1%}", ">= 35 %", cut >= 0.35)


def _large(every: Sequence[Records]) -> Iterator[Row]:
    """Few first inputs are large, so those of all seeds are put together."""
    large = [size for records in every for size in _lengths(records) if size[0] > LARGE]
    title = f"cut of first inputs of more than {LARGE} characters, all seeds"
    if not any(every):
        return
    if len(large) >= FEWEST:
        cuts = sorted(1 - b / a for a, b in large)
        text = f"mean {statistics.mean(cuts):.1%}, least {cuts[0]:.1%} ({len(large)} inputs)"
        yield Row(title, text, ">= 60 % mean", statistics.mean(cuts) >= 0.6)
    else:
        text = ", ".join(f"{1 - b / a:.1%}" for a, b in large)
        yield Row(title, f"{len(large)} inputs{f': {text}' if text else ''}", f">= 60 % mean, of {FEWEST} or more")


def _least(shown: Records, drawn: Records) -> Iterator[Row]:
    """The shrunk input beside the least of those that were drawn, where both fail in the same way."""
    found = [
        [each[name]["report"]["counterexample"] for each in (shown, drawn)]
        for name in sorted(shown.keys() & drawn.keys())
        if _failed(shown[name]) and _failed(drawn[name])
    ]
    if not found:
        return
    same = [pair for pair in found if len({(each["outcome"], each["property"]) for each in pair}) == 1]
    less, more = (sum(sign * (a["tokens"] - b["tokens"]) > 0 for a, b in same) for sign in (-1, 1))
    text = f"less in {less}, as many in {len(same) - less - more}, more in {more} of {len(found)}"
    yield Row(
        "tokens of the shown input, against the least drawn", text, "never more", len(same) == len(found) and not more
    )


def _shapes(records: Records) -> Iterator[Row]:
    """Of the eight inputs that are known, three in four, as 30 of 40."""
    known = {name: records[name]["report"]["counterexample"] for name in SHAPES if name in records}
    if not known:
        return
    other = [f"{name}({each['args_repr'] if each else ''})" for name, each in known.items()
             if not each or each["args_repr"] != SHAPES[name]]  # fmt: skip
    number = len(known) - len(other)
    text = f"{number} of {len(known)}" + (f", but {', '.join(other)}" if other else "")
    yield Row("shrunk inputs of the known shape", text, ">= 3 in 4", 4 * number >= 3 * len(known))


def _calls(every: Sequence[Records]) -> Iterator[Row]:
    calls = [(each["report"]["stats"]["calls"], name) for records in every for name, each in records.items()
             if _failed(each)]  # fmt: skip
    if calls:
        most, name = max(calls)
        yield Row("calls for the last bug, with shrinking", f"{most} ({name})", "<= 300", most <= 300)


def _time(records: Records, title: str, busy: bool) -> Iterator[Row]:
    if not records:
        return
    wall, cpu = (sum(each[key] for each in records.values()) for key in ("wall", "cpu"))
    text = f"{wall:.0f} s, CPU {cpu:.0f} s" + (", others at work" if busy else "")
    most = 3 * len(records)
    fits = wall <= most or (None if busy else False)
    yield Row(f"time for {len(records)} {title}", text, f"<= {most} s on 2 idle cores", fits)


def _same(first: Records, again: Records) -> Iterator[Row]:
    both = sorted(first.keys() & again.keys())
    if not both:
        return
    other = [name for name in both if json.dumps(first[name]["report"]) != json.dumps(again[name]["report"])]
    text = f"{len(both) - len(other)} of {len(both)}" + (f", not {', '.join(other)}" if other else "")
    yield Row("the same report with the same seed", text, "all", not other)


def _filtered(records: Records) -> Iterator[Row]:
    if not records:
        return
    kept = [name for each in records.values() for name in (*each["kept"], *each["undecided"])]
    dropped = [name for each in records.values() for name in each["dropped"]]
    for planted, wrongly, title in ((True, kept, "wrong properties dropped"), (False, dropped, "right ones dropped")):
        errors = [name for name in wrongly if name.startswith("wrong_") == planted]
        all_ = [name for name in (*kept, *dropped) if name.startswith("wrong_") == planted]
        number = len(all_) - len(errors) if planted else len(errors)
        text = f"{number} of {len(all_)}{_names(errors)}"
        yield Row(f"filter: {title}", text, "all" if planted else "none", not errors)


def _vacuous(records: Records) -> Iterator[Row]:
    for each in records.values():
        flagged = [name for name in jobs.BLIND if name in each["vacuous"]]
        others = [name for name in each["others"] if name in each["vacuous"]]
        text = f"{len(flagged)} of 3, {len(others)} of {len(each['others'])} good ones, {each['mutants']} mutants"
        yield Row("vacuous properties flagged", text, "3 of 3, no good one", len(flagged) == 3 and not others)


def _isolated(records: Records) -> Iterator[Row]:
    if records:
        not_held = [f"{name}: {each['status']}" for name, each in records.items() if not each["held"]]
        text = f"{len(records) - len(not_held)} of {len(records)}{_names(not_held)}"
        yield Row("hostile candidates that die alone", text, "all", not not_held)


def _fixes(buggy: Records, canonical: Records) -> Iterator[Row]:
    if buggy:
        missed = sorted(f"{name}: {each['report']['status']}" for name, each in buggy.items() if not _failed(each))
        number = len(buggy) - len(missed)
        text = f"{number} of {len(buggy)}{_names(missed)}"
        yield Row("HumanEvalFix: bugs exposed", text, ">= 38 of 41", 41 * number >= 38 * len(buggy))
    if canonical:
        raised = sorted(name for name, each in canonical.items() if _failed(each))
        text = f"{len(raised)} of {len(canonical)}{_names(raised)}"
        yield Row("HumanEvalFix: alarms on the canonical", text, "none", not raised)
