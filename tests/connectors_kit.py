"""What the tests of connectors share: a task's context, and reading a source the way tasks do."""

import pickle
from pathlib import Path

import pyarrow as pa

from firesteel.task.program import TaskContext


def context(**changes):
    values = {
        "job_id": "job",
        "vertex": 0,
        "vertex_name": "v",
        "subtask": 0,
        "attempt": 0,
        "parallelism": 1,
        "token": 0,
        "memory_budget": 1 << 26,
        "scratch": Path(),
    }
    return TaskContext(**{**values, **changes})


def read_all(source, data_volume=64 << 20):
    """All rows, each split read by a pickled copy, as on an executor."""
    splits = source.list_splits(data_volume)
    shipped = pickle.loads(pickle.dumps(source))
    batches = []
    for split in splits:
        assert split.bytes > 0
        assert split.description
        for batch in shipped.read(pickle.loads(pickle.dumps(split.payload)), context()):
            assert batch.schema.equals(source.schema), batch.schema
            batch.validate(full=True)
            batches.append(batch)
    return pa.Table.from_batches(batches, source.schema)


def run_sink(sink, shares, schema, job_id="job-1"):
    """One job: ``shares`` holds each subtask's batches. Returns the commit messages."""
    sink.check(schema)
    sink.begin(job_id)
    shipped = pickle.loads(pickle.dumps(sink))
    messages = []
    for subtask, batches in enumerate(shares):
        writer = shipped.write(subtask, 0)
        for batch in batches:
            writer.write(batch)
        messages.append(pickle.loads(pickle.dumps(writer.finish())))
    return messages
