"""Whole jobs, hand-made."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest

from firesteel.api.job_client import JobClient
from firesteel.errors import FiresteelError, JobExecutionError, UsageError
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.spark.driver.runtime import launch, submit
from runtime_support import NUMBERS, Numbers, RecordingSink, collected, left_behind, options, two_steps


def run(session, tmp_path, job, **values):
    return submit(job, session, options(tmp_path, **values)).result()


def test_a_job_runs_to_its_end_and_leaves_only_what_is_collected(session, tmp_path):
    sink = RecordingSink()
    outcome = run(session, tmp_path, two_steps(splits=4, rows=100, sink=sink))
    assert outcome.error is None
    assert outcome.status is JobStatus.FINISHED
    assert sorted(collected(outcome)["v"].to_pylist()) == list(range(400))
    assert [d.what for d in outcome.decisions]
    assert [call[0] for call in sink.calls] == ["begin", "commit"]
    messages = sink.calls[1][1]
    assert sum(message[3] for message in messages) == sum(range(400))
    assert all(message[0] == outcome.job_id for message in messages)
    assert [m[1] for m in messages] == sorted(m[1] for m in messages)
    kept = [name for name in left_behind(tmp_path) if name.endswith(".fsr")]
    assert all(f"{outcome.job_id}/d1-" in name for name in kept)
    outcome.close()
    assert left_behind(tmp_path) == []


def test_a_journal_is_written_and_explains_the_job(session, tmp_path):
    given = options(tmp_path).with_values(
        {"firesteel.journal.directory": str(tmp_path / "j"), "firesteel.progress": "false"}
    )
    result = JobClient(launch(two_steps(), session, given)).wait()
    assert result.journal is not None
    assert result.job_id in result.journal.name
    assert "two steps" in result.explain()
    assert "numbers" in result.explain("numbers")


def test_jobs_run_side_by_side(session, tmp_path):
    runs = [submit(two_steps(splits=3, rows=10 * (i + 1)), session, options(tmp_path)) for i in range(4)]
    outcomes = [r.result() for r in runs]
    assert [o.error for o in outcomes] == [None] * 4
    assert [collected(o).num_rows for o in outcomes] == [30, 60, 90, 120]
    assert len({o.job_id for o in outcomes}) == 4


def raising(batches):
    for batch in batches:
        if 3 in batch.column("k").to_pylist():
            raise ValueError("three is bad")
        yield batch


def test_a_failing_function_fails_the_job_with_the_users_frames(session, tmp_path):
    sink = RecordingSink()
    outcome = run(
        session, tmp_path, two_steps(fn=raising, sink=sink, parallelism=3), **{"restart-strategy__type": "none"}
    )
    assert isinstance(outcome.error, JobExecutionError)
    assert "three is bad" in str(outcome.error)
    assert "work" in str(outcome.error)
    assert "raising" in (outcome.error.cause_trace or "")
    assert "firesteel/operators" not in (outcome.error.cause_trace or "")
    assert "commit" not in [call[0] for call in sink.calls]
    assert sink.calls[-1] == ("abort", [])
    assert left_behind(tmp_path) == []


@dataclass(frozen=True)
class FailsOnce:
    """Split 1 raises on the first attempt; which one it is, the subtask's context says."""

    error: Any

    def read(self, split, ctx):
        if split == 1 and ctx.attempt == 0:
            raise self.error
        yield from Numbers(10).read(split, ctx)


@pytest.mark.parametrize(
    "error", [ValueError("once"), SystemExit(3), MemoryError("too much"), OSError(28, "No space left")]
)
def test_an_execution_that_fails_is_run_again_and_its_siblings_are_not(session, tmp_path, error):
    outcome = run(session, tmp_path, two_steps(splits=4, source=FailsOnce(error)))
    assert outcome.error is None
    assert sorted(collected(outcome)["v"].to_pylist()) == list(range(40))
    attempts = outcome.persistent[1].attempts
    assert set(attempts.tolist()) == {0}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(28, "No space left on device"), "is full"),
        (MemoryError("too much"), "ran out of memory"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
def test_what_ails_a_task_is_a_sentence(session, tmp_path, error, words):
    outcome = run(session, tmp_path, two_steps(splits=2, source=FailsOnce(error)), **{"restart-strategy__type": "none"})
    assert words in str(outcome.error)
    assert "Traceback" not in str(outcome.error)


def test_a_sink_that_cannot_publish_fails_the_job_and_is_aborted(session, tmp_path):
    sink = RecordingSink(commit_error=OSError(28, "No space left on device"))
    outcome = run(session, tmp_path, two_steps(sink=sink))
    assert isinstance(outcome.error, FiresteelError)
    assert "recording" in str(outcome.error)
    assert [call[0] for call in sink.calls] == ["begin", "commit", "abort"]
    assert left_behind(tmp_path) == []


def test_a_function_that_cannot_be_serialised_is_named_before_anything_runs(session, tmp_path):
    lock = threading.Lock()

    def locked(batches):
        with lock:
            yield from batches

    with pytest.raises(UsageError, match=r"'fn'.*cannot be sent to executors.*lock"):
        submit(two_steps(fn=locked), session, options(tmp_path))
    assert left_behind(tmp_path) == []


def test_waiting_with_a_timeout(session, tmp_path):
    client = JobClient(submit(two_steps(), session, options(tmp_path)))
    with pytest.raises(TimeoutError):
        client.wait(timeout=0)
    assert client.wait().job_id == client.job_id
    assert client.status() is JobStatus.FINISHED
    client.cancel()
    assert client.status() is JobStatus.FINISHED


def test_a_module_of_the_script_needs_no_shipping_on_a_local_master(session, tmp_path):
    """This test module is importable on the driver only through pytest's search path."""
    outcome = run(session, tmp_path, two_steps(fn=doubled))
    assert sorted(collected(outcome)["v"].to_pylist()) == [2 * v for v in range(400)]


def doubled(batches):
    for batch in batches:
        yield pa.RecordBatch.from_arrays([batch.column("k"), pa.compute.multiply(batch.column("v"), 2)], schema=NUMBERS)
