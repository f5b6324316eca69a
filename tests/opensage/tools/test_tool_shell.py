from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from opensage.errors import ToolError
from opensage.protocols import ExecResult
from opensage.tools.shell import shell
from opensage.tools.shell_script import LAUNCH, PRELUDE_VARIABLE, prelude
from opensage.tools.tasks import BUFFER, MAX_RUNNING, TaskTable, task_kill, task_output, task_wait, tasks


def commands(bench, *lines: str) -> list[str]:
    return bench.calls(*((shell, {"command": line}) for line in lines))


def alive(mark: str) -> int:
    """How many processes of this machine have `mark` in their command line."""
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                count += mark.encode() in (entry / "cmdline").read_bytes()
            except OSError:
                continue
    return count


def gone(mark: str, seconds: float = 5) -> bool:
    end = time.monotonic() + seconds
    while alive(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return alive(mark) == 0


# --- place and environment are kept ---


def test_folder_and_variables_are_kept(each_bench):
    got = commands(
        each_bench,
        "mkdir -p 'a b/c' && cd 'a b/c' && export KEPT='it'\"'\"'s\ntwo lines' && own=1",
        'pwd; printf "%s|%s" "$KEPT" "${own-unset}"; exit 3',
        "cd -; cd ../..; false",
        'pwd; unset KEPT; echo "env: $OPENSAGE_SHELL$OPENSAGE_PWD$OPENSAGE_CMD"',
        'echo "${KEPT-gone}"; export -p | grep OPENSAGE_',
    )
    folder = str(each_bench.folder)
    assert got[0] == "(no output)"
    assert got[1] == f"{folder}/a b/c\nit's\ntwo lines|unset\nexit code 3"
    assert got[2] == f"{folder}\nexit code 1"
    assert got[3] == f"{each_bench.folder.parent.parent}\nenv: "
    assert got[4].startswith("gone\n")
    assert "OPENSAGE_SHELL" not in got[4]
    assert "OPENSAGE_PWD" not in got[4]


def test_agents_have_places_of_their_own(bench):
    async def work(ctx):
        other = type(ctx)(ctx.sandbox, ctx.workdir, agent="other")
        await shell.invoke({"command": "cd /usr"}, ctx)
        return await shell.invoke({"command": "pwd"}, ctx), await shell.invoke({"command": "pwd"}, other)

    assert bench.run(work) == ("/usr", str(bench.folder))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat <<'END'\na $HOME `x`\nEND", "a $HOME `x`"),
        ("for i in 1 2; do\n  echo $i\ndone", "1\n2"),
        ("cat", "(no output)"),
        ('read x; echo "got $x"', "got "),
        ("printf 'a\\n\\n\\n'", "a"),
        ("echo out; echo err >&2; exit 7", "out\n[stderr]\nerr\nexit code 7"),
        ("set -e; false; echo never", "exit code 1"),
        ("kill -9 $$", "exit code -9 (SIGKILL)"),
        ("bash -c 'kill -TERM $$'", "[stderr]\nTerminated\nexit code 143 (SIGTERM)"),
        ("echo ☃ é", "☃ é"),
        ("# only a comment", "(no output)"),
        ("[[ a == a* ]] && x=(1 2) && echo ${x[1]}", "2"),
    ],
)
def test_commands_of_every_shape(bench, command, expected):
    got = bench.call(shell, command=command)
    assert got == expected


@pytest.mark.parametrize("command", ["echo 'a", 'echo "a', "echo $(", "if true; then", "echo )", "}", "'; exit 0; '"])
def test_a_syntax_error_is_the_shells_own(bench, command):
    got = commands(bench, "cd /usr", command, "pwd")
    assert "line 1" in got[1] or "line 2" in got[1]
    assert "exit code" in got[1]
    assert "__os" not in got[1]
    assert got[2] == "/usr"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("trap 'echo bye' EXIT; cd /etc; exit 4", "bye\nexit code 4"),
        ("cd /etc; (trap 'echo sub' EXIT; cd /)", "sub"),
        ("trap 'echo a' 0; trap - EXIT; cd /etc", "(no output)"),
        ("trap -- 'echo q' EXIT; trap EXIT; cd /etc", "(no output)"),
        ("trap 'echo int' INT TERM; cd /etc; kill -INT $$; echo on", "int\non"),
        ("trap 'echo two' EXIT INT; cd /etc", "two"),
        ("trap '' EXIT; cd /etc", "(no output)"),
    ],
)
def test_the_commands_own_traps_run_and_cost_nothing(bench, command, expected):
    assert commands(bench, command, "pwd") == [expected, "/etc"]


def test_a_folder_that_is_gone_is_said_and_left(each_bench):
    got = commands(each_bench, "mkdir gone && cd gone && rmdir ../gone && export A=1", "pwd; echo $A", "pwd")
    assert got[1].startswith(f"{each_bench.folder}\n1\n[stderr]\nnote: the folder {each_bench.folder}/gone is gone")
    assert got[2] == str(each_bench.folder)


def test_a_poisoned_environment_does_not_break_the_shell(bench):
    got = commands(
        bench,
        "export PATH=/nowhere IFS=x; set -f; cat() { echo mine; }; mv() { echo mine; }; cd /usr",
        "pwd; ls",
        "export PATH=/usr/bin:/bin; unset IFS",
        "ls -d /usr; readonly LOCKED=1; export LOCKED",
        "echo $LOCKED; pwd",
    )
    assert got[1].startswith("/usr\n[stderr]")
    assert "exit code 127" in got[1]
    assert got[3:] == ["/usr", "1\n/usr"]


def test_a_broken_state_file_is_survived(bench):
    got = commands(
        bench,
        "export A=1; cd /usr",
        'f=$(ls -a "$TMPDIR"/.opensage-shell-*); trap "" EXIT; echo "echo \'" >"$f"; chmod 000 "$f"; exec true',
        "pwd; echo ok",
    )
    assert got[2].startswith(str(bench.folder))
    assert "ok" in got[2]


def test_set_options_end_with_their_command(bench):
    got = commands(bench, "set -x; echo hi; cd /usr", "echo plain; pwd")
    assert "+ echo hi" in got[0]
    assert "__os" not in got[0]
    assert got[1] == "plain\n/usr"


def test_a_command_larger_than_an_argument_may_be(bench):
    assert bench.call(shell, command=f"x='{'y' * 300_000}'\necho ${{#x}}") == "300000"


def test_nul_and_surrogates_in_a_command(bench):
    assert bench.call(shell, command="echo a\0b") == "ab"
    assert bench.call(shell, command="printf '%s' '\udcff' | od -An -tx1") == " ff"
    with pytest.raises(ToolError, match="empty"):
        bench.call(shell, command="  \n")


DASH_LINES = [
    ('cd /usr && export A="it\'s"', "", 0),
    ('pwd; echo "$A"; exit 3', "/usr\nit's\n", 3),
    ("echo 'unbalanced", "", 2),
    ("trap 'echo bye' EXIT; cd /etc; exit 4", "bye\n", 4),
    ("pwd; trap 'echo a' 0; trap - EXIT; cd /var; set -e; false", "/etc\n", 1),
    ("pwd; set -x; cd /", "/var\n", 0),
    ("cat <<E\n$A\nE\n", "it's\n", 0),
    ("pwd; export PATH=/nowhere", "/\n", 0),
    ("pwd; cd /nope; echo on", "/\non\n", 0),
]


def test_the_same_script_in_dash(tmp_path):
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("cat", "mv"):
        (tools / name).symlink_to(shutil.which(name))
    environment = {"PATH": str(tools), "TMPDIR": str(tmp_path), PRELUDE_VARIABLE: prelude("t")}
    for command, expected, code in DASH_LINES:
        done = subprocess.run(
            [shutil.which("dash"), "-c", LAUNCH],
            input=command.encode(),
            env=environment,
            cwd=tmp_path,
            capture_output=True,
        )
        assert (done.stdout.decode(), done.returncode) == (expected, code), command
        assert b"__os" not in done.stderr


# --- limits ---


def test_probe_b6_a_failing_grep_is_data(bench):
    async def work(ctx):
        lines = ["grep nothing /etc/passwd", *["pwd"] * 9]
        return await asyncio.gather(*(shell.invoke({"command": line}, ctx) for line in lines))

    got = bench.run(work)
    assert got == ["exit code 1", *[str(bench.folder)] * 9]


@pytest.mark.parametrize("timeout", [-1, 0, float("nan"), float("-inf"), "-1", "nan"])
def test_probe_h9_a_senseless_timeout_is_replaced_and_said(bench, timeout):
    got = bench.call(shell, command="echo ran", timeout=timeout)
    assert "is no time limit, 120 s was used]\nran" in got


@pytest.mark.parametrize("timeout", [1e9, float("inf"), "1e9"])
def test_probe_h9_a_huge_timeout_is_reduced(bench, timeout):
    assert "reduced to 3600 s" in bench.call(shell, command="echo ran", timeout=timeout)


@pytest.mark.parametrize("timeout", ["abc", [], {}])
def test_probe_h9_a_timeout_that_is_no_number_is_explained(bench, timeout):
    with pytest.raises(ToolError, match=r"'timeout': Input should be a valid number.*Example arguments"):
        bench.call(shell, command="echo ran", timeout=timeout)


def test_probe_h9_endless_output_is_bounded_and_ends(bench):
    start = time.monotonic()
    got = bench.call(shell, command="yes", timeout=1)
    assert time.monotonic() - start < 8
    assert len(got) < 2_000_000
    assert "timed out after 1 s, the processes were killed; run long things with background=true" in got


def test_probe_h10_the_tree_dies_at_the_timeout(each_bench):
    got = each_bench.call(shell, command="sleep 987.125 & sleep 987.125; wait", timeout=0.5)
    after = re.match(r"timed out after ([\d.]+) s", got)
    assert after is not None
    assert 0.5 <= float(after[1]) < 2.5
    assert gone("987.125")


def test_a_cancelled_command_is_killed(bench):
    async def work(ctx):
        running = asyncio.ensure_future(shell.invoke({"command": "sleep 987.25; echo no"}, ctx))
        await asyncio.sleep(0.5)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    bench.run(work)
    assert gone("987.25")


# --- background tasks ---


def test_background_tasks_from_start_to_end(each_bench):
    async def work(ctx):
        async def call(tool, **arguments):
            return await tool.invoke(arguments, ctx)

        assert await call(tasks) == "no background tasks"
        await call(shell, command="cd /usr; export A=1")
        started = await call(shell, command="echo $A $PWD; cd /; sleep 2; echo end; exit 5", background=True)
        assert started.startswith("started t1.")
        assert await call(shell, command="pwd") == "/usr"
        assert "t1  running" in await call(tasks)
        first = await call(task_wait, id="t1", timeout=20)
        assert "1 /usr\nend\n[t1: exit code 5" in first
        assert (await call(task_output, id="1")).startswith("(no new output)\n[t1: exit code 5")
        assert (await call(task_output, id="T1", lines=1)).startswith("end\n")
        assert "t1  exit code 5" in await call(tasks)
        assert "had ended already" in await call(task_kill, id="t1")
        assert await call(shell, command="pwd") == "/usr"  # the task's own cd is its own

    each_bench.run(work)


def test_a_killed_task_takes_its_children_along(each_bench):
    async def work(ctx):
        command = "echo up; sleep 987.375 & (sleep 987.375; true) & setsid sleep 987.375 & wait"
        await shell.invoke({"command": command, "background": True}, ctx)
        while "up" not in await task_output.invoke({"id": "t1"}, ctx):
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
        assert alive("987.375") >= 3
        assert "[t1: killed" in await task_kill.invoke({"id": "t1"}, ctx)
        assert gone("987.375")

    each_bench.run(work)


def test_closing_the_table_kills_all(bench):
    async def work(ctx):
        for _ in range(3):
            await shell.invoke({"command": "sleep 987.5", "background": True}, ctx)
        await asyncio.sleep(0.4)
        assert alive("987.5")
        table = ctx.state["tasks"]
        await table.close()
        await table.close()
        assert {task.status for task in table} == {"killed"}
        assert gone("987.5")

    bench.run(work)


def test_the_end_of_the_loop_kills_tasks_too(bench):
    async def main():
        from opensage.sandbox import open_sandbox
        from opensage.tools import ToolContext

        ctx = ToolContext(open_sandbox("local", bench.folder), bench.folder)
        await shell.invoke({"command": "sleep 987.625", "background": True}, ctx)
        await asyncio.sleep(0.4)
        return ctx

    ctx = asyncio.run(main())
    assert gone("987.625")
    asyncio.run(ctx.sandbox.close())


def test_task_output_is_bounded_and_says_what_was_dropped():
    async def main():
        table = TaskTable()

        async def start(hook):
            for _ in range(40):
                hook("stdout", b"x" * (BUFFER // 20))
            hook("stderr", b"\nlast\n")
            return ExecResult(0, "", "")

        task = table.start("x", start)
        await task.wait(5)
        first = task.new_output()
        assert first.startswith(f"[{BUFFER // 20 * 40 + 6 - BUFFER} bytes of older output were dropped]\n")
        assert "more bytes: call task_output again]" in first
        assert len(first) < 50_000
        assert task.last_lines(1) == "last"
        assert task.new_output() == ""

    asyncio.run(main())


def test_characters_split_between_two_reads_stay_whole(bench):
    async def work(ctx):
        command = r"printf 'a\342'; sleep 0.4; printf '\230\203b'; printf '\377'; sleep 30"
        await shell.invoke({"command": command, "background": True}, ctx)
        got = []
        for _ in range(60):
            output = await task_output.invoke({"id": "t1"}, ctx)
            got.append("" if output.startswith("(no") else output.rpartition("\n")[0])
            if "�" in "".join(got):
                break
            await asyncio.sleep(0.05)
        assert "".join(got) == "a☃b�"

    bench.run(work)


def test_senseless_waits_ids_and_counts(bench):
    async def work(ctx):
        with pytest.raises(ToolError, match="no task 't9'; tasks: none"):
            await task_output.invoke({"id": "t9"}, ctx)
        for _ in range(MAX_RUNNING):
            await shell.invoke({"command": "sleep 30", "background": True}, ctx)
        with pytest.raises(ToolError, match="task_kill"):
            await shell.invoke({"command": "sleep 30", "background": True}, ctx)
        for timeout in (-1, 0, float("nan"), "0.05"):
            assert "running" in await task_wait.invoke({"id": f"t{MAX_RUNNING}", "timeout": timeout}, ctx)
        assert "running" in await task_output.invoke({"id": "t1", "lines": -5}, ctx)

    bench.run(work)


def test_old_ended_tasks_are_forgotten():
    async def main():
        table = TaskTable()

        async def start(hook):
            return ExecResult(0, "", "")

        for _ in range(200):
            task = table.start("x", start)
            await task.wait(5)
        return len(list(table)), task.id

    count, last = asyncio.run(main())
    assert count < 80
    assert last == "t200"


def test_a_task_whose_sandbox_refuses_is_reported():
    async def main():
        table = TaskTable()

        async def start(hook):
            raise OSError("no more processes")

        task = table.start("x", start)
        await task.wait(5)
        return task.status

    assert asyncio.run(main()) == "failed: no more processes"


def test_the_caller_sees_no_keys(each_bench, monkeypatch):
    monkeypatch.setitem(os.environ, "SOME_SECRET_KEY", "s3cret")
    assert "s3cret" not in each_bench.call(shell, command="env; export -p")
