"""Patches from outside: what is refused, and how the rest gets in."""

from __future__ import annotations

import pytest
from test_swe_workspace import Clone, Files, make, run

from opensage_benchmarks.swe.errors import PatchError
from opensage_benchmarks.swe.patch import apply_patch, as_patch, check_outside

GOOD = """diff --git a/pkg/a.py b/pkg/a.py
--- a/pkg/a.py
+++ b/pkg/a.py
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
"""
NEW = "diff --git a/{0} b/{0}\nnew file mode {1}\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+{2}\n"


@pytest.mark.parametrize(
    ("patch", "says"),
    [
        ("I changed the file as you asked.\n", "no diff"),
        ("```\nx = 1\n```\n", "no diff"),
        (GOOD.replace("a/pkg/a.py", "a/../x.py"), "leaves the tree"),
        (GOOD.replace("b/pkg/a.py", "b/pkg/../../x.py"), "leaves the tree"),
        (GOOD.replace("+++ b/pkg/a.py", "+++ /etc/passwd"), "absolute"),
        (GOOD.replace("+++ b/pkg/a.py", "+++ b//etc/passwd"), "out of the tree"),
        (GOOD.replace("+++ b/pkg/a.py", r'+++ "b/\056\056/x.py"'), "leaves the tree"),
        (GOOD.replace("pkg/a.py", ".git/hooks/post-commit"), "repository itself"),
        (GOOD.replace("pkg/a.py", "sub/.GIT/config"), "repository itself"),
        (GOOD.replace("--- a/pkg/a.py\n+++ b/pkg/a.py", "--- a.py\n+++ a.py"), "no a/ or b/"),
        ("diff --git a/x b/x\nsimilarity index 100%\nrename from x\nrename to ../x\n", "leaves the tree"),
        ("diff --git a/x b/x\nsimilarity index 100%\nrename from x\nrename to /x\n", "absolute"),
        (NEW.format("link", "120000", "/etc/passwd"), "link that leaves"),
        (NEW.format("pkg/link", "120000", "../../secret"), "link that leaves"),
        (NEW.format("link", "120000", ".git/config"), "link that leaves"),
        (NEW.format("sub", "160000", "Subproject commit " + "1" * 40), "submodule"),
        ("diff --git a/x.png b/x.png\nnew file mode 100644\nindex 0000000..1111111\nGIT binary patch\nliteral 1\nIcmZQz\n", "binary"),
        ("diff --git a/x.png b/x.png\nindex 0000000..1111111 100644\nBinary files a/x.png and b/x.png differ\n", "binary"),
        ("\n \n", "empty"),
    ],
)  # fmt: skip
def test_what_is_refused(patch, says):
    with pytest.raises(PatchError, match=says):
        check_outside(as_patch(patch))


def test_a_body_may_say_what_a_head_may_not():
    body = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/../../etc\n+++ /etc/passwd\n-GIT binary patch\n+.git/\n"
    assert check_outside(body.encode()) == ["x"]


def test_names_are_read_as_git_writes_them():
    quoted = NEW.format("x", "100644", "y").replace("b/x", r'"b/caf\303\251\t\"q\".py"')
    assert check_outside(quoted.encode()) == ['café\t"q".py']
    assert check_outside(b"--- a/one two.py\t2026-01-01\n+++ b/one two.py\t2026-01-01\n@@ -1 +1 @@\n-a\n+b\n") == [
        "one two.py"
    ]


def test_too_large_a_patch_is_refused():
    with pytest.raises(PatchError, match="MiB"):
        as_patch("x" * (17 << 20))


@pytest.mark.parametrize(
    ("patch", "step"),
    [
        (GOOD, "git apply --verbose"),
        (GOOD.rstrip("\n"), "git apply --verbose"),  # a model stripped it
        (GOOD.replace(" one\n", " first line that is not there\n"), "patch --batch --forward --fuzz=5 -p1"),
        (GOOD.replace(" three", " three, a context nobody has"), "patch --batch --forward --fuzz=5 -p1"),
    ],
)
def test_the_step_that_got_it_in_is_said(tmp_path, patch, step):
    space = make(tmp_path)
    assert apply_patch(space, as_patch(patch)).step == step
    assert (space.folder / "pkg/a.py").read_bytes() == b"one\nTWO\nthree\n"


def test_a_three_way_merge_is_tried(tmp_path):
    """The patch was made for an older version of the file, which the repository holds."""
    origin = tmp_path / "origin"
    origin.mkdir()
    Files({"a.py": b"".join(b"%d\n" % n for n in range(30))}).prepare(None, origin)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "old"]):
        run(origin, *words)
    (origin / "a.py").write_text((origin / "a.py").read_text().replace("10\n", "ten\n"))
    patch = run(origin, "diff", "--full-index", "-U12")
    run(origin, "checkout", "-q", "a.py")
    (origin / "a.py").write_text(
        (origin / "a.py").read_text().replace("5\n", "five\n", 1).replace("14\n", "x\ny\nz\n14\n")
    )
    run(origin, "commit", "-qam", "base")
    space = make(tmp_path, Clone(origin))
    assert apply_patch(space, patch.encode()).step == "git apply --verbose --3way"
    text = (space.folder / "a.py").read_text()
    assert "ten\n" in text
    assert "five\n" in text


def test_what_does_not_apply_leaves_no_trace(tmp_path):
    space = make(tmp_path)
    bad = GOOD + GOOD.replace("pkg/a.py", "pkg/none.py")
    with pytest.raises(PatchError, match="does not apply"):
        apply_patch(space, bad.encode())
    assert (space.folder / "pkg/a.py").read_bytes() == b"one\ntwo\nthree\n"
    assert not [*space.folder.rglob("*.rej"), *space.folder.rglob("*.orig")]


def test_carriage_returns_stay(tmp_path):
    space = make(tmp_path)
    crlf = "diff --git a/pkg/crlf.py b/pkg/crlf.py\n--- a/pkg/crlf.py\n+++ b/pkg/crlf.py\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n"
    apply_patch(space, as_patch(crlf))
    assert (space.folder / "pkg/crlf.py").read_bytes() == b"a\r\nB\r\n"


def test_nothing_is_written_through_a_link(tmp_path):
    """A link that leaves the tree, in the base itself: neither git nor patch follows it."""

    class Door(Files):
        def prepare(self, task, folder):
            super().prepare(task, folder)
            (folder / "door").symlink_to(tmp_path / "outside")

    (tmp_path / "outside").mkdir()
    space = make(tmp_path, Door())
    with pytest.raises(PatchError):
        apply_patch(space, as_patch(NEW.format("door/x.py", "100644", "x")))
    assert not list((tmp_path / "outside").iterdir())
