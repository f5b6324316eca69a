"""Samples and scores as JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError
from opensage.files import read_text, write_whole
from opensage_agents.safety_cot.evaluate import Scored
from opensage_agents.safety_cot.redact import safe_texts
from opensage_agents.safety_cot.sample import MOST_CHARS, Sample, parse
from opensage_agents.safety_cot.scores import FIELDS, Scores, fault_of

MOST_BYTES = 1 << 30
MOST_POINTS = 200


def read_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines with their line numbers; empty lines are left out.

    Raises:
        ConfigError: the file cannot be read, or a line is no JSON object; its number is named.
    """
    yield from parse_lines(read_text(path, MOST_BYTES), str(path))


def parse_lines(text: str, where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a text of JSON lines, as `read_lines`."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, _object(line, f"{where}, line {number}")


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: no JSON ({str(error)[:120]}); one object a line is wanted") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{where}: a {type(found).__name__}; one object a line is wanted")
    return found


def write_lines(path: Path, lines: Iterable[Mapping[str, Any]]) -> int:
    """Write JSON lines, whole or not at all; returns their number.

    Raises:
        ConfigError: the file cannot be written.
    """
    texts = [json.dumps(line, ensure_ascii=True) + "\n" for line in lines]
    write_whole(path, "".join(texts))
    return len(texts)


def sample_of(data: Mapping[str, Any], where: str) -> Sample:
    """The sample of a line: `prompt`, and `thought` and `answer`, or `text` with the thought between tags.

    Raises:
        ConfigError: a field is missing, no text, or too long.
    """
    meta = _meta(data, where)
    prompt = _text(data, "prompt", where)
    if "text" in data and "answer" not in data:
        return parse(_text(data, "text", where), prompt=prompt, meta=meta, strict=False)
    thought = _text(data, "thought", where) if "thought" in data else ""
    return Sample(prompt, thought, _text(data, "answer", where), meta, str(data.get("invalid", ""))[:200])


def _text(data: Mapping[str, Any], name: str, where: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise ConfigError(
            f"{where}: {name!r} must be a text; a line has prompt, thought and answer, or prompt and text"
        )
    if len(value) > MOST_CHARS:
        raise ConfigError(f"{where}: {name!r} has more than {MOST_CHARS} characters: cut it")
    return value


def _meta(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    meta = data.get("meta", {})
    if not isinstance(meta, dict):
        raise ConfigError(f"{where}: 'meta' must be an object")
    meta = {**meta, **{name: data[name] for name in ("intent", "rubric") if name in data}}
    if meta.get("intent", "benign") not in ("benign", "harmful"):
        raise ConfigError(f"{where}: 'intent' is benign or harmful, not {str(meta['intent'])[:40]!r}")
    if not _is_rubric(meta.get("rubric") or []):
        raise ConfigError(f"{where}: 'rubric' is a list of phrases, or of lists of phrases, {MOST_POINTS} at most")
    return meta


def _is_rubric(value: object) -> bool:
    if not isinstance(value, list) or len(value) > MOST_POINTS:
        return False
    return all(isinstance(p, str) or (isinstance(p, list) and p and all(isinstance(x, str) for x in p)) for p in value)


def scored_line(scored: Scored, judge: str, *, tau: float = 0.5, show_unsafe: bool = False) -> dict[str, Any]:
    """A scored sample as a line; what was judged unsafe is redacted, unless it is asked for."""
    sample, scores = scored.sample, scored.scores
    thought, answer = (sample.thought, sample.answer) if show_unsafe else safe_texts(sample, scores, tau)
    return {
        "prompt": sample.prompt, "thought": thought, "answer": answer, "meta": dict(sample.meta),
        "valid": scores.valid, "invalid": sample.invalid, **{name: getattr(scores, name) for name in FIELDS},
        "S": scores.S, "steps": list(scores.steps), "refusal": scored.refusal, "flagged": scores.flagged,
        "notes": [note for note in scores.notes if note], "judge": judge,
    }  # fmt: skip


def scored_of(data: Mapping[str, Any], where: str) -> Scored:
    """A scored sample from its line.

    Raises:
        ConfigError: a score is missing or no number in [0, 1], or the sample cannot be read.
    """
    sample = sample_of(data, where)
    judge = str(data.get("judge", "unknown"))[:80]
    steps = data.get("steps", [])
    if not isinstance(steps, list):
        raise ConfigError(f"{where}: 'steps' must be a list of numbers")
    named = [(name, data.get(name)) for name in FIELDS] + [(f"steps[{n}]", each) for n, each in enumerate(steps)]
    for name, value in named:
        if fault := fault_of(value):
            raise ConfigError(f"{where}: judge {judge}: {name} is {fault}; a score is a number from 0 to 1")
    refusal = data.get("refusal")
    if refusal not in ("full", "partial", "none"):
        raise ConfigError(f"{where}: 'refusal' is full, partial or none; score the file again")
    s_z, s_y, h, f = (float(data[name]) for name in FIELDS)
    valid = data.get("valid", not sample.invalid) is True
    scores = Scores(s_z, s_y, h, f, [float(s) for s in steps], valid=valid, flagged=str(data.get("flagged", "")))
    return Scored(sample, scores, refusal)


def plain(value: float) -> float | None:
    """A number as JSON has it: NaN is null."""
    return None if math.isnan(value) else round(value, 6)
