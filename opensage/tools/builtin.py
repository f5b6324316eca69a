"""The tools every agent has. Their descriptions are short: they are in every prompt, of small models too."""

from __future__ import annotations

from opensage.tools.base import Tool
from opensage.tools.find import list_files, search
from opensage.tools.read import read
from opensage.tools.shell import shell
from opensage.tools.talk import ask, finish
from opensage.tools.tasks import task_kill, task_output, task_wait, tasks
from opensage.tools.write import edit, write


def builtin_tools() -> list[Tool]:
    """All of them, in the order in which a model sees them."""
    files = [read, write, edit, list_files, search]
    return [shell, *files, tasks, task_output, task_wait, task_kill, ask, finish]
