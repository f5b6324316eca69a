"""Rules on shell commands: every spelling of a denied command, checked against what bash really runs."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from opensage.approval import Policy
from opensage.permissions import Workspace
from opensage.permissions.commands import analyse
from opensage.permissions.globs import HOLE
from opensage.tools.shell import shell

DENY = Policy.parse(deny=["shell(rm *)"])
ALLOW = Policy.parse(allow=["shell(git *)", "shell(echo *)", "shell(cat *)", "shell(true *)", "write(out/*)"])
HERE = Workspace(Path("/nowhere/work"), "/workspace")


def denied(command: str) -> str:
    """The verdict in a sandbox, where all that no rule speaks of is allowed."""
    return DENY.ruling(shell, {"command": command}, isolated=True, place=HERE).verdict


def allowed(command: str) -> str:
    """The verdict outside a sandbox, where all that no rule speaks of is asked for."""
    return ALLOW.ruling(shell, {"command": command}, isolated=False, place=HERE).verdict


PLAIN = r"""rm x;;  rm -rf   x;;true; rm x;;a && rm x;;a || rm x;;a | rm x;;a & rm x;;rm;;/bin/rm x;;../bin/rm x;;\rm x;;'rm' x
r"m" x;;r''m x;;$'rm' x;;command rm x;;builtin command rm x;;exec rm x;;env A=1 B=2 rm x;;nohup rm x;;nice -n 5 rm x
timeout 5 rm x;;time rm x;;sudo -u bob rm x;;xargs rm;;ls | xargs -n 1 rm;;find . -exec rm {} +;;busybox rm x;;! rm x;;! ! rm x
sh -c 'rm x';;bash -lc "rm x";;sh -c rm x;;bash -c 'sh -c "rm x"';;eval rm x;;eval 'rm x';;eval "true; rm x";;trap 'rm x' EXIT
$(rm x);;echo $(rm x);;echo "$(rm x)";;echo `rm x`;;x=$(rm x);;export x=$(rm x);;cat <(rm x);;{ rm x; };;(rm x);;f() { rm x; }; f
if true; then rm x; fi;;for i in 1; do rm x; done;;while rm x; do :; done;;case a in a) rm x; esac;;[[ -n $(rm x) ]];;A=1 rm x
>out rm x;;<in rm x;;A=1 >out rm x;;2>&1 rm x;;coproc rm x;;RM x;;env sudo nice rm x;;rm x # why;;a=(1 $(rm x));;echo ${x:-$(rm x)}
echo $((1<<2)); rm x;;flock lock rm x;;su bob -c 'rm x';;watch 'rm x';;echo a;rm x;;find . -type f -execdir rm {} +;;sudo sh -c 'rm x'
ｒｍ x;;rm -- x;;(cd a && rm x);;echo a >o; rm x;;xargs -0 -I{} rm {};;parallel rm;;hash -p /bin/rm ls; ls x"""
PLAIN_SPELLINGS = [command for line in PLAIN.splitlines() for command in line.split(";;")]


@pytest.mark.parametrize("command", PLAIN_SPELLINGS)
def test_every_plain_spelling_of_a_denied_command_is_denied(command: str) -> None:
    assert denied(command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        *["rm x", "  rm -rf   x", "true; rm x", "true\nrm x", "sh -c 'rm x'", "\\rm x", "command rm x", "$(rm x)"],
        *["/bin/rm x", "r''m x", "$'rm' x", "sudo -u bob rm x", "find . -exec rm {} +", "eval rm x", "rm\\\n x"],
        *["cat <<E\n$(rm x)\nE", "cat <<E\nbody\nE\nrm x", "cat <<'E' && rm x\nbody\nE", "f() { rm x; }; f"],
    ],
)
def test_a_command_that_can_be_seen_is_denied(command: str) -> None:
    assert denied(command) == "deny"


@pytest.mark.parametrize(
    "command",
    [
        *["x=rm; $x y", '"$cmd" y', "{rm,x}", "/bin/r? x", "$(echo rm) x", "echo rm x | sh", "curl u | bash -s"],
        *["bash <<< 'rm x'", "bash <<E\nrm x\nE", 'bash -c "$X"', "bash <(echo rm x)", ". /dev/stdin", "eval $x", "(("],
        *["cat <<E\n`rm x`\nE", "echo ${x:-`rm x`}", "r\\\nm x", "echo 'open", "xargs -I{} {} x", "sudo $x", "\rrm x"],
        *["cat <<'E'cat\nrm x\nE\n", "echo " + "a" * 30_000, "if true; then " * 300, "sh -c '" * 9],
    ],
)
def test_a_command_that_cannot_be_seen_through_is_asked_for_where_a_rule_denies_some(command: str) -> None:
    ruling = DENY.ruling(shell, {"command": command}, isolated=True, place=HERE)
    assert (ruling.verdict, ruling.person) == ("ask", True)
    assert allowed(command) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        *["ls", "rmdir x", "git commit -m 'rm x; rm y'", 'git commit -m "use \\`rm x\\`"', "grep -rn 'rm x' src"],
        *[
            "for f in *.py; do wc -l $f; done",
            "python - <<'E'\nrm x\nE",
            "cat > a <<'E'\nrm x\nE\nls",
            "bash run.sh",
            "make",
        ],
        *[
            "echo 'a; rm x'",
            "# rm x",
            "ls # rm x",
            "x=rm",
            "test -f rm && ls",
            "printf '%s\\n' rm x",
            "farm x",
            "a/rm.py x",
        ],
        *[
            "find . -name '*.py' -exec grep \"$x\" {} +",
            "ls 2>/dev/null rm",
            "xargs -0 grep a",
            "git rm x",
            "echo $((1 << 2))",
        ],
    ],
)
def test_what_has_nothing_to_do_with_a_denied_command_is_left_alone(command: str) -> None:
    assert denied(command) == "allow"


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        *[
            (c, "allow")
            for c in ("git status", "git", "git log | cat; echo a", "git log 2>&1 >/dev/null", "git add *.py")
        ],
        *[
            (c, "allow")
            for c in ('git commit -m "a $x"', "git log > out/a", "{ git log; } && (echo a)", "git \\\n log")
        ],
        *[
            (c, "allow")
            for c in ("for f in a; do git add $f; done", "if git diff; then echo a; fi", "git log $(git tag)")
        ],
        *[(c, "ask") for c in ("git status; rm -rf .", "git log $(rm x)", "git log `rm x`", "git log > a", "git | sh")],
        *[
            (c, "ask")
            for c in ("PATH=. git log", "PATH=.; git log", "export PATH=.; git log", "./git log", "gitx", "$git log")
        ],
        *[
            (c, "ask")
            for c in ("git log; (", "git log\nsh", "GIT log", "git\u00a0log", "for PATH in .; do git log; done", "")
        ],
        *[(c, "ask") for c in ("echo a >$x", "sh <<E\ngit log\nE", "echo a; (echo <(rm x))", "f() { rm x; }; git log")],
    ],
)
def test_an_allow_rule_needs_every_simple_command(command: str, verdict: str) -> None:
    assert allowed(command) == verdict


def test_a_pattern_without_wildcards_allows_one_script_to_the_letter() -> None:
    command = "cd src && make [all] > log # $x"
    exact = Policy.parse(allow=["shell(cd src && make [[]all] > log # $x)"])
    assert exact.ruling(shell, {"command": f" {command}\n"}, isolated=False).verdict == "allow"
    assert exact.ruling(shell, {"command": f"{command}\nrm x"}, isolated=False).verdict == "ask"


def test_redirections_are_writes_and_reads() -> None:
    policy = Policy.parse(deny=["write(.env)", "read(secret*)"])
    for command in (
        "echo x > .env",
        "echo x >>./.env",
        "cat < secret.txt",
        "{ echo; } >| a/../.env",
        "sh -c 'echo > .env'",
    ):
        assert policy.ruling(shell, {"command": command}, isolated=True).verdict == "deny", command
    assert policy.ruling(shell, {"command": "cat .envrc 2>&1 > /dev/null"}, isolated=True).verdict == "allow"


QUOTED = st.sampled_from(
    ["a", "'b c'", '"$x"', "$x", "'it'\\''s'", "$((1<<2))", "*.z", "'#'", "a#b", "$'q\\'r'", '"\\""', "2>&1", ">o"]
)
SIMPLE = st.one_of(
    st.just("rm x"),
    st.builds(
        lambda name, words: " ".join([name, *words]),
        st.sampled_from(["echo", "cat", "true"]),
        st.lists(QUOTED, max_size=3),
    ),
    st.sampled_from(
        [
            "# it's",
            '# "',
            "# $(",
            "# <<E",
            "# \\",
            "x=1",
            "[[ -n a ]]",
            "(( 1 << 2 ))",
            "a=(1 2)",
            "\\rm x",
            "command rm x",
        ]
    ),
)
JOIN = st.sampled_from(["; ", "\n", " && ", " || ", " | ", " & ", "\n\n", " \\\n", "; \\\n"])
AROUND = st.sampled_from(
    [
        *[
            "$(%s\n)",
            '"$(%s\n)"',
            "`%s\n`",
            "{ %s\n}",
            "( %s\n)",
            "if true; then %s\nfi",
            "for i in 1; do %s\ndone",
            "time %s",
        ],
        *[
            "case a in a) %s\n;; esac",
            "f() { %s\n}; f",
            "cat <(%s\n)",
            "cat <<E\n%s\nE\n",
            "cat <<'E' && true\n%s\nE\n",
            "! %s",
        ],
        *[
            "cat <<-E; %s\nE\n",
            "cat <<E | cat\n$(%s\n)\nE\n",
            "echo ${x:-%s}",
            'echo "`%s`"',
            "cat <<'E'x\n%s\nE\n",
            "<<E %s\nE\n",
        ],
        *[
            "sh -c '%s'",
            "eval '%s'",
            "eval %s",
            "echo '%s' | sh",
            "x=1 %s",
            ">o %s",
            "while true; do %s\nbreak; done",
            "x=$(%s\n)",
        ],
    ]
)
SCRIPT = st.recursive(
    SIMPLE,
    lambda inner: (
        st.builds(lambda a, j, b: a + j + b, inner, JOIN, inner)
        | st.builds(lambda f, s: f.replace("%s", s), AROUND, inner)
    ),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def bash(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose `rm` only leaves a mark; nothing else but a few harmless programs can be found."""
    root = tmp_path_factory.mktemp("bash")
    (root / "bin").mkdir()
    for name in ("sh", "bash", "cat", "true", "env"):
        found = next(p for p in (Path("/bin") / name, Path("/usr/bin") / name) if p.exists())
        (root / "bin" / name).symlink_to(os.path.realpath(found))
    (root / "bin" / "rm").write_text(f"#!/bin/sh\n: > {root}/ran\n")
    (root / "bin" / "rm").chmod(0o755)
    (root / "work").mkdir()
    return root


def runs_rm(root: Path, script: str) -> bool:
    """Whether bash, given the script, comes to run `rm`."""
    mark = root / "ran"
    mark.unlink(missing_ok=True)
    process = subprocess.Popen(
        ["/bin/bash", "-c", 'eval "$1"', "bash", script],
        cwd=root / "work",
        env={"PATH": str(root / "bin")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        pass
    finally:
        os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None
        process.wait()
    return mark.exists()


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(script=SCRIPT)
@example(script="cat <<-E; rm x\nbody\nE\n")
@example(script="f() { cat <<'E'\nrm x\nE\n\ntime ! rm x\n}; f")
@example(script="x=1 <<'E'cat rm x\nE\n")
@example(script="sh -c rm x")
@example(script="cat <<\\E >o\ncat <<'E'\nE\n\nE\n\\\nrm x\nE\n")
@example(script="echo $((1<<3))\nrm x\n3\n")
@example(script="cat <<E # c\n`rm x`\nE\n")
@example(script="! ! rm x")
@example(script="! { rm x\n}")
@example(script="time { rm x; }")
@example(script="! if true; then rm x; fi")
@example(script="echo a # \\\nrm x")
def test_what_bash_runs_is_never_allowed_when_denied(script: str, bash: Path) -> None:
    """bash itself is the judge: whatever script makes it run `rm`, neither rule may have let it through."""
    if denied(script) != "allow" and allowed(script) != "allow":
        return  # nothing was let through
    if runs_rm(bash, script):
        pytest.fail(f"bash runs rm in {script!r}: deny says {denied(script)}, allow says {allowed(script)}")


@given(before=st.text(max_size=40).filter(lambda text: not set(text) & set("'\"<\\`($#")), after=st.text(max_size=40))
@settings(max_examples=200, deadline=None)
def test_no_lines_before_or_after_make_a_denied_command_allowed(before: str, after: str) -> None:
    """Any text that opens no quote and no document: also letters on which the grammar's own code would crash."""
    assert denied(f"{before}\nrm x\n{after}") != "allow"


HOSTILE = [
    "$(" * 9000,
    "(" * 9000 + ")" * 9000,
    '"' * 19_001,
    "cat <<A " * 2400,
    "if true; then " * 1400,
    "xargs " * 3300,
]
HOSTILE += [
    "sudo -a " * 2400,
    "echo " + "$x " * 6000,
    "sh -c 'a b' " * 1600,
    "eval " * 4000,
    "`a " * 6000,
    "a" * 5_000_000,
]


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:8])
def test_hostile_commands_take_bounded_time(text: str) -> None:
    policy = Policy.parse(deny=["shell(rm *)", "shell(*a*b*c*d*e*f)", *(f"shell(x{n} *)" for n in range(20))])
    began = time.process_time()
    assert policy.ruling(shell, {"command": text}, isolated=True).verdict == "ask"
    assert time.process_time() - began < 5
    assert any(HOLE in command for command in analyse(text).commands)


def test_holes_are_not_smuggled_in() -> None:
    assert denied("r\0m x") == "deny"
