"""A local model behind an OpenAI-compatible address, for other programs and for comparisons with other agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opensage.errors import ConfigError, ModelError
from opensage.models.local import LocalModel
from opensage.models.local_engine import parameters, start


@dataclass(frozen=True, slots=True)
class Served:
    """A running server; it ends with this process, or when `server` is let go.

    Attributes:
        base_url: what clients call `base_url` or `api_base`, e.g. `http://127.0.0.1:8081/v1`.
        model: the name that clients give.
    """

    base_url: str
    model: str
    server: Any


def serve(name: str, *, port: int = 0, host: str = "127.0.0.1", api_key: str = "", window: int | None = None) -> Served:
    """Load a model and serve `/v1/chat/completions`, `/v1/completions` and `/v1/models` with llama.cpp's own server.

    Args:
        name: a pulled model's name, with or without `local/`, or the path of a `.gguf` file.
        port: 0 for a free one.
        host: loopback by default; whoever reaches another address can use the model.
        api_key: what clients must send; nothing for none, on the loopback only.
        window: tokens of context; by default that of `local/NAME`.

    Raises:
        ConfigError: another address than the loopback without a key.
        ModelError: the model is not pulled, cannot be loaded or served, or llama.cpp is missing.
    """
    if host not in ("127.0.0.1", "localhost", "::1") and not api_key:
        raise ConfigError(f"{host} can be reached from other machines: give an --api-key, or serve on 127.0.0.1")
    short = name.removeprefix("local/")
    model = LocalModel(short, context_window=window)
    if not model.path.is_file():
        raise ModelError(f"{model.name} is not here; fetch it with: opensage models pull {short}")
    params = parameters(model.path, model.context_window or 0)
    params.model_alias = {short}
    params.hostnames, params.port = [host], port
    params.api_keys = [api_key] if api_key else []
    try:
        server = start(params)
        address = str(server.listening_address)
    except Exception as error:  # RuntimeError without a reason for a bad file, a taken port, ...
        raise ModelError(
            f"{model.path} cannot be served on {host}:{port} ({error}); is the port taken, the file whole, and is "
            "there memory for it?"
        ) from error
    return Served(f"{address.rstrip('/')}/v1", short, server)
