"""Streams that run are brought from 2 to 8 to 3 partitions, and answer as DuckDB does."""

from __future__ import annotations

import pytest

from firesteel.streaming import AdaptiveStream, ResourceRequirements
from stream_queries_kit import FILES, QUERIES, UTC, answer, given, write_input
from stream_sources_kit import come_to_rest, until

pytestmark = [pytest.mark.spark, pytest.mark.full]

OPTIONS = {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "0 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 s",
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0 s",
    "jobmanager.adaptive-scheduler.max-delay-for-scale-trigger": "5 min",
    "firesteel.stream.partitions-per-core": 1,
    "firesteel.progress": False,
}


@pytest.mark.parametrize("name", QUERIES)
def test_2_to_8_to_3_partitions_while_it_runs(spark, tmp_path, name):
    query = QUERIES[name]
    batches, sessions = [], []

    def build(session):
        sessions.append(session)
        for key, value in {**UTC, **query.conf}.items():
            session.conf.set(key, value)
        writer = query.build(session, tmp_path).writeStream.outputMode("update" if query.latest else "append")
        return writer.foreachBatch(lambda rows, batch: batches.append((batch, [tuple(row) for row in rows.collect()])))

    expected = answer(query)
    write_input(tmp_path, range(3))
    options = {**OPTIONS, "firesteel.journal.directory": str(tmp_path / "journal")}
    requirements = ResourceRequirements(lower=1, upper=2)
    with AdaptiveStream.start(build, tmp_path / "chk", requirements, options=options, spark=spark) as stream:

        def wait(true, what):
            until(lambda: true() or not stream.is_active, what)
            assert stream.is_active or stream.await_termination(), "it has ended"  # a failed one raises

        wait(lambda: batches, "a batch")
        for parallelism, files in ((8, range(3, 7)), (3, range(7, FILES))):
            stream.rescale(parallelism)
            write_input(tmp_path, files)
            seen = len(batches)
            wait(lambda p=parallelism: stream.status().parallelism == p, "the rescale")
            wait(lambda seen=seen: len(batches) > seen, "a batch after it")
        come_to_rest(stream, sessions)
        assert given(query, batches) == expected
        if query.left is not None:
            wait(lambda: stream.status().state_rows <= query.left, "state to go")
    assert given(query, batches) == expected, "something came after"
    ids = [batch for batch, _ in batches]
    assert len(ids) == len(set(ids)), "the sink was given a batch twice"
    done = [record for record in stream.history() if record.end == "completed"]
    assert [(record.before, record.granted, record.replayed_rows) for record in done] == [(2, 8, 0), (8, 3, 0)]
