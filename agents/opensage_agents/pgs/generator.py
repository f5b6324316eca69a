"""The Generator: writes and repairs the program."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from opensage_agents.coder.functions import classes_in, functions_in, replaced
from opensage_agents.pgs.asking import Desk
from opensage_agents.pgs.task import Task
from opensage_agents.pgs.tester import FENCE, parsed

SYSTEM = "You are a careful programmer."
TRIES = 2


@dataclass(slots=True)
class Generator:
    """Asks for the program, and takes it out of the reply."""

    desk: Desk
    task: Task

    async def write(self) -> str:
        """A first program, "" when no reply holds one."""
        prompt = (
            f"Task:\n{self.task.description}\n\nWrite {_quoted(self.task.head)} in Python, with the imports it needs, "
            "in one ```python block."
        )
        return await self._program(prompt, "")

    async def repair(self, code: str, feedback: str) -> tuple[str, str]:
        """The next program, "" when no reply holds one, and the prompt that asked for it."""
        prompt = (
            f"Task:\n{self.task.description}\n\nThis program is wrong:\n```python\n{_without_texts(code)}\n```\n\n"
            f"{feedback}\n\nSay in one or two sentences what is at fault. Then write the whole corrected program "
            "in one ```python block."
        )
        return await self._program(prompt, code), prompt

    async def _program(self, prompt: str, code: str) -> str:
        for number in range(TRIES):
            asked = prompt if not number else f"{prompt}\nYour last answer had no such block."
            found = program_in(await self.desk.ask("generator", SYSTEM, asked), self.task, code)
            if found:
                return found
        return ""


def program_in(reply: str, task: Task, code: str) -> str:
    """The last complete block of a reply that defines the function, put into the program that was there; "" for none.

    What the reply leaves out, such as helper classes and docstrings, stays. A function with another number of
    arguments is not taken, nor a class that lacks a method or has one with another number of arguments.
    """
    short = task.entry_point.rpartition(".")[2]
    places = classes_in if task.is_class else functions_in
    for block in reversed(FENCE.findall(reply) or [reply]):
        if all(each.short != short for each in places(block)):
            continue
        at = task.place_in(code)
        whole = (replaced(code, at, f"```python\n{block}\n```") or code) if at else block
        if _arguments(code, task).items() <= _arguments(whole, task).items():
            return whole if whole.endswith("\n") else whole + "\n"
    return ""


def _arguments(code: str, task: Task) -> dict[str, int]:
    """How many arguments the function takes, or each public method of the class; {} when it is not there."""
    name = task.entry_point.rpartition(".")[2]
    kind = ast.ClassDef if task.is_class else ast.FunctionDef
    tree = ast.walk(parsed(code) or ast.Module([], []))
    found = next((node for node in tree if isinstance(node, kind) and node.name == name), None)
    inside = found.body if isinstance(found, ast.ClassDef) else [found]
    functions = [node for node in inside if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {
        node.name: len(node.args.args) + len(node.args.posonlyargs)
        for node in functions
        if node is found or not node.name.startswith("_")
    }


def _quoted(head: str) -> str:
    return f"this, whole,\n```python\n{head}\n```\n" if "\n" in head else f"`{head}`"


def key_of(code: str) -> str:
    """Programs that differ in layout, comments and docstrings alone have the same key."""
    tree = parsed(code)
    for node in ast.walk(tree) if tree else ():
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [each for each in body if not _is_text(each)] or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.dump(tree) if tree else code


def _without_texts(code: str) -> str:
    """The program without texts that stand for themselves at the top level: the task says them already."""
    lines = code.split("\n")
    tree = parsed(code)
    for node in reversed(tree.body if tree else []):
        if _is_text(node):
            del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines).strip()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
