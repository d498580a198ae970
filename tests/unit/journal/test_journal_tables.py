"""Jobs as Arrow tables."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute
import pytest
from tests.journal_samples import word_count

from firesteel import History
from firesteel.api.job_client import JobResult
from firesteel.errors import UsageError
from firesteel.journal.file import Journal, read
from firesteel.options import Options
from firesteel.report.fold import JobHistory
from firesteel.report.tables import SCHEMAS, attempts_table, decisions_table, timings_table, vertices_table
from firesteel.scheduler.kernel.records import Decision, StateChange

OLD = Path(__file__).parent / "journals" / "format_1_job.jsonl"


def test_every_table_has_its_schema_also_of_nothing():
    makers = {
        "decisions": decisions_table,
        "vertices": vertices_table,
        "attempts": attempts_table,
        "timings": timings_table,
    }
    for name, make in makers.items():
        for records in ([], word_count(), read(OLD)):
            assert make(records).schema == SCHEMAS[name], name


def test_decisions_have_a_row_each():
    records = read(OLD)
    table = decisions_table(records)
    decisions = [r for r in records if isinstance(r, Decision)]
    assert table.num_rows == len(decisions)
    assert table["reason"].to_pylist() == [d.reason for d in decisions]
    parallelism = table.filter(pa.compute.equal(table["what"], "parallelism"))
    assert parallelism["parallelism"].to_pylist() == [30, 30]
    assert json.loads(parallelism["inputs"][0].as_py())["data_volume"] == 16 << 20


def test_vertices_and_attempts_agree_with_the_records():
    records = read(OLD)
    vertices, attempts, history = vertices_table(records), attempts_table(records), JobHistory(records)
    assert vertices["vertex"].to_pylist() == [0, 1, 2]
    assert vertices["finished"].to_pylist() == [30, 30, 30]
    assert vertices["failures"].to_pylist() == [
        sum(len(f.subtasks) for f in v.failures) for _, v in sorted(history.vertices.items())
    ]
    finished = attempts.filter(attempts["won"])
    changes = [r for r in records if isinstance(r, StateChange) and r.state == "FINISHED"]
    assert finished.num_rows == sum(len(r.subtasks) for r in changes)
    seconds = finished["seconds"].to_pylist()
    assert all(value is not None and value >= 0 for value in seconds)
    keys = list(zip(*(attempts[name].to_pylist() for name in ("vertex", "subtask", "attempt")), strict=True))
    assert keys == sorted(set(keys))
    failed = attempts.filter(pa.compute.equal(attempts["state"], "FAILED"))
    assert failed.num_rows == sum(vertices["failures"].to_pylist())
    assert all(failed["cause"].to_pylist())


def test_timings_of_a_vertex_follow_each_other():
    table = timings_table(read(OLD)).to_pylist()
    job, *phases = table
    assert (job["phase"], job["vertex"]) == ("job", None)
    assert [row["phase"] for row in phases] == ["waiting", "queued", "running"] * 3
    for row in table:
        assert row["seconds"] == pytest.approx(row["end"] - row["begin"])
        assert job["begin"] <= row["begin"] <= row["end"] <= job["end"]
    for before, after in pairwise(phases):
        if before["vertex"] == after["vertex"]:
            assert before["end"] == after["begin"]


def test_history_finds_a_job_and_a_running_one_as_far_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIRESTEEL_JOURNAL_DIRECTORY", str(tmp_path / "kept"))
    journal = Journal.create(Options({"journal.directory": str(tmp_path / "kept")}), "words", "ab12")
    records = word_count()
    for record in records[:-1]:
        journal.record(record)
    journal.flush()
    running = History("ab")
    assert running.status == "RUNNING"
    assert running.vertices.num_rows == len(JobHistory(records).vertices)
    journal.record(records[-1])
    journal.close()
    for job in ("last", "ab12", journal.path):
        history = History(job)
        assert (history.status, history.job_name) == ("FINISHED", "word count")
        assert history.explain().startswith("word count")
        assert history.attempts is history.attempts, "made once"
    with pytest.raises(UsageError, match="There is no job 'zz'"):
        History("zz")
    with pytest.raises(UsageError, match="is the journal of a stream"):
        History(OLD.parent / "format_1_stream.jsonl")


def test_a_result_gives_the_same_tables(tmp_path):
    records = word_count()
    journal = Journal(tmp_path / "j.jsonl")
    for record in records:
        journal.record(record)
    journal.close()
    decisions = [r for r in records if isinstance(r, Decision)]
    result = JobResult("3f", "word count", 1.0, decisions, journal.path)
    assert result.decisions == decisions_table(records)
    assert result.attempts == attempts_table(records)
    assert result.vertices == vertices_table(records)
    assert result.timings == timings_table(records)
    alone = JobResult("3f", "word count", 1.0, decisions, None)
    assert alone.decisions == result.decisions
    assert alone.attempts.num_rows == 0
