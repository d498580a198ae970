"""docs/architecture.md is true: its worked example works, and one event crosses the files that it lists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from tests.scheduler_kit import GraphBuilder, plane

import firesteel
from firesteel.model.job_graph import ShipStrategy
from firesteel.scheduler.kernel.events import ExecutionsFinished

SOURCES = Path(firesteel.__file__).parent
ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
LIST = "src/firesteel/scheduler/scheduler.py"


OVERLAY = """
import sys
from importlib import import_module
from pathlib import Path

import pytest

folder = Path(sys.argv[1])
for file in folder.rglob("src/**/*.py"):
    package = ".".join(file.relative_to(folder / "src").parent.parts)
    import_module(package).__path__.insert(0, str(file.parent))
sys.exit(pytest.main(["-p", "no:cacheprovider", *map(str, folder.rglob("test_*.py"))]))
"""
"""Runs the tests of a folder, with its modules in the place of those of the same names."""


def apply_example(folder: Path, left_out: str = "") -> None:
    """Writes the files of the page, and those that it changes, but for one."""
    for kind, block in re.findall(r"^```(python|diff)\n(.*?)^```$", PAGE, re.S | re.M):
        if kind == "python":
            _write(folder / block.partition("\n")[0].removeprefix("# "), block)
            continue
        _, *parts = re.split(r"^--- (.*)\n", block, flags=re.M)
        for name, hunks in zip(parts[::2], parts[1::2], strict=True):
            if name != left_out:
                text = (ROOT / name).read_text()
                for hunk in re.split(r"^@@\n", hunks, flags=re.M):
                    text = _changed(text, hunk.splitlines(keepends=True))
                _write(folder / name, text)


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def _changed(text: str, hunk: list[str]) -> str:
    before, after = ("".join(line[1:] for line in hunk if line[0] in signs) for signs in (" -", " +"))
    assert text.count(before) == 1, f"Not there, or several times:\n{before}"
    return text.replace(before, after)


@pytest.mark.parametrize(("left_out", "told"), [("", "1 passed"), (LIST, "assert job.keys(step) == [(step, 0, 0)]")])
def test_the_worked_example_works_and_has_no_effect_without_its_place_in_the_list(tmp_path, left_out, told):
    apply_example(tmp_path, left_out)
    ended = subprocess.run(
        [sys.executable, "-c", OVERLAY, tmp_path],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert told in ended.stdout, ended.stdout + ended.stderr
    assert ended.returncode == (1 if left_out else 0)


def test_one_finished_execution_crosses_the_files_that_the_page_lists(monkeypatch):
    graph = GraphBuilder()
    source = graph.source(parallelism=8)
    graph.step((source, ShipStrategy.HASH))
    job = plane(graph.graph, check=False)
    job.validate_every = 1_000  # which would cross others
    first, second, *_ = job.start().keys(source)
    for key in (first, second):
        job.launch(key)
    job.finish(first)  # the first one writes a snapshot of numbers
    handle, crossed = job.scheduler.handle, set[str]()

    def look(frame: FrameType, event: str, _argument: Any) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(SOURCES):
            crossed.add(str(file.relative_to(SOURCES)))

    def traced(event: ExecutionsFinished) -> Any:
        sys.setprofile(look)
        try:
            return handle(event)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(job.scheduler, "handle", traced)
    job.finish(second)
    (section,) = re.findall(r"^## The way of one event\n(.*?)^## ", PAGE, re.S | re.M)
    assert crossed == set(re.findall(r"^\| `(\S+\.py)` \|", section, re.M))
    assert f"crosses {len(crossed)} files" in section
