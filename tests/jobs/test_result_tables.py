"""A real job's journal: the tables, --what-if, the order of options with Spark's configuration in it, and its size."""

from __future__ import annotations

import json
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from firesteel import ExecutionEnvironment, History
from firesteel.errors import JobExecutionError
from firesteel.journal.file import Journal, read
from firesteel.report.tables import SCHEMAS
from firesteel.simulation.what_if import compare


def as_it_is(batches):
    yield from batches


def counted(env, rows=2000):
    numbers = env.from_collection([{"k": i % 97, "v": i} for i in range(rows)])
    return numbers.key_by("k").aggregate({"v": "sum"})


def test_tables_of_a_job_agree_with_what_it_did(env, tmp_path):
    counted(env).write_parquet(tmp_path / "out")
    result = env.execute("tables")
    for name, schema in SCHEMAS.items():
        assert getattr(result, name).schema == schema
    vertices = result.vertices.to_pylist()
    assert [row["finished"] for row in vertices] == [row["parallelism"] for row in vertices]
    assert sum(row["rows_out"] or 0 for row in vertices) >= 97
    attempts = result.attempts
    assert attempts.num_rows == sum(row["parallelism"] for row in vertices)
    assert pc.all(attempts["won"]).as_py()
    assert pc.min(attempts["seconds"]).as_py() >= 0
    assert None not in attempts["node"].to_pylist()
    job = result.timings.to_pylist()[0]
    assert 0 < job["seconds"] <= result.duration + 1
    assert {"source parallelism", "parallelism"} <= set(result.decisions["what"].to_pylist())
    again = History(result.journal)
    assert again.status == "FINISHED"
    assert again.attempts == attempts
    assert pa.types.is_string(again.decisions.schema.field("inputs").type)


def test_a_jobs_bytes_are_decided_again(env, tmp_path):
    counted(env).write_parquet(tmp_path / "out")
    result = env.execute("what if")
    (one,) = compare(read(result.journal), {"data-volume-per-task": 1, "max-parallelism": 7})
    (decision,) = [d for d in result.decision_records if d.what == "parallelism"]
    assert one.was.parallelism == decision.result["parallelism"]
    assert one.was.reason == decision.reason
    assert one.would_be.parallelism == 7


def test_what_a_failing_function_says_gets_into_the_journal_without_its_secrets(session, tmp_path, monkeypatch):
    monkeypatch.setenv("LEDGER_PASSWORD", "correct-horse")

    def login(batches):
        raise ValueError("cannot log in at postgresql://bob:hunter2x@db/x with correct-horse, token=tok-123456")
        yield from batches

    options = {"firesteel.progress": False, "journal.directory": str(tmp_path / "j"), "restart-strategy.type": "none"}
    env = ExecutionEnvironment(session, options=options)
    env.from_collection([{"k": 1}]).map_in_arrow(login, "k long").write_parquet(tmp_path / "out")
    with pytest.raises(JobExecutionError, match="hunter2x"):
        env.execute("login")
    (journal,) = (tmp_path / "j").glob("*.jsonl")
    text = journal.read_text()
    assert "cannot log in at postgresql://***@db/x" in text
    for secret in ("hunter2x", "correct-horse", "tok-123456"):
        assert secret not in text, secret


@pytest.mark.full
def test_a_journal_costs_next_to_nothing(session, tmp_path, monkeypatch):
    """Of a job with many small subtasks: CPU seconds in the journal against the job's duration."""
    spent = []
    record = Journal.record

    def timed(self, one):
        started = time.thread_time()
        record(self, one)
        spent.append(time.thread_time() - started)

    monkeypatch.setattr(Journal, "record", timed)
    env = ExecutionEnvironment(session, options={"firesteel.progress": False, "journal.directory": str(tmp_path / "j")})
    numbers = env.from_collection([{"k": i, "v": i} for i in range(2000)]).rebalance()
    numbers.map_in_arrow(as_it_is, "k long, v long").set_parallelism(300).write_parquet(tmp_path / "out")
    result = env.execute("many")
    size = result.journal.stat().st_size
    subtasks = result.attempts.num_rows
    assert subtasks >= 300
    assert size < 200 * subtasks + 20_000
    share = sum(spent) / result.duration
    print(json.dumps({"subtasks": subtasks, "bytes": size, "share": round(share, 5), "seconds": result.duration}))
    assert share < 0.05, "0.05 % where it was measured"
