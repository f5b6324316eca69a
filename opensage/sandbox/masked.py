"""A sandbox whose commands' output holds no secrets; files are read and written as they are."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

from opensage.protocols import ExecOptions, ExecResult, OutputHook, Sandbox
from opensage.sandbox.wrapper import SandboxWrapper
from opensage.secrets import Mask, MaskedStream

_CUT = re.compile(r"\n\[\.\.\. \d+ bytes cut \.\.\.\]\n")


class MaskedSandbox(SandboxWrapper):
    """Masks what commands print: whole, as it comes (`on_output`), and where a long output was cut."""

    def __init__(self, sandbox: Sandbox, mask: Mask) -> None:
        super().__init__(sandbox)
        self._mask = mask

    async def exec(self, command: str | Sequence[str], **options: Unpack[ExecOptions]) -> ExecResult:
        """See `Sandbox.exec`."""
        shown = options.get("on_output")
        hook = options["on_output"] = None if shown is None else _Hook(self._mask, shown)
        try:
            result = await super().exec(command, **options)
        finally:
            if hook is not None:
                hook.end()
        return replace(result, stdout=self._text(result.stdout), stderr=self._text(result.stderr))

    def _text(self, text: str) -> str:
        """Masked, without the halves of secrets that a cut leaves at its edges."""
        cut = _CUT.search(text)
        if cut is None:
            return self._mask.text(text)
        head, tail = text[: cut.start()], text[cut.end() :]
        tail = tail[self._mask.safe_start(tail) :]
        return self._mask.text(head[: self._mask.safe_end(head)]) + cut[0] + self._mask.text(tail)


class _Hook:
    """An `on_output` before the real one."""

    def __init__(self, mask: Mask, hook: OutputHook) -> None:
        self._hook = hook
        decoder = codecs.getincrementaldecoder("utf-8")
        self._streams = {name: (decoder("surrogateescape"), MaskedStream(mask)) for name in ("stdout", "stderr")}

    def __call__(self, name: str, chunk: bytes) -> None:
        decoder, stream = self._streams[name]
        self._pass(name, stream.feed(decoder.decode(chunk)))

    def end(self) -> None:
        """Nothing more comes."""
        for name, (decoder, stream) in self._streams.items():
            self._pass(name, stream.feed(decoder.decode(b"", final=True)) + stream.end())

    def _pass(self, name: str, text: str) -> None:
        if text:
            self._hook(name, text.encode("utf-8", "surrogateescape"))
