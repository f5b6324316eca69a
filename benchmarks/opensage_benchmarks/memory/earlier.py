"""`python -m opensage_benchmarks.memory.earlier`: questions about an earlier session, with and without memory.

The earlier session is a log of the kit in which a user tells twenty things; each question is a session of its own.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TOLD: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("The staging database listens on port 5433.", "On which port does the staging database listen?", ("5433",)),
    ("Our release branch is called harbor.", "What is our release branch called?", ("harbor",)),
    ("Mira owns the billing service.", "Who owns the billing service?", ("mira",)),
    (
        "Please indent YAML files with three spaces.",
        "With how many spaces shall YAML files be indented?",
        ("three", "3"),
    ),
    ("The nightly build runs at 02:40.", "At what time does the nightly build run?", ("02:40", "2:40")),
    ("The parser bug is ticket KIT-381.", "Which ticket is the parser bug?", ("381",)),
    ("We deploy from the machine named osprey.", "From which machine do we deploy?", ("osprey",)),
    ("The retry limit of the mailer is 7.", "What is the retry limit of the mailer?", ("7", "seven")),
    ("Tomas reviews all database migrations.", "Who reviews database migrations?", ("tomas",)),
    ("The cache must stay under 300 MB.", "Under how many MB must the cache stay?", ("300",)),
    ("Our style guide forbids wildcard imports.", "What kind of imports does our style guide forbid?", ("wildcard",)),
    ("The demo for Acme is on 14 March.", "When is the demo for Acme?", ("14 march", "march 14", "14th")),
    ("The load tests use the tool wrk2.", "Which tool do the load tests use?", ("wrk2",)),
    (
        "Feature flags live in flags/prod.toml.",
        "In which file do feature flags live?",
        ("flags/prod.toml", "prod.toml"),
    ),
    ("The API gateway times out after 45 seconds.", "When does the API gateway time out?", ("45",)),
    ("Lena prefers Postgres over MySQL.", "Which database does Lena prefer?", ("postgres",)),
    ("The legacy importer is written in Perl.", "In which language is the legacy importer written?", ("perl",)),
    ("The backup bucket is in Frankfurt.", "In which city is the backup bucket?", ("frankfurt",)),
    ("Error code E77 means a full disk.", "What does error code E77 mean?", ("full disk", "disk is full", "disk full")),
    ("The office cat is named Tensor.", "What is the name of the office cat?", ("tensor",)),
)
"""What the user told, what is asked, and answers of which one must be in the text."""


def tell(workdir: Path) -> str:
    """The earlier session; returns its id."""
    import opensage
    from opensage.models import ScriptedModel

    session = None
    for text, _, _ in TOLD:
        result = opensage.run(text, model=ScriptedModel([{"text": "Noted."}]), workdir=workdir, session=session)
        session = result.session_id
    return str(session)


def ask(workdir: Path, model: str, memory: bool, number: int) -> dict[str, Any]:
    """One question in a session of its own."""
    import opensage
    from opensage import AgentSpec, Limits

    _, question, answers = TOLD[number]
    agent = AgentSpec(name="main", instruction="Answer in one short sentence.", tools=())
    began = time.monotonic()
    limits = Limits(max_turns=2, max_seconds=90)
    result = opensage.run(question, agent=agent, model=model, workdir=workdir, memory=memory, limits=limits)
    right = any(answer in result.text.lower() for answer in answers)
    seconds = round(time.monotonic() - began, 1)
    return {
        "question": question,
        "text": result.text,
        "right": right,
        "status": result.status,
        "seconds": seconds,
        "input_tokens": result.usage["input_tokens"],
        "recalled": any(event.type == "memory.recalled" for event in result.events),
    }


def _show(name: str, last: dict[str, Any]) -> None:
    mark = "right" if last["right"] else "wrong"
    print(f"{name:8} {mark} {last['seconds']:6} s  {last['text'][:90]!r}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Ask each question with and without memory, in turns; a line for each on stderr, JSON on stdout."""
    parser = argparse.ArgumentParser(prog="python -m opensage_benchmarks.memory.earlier", description=__doc__)
    parser.add_argument("--model", default="local/qwen2.5-coder-1.5b")
    parser.add_argument("--questions", type=int, default=len(TOLD))
    chosen = parser.parse_args(argv)
    asked: dict[str, list[dict[str, Any]]] = {"with": [], "without": []}
    with tempfile.TemporaryDirectory() as folder:
        workdir = Path(folder)
        tell(workdir)
        for number in range(chosen.questions):
            for name, memory in (("with", True), ("without", False)):
                asked[name].append(ask(workdir, chosen.model, memory, number))
                _show(name, asked[name][-1])
    right = {name: sum(each["right"] for each in rows) for name, rows in asked.items()}
    print(json.dumps({"model": chosen.model, "python": platform.python_version(), "right": right, "asked": asked}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
