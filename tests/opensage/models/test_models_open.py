"""Model strings: every form, near names for what is mistyped, and the default without any setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from opensage.errors import ModelNotFound, ScriptError
from opensage.models import default_model, open_model
from opensage.models.providers import PROVIDERS, known_models


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("", "no model named"),
        ("gpt-4o-minni", "gpt-4o-mini"),
        ("antropic/claude-sonnet-latest", "anthropic"),
        ("local/qwen2.5-coder-1.5", "qwen2.5-coder-1.5b"),
        ("qwen2.5-coder-1.5b", "local/qwen2.5-coder-1.5b"),
        ("scirpt:x.json", "script:"),
        ("local//no/such/file.gguf", "no file /no/such/file.gguf"),
        ("record:dir", "record:DIR:MODEL"),
        ("script:", "script:FILE"),
        ("openai/", "no model named"),
        ("local/", "no local model ''"),
    ],
)
def test_a_mistyped_model_gets_near_names(spec: str, said: str) -> None:
    with pytest.raises(ModelNotFound) as caught:
        open_model(spec)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_files_are_script_errors(tmp_path: Path) -> None:
    for spec in (f"script:{tmp_path}/none.json", f"replay:{tmp_path}/none"):
        with pytest.raises(ScriptError):
            open_model(spec)


def test_a_local_model_is_free_to_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path))
    model = open_model("local/qwen2.5-coder-0.5b")
    assert model.name == "local/qwen2.5-coder-0.5b"
    assert model.context_window in (4096, 8192, 16384)
    assert open_model("local/qwen2.5-coder-0.5b", context_window=2048).context_window == 2048
    assert not any(tmp_path.iterdir())


def test_the_default_is_the_configs_then_a_keys_then_local() -> None:
    assert default_model({"OPENAI_API_KEY": "x"}, "script:a") == "script:a"
    assert default_model({"ANTHROPIC_API_KEY": "x"}) == "anthropic/claude-sonnet-latest"
    assert default_model({"OPENAI_API_KEY": " ", "GROQ_API_KEY": "x"}).startswith("groq/")
    assert default_model({"GOOGLE_API_KEY": "x"}).startswith("gemini/")
    assert default_model({}) == "local/qwen2.5-coder-1.5b"


def test_the_default_models_are_in_the_price_table() -> None:
    known = known_models()
    missing = [p.model for p in PROVIDERS if p.model not in known and p.model.partition("/")[2] not in known]
    assert missing in ([], ["openrouter/anthropic/claude-sonnet-4.5"])
