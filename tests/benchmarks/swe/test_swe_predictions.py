"""Predictions in every form that other graders take; opening a source and choosing among its tasks."""

from __future__ import annotations

import json
import stat
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opensage_benchmarks.swe.errors import TaskError
from opensage_benchmarks.swe.opening import kinds, open_source, select
from opensage_benchmarks.swe.predictions import (
    Prediction,
    export,
    finished,
    gold,
    read_predictions,
    write_predictions,
)
from opensage_benchmarks.swe.task import Task

PATCH = "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\r\n+y\r\n"
TASKS = [Task("a__b-1", "", patch=PATCH), Task("a__b-2", "", patch=""), Task("c", "")]
ONE = {"instance_id": "a__b-1", "model_name_or_path": "org/m", "model_patch": PATCH}
NULL = {"instance_id": "a__b-2", "model_name_or_path": "org/m", "model_patch": None}
MADE = [Prediction("a__b-1", PATCH, "org/m"), Prediction("a__b-2", "", "org/m")]


def put(path, name, value):
    file = path / name
    whole = name.endswith(".json")
    file.write_text(json.dumps(value) if whole else "".join(json.dumps(each) + "\n" for each in value))
    return file


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("p.jsonl", [ONE, NULL]),
        ("p.json", [ONE, NULL]),
        ("p.json", {"a__b-1": ONE, "a__b-2": NULL}),
        ("p.json", {"a__b-1": ONE, "a__b-2": {**NULL, "model_patch": " \n"}}),
        ("p.json", [{"instance_id": each.id, "patch": each.patch, "prefix": "org/m"} for each in MADE]),
    ],
)
def test_every_container_says_the_same(tmp_path, name, value):
    read = read_predictions(put(tmp_path, name, value), TASKS)
    assert list(read.by_id.values()) == MADE
    assert read.unknown == ()


def test_ids_of_no_task_are_listed(tmp_path):
    read = read_predictions(put(tmp_path, "p.jsonl", [ONE, {**ONE, "instance_id": "z"}]), TASKS)
    assert (list(read.by_id), read.unknown) == (["a__b-1"], ("z",))


def test_gold_is_the_references():
    assert read_predictions("gold", TASKS).by_id == gold(TASKS)
    assert gold(TASKS)["a__b-1"] == Prediction("a__b-1", PATCH, "gold")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.jsonl", b'{"instance_id": "a"}\n{', r"p\.jsonl:2: is no JSON"),
        ("p.jsonl", json.dumps(ONE).encode() * 2, r"p\.jsonl:1: is no JSON"),
        (
            "p.jsonl",
            f"{json.dumps(ONE)}\n{json.dumps(ONE)}\n".encode(),
            r"jsonl:2: a prediction for a__b-1 is at .*jsonl:1 too",
        ),
        ("p.jsonl", b'{"model_patch": ""}\n', r"p\.jsonl:1: instance_id is missing"),
        ("p.jsonl", b'{"instance_id": "a", "model_patch": 3}', r"p\.jsonl:1: model_patch must be text"),
        ("p.json", b'{"a": {"model_patch": ""}}', "p.json: a: instance_id is missing"),
        ("p.json", b'{"a": {"instance_id": "b"}}', "key and instance_id must be the same"),
        ("p.json", b'{"a": {"instance_id": "a"}, "a": {"instance_id": "a"}}', "key 'a' is there twice"),
        ("p.json", json.dumps(ONE).encode(), "is no JSON object; each prediction is one"),
        ("p.json", b'["a"]', "is no JSON object"),
        ("p.json", b"3", "predictions are a list"),
        ("p.json", b'[\n{"instance_id"', r"p\.json:2: is no JSON"),
        ("p.json", b"\xff", "cannot be read"),
        ("p.json", b'[{"instance_id": "../../x\\n"}]', "is no id"),
        ("p.txt", b"", "predictions are in a .json or .jsonl file"),
        ("none.json", None, "cannot be read"),
    ],
)
def test_predictions_that_are_none(tmp_path, name, content, said):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TaskError, match=said):
        read_predictions(tmp_path / name, TASKS)


@given(st.text(st.characters(codec="utf-8")))
def test_a_patch_ends_in_a_newline_and_is_otherwise_untouched(text):
    patch = finished(text)
    assert patch in (("",) if not text.strip() else (text, text + "\n"))
    assert not patch or patch.endswith("\n")


@pytest.mark.parametrize(
    ("format", "name"),
    [("swebench", "p.jsonl"), ("swebench", "p.json"), ("swebench-dict", "p.json"), ("swebench-pro", "p.json")],
)
def test_what_is_exported_is_read_again(tmp_path, format, name):
    odd = Prediction("c", "-\u2028\udce9\r\n", "m")
    export(tmp_path / name, [*MADE, odd], format)
    assert list(read_predictions(tmp_path / name, TASKS).by_id.values()) == [*MADE, odd]
    assert (tmp_path / name).read_bytes().isascii()
    if format == "swebench-pro":
        assert json.loads((tmp_path / name).read_text())[0] == {
            "instance_id": "a__b-1",
            "patch": PATCH,
            "prefix": "org/m",
        }


@pytest.mark.parametrize(
    ("format", "name", "said"),
    [
        ("nemo", "p.json", "no format"),
        ("swebench-pro", "p.jsonl", "go into a file .json"),
        ("swebench", "x/p.json", "cannot be written"),
    ],
)
def test_an_export_that_cannot_be(tmp_path, format, name, said):
    with pytest.raises(TaskError, match=said):
        export(tmp_path / name, MADE, format)


def test_preds_json_is_whole_at_every_moment(tmp_path):
    file, done, seen = tmp_path / "preds.json", threading.Event(), []
    write_predictions(file, [])

    def look():
        while not done.is_set():
            seen.append(len(json.loads(file.read_bytes())))

    reader = threading.Thread(target=look)
    reader.start()
    for count in range(200):
        write_predictions(file, [Prediction(f"t{n}", PATCH * 20, "m") for n in range(count)])
    done.set()
    reader.join()
    assert seen == sorted(seen)
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["preds.json"]


# Opening and choosing.


def test_a_source_is_told_by_its_path_or_named(tmp_path):
    records = {
        "swebench": {"instance_id": "a"},
        "swebench-pro": {"instance_id": "a", "requirements": "", "interface": ""},
        "humaneval": {"task_id": "a", "prompt": "p", "canonical_solution": "", "entry_point": "f", "test": ""},
        "humanevalfix": {
            "prompt": "p",
            "canonical_solution": "",
            "entry_point": "f",
            "test": "",
            "declaration": "",
            "buggy_solution": "",
        },
        "mbpp": {"task_id": 1, "code": "", "test_list": []},
    }
    for kind, record in records.items():
        file = put(tmp_path, f"{kind}.jsonl", [record])
        for source in (open_source(file), open_source(f"{kind}:{file}"), open_source(str(file), kind=kind)):
            assert source.name == kind
    assert set(kinds()) == {*records, "quixbugs", "polyglot"}
    for folder in ("python_programs", "correct_python_programs"):
        (tmp_path / "q" / folder).mkdir(parents=True)
    assert open_source(tmp_path / "q").name == "quixbugs"
    (tmp_path / "e" / "x" / ".meta").mkdir(parents=True)
    (tmp_path / "e" / "x" / ".meta" / "example.py").touch()
    assert open_source(tmp_path / "e").name == "polyglot"


def test_a_source_that_cannot_be_opened(tmp_path):
    file = put(tmp_path, "x.jsonl", [{"strange": 1}])
    for text, options, said in (
        (tmp_path / "none.jsonl", {}, "no such file or folder"),
        ("quixbugs", {}, "yours to give: quixbugs:PATH"),
        (file, {}, "KIND one of humaneval, .*strange"),
        (tmp_path, {}, "KIND:PATH"),
        (file, {"kind": "swe"}, "no source 'swe'; there are humaneval"),
        (file, {"kind": "mbpp", "hints": True}, "have no option hints"),
    ):
        with pytest.raises(TaskError, match=said):
            open_source(text, **options)
    assert open_source(file, kind="mbpp", hints=False, repos=None).name == "mbpp"


MANY = [Task(f"t{n}", "") for n in range(10)]


def ids(**how):
    return [task.id for task in select(MANY, **how)]


def test_choices():
    assert ids() == [task.id for task in MANY]
    assert ids(filter="t[12]") == ["t1", "t2"]
    assert ids(filter="2") == []
    assert ids(slice="0:2") == ids(slice=":2") == ["t0", "t1"]
    assert ids(slice="-2:") == ["t8", "t9"]
    assert ids(slice="9:20") == ["t9"]
    assert ids(ids=["t3", "t1"]) == ["t1", "t3"]
    assert ids(ids=["t1", "t2", "t3"], filter="t[23]", slice="1:") == ["t3"]


def test_a_shuffle_hangs_on_its_seed_alone():
    drawn = ids(shuffle=True, seed=7)
    assert sorted(drawn) == ids()
    assert drawn != ids()
    assert drawn == [task.id for task in select(MANY[::-1], shuffle=True, seed=7)]
    assert drawn != ids(shuffle=True, seed=8)
    assert ids(shuffle=True, seed=7, slice=":3") == drawn[:3]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"filter": "["}, "is no regular expression"),
        ({"slice": "5"}, "write A:B"),
        ({"slice": "a:b"}, "write A:B"),
        ({"slice": "1:2:0"}, "write A:B"),
        ({"slice": "1:2:3:4"}, "write A:B"),
        ({"ids": ["t99"]}, "no task t99; did you mean t9"),
    ],
)
def test_a_choice_that_is_none(how, said):
    with pytest.raises(TaskError, match=said):
        select(MANY, **how)
