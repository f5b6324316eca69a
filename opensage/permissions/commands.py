"""What a shell script runs, as far as it can be seen before it runs: its simple commands, and those behind wrappers.

What cannot be seen (a variable in the place of a command, text piped into a shell, a syntax error) becomes a hole,
which may be any command. The grammar is tree-sitter's for bash; where it is known to see less than bash, a hole is put.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from opensage.permissions.globs import HOLE

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MOST = 20_000
"""Characters of a script that are looked at; a longer one is a hole."""
_MOST_TEXT, _NESTING, _DEPTH = 60_000, 200, 5
SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "ash", "rbash", "fish", "source", "."])
RUNNERS = {
    **dict.fromkeys(
        ["command", "builtin", "exec", "env", "nohup", "nice", "ionice", "time", "sudo", "doas", "setsid"], 0
    ),
    **dict.fromkeys(["stdbuf", "xargs", "parallel", "busybox", "coproc", "watch", "strace", "ltrace", "unshare"], 0),
    **dict.fromkeys(["script", "trap", "eval", "alias", "hash", "su", "runuser", "fakeroot", "chronic", "!"], 0),
    **dict.fromkeys(["timeout", "flock", "chroot", "taskset", "chrt", "ssh", "setarch", "sg", "torsocks"], 1),
}
"""Programs that run the command in their arguments, and how many operands come before it."""
_RESERVED = frozenset(
    "if then elif else fi for while until do done case esac select function in { } [[ ]] coproc".split()  # noqa: SIM905
)
"""Words that bash never takes for a program where a command begins; behind `!` and `time` the grammar does."""
_EXEC = frozenset(["-exec", "-execdir", "-ok", "-okdir"])
_ACTIVE = re.compile(r"`|\$\(|[<>]\(")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^\]]*\])?\+?=")
_SCRIPT = re.compile(r"[\s;&|<>$`(){}=]")
_SPLIT_WORD = re.compile(r"(?<![ \t])\\\n\S")
_ODD_SPACE = re.compile(r"[^\S \t\n]|[\x00-\x08\x0b-\x1f\x7f]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]")
_DELIMITER = re.compile(r"""[\w.-]+|'[\w.-]+'|"[\w.-]+"|\\\w+""", re.ASCII)
_WORD_ENDS = frozenset([b"", b" ", b"\t", b"\n", b";", b"|", b"&", b"<", b">", b"(", b")"])
_REDIRECTS = frozenset(["file_redirect", "heredoc_redirect", "herestring_redirect"])
_STRINGS = ("string", "raw_string", "ansi_c_string", "translated_string", "concatenation", "word", "number")
_EXPANSIONS = ("expansion", "simple_expansion", "command_substitution", "process_substitution", "arithmetic_expansion")
_WORDS = frozenset([*_STRINGS, *_EXPANSIONS, "brace_expression"])
_SAFE_FILES = frozenset(["/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"])


@dataclass(slots=True)
class Script:
    """Commands as texts: words without their quotes, one space between, holes where the content is unknown.

    Attributes:
        commands: the simple commands, as they stand in the script; a hole for what is not seen through.
        hidden: commands behind wrappers and in quoted scripts, and names without their folder.
        writes: files that output is sent to.
        reads: files that input comes from.
    """

    commands: list[str] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)

    size: int = 0

    def add(self, texts: list[str], text: str) -> None:
        """Add a command, as long as there is room."""
        self.size += len(text) + 50
        if self.full():
            self.opaque()
        else:
            texts.append(text)

    def full(self) -> bool:
        """Whether it is too much to look at."""
        return self.size > _MOST_TEXT

    def opaque(self) -> None:
        """Something in it is not seen through."""
        if HOLE not in self.commands:
            self.commands.append(HOLE)


@lru_cache(maxsize=64)
def analyse(text: str) -> Script:
    """Read a script for bash. Never raises; the result must not be changed."""
    script = Script()
    _Reader(script, 0).read(text)
    return script


@lru_cache(maxsize=1)
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _Reader:
    """Walks one syntax tree and adds what it finds to a `Script`."""

    def __init__(self, script: Script, depth: int) -> None:
        self._script, self._depth = script, depth
        self._source, self._text_of = b"", ""

    def read(self, text: str) -> None:
        if len(text) > MOST or self._depth > _DEPTH or HOLE in text or _ODD_SPACE.search(text):
            self._script.opaque()
            return
        # The grammar's C code reads beyond its tables, and crashes, on letters outside ASCII; to bash they are letters.
        self._text_of, self._source = text, _NOT_ASCII.sub("z", text).encode("ascii")
        root = _parser().parse(self._source).root_node
        if root.has_error or _SPLIT_WORD.search(text):
            self._script.opaque()
        self._walk(root)

    def _walk(self, root: Node) -> None:
        todo: list[tuple[Node, Node | None, int]] = [(root, None, 0)]
        while todo:
            node, parent, depth = todo.pop()
            if depth > _NESTING or self._script.full():
                self._script.opaque()
                return
            self._look(node, parent)
            if not (node.type == "heredoc_body" and parent is not None and self._is_quoted(parent)):
                todo.extend((child, node, depth + 1) for child in reversed(node.children))

    def _look(self, node: Node, parent: Node | None) -> None:
        kind, above = node.type, parent.type if parent is not None else ""
        assignment = kind == "variable_assignment" and above not in ("command", "declaration_command")
        if kind in ("command", "declaration_command", "unset_command") or assignment:
            self._command(node, parent)
        elif kind == "file_redirect":
            self._redirect(node)
        elif kind == "for_statement":
            name = node.child_by_field_name("variable")
            if name is not None and self._text(name).isupper():  # PATH, IFS
                self._script.commands.append(f"{self._text(name)}={HOLE}")
        elif self._is_misread(node):
            self._script.opaque()

    def _is_misread(self, node: Node) -> bool:
        """Whether bash may run something here that the grammar takes for text."""
        match node.type:
            case "command_substitution":
                return self._source.startswith(b"`", node.start_byte) and "\\" in self._text(node)
            case "heredoc_start":
                return not self._is_delimiter(node)
        text = self._text(node) if self._is_text(node) else ""
        return _ACTIVE.search(re.sub(r"\\.", "", text, flags=re.DOTALL)) is not None

    @staticmethod
    def _is_text(node: Node) -> bool:
        return not node.children and node.is_named and node.type not in ("raw_string", "comment", "ansi_c_string")

    def _is_delimiter(self, start: Node) -> bool:
        """Whether bash ends the delimiter where the grammar does: what it takes for the text might be commands."""
        after = self._source[start.end_byte : start.end_byte + 1]
        return after in _WORD_ENDS and _DELIMITER.fullmatch(self._text(start)) is not None

    def _is_quoted(self, heredoc: Node) -> bool:
        start = next((child for child in heredoc.children if child.type == "heredoc_start"), None)
        return start is not None and any(mark in self._text(start) for mark in "'\"\\")

    def _text(self, node: Node) -> str:
        return self._text_of[node.start_byte : node.end_byte]

    def _assignment(self, node: Node) -> str:
        return self._text(node).partition("=")[0] + "=" + HOLE

    def _redirect(self, node: Node) -> None:
        signs = "".join(self._text(child) for child in node.children if not child.is_named)
        target = node.child_by_field_name("destination")
        if target is None:
            return
        path = self._word(target)
        if path in _SAFE_FILES or ("&" in signs and (path.isdigit() or path in ("-", ""))):
            return
        if ">" in signs:
            self._script.writes.append(path)
        if "<" in signs:
            self._script.reads.append(path)

    def _command(self, node: Node, parent: Node | None) -> None:
        words: list[str] = []
        assigned: list[str] = []
        for child in node.children if node.type != "variable_assignment" else [node]:
            if child.type == "variable_assignment" and not words:
                assigned.append(self._assignment(child))
            else:
                words += self._after(child) if child.type in _REDIRECTS else [self._word(child)]
        if parent is not None and parent.type == "redirected_statement":
            words += [word for child in parent.children if child.type in _REDIRECTS for word in self._after(child)]
        if self._is_syntax(node):
            self._script.opaque()
        self._script.add(self._script.commands, " ".join([*assigned, *words]))
        if words:
            _Candidates(self._script, self._depth).add(words)

    def _is_syntax(self, node: Node) -> bool:
        """Whether the grammar took a part of a compound command for a simple one."""
        if node.type != "command":
            return False
        raw = [self._text(child) for child in node.children if child.type not in ("variable_assignment", *_REDIRECTS)]
        begin = next((word for word in raw if word not in ("!", "time", "-p", "--")), "")
        return begin in _RESERVED or "{" in raw

    def _after(self, redirect: Node) -> list[str]:
        """The words behind a redirection, which belong to its command; the grammar puts them into the redirection."""
        words = [child for child in redirect.named_children if child.type in _WORDS]
        first = 1 if redirect.type != "heredoc_redirect" else 0
        return [self._word(word) for word in words[first:]]

    def _word(self, node: Node) -> str:
        parts = [node] if node.type != "concatenation" else list(node.children)
        parts = list(parts[0].children) if parts and parts[0].type == "command_name" else parts
        if len(parts) == 1 and parts[0].type == "concatenation":
            parts = list(parts[0].children)
        return _join([self._part(part) for part in parts])

    def _part(self, node: Node) -> str:
        text = self._text(node)
        match node.type:
            case "raw_string":
                return text[1:-1]
            case "ansi_c_string" if "\\" not in text:
                return text[2:-1]
            case "string":
                return self._string(node)
            case "word" | "number" | "file_descriptor" | "variable_name" | "test_operator" | "regex":
                return _bare(text)
            case _ if not node.is_named:
                return _bare(text)
        return HOLE

    def _string(self, node: Node) -> str:
        """A string in double quotes: what lies between its expansions, and holes for them."""
        out, at = "", node.start_byte + 1
        for child in [c for c in node.children if c.is_named and c.type != "string_content"]:
            out += self._between(at, child.start_byte) + HOLE
            at = child.end_byte
        return out + self._between(at, node.end_byte - 1)

    def _between(self, start: int, end: int) -> str:
        text = self._text_of[start:end].replace("\\\n", "")
        return re.sub(r"\\([\\$`\"])", r"\1", text)


def _bare(text: str) -> str:
    """An unquoted piece: backslashes taken off, wildcards as holes, braces and brackets marked for `_join`."""
    text = text.replace("\\\n", "")
    return re.sub(
        r"\\(.)|([*?])|([{\[])",
        lambda found: found[1] or (HOLE if found[2] else "\1"),
        text,
        flags=re.DOTALL,
    )


def _join(parts: list[str]) -> str:
    whole = "".join(parts)
    return HOLE if "\1" in whole and whole != "\1" else whole.replace("\1", "[")


class _Candidates:
    """Finds the commands behind a simple command: `sudo -u x rm`, `xargs rm`, `sh -c 'rm x'`."""

    def __init__(self, script: Script, depth: int) -> None:
        self._script, self._depth = script, depth

    def add(self, words: list[str]) -> None:
        seen: set[int] = set()
        todo = [0]
        while todo:
            place = todo.pop()
            if place in seen or place >= len(words) or self._script.full():
                continue
            seen.add(place)
            self._one(words[place:])
            todo += [place + step for step in self._next(words[place:])]

    def _one(self, words: list[str]) -> None:
        name = base(words[0])
        rest = words[1:]
        self._script.add(self._script.hidden, " ".join([name, *rest]))
        if name != words[0]:
            self._script.add(self._script.hidden, " ".join(words))
        if name in SHELLS:
            self._shell(name, rest)
        elif name in RUNNERS:
            self._scripts(rest)
            if name == "eval":
                self._read(" ".join(rest))

    def _next(self, words: list[str]) -> list[int]:
        """Places where the command that the first word runs may begin."""
        name = base(words[0])
        if name in ("find", "fd", "fdfind"):
            return [place + 1 for place, word in enumerate(words) if word in _EXEC or word in ("-x", "-X")]
        if name not in RUNNERS:
            return []
        skip, after_option, found = RUNNERS[name], False, []
        for place, word in enumerate(words[1:], 1):
            if word.startswith("-") and len(word) > 1:
                after_option = True
            elif _ASSIGNMENT.match(word):
                after_option = False
            elif after_option or HOLE in word:
                found.append(place)
                after_option = False
            elif skip:
                skip -= 1
            else:
                return [*found, place]
        return found

    def _shell(self, name: str, rest: list[str]) -> None:
        """A shell: the script in its arguments, or one that is not seen. A script in a file is like any program."""
        if name not in (".", "source") and any(re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word) for word in rest):
            self._scripts(rest, always=True)
            return
        operands = [word for word in rest if not word.startswith(("-", "+")) or word == "-"]
        odd = any(word in ("-s", "-o", "+o", "-O", "+O", "--rcfile", "--init-file") for word in rest)
        if odd or not operands or HOLE in operands[0] or operands[0].startswith(("/dev/", "/proc/", "-")):
            self._script.opaque()

    def _scripts(self, words: list[str], *, always: bool = False) -> None:
        for word in words:
            if always or _SCRIPT.search(word):
                self._read(word.partition("=")[2] if _ASSIGNMENT.match(word) and not always else word)

    def _read(self, text: str) -> None:
        self._script.size += 500  # what a parser costs
        if self._script.full():
            self._script.opaque()
            return
        inner = Script()
        _Reader(inner, self._depth + 1).read(text)
        for text in inner.commands + inner.hidden:
            self._script.add(self._script.hidden, text)
        self._script.writes += inner.writes


def base(name: str) -> str:
    """The name of a program without its folder."""
    return name.rpartition("/")[2]
