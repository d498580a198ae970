"""Whole jobs, hand-made, on an embedded Spark."""

from __future__ import annotations

import pytest

from firesteel.scheduler.commands import JobStatus
from firesteel.spark.runtime import submit
from runtime_support import RecordingSink, collected, left_behind, options, two_steps

pytestmark = pytest.mark.spark


def run(spark, tmp_path, job, **values):
    return submit(job, spark, options(tmp_path, **values)).result()


def test_a_job_runs_to_its_end_and_leaves_only_what_is_collected(spark, tmp_path):
    sink = RecordingSink()
    outcome = run(spark, tmp_path, two_steps(splits=4, rows=100, sink=sink))
    assert outcome.error is None
    assert outcome.status is JobStatus.FINISHED
    assert sorted(collected(outcome)["v"].to_pylist()) == list(range(400))
    assert [d.what for d in outcome.decisions]
    names = [call[0] for call in sink.calls]
    assert names == ["begin", "commit"]
    assert sum(message[3] for message in sink.calls[1][1]) == sum(range(400))
    assert all(message[0] == outcome.job_id for message in sink.calls[1][1])
    outcome.close()
    assert left_behind(tmp_path) == []
