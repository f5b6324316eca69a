"""A model whose words hold no secrets, also when one comes in two pieces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from opensage.errors import ModelError
from opensage.messages import Delta, Request
from opensage.models.retry import Wrapper, closable
from opensage.protocols import Model
from opensage.secrets import Mask, MaskedStream


class Masked(Wrapper):
    """Masks the text, the notes and the errors of a model. Calls are masked when they are whole (`Mask.reply`)."""

    def __init__(self, model: Model, mask: Mask) -> None:
        super().__init__(model)
        self._mask = mask

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """Stream one reply; the beginning of what may be a secret waits for the next piece."""
        text = MaskedStream(self._mask)
        try:
            async with aclosing(closable(self._model, request)) as deltas:
                async for delta in deltas:
                    yield self._masked(delta, text)
        except ModelError as error:
            self._mask.error(error)
            if rest := text.end():
                yield Delta(text=rest)
            raise
        if rest := text.end():
            yield Delta(text=rest)

    def _masked(self, delta: Delta, text: MaskedStream) -> Delta:
        if delta.reset:
            text.end()
        if not delta.text and not delta.note:
            return delta
        shown = text.feed(delta.text) if delta.text else ""
        return delta if shown == delta.text and not delta.note else self._changed(delta, shown)

    def _changed(self, delta: Delta, shown: str) -> Delta:
        return replace(delta, text=shown, note=self._mask.text(delta.note))
