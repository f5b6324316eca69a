"""Quick checks that the toolkit works where it was staged."""

from __future__ import annotations

from pathlib import Path

from .. import lookup


def test_definition_and_callers(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def one():\n    return two()\n\ndef two():\n    return 2\n")
    with lookup.Lookup(tmp_path, tmp_path / "index.sqlite") as found:
        assert found.definition("two", 5)["definitions"][0]["line"] == 4
        assert found.callers("two", 5)["callers"] == [{"caller": "one", "file": "a.py", "line": 2}]
