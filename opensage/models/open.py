"""From a model string to a model."""

from __future__ import annotations

import difflib
from pathlib import Path

from opensage.errors import ModelNotFound
from opensage.models.providers import known_models, known_providers, near
from opensage.protocols import Model

_SCHEMES = ("script:FILE", "replay:DIR", "record:DIR:MODEL", "local/NAME", "PROVIDER/MODEL")


def open_model(spec: str, *, context_window: int | None = None, api_base: str | None = None) -> Model:
    """The model that a string names. Nothing is loaded or fetched before the first call.

    Args:
        spec: `script:FILE`, `replay:DIR`, `record:DIR:MODEL`, `local/NAME`, `local//path/to/file.gguf`, or anything
            litellm takes, e.g. `anthropic/claude-sonnet-latest`.
        context_window: overrides what is known about the model, in tokens.
        api_base: address of an OpenAI-compatible server, for litellm models.

    Raises:
        ModelNotFound: the string names nothing; near names are given.
        ScriptError: the script or cassette cannot be read.
    """
    text = spec.strip()
    scheme, colon, rest = text.partition(":")
    if colon and scheme in ("script", "replay", "record"):
        return _special(scheme, rest, context_window)
    if text.startswith("local/"):
        from opensage.models.local import LocalModel

        return LocalModel(text.removeprefix("local/"), context_window=context_window)
    _check_remote(text)
    from opensage.models.litellm_model import LitellmModel

    return LitellmModel(text, context_window=context_window, api_base=api_base)


def _special(scheme: str, rest: str, window: int | None) -> Model:
    if not rest:
        form = {"script": "script:FILE", "replay": "replay:DIR", "record": "record:DIR:MODEL"}[scheme]
        raise ModelNotFound(f"a model string of this kind is written {form}")
    if scheme == "script":
        from opensage.models.script import load_script

        return load_script(rest, context_window=window)
    from opensage.models.cassette import Recording, Replaying

    if scheme == "replay":
        return Replaying(rest)
    folder, colon, inner = rest.partition(":")
    if not colon or not folder or not inner:
        raise ModelNotFound("record needs a folder and a model: record:DIR:MODEL")
    return Recording(open_model(inner, context_window=window), Path(folder))


def _check_remote(text: str) -> None:
    """Refuse what cannot be meant, before anything slow is imported."""
    provider, slash, model = text.partition("/")
    known = known_models()
    if not text or (slash and not model):
        raise ModelNotFound(f"no model named; write one of {', '.join(_SCHEMES)}")
    if not known or text in known or (slash and provider in known_providers()):
        return
    if slash:
        close = near(provider, sorted(known_providers())) or "; `opensage models list` shows the local ones"
        raise ModelNotFound(f"unknown provider {provider!r} in model {text!r}{close}")
    raise ModelNotFound(f"unknown model {text!r}{_near_model(text, list(known))} Write PROVIDER/{text} if it is new")


def _near_model(text: str, known: list[str]) -> str:
    from opensage.models.registry import catalogue

    local = [f"local/{name}" for name in catalogue() if name == text or difflib.get_close_matches(text, [name])]
    schemes = [s for s in ("script", "replay", "record") if difflib.get_close_matches(text.partition(":")[0], [s])]
    if local:
        return f"; did you mean {', '.join(local)}?"
    if ":" in text and schemes:
        return f"; did you mean {schemes[0]}:...?"
    return near(text, [name for name in known if "/" not in name]) or "."
