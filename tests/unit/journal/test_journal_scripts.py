"""What is said of an accelerated script's queries."""

from __future__ import annotations

import time

import pytest

from firesteel.api.acceleration.record import Record
from firesteel.journal.listing import listed
from firesteel.journal.scripts import QueryRecord
from firesteel.options import Options
from firesteel.report.explain import query_lines


@pytest.mark.parametrize(
    ("dry_run", "told"),
    [
        (False, ["Firesteel took over 1 of 2 queries.", "  1. count at a.py:1: Firesteel, 2 s (job 3f)"]),
        (True, ["Firesteel would take over 1 of 2 queries.", "  1. count at a.py:1: Firesteel"]),
    ],
)
def test_a_time_is_told_only_where_firesteel_has_computed(dry_run, told):
    queries = [
        QueryRecord(
            at=2.0, number=1, action="count", place="a.py:1", left=[], job="" if dry_run else "3f", seconds=2.0
        ),
        QueryRecord(at=3.0, number=2, action="show", place="a.py:2", left=["it reads 1 KiB"], seconds=0.1),
    ]
    assert set(query_lines(queries, dry_run=dry_run)) == {*told, "  2. show at a.py:2: Spark: it reads 1 KiB"}


def test_a_dry_run_ranks_what_is_left_by_bytes():
    sizes = [(1, 10 << 10, ["a"]), (2, 0, ["b"]), (3, 5 << 20, []), (4, 2 << 20, ["c"])]
    queries = [
        QueryRecord(at=1.0, number=number, action="count", place=f"a.py:{number}", left=left, bytes=size)
        for number, size, left in sizes
    ]
    assert query_lines(queries, dry_run=True)[1:] == [
        "  4. count at a.py:4: Spark, reads 2 MiB: c",
        "  1. count at a.py:1: Spark, reads 10 KiB: a",
        "  2. count at a.py:2: Spark: b",
        "  3. count at a.py:3: Firesteel",
    ]


def test_a_script_began_when_it_began_and_not_with_its_first_query(tmp_path, monkeypatch):
    began = float(int(time.time()) - 3600)
    with monkeypatch.context() as then:
        then.setattr(time, "time", lambda: began)
        record = Record("report.py", dry_run=False)
    record.add(Options({"firesteel.journal.directory": str(tmp_path)}), "count", "report.py:3", [])
    record.close("FINISHED")
    (found,) = listed(tmp_path.iterdir())
    assert (found.kind, found.name, found.status, found.began) == ("script", "report.py", "finished", began)
