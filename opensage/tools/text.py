"""Text files as bytes: which encoding, and back again without losing a byte."""

from __future__ import annotations

import codecs
from dataclasses import dataclass

from opensage.errors import ToolError

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_SNIFFED = 8192
_MAGIC = (
    (b"\x89PNG", "PNG image"),
    (b"\xff\xd8\xff", "JPEG image"),
    (b"GIF8", "GIF image"),
    (b"%PDF", "PDF document"),
    (b"PK\x03\x04", "ZIP archive"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3", "SQLite database"),
    (b"GGUF", "GGUF model"),
)


@dataclass(frozen=True, slots=True)
class TextFile:
    """A decoded file. `data()` of the same text gives the same bytes.

    Attributes:
        text: without the byte order mark.
        encoding: "utf-8", "utf-16-le", "utf-16-be" or "latin-1".
        bom: the byte order mark, or b"".
    """

    text: str
    encoding: str = "utf-8"
    bom: bytes = b""

    @classmethod
    def of(cls, data: bytes) -> TextFile:
        """Decode; bytes that are no UTF-8 within UTF-8 text become lone surrogates, which `data` turns back."""
        encoding, bom = sniff(data)
        body = data[len(bom) :]
        if encoding.startswith("utf-16"):
            try:
                return cls(body.decode(encoding), encoding, bom)
            except UnicodeDecodeError:
                encoding, bom, body = "latin-1", b"", data
        return cls(body.decode(encoding, "surrogateescape"), encoding, bom)

    def data(self, text: str) -> bytes:
        """Another text in this file's encoding.

        Raises:
            ToolError: the encoding has no such character.
        """
        try:
            return self.bom + text.encode(self.encoding, "surrogateescape")
        except UnicodeEncodeError as error:
            wrong = text[error.start : error.start + 1]
            raise ToolError(
                f"the file is {self.encoding}, which cannot hold {wrong!r}: use another character"
            ) from None


def sniff(data: bytes) -> tuple[str, bytes]:
    """Encoding and byte order mark of (the beginning of) a file: by the mark, else UTF-8, else Latin-1.

    Text that holds valid UTF-8 beyond ASCII counts as UTF-8 even with some broken bytes in it.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return encoding, bom
    text = data.decode("utf-8", "surrogateescape")
    whole = text[:-3] if len(data) >= _SNIFFED else text  # a beginning may end within a character
    beyond = [char for char in whole if char > "\x7f"]
    broken = [char for char in beyond if "\udc80" <= char <= "\udcff"]
    return ("latin-1" if broken and len(broken) == len(beyond) else "utf-8"), b""


def is_binary(data: bytes) -> bool:
    """Whether a file that begins like this is no text: it holds NUL and is not UTF-16."""
    return b"\0" in data[:_SNIFFED] and not sniff(data[:2])[0].startswith("utf-16")


def describe_binary(data: bytes) -> str:
    """What kind of binary file begins like this."""
    return next((kind for magic, kind in _MAGIC if data.startswith(magic)), "binary file")
