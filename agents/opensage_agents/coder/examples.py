"""Examples that a task gives in its text, as pairs of a call and what it should return."""

from __future__ import annotations

import ast
import doctest
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

MOST = 12
_ARROWS = r"==>|==|=>|=|->|➞|→|⇒|#=>|# =>|returns?|should (?:return|be|give|equal)|gives?|will (?:return|be)|is"
_FOR = re.compile(r"\bfor\s+(?=[A-Za-z_]\w*\s*=)", re.I)
_SETS = re.compile(r"\s*(?:,|and)?\s*([A-Za-z_]\w*)\s*=(?!=)\s*")
_RESULT = re.compile(r"\s*,?\s*(?:the )?(?:result|output|answer|return value)?\s*(?:should be|must be|is|=|:)\s*", re.I)
_PAIR = re.compile(r"^\s*input:\s*(.+?)\s*\n\s*(?:expected )?output:\s*(.+?)\s*$", re.I | re.M)
_LINE = 400


@dataclass(frozen=True, slots=True)
class Example:
    """A call and what it should give, both as Python source. `printed` when it is what a prompt would print."""

    call: str
    expected: str
    printed: bool = False


def examples_in(text: str, name: str, parameters: Sequence[str] = ()) -> list[Example]:
    """The examples of calls of `name`, at most 12: doctest prompts, `f(x) == y` and its spellings, cases in words.

    Args:
        text: a task, an issue or a docstring.
        name: of the function.
        parameters: its names, for cases such as "For x = 1, y = 2, the result should be 3" and Input/Output pairs.
    """
    found = dict.fromkeys([*_prompts(text, name), *_spelled(text, name), *_cases(text, name, parameters)])
    return list(found)[:MOST]


def _prompts(text: str, name: str) -> Iterator[Example]:
    try:
        parsed = doctest.DocTestParser().get_examples(_dedented(text))
    except ValueError:  # prompts that are no doctest
        return
    for example in parsed:
        call, want = example.source.strip(), _first_value(example.want.strip())
        if want and f"{name}(" in call and _is_expression(call):
            call = ast.unparse(ast.parse(call, mode="eval")) if "\n" in call else call
            compared = _compared(call) if want == "True" else None
            yield compared or Example(call, want, printed=True)


def _first_value(want: str) -> str:
    """What a prompt prints; text of the task that follows without a blank line is cut off."""
    line = want.partition("\n")[0]
    return line if _literal(line) == line else want


def _compared(call: str) -> Example | None:
    """`f(x) == y` as an example of `f(x)`."""
    node = ast.parse(call, mode="eval").body
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        return Example(ast.unparse(node.left), ast.unparse(node.comparators[0]))
    return None


def _dedented(text: str) -> str:
    """Lines with prompts, and what follows them up to a blank one, without their indentation."""
    return "\n".join(line.strip() for line in text.splitlines())


def _spelled(text: str, name: str) -> Iterator[Example]:
    start = re.compile(rf"(?<![\w.]){re.escape(name)}\(")
    for line in text.splitlines():
        for match in start.finditer(line[:_LINE]):
            end = _call_end(line, match.end() - 1)
            if end and (found := re.match(rf"\s*`?\s*(?:{_ARROWS})\s*:?\s*`?", line[end:])):
                call, value = line[match.start() : end], _literal(line[end + found.end() :])
                if value and _is_expression(call) and not line.lstrip().startswith("def "):
                    yield Example(call, value)


def _cases(text: str, name: str, parameters: Sequence[str]) -> Iterator[Example]:
    """Arguments and result told in words."""
    for line in text.splitlines():
        if (start := _FOR.search(line[:_LINE])) and (found := _case(line[start.end() : _LINE], parameters)):
            yield Example(f"{name}({', '.join(found[:-1])})", found[-1])
    if len(parameters) == 1:
        for given, want in _PAIR.findall(text):
            if _literal(given) == given and _literal(want) == want:
                yield Example(f"{name}({given})", want)


def _case(text: str, parameters: Sequence[str]) -> list[str]:
    """`a = 1, b = 2, the result should be 3` as ["1", "2", "3"], [] when it is something else."""
    values = []
    for parameter in parameters:
        said = _SETS.match(text)
        value = _literal(text[said.end() :]) if said and said.group(1) == parameter else ""
        if not said or not value:
            return []
        values.append(value)
        text = text[said.end() :].strip()[len(value) :]
    result = _RESULT.match(text)
    want = _literal(text[result.end() :]) if result else ""
    return [*values, want] if want else []


def _call_end(line: str, opening: int) -> int:
    """Position after the bracket that closes the one at `opening`, 0 when there is none; strings are skipped."""
    depth, quote = 0, ""
    for place in range(opening, len(line)):
        char = line[place]
        if quote:
            quote = "" if char == quote and line[place - 1] != "\\" else quote
        elif char in "'\"":
            quote = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                return place + 1
    return 0


def _literal(text: str) -> str:
    """The longest beginning of the text that is a Python literal."""
    text = text[:_LINE].strip()
    for end in range(len(text), 0, -1):
        if text[:end].rstrip().endswith(","):
            continue  # a comma of the sentence, not of a tuple
        try:
            ast.literal_eval(text[:end])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return text[:end].strip()
    return ""


def _is_expression(source: str) -> bool:
    try:
        ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return False
    return True
