"""What is said of an accelerated script's queries."""

from __future__ import annotations

import pytest

from firesteel.journal.scripts import QueryRecord
from firesteel.report.scripts import query_lines


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
    assert query_lines(queries, dry_run=dry_run) == [*told, "  2. show at a.py:2: Spark: it reads 1 KiB"]
