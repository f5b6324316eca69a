"""Results as JSON says them.

NaN and the infinities are the texts "NaN", "Infinity" and "-Infinity", since JSON has no numbers for them; arrays of
more than `SMALL` elements are saved as .npy and stand as {"shape", "dtype", "file", "head"}.
"""

from __future__ import annotations

import os
from typing import Any

SMALL = 1000
HEAD = 2000
DEEPEST = 100
USE = "return lists, dicts, texts and numbers"


class Unusable(TypeError):
    """A result that JSON cannot say."""


class Plain:
    """Turns a result into what JSON can say; what is too large goes to a file."""

    def __init__(self, place: str, request: dict[str, Any]) -> None:
        self.folder = request.get("results") or os.path.join(
            os.path.dirname(os.path.dirname(place)), "opensage-results"
        )
        self.most = int(request["most"])
        self.name = request["tool"]

    def whole(self, value: Any) -> Any:
        """The result, or where it is when it has more than `most` bytes."""
        import json

        plain = self.plain(value, 0)
        text = json.dumps(plain, ensure_ascii=False)
        if len(text) <= self.most and len(json.dumps(plain)) <= self.most:
            return plain
        path = self._path("json")
        with open(path, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
        return {"file": path, "characters": len(text), "head": text[:HEAD]}

    def plain(self, value: Any, depth: int) -> Any:
        """The value in lists, dicts with text keys, texts, numbers, booleans and None."""
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, (int, str)):
            return int(value) if isinstance(value, int) else str.__str__(value)
        if isinstance(value, float):
            return _number(float(value))
        if depth > DEEPEST:
            raise Unusable("the result is nested too deeply, or holds itself")
        if isinstance(value, dict):
            return {self._key(key): self.plain(item, depth + 1) for key, item in value.items()}
        if hasattr(value, "_asdict"):
            return self.plain(value._asdict(), depth + 1)
        if isinstance(value, (list, tuple, set, frozenset)):
            items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
            return [self.plain(item, depth + 1) for item in items]
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return self._array(value, depth)
        return self._other(value, depth)

    def _key(self, key: Any) -> str:
        if hasattr(key, "item") and getattr(key, "shape", None) == ():
            key = key.item()
        if key is None or isinstance(key, (str, int, float)):
            return str(key)
        raise Unusable(f"a key of the result is a {type(key).__name__}: use text")

    def _array(self, value: Any, depth: int) -> Any:
        if type(value).__module__.split(".")[0] == "torch":
            value = value.detach().cpu()
            value = (value.float() if "bfloat16" in str(value.dtype) else value).numpy()
        if value.shape == ():
            return self.plain(value.item(), depth + 1)
        import numpy

        array = numpy.asarray(value)
        if array.size <= SMALL or array.dtype.hasobject:
            return self.plain(array.tolist(), depth + 1)
        path = self._path("npy")
        numpy.save(path, array, allow_pickle=False)
        head = self.plain(array.reshape(-1)[:10].tolist(), depth + 1)
        return {"shape": list(array.shape), "dtype": str(array.dtype), "file": path, "head": head}

    def _other(self, value: Any, depth: int) -> Any:
        import dataclasses
        import datetime
        import decimal
        import enum
        import fractions
        import pathlib

        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {field.name: self.plain(getattr(value, field.name), depth + 1) for field in fields}
        if isinstance(value, enum.Enum):
            return self.plain(value.value, depth + 1)
        if isinstance(value, (datetime.date, datetime.time)):
            return value.isoformat()
        if isinstance(value, (pathlib.PurePath, decimal.Decimal, fractions.Fraction)):
            return str(value)
        if isinstance(value, complex):
            return {"real": _number(value.real), "imag": _number(value.imag)}
        if isinstance(value, range):
            return list(value)
        raise Unusable(f"the result holds an object of type {type(value).__name__}, which JSON cannot say: {USE}")

    def _path(self, ending: str) -> str:
        os.makedirs(self.folder, exist_ok=True)
        for number in range(1_000_000):
            path = os.path.join(self.folder, f"{self.name}-{number}.{ending}")
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
                return path
            except FileExistsError:
                continue
        raise OSError("no name is left for a result")


def _number(value: float) -> Any:
    if value != value:
        return "NaN"
    return ("Infinity" if value > 0 else "-Infinity") if value in (float("inf"), float("-inf")) else value
