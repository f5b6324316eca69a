"""Definitions and calls of each language."""

from __future__ import annotations

import time

import pytest

import opensage_toolkits.code.source as source_module
from opensage_toolkits.code.languages import LANGUAGES, language_of
from opensage_toolkits.code.source import identifiers, read_source

SAMPLES = {
    "a.py": (
        "LIMIT = 3\nclass Shop(Base):\n    @property\n    def sell(self, x: int) -> int:\n        def inner(): return price(x)\n"
        "        return self.count(inner())\nasync def run():\n    return Shop().sell(LIMIT)\n",
        ["LIMIT variable", "Shop class", "Shop.sell method", "Shop.sell.inner function", "run function"],
        ["price x@Shop.sell.inner", "self.count@Shop.sell", "inner@Shop.sell", "Shop().sell@run", "Shop@run"],
    ),
    "a.js": (
        "const K = 1;\nexport class Shop { sell(x) { return this.count(price(x)); } big = () => far(); }\n"
        "function run() { return new Shop().sell(K); }\nconst go = async (a) => run(a);\nmodule.exports.old = function () {};\n",
        [
            "K variable",
            "Shop class",
            "Shop.sell method",
            "Shop.big method",
            "run function",
            "go function",
            "old function",
        ],
        ["this.count@Shop.sell", "price@Shop.sell", "far@Shop.big", "Shop@run", "new Shop().sell@run", "run@go"],
    ),
    "a.ts": (
        "interface Item { n: number }\ntype Items = Item[];\nenum Kind { A }\n"
        "export abstract class Shop<T> { abstract tax(): number; sell(x: T): number { return this.tax(); } }\n"
        "export function run(s: Shop<Item>): number { return s.sell({ n: 1 }); }\n",
        [
            "Item interface",
            "Items type",
            "Kind enum",
            "Shop class",
            "Shop.tax method",
            "Shop.sell method",
            "run function",
        ],
        ["this.tax@Shop.sell", "s.sell@run"],
    ),
    "a.tsx": ("const View = () => <p>{text()}</p>;\n", ["View function"], ["text@View"]),
    "a.go": (
        "package m\nconst K = 1\nvar (\n\tv = 2\n)\ntype Shop struct{}\nfunc (s *Shop) Sell(x int) int { return s.count(x) }\n"
        "func run() { fmt.Println(K); helper() }\n",
        ["K variable", "v variable", "Shop type", "Shop.Sell method", "run function"],
        ["s.count@Shop.Sell", "fmt.Println@run", "helper@run"],
    ),
    "a.rs": (
        "const K: i32 = 1;\nstruct Shop<T>(T);\nenum Kind { A }\ntrait Sells { fn tax(&self) -> i32; }\n"
        "impl<T> Shop<T> { fn sell(&self) -> i32 { self.tax() + Self::zero() } }\nfn run() { helper::<u8>(); log!(1); a::b(); }\n"
        "macro_rules! log { () => {} }\n",
        [
            "K variable",
            "Shop class",
            "Kind enum",
            "Sells interface",
            "Sells.tax declaration",
            "Shop.sell method",
            "run function",
            "log macro",
        ],
        ["self.tax@Shop.sell", "Self.zero@Shop.sell", "helper@run", "log@run", "a.b@run"],
    ),
    "a.java": (
        "class Shop<T> {\n  static int K = 1;\n  Shop() { super(); }\n  int sell(int x) { return this.count(price(x)); }\n"
        "  enum Kind { A }\n}\ninterface Item { int tax(); }\nrecord Pair(int a) {}\nclass Run { void go() { new Shop<Item>(); } }\n",
        [
            "Shop class",
            "Shop.K variable",
            "Shop.Shop method",
            "Shop.sell method",
            "Shop.Kind enum",
            "Item interface",
            "Item.tax method",
            "Pair class",
            "Run class",
            "Run.go method",
        ],
        ["this.count@Shop.sell", "price@Shop.sell", "Shop@Run.go"],
    ),
    "a.c": (
        "#define TWICE(x) (x)\nstruct shop { int n; };\ntypedef struct shop shop_t;\nint total = 0;\nint later(int);\n"
        "static char *name(struct shop *s) { return s->get(TWICE(1)); }\nint main(void) { return later(2); }\n",
        [
            "TWICE macro",
            "shop class",
            "shop_t type",
            "total variable",
            "later declaration",
            "name function",
            "main function",
        ],
        ["s.get@name", "TWICE@name", "later@main"],
    ),
    "a.cpp": (
        "namespace inn { class Shop { public: int sell(int); ~Shop() {} int tax() const { return this->sell(1); } }; }\n"
        "int inn::Shop::sell(int x) { return std::abs(x); }\nint& ref() { return *new Shop; }\nusing Alias = int;\n",
        [
            "inn module",
            "inn.Shop class",
            "inn.Shop.sell declaration",
            "inn.Shop.~Shop method",
            "inn.Shop.tax method",
            "inn.Shop.sell method",
            "ref function",
            "Alias type",
        ],
        ["this.sell@inn.Shop.tax", "std.abs@inn.Shop.sell", "Shop@ref"],
    ),
}


def full(one):
    return f"{one.owner}.{one.name}" if one.owner else one.name


@pytest.mark.parametrize("name", SAMPLES)
def test_definitions_and_calls(name):
    text, definitions, calls = SAMPLES[name]
    source = read_source(text.encode(), language_of(name))
    assert source.broken is None
    assert [f"{full(one)} {one.kind}" for one in source.definitions] == definitions
    said = set()
    for call in source.calls:
        before = f"{call.receiver}." if call.receiver else ""
        where = f"@{full(source.definitions[call.within])}" if call.within is not None else "@"
        said.add(f"{before}{call.name}{where}")
    assert {call for call in calls if " x@" not in call} <= said


def test_every_language_has_a_sample():
    assert {language_of(name) for name in SAMPLES} == set(LANGUAGES)


def test_broken_syntax_gives_what_can_be_made_out():
    source = read_source(b"def good():\n    return 1\n\nx = = 3\n\ndef last(a):\n    good()\n", language_of("a.py"))
    assert {"good", "last"} <= {one.name for one in source.definitions}
    assert source.broken == 4
    assert [call.name for call in source.calls] == ["good"]


def test_bytes_that_are_no_utf8_and_names_in_other_scripts():
    source = read_source("# \xff\ndef größe():\n    return größe()\n".encode("latin-1"), language_of("a.py"))
    assert len(source.definitions) == 1
    text = "def größe():\n    return größe()  # größe\n".encode()
    source = read_source(text, language_of("a.py"))
    assert [one.name for one in source.definitions] == ["größe"]
    assert "größe" in source.words
    assert len(list(identifiers(text, language_of("a.py"), "größe"))) == 2


@pytest.mark.parametrize("name", ["a.py", "a.js", "a.go", "a.rs", "a.java", "a.c", "a.cpp", "a.ts"])
@pytest.mark.parametrize(
    "hostile", [b"(" * 8000, b"f(" * 20_000, b"{[<\"'" * 4000, b"\x80\xff\r" * 9000, b"", b"a=" * 9000]
)
def test_hostile_files_end(name, hostile):
    source = read_source(hostile, language_of(name))
    assert source.lines == hostile.count(b"\n") + 1


@pytest.mark.parametrize("tail", [b"(" * 200_000, b"* " * 200_000, b"f(" * 100_000 + b")" * 100_000])
def test_files_that_would_take_time_by_its_square_are_given_up(tail):
    begun = time.process_time()
    source = read_source(b"def f(): pass\n" + tail, language_of("a.py"))
    assert time.process_time() - begun < 4
    assert {"def", "f"} <= source.words


def test_a_file_that_takes_too_long_to_parse_is_given_up(monkeypatch):
    monkeypatch.setattr(source_module, "_SECONDS", 0.0)
    assert read_source(b"f(" * 20_000, language_of("a.c")).words == {"f"}
    monkeypatch.undo()
    assert read_source(b"int f(void) { return 1; }", language_of("a.c")).definitions[0].name == "f"
