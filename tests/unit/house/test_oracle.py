"""The comparison that other tests rest on must itself see differences."""

import decimal

import pyarrow as pa
import pytest

from oracle import assert_same_rows, duckdb_answer


def table(**columns):
    return pa.table(columns)


def test_order_widths_and_last_digits_do_not_matter():
    assert_same_rows(
        table(k=pa.array([2, 1, None], pa.int32()), x=[0.1 + 0.2, 1.0, float("nan")]),
        table(k=pa.array([None, 1, 2], pa.int64()), x=[float("nan"), 1.0, 0.3]),
    )
    assert_same_rows(
        table(d=[decimal.Decimal("1.50")]), table(d=pa.array([decimal.Decimal("1.5")], pa.decimal128(38, 1)))
    )
    assert_same_rows(table(l=[[1, 2], None, []]), table(l=[None, [], [1, 2]]))


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (table(k=[1, 1]), table(k=[1])),
        (table(k=[1, 1, 2]), table(k=[1, 2, 2])),
        (table(k=[1]), table(j=[1])),
        (table(k=[1]), table(k=[1.0])),
        (table(k=["1"]), table(k=[1])),
        (table(k=[None], x=[1.0]), table(k=[0], x=[1.0])),
        (table(x=[1.0]), table(x=[1.00001])),
        (table(x=[float("nan")]), table(x=[0.0])),
    ],
)
def test_differences_are_seen(actual, expected):
    with pytest.raises(AssertionError):
        assert_same_rows(actual, expected)


def test_order_is_seen_where_asked_for():
    assert_same_rows(table(k=[1, 2]), table(k=[2, 1]))
    with pytest.raises(AssertionError):
        assert_same_rows(table(k=[1, 2]), table(k=[2, 1]), in_order=True)


def test_duckdb_reads_arrow_tables_by_name():
    answer = duckdb_answer("SELECT k, sum(v) AS v FROM t GROUP BY k", t=table(k=["a", "b", "a"], v=[1, 2, 3]))
    assert_same_rows(answer.set_column(1, "v", answer["v"].cast(pa.int64())), table(k=["b", "a"], v=[2, 4]))
