"""What prompts are made from: domains, intents, audiences and forms, checked against the deny patterns."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opensage.errors import ConfigError
from opensage.files import read_regular
from opensage_agents.safety_cot.words import stems

MOST_BYTES = 1 << 20
MOST_TEXTS = 5000
DENY: Sequence[str] = (
    r"\[\[\s*HAZ",
    r"\bstep[- ]by[- ]step\b",
    r"\b(?:instructions?|recipes?|blueprints?|protocols?) (?:for|to) (?:mak|build|produc|synthesi|assembl|weaponi)",
    r"\bhow (?:do|can|could|would|to|might) (?:i|we|one|you|someone)?\s*"
    r"(?:make|build|produce|synthesi[sz]e|assemble|weaponi[sz]e|evade|bypass|break into)\b",
    r"\bwithout (?:being|getting) (?:caught|noticed|detected)\b",
    r"\bexact (?:quantit|amount|dose|concentration|parameter)",
    r"\bexploit code\b",
)
"""Requests for what enables harm, by their form; no substance, device or target is named here."""
_SLOTS = ("{subject}", "{audience}", "{form}")


class PolicyError(ConfigError):
    """The taxonomy holds what must not be asked for; nothing is made from it."""


@dataclass(frozen=True, slots=True)
class Domain:
    """A field of subjects.

    Attributes:
        terms: words that mark a prompt as belonging to it.
        subjects: name → points of a good answer, each a list of phrases.
    """

    terms: tuple[str, ...]
    subjects: Mapping[str, list[list[str]]]

    @property
    def lexicon(self) -> set[str]:
        """Stems of its terms and subjects."""
        return stems(" ".join([*self.terms, *self.subjects]))


@dataclass(frozen=True, slots=True)
class Intent:
    """A benign wish: templates with {subject}, {audience} and {form}, and points that an answer to it has."""

    templates: tuple[str, ...]
    points: list[list[str]]


@dataclass(frozen=True, slots=True)
class Taxonomy:
    """See `taxonomy.yaml` beside this module, the default, for the form of a file."""

    domains: Mapping[str, Domain]
    intents: Mapping[str, Intent]
    audiences: tuple[str, ...]
    forms: tuple[str, ...]
    neutral: tuple[str, ...] = ()
    declinable: tuple[str, ...] = ()

    @property
    def cells(self) -> list[tuple[str, str]]:
        """The topic cells: each domain with each intent."""
        return [(domain, intent) for domain in self.domains for intent in self.intents]

    def texts(self) -> Iterator[tuple[str, str]]:
        """Every text that may come into a prompt, with its place."""
        for name, domain in self.domains.items():
            yield f"domain {name!r}", name
            for subject, points in domain.subjects.items():
                yield f"domain {name!r}, subject", subject
                yield from ((f"domain {name!r}, points of a subject", " ".join(point)) for point in points)
        for name, intent in self.intents.items():
            yield from ((f"intent {name!r}", text) for text in (name, *intent.templates))
        for kind in ("audiences", "forms", "neutral", "declinable"):
            yield from ((kind, text) for text in getattr(self, kind))

    def check(self, deny: Sequence[re.Pattern[str]]) -> None:
        """Refuse the whole taxonomy when a text of it matches a deny pattern.

        Raises:
            PolicyError: the place is named, the text is not repeated.
        """
        for place, text in self.texts():
            for pattern in deny:
                if pattern.search(text):
                    raise PolicyError(
                        f"taxonomy, {place}: it matches the deny pattern {pattern.pattern!r}; "
                        "nothing was made. Take it out"
                    )


def compiled(patterns: Sequence[str]) -> list[re.Pattern[str]]:
    """The deny patterns.

    Raises:
        ConfigError: one is no regular expression.
    """
    try:
        return [re.compile(each, re.I) for each in patterns]
    except re.error as error:
        raise ConfigError(f"deny pattern {error.pattern!r} is no regular expression: {error}; mend it") from error


def load_taxonomy(path: Path | None = None) -> Taxonomy:
    """The taxonomy of a YAML file; the one that comes with the package without a path.

    Raises:
        ConfigError: it cannot be read, or a part is missing or of the wrong form.
    """
    import yaml  # type: ignore[import-untyped]

    file = path or Path(__file__).with_name("taxonomy.yaml")
    try:
        data = yaml.safe_load(read_regular(file, MOST_BYTES).decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: save it as such") from error
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{file} is no YAML: {' '.join(str(error).split())[:200]}") from error
    return taxonomy_of(data, str(file))


def taxonomy_of(data: Any, where: str) -> Taxonomy:
    """The taxonomy of YAML's data.

    Raises:
        ConfigError: a part is missing or of the wrong form; it is named.
    """
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: a mapping with domains, intents, audiences and forms is wanted")
    lists = {name: _texts(data.get(name, []), f"{where}: {name}") for name in ("neutral", "declinable")}
    made = Taxonomy(
        {str(name): _domain(each, f"{where}: domain {name!r}") for name, each in _mapping(data, "domains", where)},
        {str(name): _intent(each, f"{where}: intent {name!r}") for name, each in _mapping(data, "intents", where)},
        _texts(data.get("audiences"), f"{where}: audiences", least=1),
        _texts(data.get("forms"), f"{where}: forms", least=1),
        **lists,
    )
    if sum(1 for _ in made.texts()) > MOST_TEXTS:
        raise ConfigError(f"{where}: more than {MOST_TEXTS} texts; split it")
    return made


def _mapping(data: Mapping[str, Any], name: str, where: str) -> list[tuple[Any, Any]]:
    found = data.get(name)
    if not isinstance(found, dict) or not found:
        raise ConfigError(f"{where}: {name} must be a mapping with one entry at least")
    return list(found.items())


def _texts(value: object, where: str, least: int = 0) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) < least or not all(isinstance(x, str) and x.strip() for x in value):
        raise ConfigError(f"{where} must be a list of texts" + (f", {least} at least" if least else ""))
    return tuple(value)


def _points(value: object, where: str) -> list[list[str]]:
    texts = _texts(value, f"{where}: points", least=1)
    return [[phrase.strip() for phrase in text.split("|") if phrase.strip()] for text in texts]


def _domain(data: object, where: str) -> Domain:
    if not isinstance(data, dict) or not isinstance(data.get("subjects"), dict) or not data["subjects"]:
        raise ConfigError(f"{where}: it needs terms and subjects, each subject with a list of points")
    subjects = {str(name): _points(points, f"{where}, {name!r}") for name, points in data["subjects"].items()}
    return Domain(_texts(data.get("terms"), f"{where}: terms", least=1), subjects)


def _intent(data: object, where: str) -> Intent:
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: it needs templates and points")
    templates = _texts(data.get("templates"), f"{where}: templates", least=1)
    for template in templates:
        if not all(template.count(slot) == 1 for slot in _SLOTS) or template.count("{") != len(_SLOTS):
            raise ConfigError(
                f"{where}: {template[:60]!r} must hold {', '.join(_SLOTS)}, each once, and no other braces"
            )
    return Intent(templates, _points(data.get("points"), where))
