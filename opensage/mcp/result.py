"""What a server answered, as text for the model."""

from __future__ import annotations

import json
from typing import Any

from mcp_types import AudioContent, CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent

MOST_CHARS = 1_000_000
"""Characters of one answer; the rest is left out, and said."""


def answer(result: CallToolResult) -> str:
    """The text of a result; what is no text is described in brackets."""
    texts = [_block(block) for block in result.content]
    structured = result.structured_content
    if structured is not None and not any(_says(text, structured) for text in texts):
        texts.append(json.dumps(structured, ensure_ascii=False))
    text = "\n".join(texts)
    if len(text) > MOST_CHARS:
        text = f"{text[:MOST_CHARS]}\n[... {len(text) - MOST_CHARS} more characters were left out]"
    return text


def _block(block: object) -> str:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ImageContent | AudioContent):
        return f"[{block.type} {_short(block.mime_type)}, {_bytes(block.data)} bytes; not shown]"
    if isinstance(block, ResourceLink):
        return f"[resource {_short(block.name)}: {_short(block.uri)}]"
    if isinstance(block, EmbeddedResource):
        return _resource(block.resource)
    return f"[{_short(type(block).__name__)}; not shown]"


def _resource(resource: Any) -> str:
    text = getattr(resource, "text", None)
    if isinstance(text, str):
        return f"[resource {_short(resource.uri)}]\n{text}"
    size = _bytes(getattr(resource, "blob", ""))
    return f"[resource {_short(resource.uri)} {_short(resource.mime_type)}, {size} bytes; not shown]"


def _bytes(base64: str) -> int:
    return len(base64.rstrip("=")) * 3 // 4


def _short(value: object) -> str:
    return " ".join(str(value).split())[:200]


def _says(text: str, structured: Any) -> bool:
    """Whether a text is the structured content already, as most servers send it; or the one value in it."""
    if isinstance(structured, dict) and set(structured) == {"result"} and text == structured["result"]:
        return True
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(found == structured or {"result": found} == structured)
