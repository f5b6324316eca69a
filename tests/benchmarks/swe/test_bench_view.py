"""Looking at runs: folders that the real runner wrote, broken ones, the page, the inspector under real keys."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
from test_bench_run import go, nothing_is_left  # noqa: F401 the fixture holds for each test here too

from opensage.log.events import UserMessage
from opensage.log.session import Session
from opensage_benchmarks.swe.errors import BenchError
from opensage_benchmarks.swe.view import view
from opensage_benchmarks.swe.view.page import write_page
from opensage_benchmarks.swe.view.rows import read_rows, the_one
from opensage_benchmarks.swe.view.screen import Inspector
from opensage_benchmarks.swe.view.steps import TEXT, read_steps

HOSTILE = '\x1b[2J</script><script>alert("x")</script><!--\x07\u202e\u2028\x00 \ud800 &lt;'
CALL = {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls\\npwd"}'}}
MESSAGES = [
    {"role": "system", "content": "Be good."},
    {"role": "user", "content": "Make x two."},
    {"role": "assistant", "content": "I look first.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "\n".join(f"line {n}" for n in range(60))},
    {"role": "assistant", "content": HOSTILE},
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two tasks of the real runner, the first graded as resolved, with a trajectory written over what agents said."""
    out = tmp_path_factory.mktemp("view") / "out"
    go(out, 2, agent="gold", workers=1, grade=lambda task, folder: task.id.endswith("00"))
    told(out, "toy__t-00", MESSAGES)
    return out


@pytest.fixture
def run(made, tmp_path):
    return shutil.copytree(made, tmp_path / "out")


def told(out, name, messages, **more):
    folder = out / name
    folder.mkdir(exist_ok=True, parents=True)
    (folder / f"{name}.traj.json").write_text(json.dumps({"info": {}, "messages": messages, **more}))


def texts(row):
    return "\n".join(f"{step.kind} {step.title}: {step.text}" for step in read_steps(row))


def cli(*words, **env):
    clean = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "BENCH_TEST") if name in os.environ}
    command = [
        sys.executable,
        "-c",
        "import sys; from opensage.cli.main import main; sys.exit(main())",
        "bench",
        "view",
        *map(str, words),
    ]
    return subprocess.run(command, capture_output=True, text=True, env=clean | env, stdin=subprocess.DEVNULL)


# --- rows and steps -------------------------------------------------------------------------------------------------


def test_rows_hold_what_the_runner_recorded(run):
    first, second = read_rows(run)
    assert (first.id, first.status, first.resolved, first.patch_lines) == ("toy__t-00", "done", True, 2)
    assert (second.verdict, second.tokens, second.calls) == ("no", 0, 0)
    assert first.seconds > 0


def test_steps_are_in_order_and_clean(run):
    steps = read_steps(read_rows(run)[0])
    assert [step.kind for step in steps] == ["system", "task", "assistant", "call", "result", "assistant", "patch"]
    assert steps[3].text == "command:\nls\npwd"
    assert steps[4].title == "shell"
    assert not re.search(r"[\x00-\x08\x1b\u202e\ud800]", texts(read_rows(run)[0]))


def test_one_task_by_a_part_of_its_id(run):
    rows = read_rows(run)
    assert the_one(rows, "t-01") is rows[1]
    with pytest.raises(BenchError, match="2 tasks have 'toy'"):
        the_one(rows, "toy")
    with pytest.raises(BenchError, match="no task has 'nope'"):
        the_one(rows, "nope")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (b'{"messages": [{"role": "us', "cannot be read"),
        (b"[" * 200_000, "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"{}", "holds no messages"),
        (b'{"messages": {"a": 1}}', "holds no messages"),
        (b'{"messages": [1, null, {"role": 3}, {"role": "assistant", "tool_calls": [7, {"function": 1}]}]}', "is none"),
        (None, "there is no trajectory"),
    ],
)
def test_a_broken_trajectory_is_a_step_that_says_so(run, damage, said):
    path = run / "toy__t-00" / "toy__t-00.traj.json"
    path.unlink()
    if damage is not None:
        path.write_bytes(damage)
    row = read_rows(run)[0]
    assert said in texts(row)
    assert read_steps(row)[-1].kind == "patch"


def test_a_pipe_in_place_of_a_trajectory_is_not_waited_for(run):
    path = run / "toy__t-00" / "toy__t-00.traj.json"
    path.unlink()
    os.mkfifo(path)
    assert "not a regular file" in texts(read_rows(run)[0])


def test_without_a_trajectory_the_log_of_the_session_is_read(run, tmp_path):
    session = Session(tmp_path / "work", "s1", create=True)
    session.record(UserMessage(text="what was asked"))
    session.close()
    (run / "toy__t-00" / "toy__t-00.traj.json").unlink()
    target = run / "toy__t-00" / "session"
    target.mkdir()
    for path in (tmp_path / "work").rglob("*.jsonl"):
        (target / path.name).write_bytes(path.read_bytes() + b'{"torn')
    found = texts(read_rows(run)[0])
    assert "from the log of the session" in found
    assert "what was asked" in found


def test_a_huge_trajectory_is_read_and_cut(run):
    told(run, "toy__t-00", [{"role": "user", "content": "begin " + "x" * 50_000_000 + " end"}])
    began = time.process_time()
    step = read_steps(read_rows(run)[0])[0]
    assert step.text.startswith("begin")
    assert step.text.endswith("end")
    assert "characters left out" in step.text
    assert len(step.text) < TEXT + 100
    assert time.process_time() - began < 5


def test_hostile_records_do_no_harm(run):
    lines = (run / "status.jsonl").read_text().splitlines()
    record = json.loads(lines[0])
    bad = [{**record, "id": [1]}, {**record, "id": "../../etc", "cost": "much", "wall_s": 10**400, "status": HOSTILE}]
    (run / "status.jsonl").write_text("\n".join([*lines, *map(json.dumps, bad), "null", '{"torn']))
    rows = read_rows(run)
    assert [row.id for row in rows] == ["toy__t-00", "toy__t-01", "../../etc"]
    assert rows[2].folder == run / "..__..__etc"
    assert (rows[2].cost, rows[2].seconds) == (None, None)
    assert "\x1b" not in rows[2].status


def test_a_run_that_goes_on(run):
    whole = json.loads((run / "run.json").read_text())
    whole["runs"][-1]["tasks"] += ["a/b", "c"]
    (run / "run.json").write_text(json.dumps(whole))
    (run / ".work" / "a__b").mkdir(parents=True)
    (run / ".work" / "a__b" / "log.txt").write_text("so far\n")
    rows = read_rows(run)
    assert [(row.id, row.status) for row in rows[2:]] == [("a/b", "running"), ("c", "not started")]
    assert "no trajectory yet" in texts(rows[2])
    assert "so far" in texts(rows[2])


def test_summaries_and_reports_tell_what_is_resolved(run):
    records = [json.loads(line) for line in (run / "status.jsonl").read_text().splitlines()]
    (run / "status.jsonl").write_text("".join(json.dumps({**each, "resolved": None}) + "\n" for each in records))
    assert [row.resolved for row in read_rows(run)] == [None, None]
    (run / "m.local.json").write_text(json.dumps({"resolved_ids": ["toy__t-01"], "submitted_ids": ["toy__t-00", 7]}))
    assert [row.resolved for row in read_rows(run)] == [False, True]
    (run / "grades").mkdir()
    lists = {"FAIL_TO_PASS": {"success": [], "failure": ["test_a.py::test"]}}
    report = {"toy__t-01": {"resolved": False, "tests_status": lists}, "other": {}}
    (run / "grades" / "toy__t-01.json").write_text(json.dumps(report))
    rows = read_rows(run)
    assert rows[1].resolved is False
    assert "FAIL_TO_PASS: test_a.py::test" in texts(rows[1])


def test_a_folder_of_mini_swe_agent(tmp_path):
    out = tmp_path / "mini"
    spoken = {"object": "response", "output": [
        {"type": "message", "content": [{"type": "output_text", "text": "I think."}]},
        {"type": "function_call", "call_id": "c", "name": "bash", "arguments": '{"command": "ls"}'},
    ]}  # fmt: skip
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": [{"type": "text", "text": "Do it."}, {"type": "image_url"}]},
        spoken,
        {"type": "function_call_output", "call_id": "c", "output": "a.py"},
        {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
    ]
    info = {"exit_status": "Submitted", "submission": "+x", "model_stats": {"instance_cost": 0.5, "api_calls": 3}}
    told(out, "o__r-1", messages, info=info, trajectory_format="mini-swe-agent-1.1")
    (out / "o__r-2").mkdir()
    (out / "o__r-2" / "o__r-2.traj.json").write_text("{")
    (out / "preds.json").write_text(json.dumps({"o__r-1": {"instance_id": "o__r-1", "model_patch": "+y\n"}}))
    first, second = read_rows(out)
    assert (first.status, first.cost, first.calls, first.patch) == ("Submitted", 0.5, 3, "+y\n")
    assert "cannot be read" in second.reason
    assert [step.kind for step in read_steps(first)] == [
        "system", "task", "assistant", "call", "result", "note", "patch",
    ]  # fmt: skip
    assert "result bash: a.py" in texts(first)
    assert "Do it.\n[image_url]" in texts(first)


def test_predictions_alone(tmp_path):
    preds = tmp_path / "preds.json"
    preds.write_text(json.dumps({"a/b": {"instance_id": "a/b", "model_patch": "+x\n", "model_name_or_path": "m"}}))
    for where in (preds, tmp_path):
        (row,) = read_rows(where)
        assert (row.id, row.status, row.patch) == ("a/b", "predicted", "+x\n")
    assert "patch 1 lines" not in texts(row)
    assert texts(row).endswith("+x")


def test_nothing_there_is_one_line(tmp_path):
    found = cli(tmp_path / "none")
    assert found.returncode != 0
    assert found.stderr.count("\n") == 1
    assert "holds no benchmark run" in found.stderr
    (tmp_path / "preds.json").write_text("{")
    assert cli(tmp_path / "preds.json").stderr.count("\n") == 1


# --- plain output ---------------------------------------------------------------------------------------------------


def test_in_a_pipe_the_table_is_plain(run):
    found = cli(run, LANG="C", LC_ALL="C", NO_COLOR="1", PYTHONIOENCODING="ascii")
    assert found.returncode == 0, found.stderr
    assert re.search(r"toy__t-00 +done +yes +0 +0 +0\.0000 +\d+ +2", found.stdout)
    assert "2 tasks, 1 of 2 graded are resolved" in found.stdout
    assert "\x1b" not in found.stdout


def test_in_a_pipe_a_task_is_shown_step_by_step(run, capsys):
    view(run, "t-00")
    said = capsys.readouterr().out
    order = ["Be good.", "I look first.", "> shell", "< shell", "line 39", "... 20 more lines", "+x = 2"]
    assert [said.index(part) for part in order] == sorted(said.index(part) for part in order)
    assert "\x1b" not in said


def test_secrets_of_the_environment_are_hidden(run, tmp_path):
    told(run, "toy__t-00", [{"role": "user", "content": "the key is sk-verysecret-0123456789"}])
    page = tmp_path / "page.html"
    for words in ((run, "t-00"), (run, "--html", page)):
        found = cli(*words, OPENAI_API_KEY="sk-verysecret-0123456789")
        assert found.returncode == 0, found.stderr
        assert "verysecret" not in found.stdout
    assert "verysecret" not in page.read_text()


# --- the page -------------------------------------------------------------------------------------------------------


class Elements(html.parser.HTMLParser):
    """Every element with its attributes, and the text of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.found, self.held = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.found and self.found[-1][0] in ("script", "style") and data.strip():
            self.held.append((*self.found[-1], data))


def page_of(out, tmp_path):
    target = tmp_path / "page.html"
    write_page(target, out, read_rows(out))
    return target.read_text(encoding="utf-8")


def test_the_page_holds_texts_as_data_alone(run, tmp_path):
    told(run, "toy__t-01", [{"role": HOSTILE, "content": HOSTILE}])
    page = Elements(page_of(run, tmp_path))
    scripts = [(attrs, data) for tag, attrs, data in page.held if tag == "script"]
    assert [attrs.get("id") for attrs, _ in scripts] == ["index", "task-0", "task-1", None]
    steps = json.loads(scripts[1][1])
    assert steps[2] == ["assistant", "assistant", "I look first."]
    assert "</script><script>alert" in steps[5][2]
    assert not re.search(r"[\x00-\x08\x1b\u202e]", "".join(data for _, data in scripts[:3]))
    assert json.loads(scripts[0][1])["rows"][0][:3] == ["toy__t-00", "done", "yes"]


def test_the_page_loads_nothing_and_runs_its_own_script_alone(run, tmp_path):
    text = page_of(run, tmp_path)
    page = Elements(text)
    named = [attrs[name] for _, attrs in page.found for name in ("src", "href", "action", "data") if name in attrs]
    assert named == []
    policy = next(attrs["content"] for _, attrs in page.found if attrs.get("http-equiv") == "Content-Security-Policy")
    for tag, attrs, data in page.held:
        assert "url(" not in data or tag == "script"
        if attrs.get("type") != "application/json":
            assert base64.b64encode(hashlib.sha256(data.encode()).digest()).decode() in policy
    assert policy.startswith("default-src 'none'")


def test_the_name_of_the_folder_is_escaped(tmp_path):
    out = tmp_path / "<img src=x onerror=alert(1)>"
    told(out, "a", MESSAGES)
    assert "<img" not in page_of(out, tmp_path)


def test_the_page_of_a_big_run_is_bounded(tmp_path):
    out = tmp_path / "big"
    messages = [{"role": "user", "content": "x" * 3000} for _ in range(300)]
    for number in range(120):
        told(out, f"t-{number}", messages)
    began = time.process_time()
    text = page_of(out, tmp_path)
    assert len(text) < 60_000_000
    assert time.process_time() - began < 20
    steps = json.loads(re.search(r'id="task-5">(.*?)</script>', text)[1])
    assert len(steps) == 301 or any("left out" in step[1] + step[2] for step in steps)


def test_a_page_that_cannot_be_written_is_one_line_and_leaves_nothing(run, tmp_path):
    with pytest.raises(BenchError, match="cannot write"):
        write_page(tmp_path / "none" / "page.html", run, read_rows(run))
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises(BenchError):
        write_page(target, run, read_rows(run))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "out", "tmp"]


# --- the inspector --------------------------------------------------------------------------------------------------


def inspect(rows, *keys, chosen=None, size=(110, 40)):
    """The app after these keys, as (ids on the left, id under the cursor, what the right side shows)."""

    async def press():
        app = Inspector("out", rows, chosen)
        async with app.run_test(size=size) as pilot:
            for key in ("", *keys):
                if key:
                    await pilot.press(key)
                await pilot.pause()
                await app.workers.wait_for_complete()
                await pilot.pause()
            steps = app.query_one("#steps")
            prompts = [str(steps.get_option_at_index(at).prompt) for at in range(steps.option_count)]
            current = app._current()
            return [row.id for row in app._rows], current and current.id, prompts, app.focused.id

    return asyncio.run(press())


def test_the_inspector_lists_tasks_and_folds_steps(run):
    ids, current, prompts, focused = inspect(read_rows(run))
    assert (ids, current, focused) == (["toy__t-00", "toy__t-01"], "toy__t-00", "tasks")
    assert prompts[0].startswith("system  (1 line, Enter opens)")
    assert "line 7" in prompts[4]
    assert "line 8" not in prompts[4]
    assert "52 more lines" in prompts[4]
    assert "+x = 2" in prompts[-1]
    assert "\x1b" not in "".join(prompts)


def test_keys_move_between_tasks_and_steps(run):
    rows = read_rows(run)
    assert inspect(rows, "n")[1] == inspect(rows, "j")[1] == inspect(rows, "n", "n")[1] == "toy__t-01"
    assert inspect(rows, "n", "p")[1] == "toy__t-00"
    assert inspect(rows, "enter")[3] == "steps"
    assert inspect(rows, "enter", "escape")[3] == "tasks"
    opened = inspect(rows, *["j"] * 4, "enter", chosen=rows[0])[2]
    assert "line 59" in opened[4]
    assert "line 59" not in inspect(rows, *["j"] * 4, "enter", "enter", chosen=rows[0])[2][4]


def test_only_unresolved_and_search(run):
    rows = read_rows(run)
    assert inspect(rows, "u")[:2] == (["toy__t-01"], "toy__t-01")
    assert len(inspect(rows, "u", "u")[0]) == 2
    assert inspect(rows, "slash", *"t-01", "enter")[:2] == (["toy__t-01"], "toy__t-01")
    assert inspect(rows, "slash", *"zz")[:3] == ([], None, [])
    assert len(inspect(rows, "slash", *"zz", "escape")[0]) == 2


def test_markup_in_texts_is_text(run):
    told(run, "toy__t-00", [{"role": "user", "content": "q"}, {"role": "assistant", "content": "[red]a[/] [/b] [@x"}])
    assert "[red]a[/] [/b] [@x" in inspect(read_rows(run))[2][1]


def test_textual_is_not_imported_for_other_output(run):
    code = f"import sys; from pathlib import Path; from opensage_benchmarks.swe.view import view; view(Path({str(run)!r})); assert 'textual' not in sys.modules"
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
    )
