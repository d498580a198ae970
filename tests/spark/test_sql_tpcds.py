"""The 99 queries of TPC-DS, computed by our own tasks and by Spark: the same rows and types."""

from __future__ import annotations

import math
import warnings

import pytest

from tpcds_kit import NotToBeHad, tpcds

pytestmark = [pytest.mark.spark, pytest.mark.full]

SCALE = 0.1


@pytest.fixture(scope="module")
def queries(spark):
    try:
        home, known = tpcds(SCALE)
    except NotToBeHad as reason:
        pytest.skip(f"TPC-DS cannot be made here: {reason}")
    for folder in home.iterdir():
        if folder.is_dir():
            spark.read.parquet(str(folder)).createOrReplaceTempView(folder.name)
    return {number: text for number, (_, text) in known.items()}


def near(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(a) and math.isnan(b))
    return a == b


def rows_of(table):
    """Sorted, doubles last, for their last digits may differ."""
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)

    def key(row):
        exact = tuple((value is None, repr(value)) for value in row if not isinstance(value, float))
        return exact, tuple(f"{value:.6g}" for value in row if isinstance(value, float))

    return sorted(rows, key=key)


@pytest.mark.parametrize("number", range(1, 100))
def test_a_query_of_tpcds(spark, env, queries, number):
    frame = spark.sql(queries[number])
    stream = env.from_dataframe(frame)
    assert "Spark computes" not in stream.explain()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # so that Spark does not compute it
        ours = stream.to_arrow()
    theirs = frame.toArrow()
    assert ours.schema.names == theirs.schema.names
    assert ours.schema.types == theirs.schema.types
    assert ours.num_rows == theirs.num_rows
    for mine, its in zip(rows_of(ours), rows_of(theirs), strict=True):
        assert all(map(near, mine, its)), (mine, its)
