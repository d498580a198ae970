"""On Spark: a costly Python function on few bytes runs in all slots, from its second run on."""

import time

import numpy as np
import pyarrow as pa

PRODUCERS, ROWS = 8, 1 << 14
NUMBERS = pa.schema({"v": pa.int64()})


def made(batches):
    for batch in batches:
        for number in batch.column("v").to_pylist():
            yield pa.record_batch([np.arange(ROWS) + number * ROWS], schema=NUMBERS)


def costly(batches):
    """A second for all rows, in which no core is used."""
    for batch in batches:
        time.sleep(batch.num_rows / (PRODUCERS * ROWS))
        yield batch


def test_the_second_run_uses_all_slots(env, spark, tmp_path):
    slots = spark.sparkContext.defaultParallelism
    for expected in (1, min(slots, 4)):
        rows = env.from_arrow(pa.table({"v": np.arange(PRODUCERS)})).map_in_arrow(made, NUMBERS)
        rows.rebalance().map_in_arrow(costly, NUMBERS).write_parquet(str(tmp_path / "out"), mode="overwrite")
        result = env.execute("costly")
        (decision,) = [d for d in result.decision_records if d.what == "parallelism"]
        assert decision.result["parallelism"] >= expected
        assert ("measured in 1 earlier run" in decision.reason) == (expected > 1)
    assert "measured in 1 earlier run" in result.explain()
