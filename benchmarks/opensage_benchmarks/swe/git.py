"""git for folders that an agent has worked in: no configuration but ours, no hook, no filter, no credentials."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from opensage_benchmarks.swe.errors import BenchError

SECONDS = 600.0
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.excludesFile": os.devnull,
    "core.autocrlf": "false",
    "core.protectNTFS": "false",
    "safe.directory": "*",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_OPTIONS = [word for name, value in _SETTINGS.items() for word in ("-c", f"{name}={value}")]
# The highest file of attributes there is: whatever a checkout's `.gitattributes` says, bytes stay as they are.
_ATTRIBUTES = "* -text -filter -ident !working-tree-encoding !eol !diff !merge !whitespace\n"
_CONFIG = """[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tautocrlf = false
[user]
\tname = agent
\temail = agent@localhost
[gc]
\tauto = 0
"""


class GitError(BenchError):
    """git said no, or did not end."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Variables for git: nothing of the caller's but where programs are; fixed dates, so that hashes repeat."""
    who = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in _WHO.items()}
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "file",
        "GIT_OPTIONAL_LOCKS": "0",
        **who,
        **(more or {}),
    }


_WHO = {"NAME": "base", "EMAIL": "base@localhost", "DATE": "2000-01-01T00:00:00Z"}


def git(
    *words: str,
    folder: Path,
    git_dir: Path | None = None,
    index: Path | None = None,
    stdin: bytes = b"",
    check: bool = True,
) -> subprocess.CompletedProcess[bytes]:
    """Run git.

    Args:
        words: command and arguments.
        folder: the work tree, and where it runs.
        git_dir: the repository, never the folder's own when given.
        index: a file instead of the repository's own index.
        stdin: what it reads.
        check: whether an exit code other than 0 is an error.

    Raises:
        GitError: git is not installed, fails, or runs for more than ten minutes.
    """
    where = [] if git_dir is None else [f"--git-dir={git_dir}", f"--work-tree={folder}"]
    env = environment({"GIT_INDEX_FILE": str(index)} if index else None)
    try:
        done = subprocess.run(
            ["git", *_OPTIONS, *where, *words],
            cwd=folder, env=env, input=stdin, capture_output=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise GitError(f"git cannot run ({error}): `apt install git`") from error
    except subprocess.TimeoutExpired as error:
        raise GitError(f"git {words[0]} ran for more than {SECONDS:.0f} s in {folder}") from error
    if check and done.returncode != 0:
        raise GitError(f"git {words[0]} failed in {folder}: {said(done)}")
    return done


def said(done: subprocess.CompletedProcess[bytes]) -> str:
    """The end of what a program complained about, in one line."""
    lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
    return "; ".join(lines[-3:])[:500] or f"exit code {done.returncode}"


def new_repository(git_dir: Path) -> None:
    """An empty repository in an empty or new folder; it keeps bytes whatever a checkout's attributes say."""
    for name in ("objects/info", "objects/pack", "refs/heads", "refs/tags", "info"):
        (git_dir / name).mkdir(parents=True, exist_ok=True)
    (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
    (git_dir / "config").write_text(_CONFIG)
    (git_dir / "info" / "attributes").write_text(_ATTRIBUTES)
