"""DataFrames as sources and results of a pipeline."""

from __future__ import annotations

import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment
from firesteel.errors import UsageError

pytestmark = pytest.mark.spark


def only_keys_of(batches, small):
    import pyarrow.compute as pc

    for batch in batches:
        found = pc.is_in(batch.column("k"), small.column("k").combine_chunks())
        yield batch.filter(found).select(["k"])


def test_dataframes_in_and_out(env, spark, tmp_path):
    kept = {**env.options, "firesteel.storage.directory": str(tmp_path / "kept")}  # to_dataframe's rows stay
    env = ExecutionEnvironment(spark=spark, options=kept)
    frame = spark.range(0, 1000, 1, 4).selectExpr(
        "id", "id % 7 AS k", "CAST(id AS DECIMAL(12, 2)) AS d", "timestamp_seconds(id) AS t"
    )
    stream = env.from_dataframe(frame)
    assert stream.schema.field("d").type == pa.decimal128(12, 2)
    totals = stream.key_by("k").aggregate({"id": "sum", "d": "max"})
    back = totals.to_dataframe()
    expected = frame.groupBy("k").agg({"id": "sum", "d": "max"}).collect()
    assert {(r["k"], r["id"], r["d"]) for r in back.collect()} == {
        (r["k"], r["sum(id)"], r["max(d)"]) for r in expected
    }
    assert back.count() == 7
    assert env.from_dataframe(frame.filter("id < 0")).count() == 0
    small = env.from_collection([{"k": 1}, {"k": 2}])
    beside = stream.with_broadcast(small=small).map_in_arrow(only_keys_of, "k bigint")
    assert sorted(set(beside.to_arrow().column(0).to_pylist())) == [1, 2]
    plain = ExecutionEnvironment(spark=spark, options={**kept, "firesteel.sql.dataframes": "spark"})
    with pytest.raises(UsageError, match="its DataFrame has 4 partitions"):
        plain.from_dataframe(frame).set_parallelism(2).count()
