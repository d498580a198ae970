"""Results that lie on an object store are used by later jobs, in other processes, as those in a directory are; drivers are processes of their own."""

from __future__ import annotations

import json

import pyarrow.fs as pafs
import pytest
from typer.testing import CliRunner

from corrected_kit import FAILS, SCRIPT, expected, forget_marks, until, write_input
from dying_kit import begun, ended, firesteel
from firesteel.cli.main import app
from s3_server import new_bucket

pytestmark = pytest.mark.full

FIXED = SCRIPT.replace(FAILS, "")
LAST = FIXED.replace('"t": [pc.sum(table.column("t")).as_py()]', '"t": [pc.sum(table.column("t")).as_py() + 1]')
OTHER = LAST.replace("as_py() + 1]", "as_py() + 2]")
ALIEN = FIXED.replace("pc.add(v, 1)", "pc.add(v, 5)")
ALL = ["bonus", "last", "read", "sum"]
CELLS = """
import json, os, sys
from pathlib import Path

from firesteel import ExecutionEnvironment
from firesteel.compile.identity import prints
from firesteel.recovery.objects import ObjectPath
from plane.session import Session

FOLDER, STORAGE, *CELLS = sys.argv[1:]
prints._SETTLED = 0  # files that were written just now are known
if os.environ.get("VANISH"):
    copy_to = ObjectPath.copy_to

    def copied(self, target):
        if self.name.startswith(("d0-p3-", "d1-p0-", "d1-p3-")):  # of 'read' and of 'sum'
            self.remove()
        copy_to(self, target)

    ObjectPath.copy_to = copied


def began():
    marks = Path(FOLDER, "marks")
    return sorted({path.name.split("-")[0] for path in marks.iterdir()})


if __name__ == "__main__":
    session = Session(slots=2)
    for cell in CELLS:
        text, options = json.loads(cell)
        env = ExecutionEnvironment(spark=session, options={
            "firesteel.progress": False,
            "firesteel.journal.directory": f"{FOLDER}/journal",
            "firesteel.storage.directory": STORAGE,
            "firesteel.results.reuse": True,
            "firesteel.results.pure": "pyarrow.parquet.write_table",
            "firesteel.decider.least-volume-per-slot": 0,
            "data-volume-per-task": "1 kb",
            **options,
        })
        names = {"__name__": "__main__", "env": env, "FOLDER": FOLDER}
        exec(compile(text, "script.py", "exec"), names)
        rows = sorted(map(dict, names["rows"]().collect()), key=lambda row: row["h"])
        print(json.dumps([rows, began()]))
"""
WAITS = '    from pathlib import Path\n    import time\n    while not Path(f"{FOLDER}/go").exists():\n        time.sleep(0.02)\n'
MARK = '    mark("last", key[0].as_py())\n'


def plus(number, rows):
    return [{"h": row["h"], "t": row["t"] + number} for row in rows]


class Cells:
    """Cells of notebooks, whose input is in ``folder`` and whose results lie in a bucket."""

    def __init__(self, folder):
        self.folder, self.script = folder, folder / "cells.py"
        self.script.write_text(CELLS)
        name, self.fs = new_bucket()
        self.url, self.path = f"s3://{name}/r", f"{name}/r"

    def begin(self, *texts, environment=None, **options):
        """In a process of its own. Forgets the marks of the one before."""
        forget_marks(self.folder)
        return self.also(*texts, environment=environment, **options)

    def also(self, *texts, environment=None, **options):
        """Beside another process."""
        cells = [json.dumps([text, options]) for text in texts]
        return begun(self.script, self.folder, self.url, *cells, **(environment or {}))

    def told(self, process):
        """Of each cell its rows, and the steps that have run by then since the first one began."""
        end = ended(process)
        assert end.returncode == 0, end.stderr
        return [tuple(json.loads(line)) for line in end.stdout.splitlines() if line.startswith("[[")]

    def run(self, *texts, environment=None, **options):
        return self.told(self.begin(*texts, environment=environment, **options))

    def files(self):
        infos = self.fs.get_file_info(pafs.FileSelector(self.path, recursive=True, allow_not_found=True))
        return {info.path.removeprefix(f"{self.path}/"): info.size for info in infos if info.type is pafs.FileType.File}

    def ids(self):
        """Of jobs that have left something."""
        marks = (name for name in self.files() if name.endswith(".owner.json") and "-job-" in name)
        return {name.removeprefix("firesteel-job-").removesuffix(".owner.json") for name in marks}

    @property
    def place(self):
        return ("-O", f"firesteel.storage.directory={self.url}")

    def clean(self):
        firesteel("clean", "--results", "--yes", *self.place)
        assert self.files() == {}


@pytest.fixture
def cells(s3, tmp_path):
    write_input(tmp_path)
    return Cells(tmp_path)


def test_cells_in_several_processes(cells):
    """The last step is changed, run again as it was, and changed back; what has gone on the way is nobody's."""
    assert cells.run(FIXED) == [(expected(), ALL)]
    (first,) = cells.ids()
    assert cells.run(LAST) == [(plus(1, expected()), ["last"])]
    (journal, *_) = sorted((cells.folder / "journal").iterdir(), key=lambda path: -path.stat().st_mtime)
    assert f"4 of 4 subtasks are kept from job {first}." in firesteel("explain", journal)
    assert cells.run(LAST, FIXED, FIXED.replace("RATE = 2", "RATE = 3")) == [
        (plus(1, expected()), []),
        (expected(), []),
        (expected(rate=3), ["last", "sum"]),
    ]
    assert not any("/used/" in name and not name.endswith("/used/last") for name in cells.files())
    listed = firesteel("results", *cells.place)
    assert listed.count("finished") >= 2, listed
    cells.clean()


def test_space_is_bounded_and_what_was_not_used_goes_first(cells):
    cells.run(ALIEN)
    (old,) = cells.ids()
    bound = {"firesteel.results.retain-at-most": sum(cells.files().values()) * 5 // 2}
    cells.run(FIXED, **bound)
    assert old in cells.ids() and len(cells.ids()) == 2
    assert cells.run(LAST, **bound) == [(plus(1, expected()), ["last"])]
    assert old not in cells.ids()
    assert cells.run(OTHER, **bound) == [(plus(2, expected()), ["last"])]
    cells.clean()


def test_what_a_running_job_uses_stays_until_it_ends(cells):
    """A clean, and the bound of another job, while it waits in its last step."""
    cells.run(FIXED)
    (first,) = cells.ids()
    waiting = cells.begin(LAST.replace(MARK, WAITS + MARK))
    until(lambda: any(name.startswith(f"firesteel-job-{first}/used/") for name in cells.files() if "/last" not in name))
    until(lambda: any("are kept from job" in path.read_text() for path in (cells.folder / "journal").glob("*.jsonl")))
    end = CliRunner().invoke(app, ["clean", "--results", "--yes", first, *cells.place])
    assert end.exit_code and "a running job uses them" in str(end.exception), end.output
    assert cells.told(cells.also(OTHER, **{"firesteel.results.retain-at-most": 0}))[0][0] == plus(2, expected())
    assert first in cells.ids()
    (cells.folder / "go").touch()
    assert cells.told(waiting) == [(plus(1, expected()), ["last"])]
    cells.clean()


def test_results_that_vanish_as_they_are_taken_are_made_again(cells):
    cells.run(FIXED)
    ((rows, began),) = cells.run(LAST, environment={"VANISH": "1"})
    assert rows == plus(1, expected()) and began == ["last", "read", "sum"]
    ((rows, began),) = cells.run(OTHER)
    assert rows == plus(2, expected()) and began == ["last", "sum"]  # what had read that of 'read' which is gone
    cells.clean()


def test_two_jobs_that_make_the_same_at_once(cells):
    """Each has its own; of the two one stays, or both do, and all of it is there."""
    (cells.folder / "marks").mkdir()
    pair = [cells.also(FIXED), cells.also(FIXED)]
    assert [cells.told(one)[0][0] for one in pair] == [expected(), expected()]
    assert len(cells.ids()) in (1, 2)
    assert cells.run(FIXED) == [(expected(), [])]
    cells.clean()
