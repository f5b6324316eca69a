from __future__ import annotations

import os
import subprocess

import pytest

from opensage.errors import PathRefused, ToolError
from opensage.tools.find import MAX_ENTRIES, MAX_MATCHES, list_files, search
from opensage.tools.read import MAX_BYTES, MAX_LINES, read
from opensage.tools.shell import shell
from opensage.tools.write import edit, write

# --- read ---


def test_read_numbers_lines_and_reads_on(bench):
    (bench.folder / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    got = bench.call(read, path="a.txt").split("\n")
    assert got[0] == "1\tline 1"
    assert got[MAX_LINES - 1] == f"{MAX_LINES}\tline {MAX_LINES}"
    assert got[MAX_LINES:] == ['[there is more: read on with {"path": "a.txt", "offset": 2000}]']
    assert bench.call(read, path="a.txt", offset=4998) == "4999\tline 4999\n5000\tline 5000"
    assert bench.call(read, path="a.txt", offset=10, limit="1").startswith("11\tline 11\n[there is more")
    assert bench.call(read, path="a.txt", offset=9000) == "(a.txt has only 5000 lines; offset 9000 is past the end)"
    assert bench.call(read, path="a.txt", offset=-3, limit=0).startswith("1\tline 1\n2\t")


def test_probe_f8_read_is_bounded(bench):
    (bench.folder / "wide.txt").write_text("x" * 5_000_000 + "\nend\n")
    (bench.folder / "long.txt").write_text(("y" * 999 + "\n") * 5000)
    got = bench.call(read, path="wide.txt")
    assert len(got) < 3000
    assert got.endswith("… [long line, cut]\n2\tend")
    got = bench.call(read, path="long.txt")
    assert len(got) <= MAX_BYTES + 200
    assert '"offset": 49}' in got.split("\n")[-1]


def test_read_far_into_a_large_file(bench):
    (bench.folder / "big.txt").write_bytes(b"".join(b"%d \xe2\x98\x83\n" % n for n in range(400_000)))
    assert bench.call(read, path="big.txt", offset=399_998) == "399999\t399998 ☃\n400000\t399999 ☃"


def test_read_refuses_to_look_for_ever(bench):
    with open(bench.folder / "sparse.txt", "wb") as file:
        file.write(b"a\n")
        file.seek((1 << 26) + 10)
        file.write(b"b\n")
    with pytest.raises(ToolError, match=r"64 MiB.*sed"):
        bench.run(lambda ctx: read.invoke({"path": "sparse.txt", "offset": 5}, _unsniffed(ctx)))


def _unsniffed(ctx):
    """A context whose files have no NUL in their beginning."""
    real = ctx.sandbox.read_bytes

    async def read_bytes(path, offset=0, limit=None):
        return (await real(path, offset, limit)).replace(b"\0", b"x")

    ctx.sandbox.read_bytes = read_bytes
    return ctx


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "(f is empty)"),
        (b"a", "1\ta"),
        (b"a\n\n", "1\ta\n2\t"),
        (b"a\r\nb\r\n", "1\ta\n2\tb"),
        (b"a\x0cb\xe2\x80\xa8c\n", "1\ta\x0cb\u2028c"),
        (b"\xef\xbb\xbfa\xc3\xa9\n", "1\taé"),
        ("aé\nb".encode("utf-16"), "1\taé\n2\tb"),
        (b"\xfe\xff" + "aé".encode("utf-16-be"), "1\taé"),
        (b"caf\xe9\n", "1\tcafé"),
        ("caf\xe9 ".encode() + b"\xff", "1\tcafé �"),
        (b"\xc3", "1\tÃ"),
        (b"\x89PNG\r\n\x1a\n\0\0", "f is a PNG image (10 bytes), not text"),
        (b"\0\1", "f is a binary file (2 bytes), not text"),
    ],
)
def test_read_knows_encodings_and_binary_files(bench, data, expected):
    (bench.folder / "f").write_bytes(data)
    assert bench.call(read, path="f") == expected


def test_read_says_what_is_wrong_with_a_path(each_bench):
    folder = each_bench.folder
    (folder / "src").mkdir()
    (folder / "src" / "main.py").write_text("x\n")
    for path, words in {
        "main.py": "main.py does not exist; did you mean src/main.py",
        "src/mian.py": "did you mean src/main.py",
        "src": "src is a folder: use list",
        "src/main.py/x": "a part of the path is a file",
        " ": "the path is empty",
        "a\0b": "NUL",
        "x" * 300: "too long",
        "\ud800": "not valid Unicode",
        "zzz/qqq": "zzz/qqq does not exist: use list or search",
    }.items():
        with pytest.raises(ToolError, match=words):
            each_bench.call(read, path=path)
    outside = folder.parent / f"{folder.name}-outside"
    outside.write_text("secret")
    for path in ("/etc/passwd", f"../{outside.name}", str(outside)):
        # What lies outside is refused, or, in an isolating sandbox, not there at all.
        with pytest.raises(PathRefused if each_bench.kind == "local" else ToolError, match=r"outside|not exist"):
            each_bench.call(read, path=path)


def test_odd_names_work_everywhere(each_bench):
    for name in ("a b.txt", 'it\'s "q".txt', "é☃.txt", "-n.txt", "$HOME.txt", "sub dir/`x`.txt", "*.txt"):
        got = each_bench.calls(
            (write, {"path": name, "content": "needle one\n"}),
            (read, {"path": name}),
            (edit, {"path": f"{each_bench.folder}/{name}", "old": "one", "new": "two"}),
            (read, {"path": f"{each_bench.folder}/{name}"}),
            (search, {"pattern": "needle t", "path": name}),
        )
        assert got[1] == "1\tneedle one"
        assert got[2] == f"edited {name}: 1 place at line 1"
        assert got[3] == "1\tneedle two"
        assert got[4] == f"{'./' if name.startswith('-') else ''}{name}:1:needle two".removeprefix("./")
        (each_bench.folder / name).unlink()


def test_home_is_the_sandboxes(each_bench):
    got = each_bench.calls(
        (shell, {"command": "echo at home > ~/note.txt"}), (read, {"path": "~/note.txt"}), (list_files, {"path": "~"})
    )
    assert got[1] == "1\tat home"
    assert "note.txt" in got[2]


def test_read_blobs_and_skills(bench, tmp_path_factory):
    skill = tmp_path_factory.mktemp("skill")
    (skill / "SKILL.md").write_text("how to\n")
    (skill / "more.md").write_text("more\n")
    (skill / "out.md").symlink_to("/etc/passwd")
    blobs = {"abc": b"stored\n", "bin": b"\0"}

    async def work(ctx):
        ctx.state["skills"] = {"pdf": skill}
        paths = ["blob:abc", "blob:bin", "skill:pdf", "skill:pdf/more.md", "blob:zzz", "skill:x", "skill:pdf/out.md"]
        got = []
        for path in [*paths, "skill:pdf/../../../etc/passwd"]:
            try:
                got.append(await read.invoke({"path": path}, ctx))
            except ToolError as error:
                got.append(f"! {error}")
        return got

    got = bench.run(work, blob=blobs.__getitem__)
    assert got[:4] == ["1\tstored", "blob:bin is a binary file (1 bytes), not text", "1\thow to", "1\tmore"]
    assert "no stored output 'zzz'" in got[4]
    assert got[5] == "! there is no skill 'x'; skills: pdf"
    assert "link out of" in got[6]
    assert got[7].startswith("! ")
    with pytest.raises(ToolError, match="no stored outputs"):
        bench.call(read, path="blob:abc")


# --- write and edit ---


def test_write_makes_folders_and_shows_a_diff(each_bench):
    async def work(ctx):
        new = await write.invoke({"path": "a/b/c.txt", "content": "one\ntwo\n"}, ctx)
        again = await write.invoke({"path": "a/b/c.txt", "content": "one\n2\n"}, ctx)
        return new, again

    new, again = each_bench.run(work)
    assert new.text == "wrote 2 lines to a/b/c.txt"
    assert new.diff == "--- /dev/null\n+++ a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    assert again.text == "wrote 2 lines to a/b/c.txt (it had 2)"
    assert again.diff.endswith(" one\n-two\n+2\n")
    assert (each_bench.folder / "a/b/c.txt").read_text() == "one\n2\n"


def test_write_refuses_what_cannot_be(bench):
    (bench.folder / "file").write_text("x")
    for path, words in {"file/x": "part of the path is a file", ".": "folder", "/proc/x": "/proc"}.items():
        with pytest.raises(ToolError, match=words):
            bench.call(write, path=path, content="y")
    with pytest.raises(ToolError, match="cannot hold"):
        bench.call(write, path="s.txt", content="a\ud800")
    assert not (bench.folder / "s.txt").exists()
    assert bench.call(write, path="empty.txt", content="") == "wrote 0 lines to empty.txt"


def test_write_over_a_binary_file(bench):
    (bench.folder / "b").write_bytes(b"\0\1")
    assert bench.call(write, path="b", content="text").startswith("wrote 1 line to b")


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc", "a\nb", "x\ny", b"x\r\ny\r\nc"),
        (b"\xef\xbb\xbfimport os \n", "import os\n", "import sys\n", b"\xef\xbb\xbfimport sys\n"),
        (b"caf\xe9 one\n", "café one", "thé two", b"th\xe9 two\n"),
        (b"ok \xc3\xa9 \xff\xfe one\n", "one", "zwölf", "ok é ".encode() + b"\xff\xfe zw\xc3\xb6lf\n"),
        ("a é\nb".encode("utf-16"), "é", "ü", "a ü\nb".encode("utf-16")),
        (b"a\nb", "b", "c", b"a\nc"),
        (b"x\xff\xff\n", "x", "y", b"y\xff\xff\n"),
    ],
)
def test_edit_loses_no_byte(bench, before, old, new, after):
    (bench.folder / "f").write_bytes(before)
    os.chmod(bench.folder / "f", 0o755)
    assert bench.call(edit, path="f", old=old, new=new).startswith("edited f: 1 place at line ")
    assert (bench.folder / "f").read_bytes() == after
    assert os.stat(bench.folder / "f").st_mode & 0o777 == 0o755


def test_edit_refuses_and_leaves_the_file_alone(bench):
    file = bench.folder / "f.py"
    file.write_text("a = 1\nb = 1\n")
    for arguments, words in {
        ("f.py", "= 1", "= 2"): "found 2 times",
        ("f.py", "c = 1", "d"): "f.py: old is not found. The nearest lines are:\n1\ta = 1",
        ("f.py", "", "x"): "use write",
        ("f.py", "a", "a"): "the same",
        ("g.py", "a", "b"): "g.py does not exist; did you mean f.py",
    }.items():
        with pytest.raises(ToolError, match=words):
            bench.call(edit, **dict(zip(("path", "old", "new"), arguments, strict=True)))
    (bench.folder / "latin").write_bytes(b"\xe9")
    with pytest.raises(ToolError, match="latin-1, which cannot hold '☃'"):
        bench.call(edit, path="latin", old="é", new="☃")
    (bench.folder / "bin").write_bytes(b"a\0")
    with pytest.raises(ToolError, match="not a text file"):
        bench.call(edit, path="bin", old="a", new="b")
    assert file.read_text() == "a = 1\nb = 1\n"
    assert bench.call(edit, path="new/n.txt", old="", new="hi\n") == "wrote 1 line to new/n.txt"
    assert (
        bench.call(edit, path="f.py", old=" = 1", new=" = 2", all="true")
        == "edited f.py: 2 places, the first at line 1"
    )


def test_a_python_file_that_breaks_is_said(bench):
    (bench.folder / "f.py").write_text("def f():\n    return 1\n")
    got = bench.call(edit, path="f.py", old="return 1", new="return (1")
    said = "warning: f.py does not compile now: line 2: '(' was never closed\n    2 |     return (1"
    assert got == f"edited f.py: 1 place at line 2\n{said}"
    assert "warning" not in bench.call(edit, path="f.py", old="return (1", new="return ((1")  # it was broken before
    assert "warning" not in bench.call(write, path="f.py", content="x = '\\d'\n")
    assert "does not compile now: line 1" in bench.call(write, path="g.py", content="print 'x'\n")
    assert "does not compile" in bench.call(write, path="h.py", content="(" * 5000)


# --- list and search ---


@pytest.fixture
def project(bench):
    for path in (
        "src/app/main.py",
        "src/util.py",
        "README.md",
        ".git/HEAD",
        "node_modules/x/y.js",
        ".hidden/deep/er/z",
    ):
        file = bench.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"def hello():\n    return '{path}'\n")
    return bench


def test_list_shows_a_tree(project):
    (project.folder / "link").symlink_to("/etc")
    (project.folder / "new\nline").write_text("")
    os.truncate(project.folder / "README.md", 3_000_000)
    assert project.call(list_files).split("\n") == [
        ".hidden/",
        "  deep/",
        "    er/",
        "README.md  2.9 MB",
        "link@",
        "'new\\nline'  0 B",
        "src/",
        "  app/",
        "    main.py  42 B",
        "  util.py  38 B",
    ]
    assert project.call(list_files, path="src/app") == "main.py  42 B"
    assert project.call(list_files, path="link").count("\n") > 5
    assert project.call(list_files, path="README.md") == "README.md  2.9 MB"
    with pytest.raises(ToolError, match=r"did you mean src/util\.py"):
        project.call(list_files, path="utils.py")
    (project.folder / "void").mkdir()
    assert project.call(list_files, path="void") == "(void is empty)"


def test_list_is_bounded(bench):
    for number in range(1000):
        (bench.folder / f"file{number:04}").touch()
    got = bench.call(list_files).split("\n")
    assert len(got) == MAX_ENTRIES + 1
    assert got[-1] == "[800 more entries]"
    for number in range(30):
        deep = bench.folder / "d" / f"s{number}"
        deep.mkdir(parents=True)
        for other in range(20):
            (deep / f"f{other}").touch()
    assert bench.call(list_files, path="d").endswith("s9/\n[deeper levels are left out: list a folder to see them]")


def engines(bench):
    """The programs that are here: rg may not be."""
    return [name for name in ("rg", "python", "grep") if name == "python" or _has(name)]


def _has(name):
    return subprocess.run(["/bin/sh", "-c", f"command -v {name}"], stdout=subprocess.DEVNULL).returncode == 0


def by_each_engine(bench, **arguments):
    async def work(ctx):
        found = {}
        for engine in engines(bench):
            ctx.state["search"] = engine
            found[engine] = await search.invoke(arguments, ctx)
        return found

    return bench.run(work)


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            {"pattern": "def hel+o"},
            [
                ".hidden/deep/er/z:1:def hello():",
                "README.md:1:def hello():",
                "src/app/main.py:1:def hello():",
                "src/util.py:1:def hello():",
            ],
        ),
        (
            {"pattern": "return", "path": "src"},
            ["src/app/main.py:2:    return 'src/app/main.py'", "src/util.py:2:    return 'src/util.py'"],
        ),
        ({"pattern": "return", "glob": "*.md"}, ["README.md:2:    return 'README.md'"]),
        ({"pattern": "util|main", "path": "src/util.py"}, ["src/util.py:2:    return 'src/util.py'"]),
        ({"pattern": "hello("}, None),
        ({"pattern": "-e", "path": "."}, ["no matches for '-e' in ."]),
        ({"pattern": "'$(touch x)"}, ['no matches for "\'$(touch x)" in .']),
    ],
)
def test_search_gives_the_same_by_every_program(project, arguments, lines):
    found = by_each_engine(project, **arguments)
    assert len(found) >= 2
    for engine, got in found.items():
        if lines is None:
            assert got.startswith("[the pattern is no valid regex: it was searched as plain text]\n"), engine
            assert got.count(":1:def hello():") == 4, engine
        else:
            assert sorted(got.split("\n")) == sorted(lines), engine


def test_search_shows_what_it_found_although_a_path_is_too_long(bench, monkeypatch):
    (bench.folder / "a.txt").write_text("needle\n")
    monkeypatch.chdir(bench.folder)
    for _ in range(25):
        os.mkdir("d" * 200)
        os.chdir("d" * 200)
    note = "\n[some paths could not be searched: they are unreadable or too long]"
    for engine, got in by_each_engine(bench, pattern="needle").items():
        assert got == "a.txt:1:needle" + note * (engine != "grep"), engine  # grep reads paths of any length
    for engine, got in by_each_engine(bench, pattern="nothing(").items():
        assert got.partition("\n")[2] == "no matches for 'nothing(' in ." + note * (engine != "grep"), engine


def test_search_is_bounded_and_skips_binary_files(bench):
    (bench.folder / "many.txt").write_text("needle\n" * 10_000)
    (bench.folder / "wide.txt").write_text("needle " + "x" * 100_000 + "\n")
    (bench.folder / "bin").write_bytes(b"\0needle\n")
    (bench.folder / "crlf.txt").write_bytes(b"needle\r\n")
    for engine, got in by_each_engine(bench, pattern="needle").items():
        lines = got.split("\n")
        assert len(lines) <= MAX_MATCHES + 2, engine
        assert "[there are more matches: narrow the pattern, path or glob]" in lines, engine
        assert "bin:" not in got
    for engine, got in by_each_engine(bench, pattern="needle", glob="[wc]*.txt").items():
        crlf, wide = sorted(got.split("\n"))
        assert crlf == "crlf.txt:1:needle", engine
        assert wide.startswith("wide.txt:1:needle xxx"), engine
        assert wide.endswith("x…"), engine
        assert len(wide) < 330


def test_search_leaves_out_what_git_ignores(bench):
    subprocess.run(["git", "init", "-q", "."], cwd=bench.folder, check=True)
    (bench.folder / ".gitignore").write_text("out/\n*.log\n")
    for name in ("out/a.py", "b.log", "c.py"):
        (bench.folder / name).parent.mkdir(exist_ok=True)
        (bench.folder / name).write_text("needle\n")
    found = by_each_engine(bench, pattern="needle")
    found.pop("grep")
    assert set(found.values()) == {"c.py:1:needle"}
    if "rg" in found:
        assert by_each_engine(bench, pattern="needle", glob="*.log")["rg"].startswith("no matches")


def test_a_catastrophic_pattern_is_stopped(bench, monkeypatch):
    monkeypatch.setattr("opensage.tools.find._SECONDS", 1.0)
    (bench.folder / "a.txt").write_text("aab\n" + "a" * 64 + "!\n")

    async def work(ctx):
        ctx.state["search"] = "python"
        return await search.invoke({"pattern": "^(a+)+b$"}, ctx)

    got = bench.run(work)
    assert got == "a.txt:1:aab\n[the search was stopped after 1 s: narrow the path or simplify the pattern]"


def test_search_says_what_is_wrong(project):
    with pytest.raises(ToolError, match="pattern is empty"):
        project.call(search, pattern="")
    with pytest.raises(ToolError, match=r"did you mean src/util\.py"):
        project.call(search, pattern="x", path="utils.py")


def test_search_needs_neither_rg_nor_python(project):
    async def work(ctx):
        class Bare:
            """The sandbox, with a PATH that holds only what every system has."""

            workdir, python = ctx.sandbox.workdir, None

            async def exec(self, command, **more):
                return await ctx.sandbox.exec(command.replace("command -v rg", "command -v no-such-rg"), **more)

        bare = type(ctx)(Bare(), ctx.workdir)
        return await search.invoke({"pattern": "util.py"}, bare), bare.state["search"]

    assert project.run(work) == ("src/util.py:2:    return 'src/util.py'", "grep")


def test_files_in_bubblewrap_too(each_bench):
    (each_bench.folder / "a.py").write_text("needle\n")
    got = each_bench.calls((list_files, {}), (search, {"pattern": "needle"}), (read, {"path": "./a.py"}))
    assert got == ["a.py  7 B", "a.py:1:needle", "1\tneedle"]
