"""`opensage judge`: files, collecting, reports, alignment, the agent."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import opensage
from opensage.cli.main import main
from opensage.models import ScriptedModel
from opensage.topology.library import find_agent
from opensage_agents.judge_irt import (
    JUDGE_TOOLS,
    Bounds,
    Plan,
    ScoreError,
    align,
    collect,
    diagnose,
    fit_file,
    fitting,
    read_items,
    read_scores,
    score_in,
    wordings,
)
from opensage_agents.judge_irt.alignment import wasserstein
from opensage_agents.judge_irt.perturb import TEMPLATE, with_newlines, with_typos
from opensage_agents.judge_irt.scores import coded
from opensage_benchmarks.judge_irt import real
from opensage_benchmarks.judge_irt.simulate import scores_of

HEAD = ["judge", "criterion", "sample_id", "variant", "score"]
JUDGE = (
    "def reply(request):\n    text = request['messages'][-1]['content']\n    return {'text': str(1 + len(text) % 5)}\n"
)


def _write(path: Path, scores: np.ndarray, judge: str = "m", names: str = "v") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEAD)
        for j, row in enumerate(scores):
            writer.writerows([judge, "coherence", f"s{j}", f"{names}{p}", int(score)] for p, score in enumerate(row))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("judge")
    _write(found / "scores.csv", scores_of(800, [2.5] * 4, 0)[1])
    _write(found / "people.csv", scores_of(800, [2.0] * 3, 0)[1], "people", "rater")
    _write(found / "bad.csv", scores_of(200, [0.5] * 4, 0)[1])
    return found


def test_fit_report_and_pictures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "report.json"
    assert main(["judge", "fit", str(folder / "scores.csv"), "--out", str(out)]) == 0
    assert "pass" in capsys.readouterr().out
    report = json.loads(out.read_text())
    (row,) = report["judges"]
    assert (report["schema"], row["verdict"]) == ("opensage-judge-report/1", "pass")
    assert row["counts"] == {"samples": 800, "dropped": 0, "variants": 4, "scores": 3200, "missing": 0}
    words = ["judge", "report", str(out), "--html", str(folder / "r.html"), "--plot", str(folder / "r.png"), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == report
    page = (folder / "r.html").read_text()
    assert page.count("<svg") == 1
    assert "http" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    ).replace("https://matplotlib.org", "")
    assert (folder / "r.png").read_bytes()[:4] == b"\x89PNG"
    assert main(["judge", "report", str(out), "--plot", str(folder / "r.txt")]) == 2
    assert main(["judge", "report", str(folder / "scores.csv")]) == 2


def test_align_is_gated_unless_forced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = str(folder / "people.csv")
    assert main(["judge", "align", str(folder / "scores.csv"), people, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert (row["status"], sorted(row["ranges_human"])) == (
        "aligned",
        ["people rater0", "people rater1", "people rater2"],
    )
    assert 0.8 < row["ratio"] < 1.4
    assert any("shape" in text for text in row["warnings"])
    for words, status in (([], "gated"), (["--force"], "forced")):
        assert main(["judge", "align", str(folder / "bad.csv"), people, "--json", *words]) == 0
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert (row["status"], row["ratio"] is None, row["distance"] is None) == (status, not words, not words)


def test_alignment_on_one_scale_sees_a_shift() -> None:
    theta, judge = scores_of(800, [2.5] * 4, 3)
    mean = np.clip(np.round(theta * 1.2 + 3), 1, 5)
    one = align(judge, mean, n_categories=5)
    linked = align(judge, scores_of(800, [2.0] * 3, 3)[1], linked=True)
    assert one.status == "aligned"
    assert (one.spearman or 0) > 0.8
    assert linked.linked
    assert 0 <= (9 if linked.distance is None else linked.distance) < 0.15
    assert wasserstein(np.array([0.0, 1.0]), np.array([2.0, 3.0, 2.0, 3.0])) == pytest.approx(2.0)


def test_files_of_the_command_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = _write(tmp_path / "good.csv", scores_of(40, [2.0] * 3, 0)[1]).read_text()
    cases = {
        "score 2.5 is not a whole": good + "m,coherence,s90,v0,2.5\n",
        "line 122, column score: 'x' is no number": good + "m,coherence,s90,v0,x\n",
        "outside 1..K": good + "m,coherence,s90,v0,0\n",
        "is there twice (first in line 2)": good + "m,coherence,s0,v0,2\n",
        "no column 'score'": good.replace("score", "points"),
        "3 fields, the header has 5": good + "a,b,c\n",
        "holds no scores": "judge,criterion,sample_id,variant,score\n",
        "two columns have the same name": "a,a\n1,2\n",
        "at least 2 are needed": "\n".join(line for line in good.splitlines() if "v1" not in line and "v2" not in line),
    }
    for message, text in cases.items():
        (tmp_path / "x.csv").write_text(text)
        assert main(["judge", "fit", str(tmp_path / "x.csv")]) == 2
        assert message in capsys.readouterr().err.replace("\n", " "), message
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe")
    assert main(["judge", "fit", str(tmp_path / "x.csv")]) == 2
    assert main(["judge", "fit", str(tmp_path / "none.csv")]) == 2
    capsys.readouterr()
    other = good.replace(",s", ",t").replace(",tcore", ",score").replace("tample_id", "sample_id")
    (tmp_path / "x.csv").write_text(other)
    assert main(["judge", "align", str(tmp_path / "good.csv"), str(tmp_path / "x.csv")]) == 2
    assert "the judge has 40, the people have 40" in capsys.readouterr().err.replace("\n", " ")


def test_a_wide_file_and_missing_scores(tmp_path: Path) -> None:
    text = "\ufeffsample_id;one;two\na;1;2\nb;;3\nc;NA;nan\nd;2;1\n"
    (tmp_path / "w.csv").write_text(text, encoding="utf-8")
    (data,) = read_scores(tmp_path / "w.csv", wide=True).tables(3).values()
    assert (data.ids, data.dropped, data.levels.tolist()) == (("a", "b", "d"), 1, [[1, 2], [0, 3], [2, 1]])


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("4", 4), ("**4**", 4), ("Score: 4", 4), ("4/5", 4), ('{"score": 4}', 4), ("I give 4 out of 5.", 4), ("3 or 4", None),
        ("4.5", None), ("9", None), ("", None), ("good", None), ("-3", None), ("Rating: 2\nI saw 3 errors", 2),
    ],
)  # fmt: skip
def test_scores_in_replies(reply: str, score: int | None) -> None:
    assert score_in(reply, 5) == score


def test_wordings_differ_and_keep_what_is_filled_in() -> None:
    found = wordings(seed=3)
    assert len(set(found.values())) == 4
    assert wordings(seed=3) == found
    assert with_typos(TEMPLATE, 1) != with_typos(TEMPLATE, 2)
    assert sorted(with_typos(TEMPLATE)) == sorted(TEMPLATE)
    assert sum(a != b for a, b in zip(TEMPLATE, with_typos(TEMPLATE), strict=True)) == 10
    assert with_newlines(TEMPLATE).count("\n") == 3
    assert with_newlines(TEMPLATE).split() == TEMPLATE.split()
    for text in found.values():
        assert (text.count("{criterion}"), text.count("{levels}")) == (1, 2)
    for bad in ({"names": ("original", "rhyme")}, {"names": ("original",)}, {"template": "Rate it 1 to {levels}."}):
        with pytest.raises(ScoreError):
            wordings(**bad)  # type: ignore[arg-type]
    with pytest.raises(ScoreError, match="the scale"):
        wordings("Rate the answer with care", ("original", "typo"))


def test_collecting_stops_goes_on_and_asks_nothing_twice(tmp_path: Path) -> None:
    items = read_items()[:3]
    plan = Plan(items, wordings(names=("original", "typo")))
    model = ScriptedModel([{"repeat": {"text": "4", "usage": {"input_tokens": 9, "output_tokens": 1}}, "times": 6}])
    out = tmp_path / "deep" / "scores.jsonl"
    first = collect([model], plan, out, Bounds(max_calls=4))
    assert (first.asked, first.tokens, first.stopped[:9]) == (4, 40, "max_calls")
    with out.open("ab") as file:
        file.write(b'{"judge": "scr')  # died while writing
    second = collect([model], plan, out, workers=2)
    assert (second.asked, second.known, second.stopped) == (2, 4, "")
    assert collect([model], plan, out).known == 6
    assert len(model.requests) == 6
    texts = [request["messages"][1]["content"] for request in model.requests]
    assert len(set(texts)) == 3  # the sample is the same in each wording
    assert len({request["messages"][0]["content"] for request in model.requests}) == 2
    (data,) = read_scores(out).tables(5, drop_constant=True, least=0).values()
    assert len(data.left_out) == 2
    with pytest.raises(ScoreError, match="another criterion, scale or wording"):
        collect([model], Plan(items, plan.wordings, levels=7), out)
    with pytest.raises(ScoreError, match="each once"):
        collect([model, model], plan, out)
    out.write_text(out.read_text() + "[]\n")
    with pytest.raises(ScoreError, match="line 8 is damaged"):
        collect([model], plan, out)


def test_collect_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "judge.py").write_text(JUDGE)
    words = ["judge", "collect", "--model", f"script:{tmp_path}/judge.py", "--out", str(tmp_path / "s.jsonl")]
    assert main([*words, "--max-calls", "10"]) == 1
    assert "the same command goes on" in capsys.readouterr().err
    assert main(words) == 0
    assert "150 asked, 10 known before" in capsys.readouterr().out
    assert main(["judge", "collect"]) == 2
    (tmp_path / "items.jsonl").write_text('{"id": "a", "question": "q"}\n')
    assert main(["judge", "collect", str(tmp_path / "items.jsonl"), *words[2:]]) == 2
    assert "line 1: an object with the texts" in capsys.readouterr().err.replace("\n", " ")


def test_the_shipped_items_are_balanced() -> None:
    items = read_items()
    assert len(items) == 40
    assert [sum(item.grade == grade for item in items) for grade in range(1, 6)] == [8] * 5


def test_the_real_run_with_a_scripted_judge(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "judge.py").write_text(
        JUDGE.replace("len(text)", "(len(text) + len(request['messages'][0]['content']) // 300)")
    )
    (tmp_path / "flat.py").write_text("def reply(request):\n    return {'text': '3'}\n")
    models = [f"script:{tmp_path}/{name}.py" for name in ("judge", "flat")]
    code = real.main(["--models", *models, "--out", str(tmp_path / "out")])
    result = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [row["counts"]["samples"] for row in result["judges"]] == [40]
    assert len(result["refused"]) == 1
    assert result["alignment"][0]["status"] in ("aligned", "forced")


def test_agents_can_call_it(folder: Path) -> None:
    calls = [{"name": "diagnose_judges", "arguments": {"path": name}} for name in ("scores.csv", "none.csv")]
    model = ScriptedModel([{"tool_calls": calls}, {"text": "done"}])
    result = opensage.run("judge", model=model, tools=JUDGE_TOOLS, workdir=folder, sandbox="bubblewrap", memory=False)
    answers = [event.text for event in result.events if event.type == "tool.result"]
    wrong, right = sorted(answers, key=lambda text: text.startswith("["))
    assert json.loads(right)[0]["verdict"] == "pass"
    assert "none.csv cannot be read" in wrong


def test_the_agent_leaves_a_report(folder: Path) -> None:
    result = opensage.run(
        "Diagnose scores.csv against people.csv", agent=find_agent("judge_irt", folder), model=ScriptedModel([]),
        workdir=folder, sandbox="bubblewrap", approve="allow", memory=False,
    )  # fmt: skip
    assert result.status == "done", result.reason
    assert "m / coherence: pass" in result.text
    assert json.loads((folder / "scores.report.json").read_text())["alignment"][0]["status"] == "aligned"
    assert result.usage["model_calls"] == 0


def test_what_was_dropped_is_counted_in_the_report(tmp_path: Path) -> None:
    rows = [[*row, "3"] for row in scores_of(60, [2.5] * 3, 0)[1].astype(int).astype(str)]
    (tmp_path / "w.csv").write_text("\n".join(",".join(row) for row in [["a", "b", "c", "flat"], *rows, [" "] * 4]))
    row = fit_file(tmp_path / "w.csv", wide=True, levels=5, drop_constant=True, chance=0)["judges"][0]
    assert (row["counts"]["samples"], row["counts"]["dropped"], row["counts"]["variants"]) == (60, 1, 3)
    told = "\n".join(row["warnings"])
    assert "variant flat gives the same score everywhere and was dropped" in told
    assert "1 samples have no score at all and were dropped" in told
    with pytest.raises(ScoreError, match=r"1 variant \(2 dropped\), at least 2 are needed"):
        diagnose(np.c_[np.arange(40) % 3 + 1, np.full(40, 2)], drop_constant=True)


def test_samples_of_one_side_alone_are_told_and_what_gets_constant_is_dropped() -> None:
    judge, people = scores_of(300, [2.5] * 3, 0)[1], scores_of(300, [2.0] * 3, 0)[1]
    odd = np.where(np.arange(300) < 200, 3.0, judge[:, 0])  # varies only in samples that people have not scored
    one = coded(np.c_[judge, odd], 5)
    other = coded(people[:200], 5, ids=one.ids[:200])
    with pytest.raises(ScoreError, match="variant 4 gives the same score everywhere"):
        align(one, other, force=True)
    found = align(one, other, force=True, drop_constant=True)
    told = "\n".join(found.warnings)
    assert found.samples == 200
    assert "only the judge (100) or only the people (0)" in told
    assert "variant 4 gives the same score everywhere and was dropped" in told


def test_a_fit_that_does_not_converge_ends_with_three(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(fitting, "MOST_ITERATIONS", 2)
    out = folder / "early.json"
    assert main(["judge", "fit", str(folder / "scores.csv"), "--chance", "0", "--out", str(out)]) == 3
    assert "not_converged" in capsys.readouterr().out
    assert main(["judge", "report", str(out)]) == 3
    people = str(folder / "people.csv")
    assert main(["judge", "align", str(folder / "scores.csv"), people, "--json"]) == 3
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"][0]["ratio"] is None
