"""What does not belong in a patch: tests, caches, and what an agent leaves about while it works."""

from __future__ import annotations

import re

CACHES = frozenset({
    "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", ".hypothesis", ".tox", ".nox", ".venv", "venv",
    "node_modules", ".ipynb_checkpoints", ".eggs", ".cache", "htmlcov", ".idea", ".vscode", ".opensage",
})  # fmt: skip
"""Folders that programs make for themselves."""
_TEST_FOLDERS = frozenset({"tests", "testcases", "__tests__", "test_data", "testdata"})
_TEST_FILE = re.compile(
    r"test_.*|.*_test|.*_tests|tests?|conftest|.*[._](?:test|spec)|(?:Test[A-Z0-9].*|.*[a-z0-9]Tests?)", re.DOTALL
)
_TEST_SUFFIX = re.compile(r"\.(?:py|pyi|pyx|js|jsx|mjs|cjs|ts|tsx|go|rs|java|kt|c|cc|cpp|rb|php|cs|sh)")
_LEFT_BEHIND = re.compile(
    r".*(?:~|\.(?:orig|rej|bak|swp|swo|tmp|temp|log|pyc|pyo|prof|pid|coverage))"
    r"|\.coverage(?:\..*)?|\.DS_Store|nohup\.out|core(?:\.\d+)?|\.#.*|#.*#",
    re.DOTALL,
)
_SCRATCH = re.compile(
    r"(?:repro[a-z]*|debug|scratch|tmp|temp|verify|try|demo|check|minimal|poc|playground|test)(?:[-_.\d][^/]*)?"
    r"\.(?:py|sh|js|mjs|ts|go|rs|java|c|cc|cpp|rb|php|txt|md|json|out|ipynb)"
    r"|[^/]*\.(?:patch|diff|out)|(?:output|out|results?)\.(?:txt|json)",
    re.IGNORECASE | re.DOTALL,
)
_SCRATCH_FOLDERS = frozenset({"scratch", "tmp", "temp", "repro", "reproduce", "playground"})
_PACKAGED = re.compile(r".*\.(?:egg-info|dist-info)", re.DOTALL)


def is_test(path: str) -> bool:
    """Whether the file at a path (with `/`) is a test, by the customs of the languages that benchmarks are in.

    A folder `test` alone does not make one: `django/test/client.py` is no test.
    """
    *folders, name = path.split("/")
    if any(folder in _TEST_FOLDERS or folder.endswith("_testcases") for folder in folders):
        return True
    stem = _TEST_SUFFIX.search(name)
    return stem is not None and stem.end() == len(name) and bool(_TEST_FILE.fullmatch(name[: stem.start()]))


def cache_folder(name: str) -> bool:
    """Whether a folder that the base does not have is some program's own."""
    return name in CACHES or bool(_PACKAGED.fullmatch(name))


def why_not(path: str) -> str:
    """Why a file that the base does not have stays out of a patch; nothing when it may go in."""
    *folders, name = path.split("/")
    if not path.isprintable() or "\\" in path:
        return "odd name"
    if is_test(path):
        return "test"
    if _LEFT_BEHIND.fullmatch(name):
        return "left behind by a program"
    top = folders[0].lower() if folders else ""
    if (not folders and _SCRATCH.fullmatch(name)) or top in _SCRATCH_FOLDERS:
        return "scratch"
    return "the kit's own settings" if path == "opensage.toml" else ""
