"""What the tests of whole tasks share: a source, a sink that notes what happens to it, gates over what a test has written."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from firesteel.results.reader import GateReader
from firesteel.task.program import Gate
from operators_support import collect

SCHEMA = pa.schema({"k": pa.int64(), "v": pa.int64()})


@dataclass
class Rows:
    """A source whose splits are (first, count); rows of 100 each batch."""

    def read(self, split, ctx):
        first, count = split
        for start in range(first, first + count, 100):
            numbers = np.arange(start, min(start + 100, first + count))
            yield pa.record_batch({"k": numbers % 10, "v": numbers}, schema=SCHEMA)


@dataclass
class Split:
    payload: tuple
    description: str


@dataclass
class Sink:
    log: list = field(default_factory=list)
    fail: str = ""

    def write(self, subtask, attempt):
        self.log.append(("open", subtask, attempt))
        return self.Writer(self)

    class Writer:
        def __init__(self, sink):
            self.sink = sink

        def _do(self, what, *more):
            self.sink.log.append((what, *more))
            if self.sink.fail == what:
                raise OSError("disk full")

        def write(self, batch):
            self._do("write", batch.num_rows)

        def finish(self):
            self._do("finish")
            return {"done": True}

        def abort(self):
            self._do("abort")


def gate(dataset, subpartitions, *, partitions=1, subtask=0, attempt=2, token=77, low=0, high=None):
    """All of a data set that partitions 0.. wrote; the tests' writers are subtask 3, so reading names partition 3."""
    size = subtask + partitions
    rect = [subtask, subtask + partitions, low, subpartitions if high is None else high]
    return Gate(dataset, subpartitions, np.full(size, attempt), np.full(size, token), np.array([rect], np.int32))


def read(store, dataset, schema, subpartitions, low=None, high=None):
    g = gate(dataset, subpartitions, subtask=3)
    return collect(
        GateReader(store, dataset, schema, subpartitions, g.attempts, g.tokens, g.rects).read(low, high), schema
    )
