"""SWE-bench Pro (Scale AI 2025): fields in lower or upper case, lists in Python's form, a prompt of three parts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opensage_benchmarks.swe.records import Record, names_of_tests
from opensage_benchmarks.swe.sources.base import PYTEST, checked_id
from opensage_benchmarks.swe.sources.swebench import SweBench, files_of_tests
from opensage_benchmarks.swe.task import Task, TestPlan

_PARTS = (("requirements", "Requirements"), ("interface", "Interfaces"))
_FOLDER = ".opensage-pro"


class SweBenchPro(SweBench):
    """A `.csv`, `.jsonl`, `.json` or `.parquet` file of the set.

    Args:
        path: the file.
        repos: a folder with clones of the repositories.
        scripts: the folder `run_scripts`, one folder a task with `run_script.sh` and `parser.py`; without it tests are
            run with pytest, which fits Python tasks alone.
        skip_bad: whether bad records are left out.
    """

    name = "swebench-pro"

    def __init__(
        self, path: Path, *, repos: Path | str | None = None, scripts: Path | str | None = None, skip_bad: bool = False
    ) -> None:
        super().__init__(path, repos=repos, skip_bad=skip_bad)
        self._scripts = None if scripts is None else Path(scripts).expanduser()

    @staticmethod
    def recognises(path: Path, record: Mapping[str, Any]) -> bool:
        """Whether a file with this first record is of this format."""
        return "instance_id" in record and "requirements" in record

    def task(self, record: Record) -> Task:
        """The task in one record, which is kept as it was read."""
        place = record.place
        return Task(
            id=checked_id(record.text("instance_id"), place),
            problem=self.problem(record).encode("utf-8", "replace").decode(),
            repo=record.text("repo"),
            base_commit=record.text("base_commit"),
            fail_to_pass=names_of_tests(_any(record, "fail_to_pass"), f"{place}: fail_to_pass"),
            pass_to_pass=names_of_tests(_any(record, "pass_to_pass"), f"{place}: pass_to_pass"),
            patch=record.text("patch"),
            test_patch=record.text("test_patch"),
            image=record.text("image_name", "docker_image", "image"),
            record=dict(record.data),
        )

    def problem(self, record: Record) -> str:
        """Issue, requirements and interface: without the latter two many tasks cannot be solved."""
        parts = [record.text("problem_statement")]
        parts += [f"{title}:\n{text}" for name, title in _PARTS if (text := record.text(name)).strip()]
        return "\n\n".join(parts)

    def test_plan(self, task: Task) -> TestPlan:
        """The task's own script and parser, when its folder is there, else pytest on the selected files."""
        files = names_of_tests(task.record.get("selected_test_files_to_run"), f"task {task.id}: selected_test_files")
        scripts = self._scripts_of(task)
        if not scripts:
            return TestPlan(patch=task.test_patch, command=(*PYTEST, *(files or files_of_tests(task))))
        written = {f"{_FOLDER}/{name}": content for name, content in scripts.items()}
        ids = sorted({*task.fail_to_pass, *task.pass_to_pass})
        written[f"{_FOLDER}/check.py"] = _CHECK.format(files=",".join(files), ids=ids, folder=_FOLDER).encode()
        command = ("{python}", "-P", f"{_FOLDER}/check.py")
        return TestPlan(written, (_FOLDER,), task.test_patch, command, junit=False)

    def _scripts_of(self, task: Task) -> dict[str, bytes]:
        names = ("run_script.sh", "parser.py")
        paths = [self._scripts / task.folder_name / name for name in names] if self._scripts else []
        return {path.name: path.read_bytes() for path in paths} if paths and all(map(Path.is_file, paths)) else {}


# Runs the script, lets the parser name the results, and is content when every test that must pass did.
_CHECK = """import json, subprocess, sys

IDS = {ids!r}
out, err, found = ("{folder}/" + name for name in ("stdout", "stderr", "output.json"))
with open(out, "wb") as stdout, open(err, "wb") as stderr:
    subprocess.run(["bash", "{folder}/run_script.sh", {files!r}], stdout=stdout, stderr=stderr)
subprocess.run([sys.executable, "{folder}/parser.py", out, err, found], check=True)
with open(found) as file:
    passed = {{test["name"] for test in json.load(file)["tests"] if test["status"] == "PASSED"}}
missing = [name for name in IDS if name not in passed]
print(*missing, sep="\\n")
sys.exit(bool(missing or not IDS))
"""


def _any(record: Record, name: str) -> Any:
    """A field in lower or upper case: the code of the set has the one, its text the other."""
    value = record.data.get(name)
    return record.data.get(name.upper()) if value is None else value
