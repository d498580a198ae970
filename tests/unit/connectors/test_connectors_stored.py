"""What a job has kept, as a source for the next."""

import numpy as np
import pyarrow as pa
import pytest

from connectors_kit import context
from firesteel.connectors.stored import StoredRows, StoredSource
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.results.writer import ResultWriter


@pytest.mark.parametrize("columns", [{}, {"n": pa.nulls(5)}, {"n": pa.array([1, None, 2, 3, 4])}])
def test_rows_without_bytes_are_rows(tmp_path, columns):
    store = ResultStore(str(tmp_path))
    schema = pa.schema([(name, array.type) for name, array in columns.items()])
    rows = pa.StructArray.from_buffers(pa.struct([]), 5, [None])
    batch = (
        pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
        if columns
        else pa.RecordBatch.from_struct_array(rows)
    )
    for producer in range(3):
        writer = ResultWriter(store, object_name(4, producer, 0, 7), schema, 1, memory_budget=1 << 20)
        if producer != 1:
            writer.write(batch)
        writer.finish()
    kept = StoredRows(store, 4, 1, np.zeros(3, np.int64), np.full(3, 7), schema)
    source = StoredSource.of(kept, "step", kept.sizes())
    splits = source.list_splits(1)
    assert [split.payload[0] for split in splits] == [0, 2]
    assert sum(b.num_rows for split in splits for b in source.read(split.payload, context())) == 10
