"""What the look-ups answer, on generated workspaces and on this repository."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest

from opensage.sandbox import open_sandbox
from opensage.toolkit import Staging, load_toolkit
from opensage_toolkits.code import tools
from opensage_toolkits.code.lookup import Lookup
from opensage_toolkits.code.repo_map import pagerank

HERE = Path(__file__).parents[3]

FILES = {
    "shop/base.py": "class Base:\n    def total(self):\n        return self.tax() + rate(1)\n\n    def tax(self):\n        return 0\n",
    "shop/rates.py": "from shop import helper\n\ndef rate(n):\n    # rate is in a comment\n    return helper.load('rate')\n",
    "shop/helper.py": "LIMIT = 3\n\ndef load(name):\n    return {name: LIMIT}\n\ndef rate(n):\n    return n\n",
    "main.py": (
        "from shop.base import Base\nfrom shop.rates import rate\n\nclass Shop(Base):\n    def __init__(self):\n        self.x = rate(2)\n\n"
        "    def tax(self):\n        return rate(3)\n\ndef main():\n    return Shop().total()\n\ndef lonely():\n    pass\n"
    ),
    "web/app.js": "import { rate } from './rate';\nexport function main() { return rate(1); }\n",
    "web/rate.js": "export function rate(x) { return x; }\n",
}


@pytest.fixture
def found(tmp_path):
    root = tmp_path / "work"
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    with Lookup(root, tmp_path / "index.sqlite") as lookup:
        yield lookup


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """This repository."""
    with Lookup(HERE, tmp_path_factory.mktemp("index") / "index.sqlite") as lookup:
        yield lookup


def places(rows, key):
    return [f"{row[key]} {row['file']}:{row['line']}" for row in rows]


def test_symbols_come_exact_first(found):
    rows = found.symbols("rate", "", 50)["symbols"]
    assert places(rows, "name") == ["rate shop/helper.py:6", "rate shop/rates.py:3", "rate web/rate.js:1"]
    assert [row["name"] for row in found.symbols("AX", "", 50)["symbols"]] == ["Shop.tax", "Base.tax"]
    assert [row["name"] for row in found.symbols("Shop.t*", "method", 50)["symbols"]] == ["Shop.tax"]
    assert found.symbols("%", "", 50)["symbols"] == []
    cut = found.symbols("", "", 2)
    assert len(cut["symbols"]) == 2
    assert cut["notes"] == ["12 more are not shown: narrow it, or raise limit"]


def test_definition_has_the_code(found):
    answer = found.definition("Shop.tax", 5)
    assert answer["definitions"] == [
        {
            "name": "Shop.tax",
            "kind": "method",
            "file": "main.py",
            "line": 8,
            "end": 9,
            "signature": "def tax(self):",
            "code": "    def tax(self):\n        return rate(3)",
        }
    ]
    assert found.definition("tax", 1)["found"] == 2
    assert places(found.definition("shop/helper.py:rate", 5)["definitions"], "name") == ["rate shop/helper.py:6"]
    assert places(found.definition("helper.rate()", 5)["definitions"], "name") == ["rate shop/helper.py:6"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rat", "no definition of rat in this workspace; there is rate"),
        ("nothing", "no definition of nothing in this workspace"),
        ("", "'' names no symbol"),
        ("a.py:", "names no symbol"),
        ("%", "no definition of % in this workspace$"),
        ("x" * 10_000, "no definition of x"),
    ],
)
def test_unknown_names_are_said(found, name, said):
    with pytest.raises(ValueError, match=said):
        found.definition(name, 5)


def test_references_are_identifiers_only(found):
    rows = found.references("rate", 50)["references"]
    assert {row["file"] for row in rows} == {
        "main.py",
        "shop/base.py",
        "shop/helper.py",
        "shop/rates.py",
        "web/app.js",
        "web/rate.js",
    }
    assert [row["line"] for row in rows if row["file"] == "shop/rates.py"] == [3]
    inner = next(row for row in rows if row["file"] == "main.py" and row["line"] == 9)
    assert inner == {"file": "main.py", "line": 9, "text": "return rate(3)", "in": "Shop.tax"}
    assert [row["file"] for row in rows if row.get("definition")] == ["shop/helper.py", "shop/rates.py", "web/rate.js"]
    assert len(found.references("rate", 2)["references"]) == 2


def test_callers_know_classes_modules_and_languages(found):
    rows = found.callers("shop/rates.py:rate", 50)["callers"]
    assert {row["caller"] for row in rows} == {"Base.total", "Shop.__init__", "Shop.tax"}
    assert found.callers("web/rate.js:rate", 5)["callers"] == [{"caller": "main", "file": "web/app.js", "line": 2}]
    assert [row["caller"] for row in found.callers("load", 5)["callers"]] == ["rate"]
    assert [row["caller"] for row in found.callers("Shop.__init__", 5)["callers"]] == ["main"]
    assert found.callers("lonely", 5)["callers"] == []
    rows = found.callers("shop/helper.py:rate", 50)["callers"]
    assert {row["caller"] for row in rows} == {"Base.total"}, (
        "main.py imports the one of rates.py, base.py says nothing"
    )


def test_callees_inside_and_outside(found):
    answer = found.callees("shop/base.py:total", 5)
    assert [row["callee"] for row in answer["callees"]] == ["Base.tax", "rate", "rate"]
    assert found.callees("shop/helper.py:load", 5)["callees"] == []
    assert found.callees("main.py:main", 5)["outside"] == []


def test_call_path(found):
    steps = found.call_path("main.py:main", "load")["path"]
    assert [(row["from"], row["callee"]) for row in steps] == [
        ("main", "Shop"),
        ("Shop.__init__", "rate"),
        ("rate", "load"),
    ]
    assert found.call_path("load", "main.py:main") == {"path": [], "notes": ["no chain of calls was found"]}


def test_a_class_that_is_made_runs_its_constructor_alone(tmp_path):
    text = "class Shop:\n    def sell(self): price()\ndef price(): pass\ndef one(): Shop()\ndef two(): Shop().sell()\n"
    (tmp_path / "a.py").write_text(text)
    with Lookup(tmp_path, tmp_path / "i.sqlite") as lookup:
        assert lookup.call_path("one", "price")["path"] == []
        assert [row["callee"] for row in lookup.call_path("two", "price")["path"]] == ["Shop.sell", "price"]
        assert [row["callee"] for row in lookup.call_path("Shop", "price")["path"]] == ["price"]


def test_a_path_through_recursion_ends(tmp_path):
    (tmp_path / "a.py").write_text("def a(): b()\ndef b(): a(); b()\ndef c(): pass\n")
    with Lookup(tmp_path, tmp_path / "i.sqlite") as lookup:
        assert lookup.call_path("a", "c")["path"] == []
        assert [row["callee"] for row in lookup.call_path("a", "a")["path"]] in ([], ["b", "a"])


def test_outline_of_file_and_folder(found):
    assert [row["name"] for row in found.outline("main.py", 50)["outline"]] == [
        "Shop",
        "Shop.__init__",
        "Shop.tax",
        "main",
        "lonely",
    ]
    assert "file" not in found.outline("main.py", 50)["outline"][0]
    assert {row["file"] for row in found.outline("web", 50)["outline"]} == {"web/app.js", "web/rate.js"}
    (found.index.root / "note.txt").write_text("x")
    for path, said in (("note.txt", "no grammar"), ("nope.py", "there is no file"), ("../x", "outside")):
        with pytest.raises(ValueError, match=said):
            found.outline(path, 50)


def test_outline_says_broken_syntax(found):
    (found.index.root / "bad.py").write_text("def good():\n    pass\n\nclass (:\n")
    found.index.update()
    answer = found.outline("bad.py", 50)
    assert answer["outline"][0]["name"] == "good"
    assert answer["notes"] == ["syntax error near line 4"]


def test_the_map_keeps_to_its_budget_and_its_focus(here):
    for budget in (1, 50, 1000, 4000):
        answer = here.repo_map(budget, "")
        assert len(answer["map"]) <= 4 * budget
        assert answer["tokens"] <= budget
    large = here.repo_map(2000, "")["map"]
    assert "class ToolError(OpenSageError):" in large
    assert "opensage/errors.py:" in large
    assert "_worker_of" not in large
    focused = here.repo_map(300, "matching_bandits blocking_pairs")["map"]
    assert "def blocking_pairs(" in focused
    assert "def blocking_pairs(" not in here.repo_map(300, "")["map"]


def test_this_repository(here):
    steps = here.call_path("Staging.call", "content_hash")["path"]
    assert [row["callee"] for row in steps] == ["Staging.run", "_key", "_inside_hash", "content_hash"]
    assert "edit" in {row["in"] for row in here.references("apply_edit", 100)["references"]}
    assert here.definition("CallGraph.find", 1)["definitions"][0]["file"].endswith("code/graph.py")


def test_an_empty_workspace(tmp_path):
    (tmp_path / "work").mkdir()
    with Lookup(tmp_path / "work", tmp_path / "i.sqlite") as lookup:
        assert lookup.repo_map(100, "x") == {"map": "", "tokens": 0, "files": 0, "of": 0, "notes": []}
        assert lookup.outline(".", 10) == {"outline": [], "notes": []}
        assert lookup.symbols("x", "", 10) == {"symbols": [], "notes": []}


def test_pagerank_is_the_fixed_point():
    rng = np.random.default_rng(1)
    sources, targets = rng.integers(0, 20, 60), rng.integers(0, 25, 60)
    weights, start = rng.random(60) + 0.1, rng.random(25)
    ranks = pagerank(sources, targets, weights, start)
    matrix = np.zeros((25, 25))
    np.add.at(matrix, (targets, sources), weights)
    out, jump = matrix.sum(axis=0), start / start.sum()
    matrix = np.where(out > 0, matrix / np.where(out > 0, out, 1), jump[:, None])
    assert ranks.sum() == pytest.approx(1)
    np.testing.assert_allclose(ranks, 0.85 * matrix @ ranks + 0.15 * jump, atol=1e-8)


@pytest.mark.parametrize(
    "call", [lambda: tools.symbols("x", limit=0), lambda: tools.repo_map(0), lambda: tools.outline(".", 501)]
)
def test_bounds_are_checked(call):
    with pytest.raises(ValueError, match="must be from 1 to"):
        call()


def test_in_a_sandbox(tmp_path):
    """Staged, in the workspace, and the index is kept between calls without a trace in the workspace."""
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    spec = load_toolkit(Path(tools.__file__).parent)

    async def main():
        sandbox = open_sandbox("bubblewrap", tmp_path)
        try:
            first = await Staging().call(sandbox, spec, "definition", {"name": "Shop.tax"})
            assert first["definitions"][0]["file"] == "main.py"
            second = await Staging().call(sandbox, spec, "repo_map", {"budget_tokens": 200})
            assert "class Base:" in second["map"]
            assert json.loads(json.dumps(second)) == second
            return (await sandbox.exec("ls /tmp")).stdout
        finally:
            await sandbox.close()

    assert "opensage-code-" in asyncio.run(main())
    there = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert there == set(FILES)


def test_the_toolkit_is_found_by_its_entry_point_and_small():
    spec = load_toolkit(Path(tools.__file__).parent)
    assert spec.notes == ()
    for tool in spec.tools:
        assert len(tool.description) < 110
        assert tool.documented
