"""Python functions in Spark's plans that our own tasks call, compared with what Spark computes: values, types and errors."""

import datetime as dt
import decimal
import math
import warnings
from collections.abc import Iterator

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf, pandas_udf, udf
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
)

from firesteel import ExecutionEnvironment
from firesteel.errors import JobExecutionError

pytestmark = pytest.mark.spark

ROWS = 400
LONG, INT, DOUBLE, STRING = LongType(), IntegerType(), DoubleType(), StringType()


def table():
    n = np.arange(ROWS)
    some = [None if i % 7 == 3 else i for i in range(ROWS)]
    moments = [
        None if i % 5 == 1 else dt.datetime(2024, 3, 10, 1, 30) + i * dt.timedelta(minutes=17) for i in range(ROWS)
    ]
    return pa.table(
        {
            "id": n,
            "k": [None if v is None else v % 6 for v in some],
            "n": pa.array(some, pa.int64()),
            "i": pa.array([None if i % 11 == 2 else i - 200 for i in range(ROWS)], pa.int32()),
            "f": [math.nan if i % 13 == 0 else None if i % 13 == 1 else i / 8 for i in range(ROWS)],
            "s": [None if i % 9 == 4 else f"é{i % 10}" for i in range(ROWS)],
            "x": [None if i % 9 == 5 else bytes([i % 256, 0]) for i in range(ROWS)],
            "d": pa.array([None if i % 8 == 2 else decimal.Decimal(i) / 100 for i in range(ROWS)], pa.decimal128(9, 2)),
            "t": pa.array([dt.date(1969, 12, 1) + i * dt.timedelta(days=3) for i in range(ROWS)], pa.date32()),
            "m": pa.array(moments, pa.timestamp("us", "UTC")),
            "w": pa.array(moments, pa.timestamp("us")),
            "b": [None if i % 4 == 1 else i % 3 == 0 for i in range(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp("rows")
    for part in range(2):
        pq.write_table(table().slice(part * ROWS // 2, ROWS // 2), home / f"{part}.parquet")
    return str(home)


@pytest.fixture
def rows_of(spark, home):
    return spark.read.parquet(home)


def mapped():
    """Functions of batches."""

    def same(batches):
        yield from batches

    def doubled(batches):
        for batch in batches:
            yield pa.record_batch({"id": batch["id"], "twice": pc.multiply(batch["id"], 2)})

    def large(batches):
        for batch in batches:
            yield pa.record_batch({"s": batch["s"].cast(pa.large_string()), "x": batch["x"].cast(pa.large_binary())})

    def zones(batches):
        for batch in batches:
            yield pa.record_batch(
                {"zone": pa.array([batch.schema.field("m").type.tz] * batch.num_rows), "m": batch["m"]}
            )

    def schemas(batches):
        for batch in batches:
            yield pa.record_batch({"schema": [f"{field.name} {field.type}" for field in batch.schema]})

    def frames(parts):
        for frame in parts:
            assert list(frame.columns)[:2] == ["id", "k"]
            yield frame

    def shuffled(parts):
        for frame in parts:
            yield (
                frame[["twice", "id", "more"]]
                if "twice" in frame
                else pd.DataFrame({"twice": frame["id"] * 2.0, "id": frame["id"], "more": 1})[["twice", "id"]]
            )

    def dtypes(parts):
        for frame in parts:
            yield pd.DataFrame({"kind": [f"{n} {t} {frame[n].map(type).iloc[0]}" for n, t in frame.dtypes.items()]})

    def positions(parts):
        for frame in parts:
            yield pd.DataFrame({0: frame["id"], 1: frame["s"]})

    def counted(batches):
        yield pa.record_batch({"n": [sum(batch.num_rows for batch in batches)]})

    def nothing(batches):
        return iter([])

    def hours(parts):
        for frame in parts:
            yield pd.DataFrame({"h": frame["m"].dt.hour, "m": frame["m"] + pd.Timedelta(hours=1)})

    return {
        "arrow": lambda d: d.mapInArrow(same, d.schema),
        "arrow between": lambda d: (
            d.filter("n > 50")
            .mapInArrow(doubled, "id bigint, twice bigint")
            .groupBy((F.col("id") % 3).alias("g"))
            .agg(F.sum("twice").alias("s"))
        ),
        "arrow twice": lambda d: (
            d.mapInArrow(doubled, "id bigint, twice bigint")
            .filter("id % 2 = 0")
            .mapInArrow(same, "id bigint, twice bigint")
        ),
        "arrow large types": lambda d: d.mapInArrow(large, "s string, x binary"),
        "arrow zones": lambda d: d.mapInArrow(zones, "zone string, m timestamp"),
        "arrow schema": lambda d: d.mapInArrow(schemas, "schema string").distinct(),
        "arrow names by position": lambda d: d.mapInArrow(doubled, "a bigint, b bigint"),
        "arrow of nothing": lambda d: d.filter("id < 0").mapInArrow(doubled, "id bigint, twice bigint"),
        "arrow to nothing": lambda d: d.mapInArrow(nothing, "id bigint"),
        "arrow counts": lambda d: d.mapInArrow(counted, "n bigint").groupBy().agg(F.sum("n").alias("n")),
        "pandas": lambda d: d.mapInPandas(frames, d.schema),
        "pandas by name": lambda d: d.mapInPandas(shuffled, "id bigint, twice bigint"),
        "pandas by position": lambda d: d.mapInPandas(positions, "a bigint, b string"),
        "pandas types": lambda d: d.mapInPandas(dtypes, "kind string").distinct(),
        "pandas zones": lambda d: d.mapInPandas(hours, "h bigint, m timestamp"),
        "pandas of nothing": lambda d: d.filter("id < 0").mapInPandas(frames, d.schema),
    }


def by_rows(arrow):
    """Plain UDFs. ``arrow``: how their rows travel."""

    @udf(LONG, useArrow=arrow)
    def plus(v):
        return None if v is None else v + 1

    @udf(STRING, useArrow=arrow)
    def words(s, i):
        return f"{s}/{i}"

    @udf(INT, useArrow=arrow)
    def one():
        return 1

    @udf(DOUBLE, useArrow=arrow)
    def third(v, by=2.0):
        return None if v is None else v / by

    @udf(DecimalType(12, 3), useArrow=arrow)
    def cents(d):
        return None if d is None else d * 2

    @udf(DateType(), useArrow=arrow)
    def after(t):
        return t + dt.timedelta(days=1)

    @udf(TimestampType(), useArrow=arrow)
    def later(m):
        return None if m is None else m + dt.timedelta(hours=1)

    @udf(STRING, useArrow=arrow)
    def kinds(*values):
        return " ".join(f"{type(v).__name__}" for v in values)

    @udf(BooleanType(), useArrow=arrow)
    def odd(v):
        return None if v is None else v % 2 == 1

    @udf(INT, useArrow=arrow)
    def mixed(v):
        return [1, "2", None][v % 3]

    return {
        "one": lambda d: d.select("id", plus("n").alias("a")),
        "chained": lambda d: d.select(plus(plus("n")).alias("a"), plus(plus("id") + 1).alias("b"), "s"),
        "several": lambda d: d.select(words("s", "i").alias("a"), plus(F.col("id") * 2).alias("b"), odd("n").alias("c"), words("s", "id").alias("e")),
        "without arguments": lambda d: d.select("id", one().alias("a")),
        "named": lambda d: d.select(third("id", by=F.lit(4.0)).alias("a"), third(v=F.col("f")).alias("b")),
        "of decimals": lambda d: d.select(cents("d").alias("a")),
        "of dates": lambda d: d.select(after("t").alias("a"), later("m").alias("b"), later("w").alias("c")),
        "of types": lambda d: d.select(kinds("id", "i", "f", "s", "x", "d", "t", "m", "w", "b").alias("a")),
        "coerced": lambda d: d.select("id", mixed("id").alias("a")),
        "filter": lambda d: d.filter(odd("id") & (plus("n") > 20)).select("id", "s"),
        "groups": lambda d: d.groupBy(odd("n").alias("o")).agg(F.sum(plus("id")).alias("s"), F.max("f").alias("f")),
        "join": lambda d: d.select(plus("id").alias("id"), "s").join(d.select("id", "n"), "id").select("id", "n"),
        "not deterministic": lambda d: d.select(plus.asNondeterministic()("n").alias("a"), "id"),
    }  # fmt: skip


def evaluated():
    """Scalar functions of columns, and of iterators of columns."""

    @udf(LONG, useArrow=True)
    def plus(v):
        return None if v is None else v + 1

    @pandas_udf(LONG)
    def vector(v: pd.Series) -> pd.Series:
        return v + 1

    @pandas_udf(DOUBLE)
    def both(a: pd.Series, b: pd.Series) -> pd.Series:
        return a * b

    @pandas_udf(TimestampType())
    def moment(m: pd.Series) -> pd.Series:
        return m.dt.floor("h")

    @pandas_udf(STRING)
    def dtype(a: pd.Series, b: pd.Series, c: pd.Series, e: pd.Series) -> pd.Series:
        return pd.Series([f"{a.dtype} {b.dtype} {c.dtype} {e.dtype}"] * len(a))

    @pandas_udf(LONG)
    def streamed(parts: Iterator[pd.Series]) -> Iterator[pd.Series]:
        total = 0
        for part in parts:
            total += len(part)
            yield part * 2

    @pandas_udf(LONG)
    def regrouped(parts: Iterator[tuple[pd.Series, pd.Series]]) -> Iterator[pd.Series]:
        whole = pd.concat([a.fillna(0) + b for a, b in parts] or [pd.Series([], dtype="int64")])
        yield whole.iloc[:3]
        yield whole.iloc[3:]

    @arrow_udf(LONG)
    def tripled(v: pa.Array) -> pa.Array:
        return pc.multiply(v, 3)

    @arrow_udf(STRING)
    def texts(parts: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for part in parts:
            yield part.cast(pa.string())

    return {
        "pandas": lambda d: d.select("id", vector("n").alias("a"), vector("i").alias("b")),
        "pandas named": lambda d: d.select(both("id", b=F.col("f")).alias("a"), both(vector("id"), vector("i")).alias("b")),
        "pandas zones": lambda d: d.select("id", moment("m").alias("a")),
        "pandas types": lambda d: d.select(dtype("i", "m", "b", "d").alias("a")).distinct(),
        "pandas iterators": lambda d: d.select("id", streamed("i").alias("a")),
        "pandas iterators of two": lambda d: d.select("id", regrouped("i", "id").alias("a")),
        "pandas of nothing": lambda d: d.filter("id < 0").select(vector("n").alias("a"), streamed("i").alias("b")),
        "arrow": lambda d: d.select("id", tripled("n").alias("a")),
        "arrow iterators": lambda d: d.select("id", texts("n").alias("a")),
        "mixed": lambda d: d.select(tripled(vector(plus("id"))).alias("a"), texts("i").alias("b"), F.upper("s").alias("c")).filter("a > 30"),
    }  # fmt: skip


def grouped():
    """Functions of groups."""

    def centred(frame):
        return frame.assign(f=frame["f"] - frame["f"].mean()).sort_values("id")

    def keyed(key, frame):
        return pd.DataFrame({"k": [key[0]], "rows": [len(frame)], "last": [frame["id"].max()]})

    def two_keys(key, frame):
        return pd.DataFrame([(*key, len(frame))])

    def arrow(table):
        return table.select(["id", "k"])

    def arrow_keyed(key, table):
        return pa.table({"k": pa.array([key[0].as_py()], pa.int64()), "n": [table.num_rows]})

    def arrow_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [sum(b.num_rows for b in batches)]})

    def pandas_parts(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            yield pd.DataFrame({"n": [len(frame)], "s": [frame["id"].sum()]})

    def beside(a, b):
        return pd.DataFrame({"a": [len(a)], "b": [len(b)], "s": [a["id"].sum() + b["id"].sum()]})

    def beside_keyed(key, a, b):
        return pd.DataFrame({"k": [key[0]], "a": [len(a)], "b": [",".join(sorted(b["s"].dropna().unique()))]})

    def arrow_beside(a, b):
        return pa.table({"a": [a.num_rows], "b": [b.num_rows]})

    def arrow_beside_keyed(key, a, b):
        return pa.table(
            {"k": pa.array([key[0].as_py()], pa.string()), "a": [a.num_rows], "names": [" ".join(b.column_names)]}
        )

    @pandas_udf(DOUBLE)
    def mean(v: pd.Series) -> float:
        return float(v.mean())

    @pandas_udf(LONG)
    def spread(v: pd.Series, by: pd.Series) -> int:
        return int((v.max() - v.min()) * len(by))

    @pandas_udf(STRING)
    def first_name(s: pd.Series) -> str:
        return min(s.dropna(), default=None)

    @pandas_udf(LONG)
    def total(parts: Iterator[pd.Series]) -> int:
        return sum(int(part.sum()) for part in parts)

    @arrow_udf(LONG)
    def arrow_total(v: pa.Array) -> int:
        return pc.sum(v)

    return {
        "pandas": lambda d: d.groupBy("k").applyInPandas(centred, d.schema),
        "pandas keyed": lambda d: d.groupBy("k").applyInPandas(keyed, "k bigint, rows int, last bigint"),
        "pandas by an expression": lambda d: d.groupBy((F.col("id") % 5).alias("g")).applyInPandas(keyed, "k bigint, rows int, last bigint"),
        "pandas by two": lambda d: d.groupBy("s", "b").applyInPandas(two_keys, "s string, b boolean, n bigint"),
        "pandas by dates": lambda d: d.groupBy("t", "m").applyInPandas(two_keys, "t date, m timestamp, n bigint"),
        "pandas by decimals": lambda d: d.groupBy("d").applyInPandas(lambda key, v: pd.DataFrame({"d": [key[0]], "n": [len(v)]}), "d decimal(9,2), n int"),
        "pandas whole": lambda d: d.groupBy().applyInPandas(lambda v: pd.DataFrame({"n": [len(v)]}), "n int"),
        "pandas of nothing": lambda d: d.filter("id < 0").groupBy("k").applyInPandas(centred, d.schema),
        "pandas parts": lambda d: d.groupBy("k").applyInPandas(pandas_parts, "n bigint, s bigint").agg(F.sum("n").alias("n"), F.sum("s").alias("s")),
        "arrow": lambda d: d.groupBy("k").applyInArrow(arrow, "id bigint, k bigint"),
        "arrow keyed": lambda d: d.groupBy("k").applyInArrow(arrow_keyed, "k bigint, n bigint").filter("n > 10"),
        "arrow parts": lambda d: d.groupBy("k").applyInArrow(arrow_batches, "n bigint"),
        "cogroup": lambda d: d.groupBy("k").cogroup(d.filter("id > 200").groupBy("k")).applyInPandas(beside, "a int, b int, s bigint"),
        "cogroup keyed": lambda d: d.groupBy("k").cogroup(d.filter("id < 5").select("k", "s").groupBy("k")).applyInPandas(beside_keyed, "k bigint, a int, b string"),
        "cogroup arrow": lambda d: d.groupBy("s").cogroup(d.filter("k = 2").groupBy("s")).applyInArrow(arrow_beside, "a bigint, b bigint"),
        "cogroup arrow keyed": lambda d: d.filter("id > 390").groupBy("s").cogroup(d.select("s", "id").groupBy("s")).applyInArrow(arrow_beside_keyed, "k string, a bigint, names string"),
        "aggregate": lambda d: d.groupBy("k").agg(mean("f").alias("a"), spread("id", F.col("i") + 1).alias("b"), first_name("s").alias("c")),
        "aggregate by expressions": lambda d: d.groupBy((F.col("id") % 4).alias("g"), "b").agg(spread("n", by="id").alias("a")).filter("a > 0"),
        "aggregate whole": lambda d: d.agg(spread("id", "id").alias("a"), mean("id").alias("b")),
        "aggregate of nothing": lambda d: d.filter("id < 0").agg(mean("id").alias("b")),
        "aggregate groups of nothing": lambda d: d.filter("id < 0").groupBy("k").agg(mean("id").alias("b")),
        "aggregate parts": lambda d: d.groupBy("k").agg(total("id").alias("a")),
        "aggregate arrow": lambda d: d.groupBy("k").agg(arrow_total("id").alias("a")),
        "window": lambda d: d.select("id", "k", mean("id").over(Window.partitionBy("k")).alias("a"), first_name("s").over(Window.partitionBy("k")).alias("b")),
        "window over an expression": lambda d: d.select("id", spread(F.col("id") + 1, "id").over(Window.partitionBy(F.col("id") % 3, "b")).alias("a")),
        "window whole": lambda d: d.select("id", arrow_total("id").over(Window.partitionBy()).alias("a")),
    }  # fmt: skip


CASES = {f"{kind} {name}": make for kind, cases in (("map", mapped()), ("udf", evaluated()), ("pickled udf", by_rows(False)), ("arrow udf", by_rows(True)), ("group", grouped())) for name, make in cases.items()}  # fmt: skip


def sortable(row):
    return tuple((value is None, repr(value)) for value in row)


def rows(table):
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=sortable)


def near(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-12) or (math.isnan(a) and math.isnan(b))
    return a == b


def assert_as_spark(env, frame):
    stream = env.from_dataframe(frame)
    assert stream._pipeline.node.kind.startswith("sql("), stream.explain()
    assert not stream._pipeline.node.left_to_spark, stream.explain()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # so that Spark does not compute it
        ours = stream.to_arrow()
    theirs = frame.toArrow()
    assert ours.schema.names == theirs.schema.names
    assert ours.schema.types == [t.type if not pa.types.is_timestamp(t.type) else ours.schema.field(i).type for i, t in enumerate(theirs.schema)]  # fmt: skip
    a, b = rows(ours), rows(theirs.cast(ours.schema))
    assert len(a) == len(b)
    for mine, its in zip(a, b, strict=True):
        assert all(map(near, mine, its)), (mine, its)


def test_a_script_of_python_functions(env, rows_of):
    """One for the quick tests; the kinds are below."""
    assert_as_spark(env, CASES["map arrow between"](rows_of.withColumn("n", udf(lambda v: v, "long")("n"))))


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_the_same_rows(env, rows_of, case):
    assert_as_spark(env, CASES[case](rows_of))
