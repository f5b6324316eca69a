"""Puts a toolkit's files into the sandbox; see `opensage/toolkit/staging.py` for the other side."""

from __future__ import annotations

import os
import sys

LISTING = ".staged"


def home() -> str:
    """The folder of all staged toolkits in this sandbox."""
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", "opensage-toolkits")


def whole(place: str) -> bool:
    """Whether what was staged is still there, as it was written."""
    try:
        with open(os.path.join(place, LISTING), encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.rstrip("\n").split(" ", 2) for line in file]
        for size, changed, path in rows:
            status = os.stat(os.path.join(place, path))
            if (status.st_size, status.st_mtime_ns) != (int(size), int(changed)):
                return False
    except (OSError, ValueError):
        return False
    return bool(rows)


def stage() -> None:
    """Unpack the request's files, once; the answer names what is missing instead when requirements are."""
    import json

    request = json.load(sys.stdin)
    os.makedirs(home(), mode=0o700, exist_ok=True)
    target = os.path.join(home(), request["site"])
    missing = lacking(request["requirements"], target)
    if not missing:
        place = os.path.join(home(), request["key"])
        if not whole(place):
            _unpack(request["files"], place, target if os.path.isdir(target) else "")
    json.dump({"ok": {"missing": missing, "home": home()}}, sys.stdout)


def _unpack(files: dict[str, str], place: str, site: str) -> None:
    import base64
    import shutil
    import tempfile

    half = tempfile.mkdtemp(prefix=".half-", dir=home())
    rows = []
    for path, text in sorted(files.items()):
        full = os.path.join(half, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(base64.b64decode(text))
        status = os.stat(full)
        rows.append(f"{status.st_size} {status.st_mtime_ns} {path}\n")
    if site:
        os.symlink(site, os.path.join(half, ".site"))
    with open(os.path.join(half, LISTING), "w", encoding="utf-8", errors="surrogateescape") as listing:
        listing.writelines(rows)
    for _ in range(3):  # another call may be at the same
        try:
            os.rename(half, place)
            return
        except OSError:
            if whole(place):
                break
            shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(half, ignore_errors=True)


def lacking(requirements: list[str], site: str) -> list[str]:
    """Those of the requirements that are not installed here."""
    if not requirements:
        return []
    import re
    from importlib import metadata

    if os.path.isdir(site) and site not in sys.path:
        sys.path.insert(0, site)
    missing = []
    for requirement in requirements:
        found = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(.*)", requirement)
        try:
            if found is None or not _fits(metadata.version(found[1]), found[2]):
                missing.append(requirement)
        except metadata.PackageNotFoundError:
            missing.append(requirement)
    return missing


def _fits(version: str, wanted: str) -> bool:
    import re

    for operator, text in re.findall(r"(~=|===?|!=|>=|<=|>|<)\s*([^,\s;]+)", wanted):
        have, want = _numbers(version), _numbers(text)
        long = max(len(have), len(want))
        left, right = have + [0] * (long - len(have)), want + [0] * (long - len(want))
        same = left == right or (text.endswith(".*") and have[: len(want)] == want)
        holds = {
            "~=": left >= right and have[: len(want) - 1] == want[:-1],
            "==": same,
            "===": same,
            "!=": not same,
            ">=": left >= right,
            "<=": left <= right,
            ">": left > right,
            "<": left < right,
        }
        if not holds[operator]:
            return False
    return True


def _numbers(version: str) -> list[int]:
    import re

    numbers = []
    for part in version.split("+")[0].split("."):
        found = re.match(r"\d+", part)
        if not found:
            break
        numbers.append(int(found[0]))
    return numbers


if __name__ == "__main__":
    stage()
