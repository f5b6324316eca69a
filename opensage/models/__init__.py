"""Models: scripted, recorded, local and remote, behind one protocol. Nothing heavy is imported before it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opensage.lazy import lazily

if TYPE_CHECKING:
    from opensage.models.assembler import Assembler
    from opensage.models.cassette import Recording, Replaying
    from opensage.models.litellm_model import LitellmModel
    from opensage.models.local import LocalModel
    from opensage.models.open import open_model
    from opensage.models.providers import default_model
    from opensage.models.registry import list_models, pull, remove
    from opensage.models.retry import Fallback, Gate, IdleTimeout, Retrying, robust
    from opensage.models.script import ScriptedModel, load_script

_HOMES = {
    "Assembler": "assembler",
    "Fallback": "retry",
    "Gate": "retry",
    "IdleTimeout": "retry",
    "LitellmModel": "litellm_model",
    "LocalModel": "local",
    "Recording": "cassette",
    "Replaying": "cassette",
    "Retrying": "retry",
    "ScriptedModel": "script",
    "default_model": "providers",
    "list_models": "registry",
    "load_script": "script",
    "open_model": "open",
    "pull": "registry",
    "remove": "registry",
    "robust": "retry",
}

__all__ = [
    "Assembler",
    "Fallback",
    "Gate",
    "IdleTimeout",
    "LitellmModel",
    "LocalModel",
    "Recording",
    "Replaying",
    "Retrying",
    "ScriptedModel",
    "default_model",
    "list_models",
    "load_script",
    "open_model",
    "pull",
    "remove",
    "robust",
]

__getattr__ = lazily(__name__, _HOMES)
