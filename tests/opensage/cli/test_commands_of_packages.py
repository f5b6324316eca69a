"""Commands that other packages add (entry points `opensage.commands`)."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from opensage.cli import main as cli


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """Install a command for the length of a test; an exception in its place is raised when it is loaded."""
    points: list[Any] = []
    real = importlib.metadata.entry_points
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda **by: points if by.get("group") == cli.GROUP else real(**by)
    )
    monkeypatch.setattr(cli.app, "registered_commands", list(cli.app.registered_commands))
    monkeypatch.setattr(cli.app, "registered_groups", list(cli.app.registered_groups))

    def install(called: str, thing: Any) -> None:
        class Point:
            name = called
            value = f"package:{called}"

            @staticmethod
            def load() -> Any:
                if isinstance(thing, Exception):
                    raise thing
                return thing

        points.append(Point)

    return install


def test_one_is_found_and_shown_in_the_help(offer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def greet(name: str) -> None:
        """Greet somebody."""
        print(f"hello {name}")

    offer("greet", greet)
    assert cli.main(["greet", "Bo"]) == 0
    assert capsys.readouterr().out == "hello Bo\n"
    cli.main(["--help"])
    assert "Greet somebody." in capsys.readouterr().out


def test_a_broken_one_is_an_error_only_where_it_is_asked_for(offer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    offer("broken", ImportError("no module named moon"))
    assert cli.main(["broken", "x"]) == 2
    err = capsys.readouterr().err
    assert "the command broken (package:broken) cannot be loaded (ImportError: no module named moon)" in err
    assert cli.main(["--help"]) == 0
    said = capsys.readouterr()
    assert "warning: the command broken" in said.err
    assert "doctor" in said.out
    assert cli.main(["--version"]) == 0


def test_the_kit_s_own_commands_cannot_be_taken(offer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def run() -> None:
        raise AssertionError

    offer("run", run)
    assert cli.main(["run", "--help"]) == 0
    assert "Run one task to its end" in capsys.readouterr().out


def test_an_unknown_command_is_told_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["nothing"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_bench_is_there_and_light() -> None:
    code = (
        "import sys; sys.argv = ['opensage', 'bench', '--help']\n"
        "from opensage.cli.main import main\nassert main() == 0\n"
        "heavy = {'numpy', 'litellm', 'textual', 'pyarrow', 'ray', 'pytest', 'networkx'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "validate" in done.stdout
