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

import sql_plans_kit

if not sql_plans_kit.calls_functions():  # test_sql_plans shows what becomes of them
    pytest.skip("Spark computes the Python functions in these plans", allow_module_level=True)

from pyspark.errors import PythonException
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.functions import arrow_udf, pandas_udf, udf
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    _parse_datatype_string,
)

from firesteel import ExecutionEnvironment, accelerate
from firesteel.errors import EngineStop, JobExecutionError
from firesteel.task.functions.spark_functions import _column

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
            yield pd.DataFrame({"h": frame["m"].dt.hour, "m": frame["m"] + pd.Timedelta(days=30)})

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

    return {
        "one": lambda d: d.select("id", plus("n").alias("a")),
        "chained": lambda d: d.select(plus(plus("n")).alias("a"), plus(plus("id") + 1).alias("b"), "s"),
        "several": lambda d: d.select(words("s", "i").alias("a"), plus(F.col("id") * 2).alias("b"), odd("n").alias("c"), words("s", "id").alias("e")),
        "without arguments": lambda d: d.select("id", one().alias("a")),
        "named": lambda d: d.select(third("id", by=F.lit(4.0)).alias("a"), third(v=F.col("f")).alias("b")),
        "of decimals": lambda d: d.select(cents("d").alias("a")),
        "of dates": lambda d: d.select(after("t").alias("a"), later("m").alias("b"), later("w").alias("c")),
        "of types": lambda d: d.select(kinds("id", "i", "f", "s", "x", "d", "t", "m", "w", "b").alias("a")),
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


def plain(kind):
    """Without zones and large types, which settings give to Spark's tables."""
    if pa.types.is_timestamp(kind):
        return kind.unit, kind.tz is None
    return str(kind).removeprefix("large_")


def assert_as_spark(env, frame):
    stream = env.from_dataframe(frame)
    assert stream._pipeline.node.kind.startswith("sql("), stream.explain()
    assert not stream._pipeline.node.left_to_spark, stream.explain()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # so that Spark does not compute it
        ours = stream.to_arrow()
    theirs = frame.toArrow()
    assert ours.schema.names == theirs.schema.names
    assert list(map(plain, ours.schema.types)) == list(map(plain, theirs.schema.types))
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


@pytest.fixture
def in_new_york(spark):
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    yield
    spark.conf.unset("spark.sql.session.timeZone")


ZONED = [
    name
    for name in CASES
    if any(word in name for word in ("zones", "types", "dates", "schema", "map arrow", "map pandas"))
]


@pytest.mark.full
@pytest.mark.parametrize("case", ZONED)
def test_the_same_rows_in_another_zone(env, rows_of, in_new_york, case):
    """The hour that does not exist there is among the rows."""
    assert_as_spark(env, CASES[case](rows_of))


SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
    "spark.sql.execution.arrow.maxBytesPerBatch": "1000b",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.pythonUDF.pandas.preferIntExtensionDtype": "true",
    "spark.sql.legacy.execution.pythonUDF.pandas.conversion.enabled": "true",
    "spark.sql.legacy.execution.pandas.groupedMap.assignColumnsByName": "false",
    "spark.sql.execution.arrow.pyspark.validateSchema.enabled": "true",
}
UNDER = ["map arrow schema", "map pandas types", "map pandas", "arrow udf of types", "arrow udf several", "udf pandas types", "udf pandas iterators of two", "group pandas keyed", "group arrow keyed", "group aggregate"]  # fmt: skip


@pytest.mark.full
@pytest.mark.parametrize("setting", SETTINGS)
def test_the_same_rows_under_settings(spark, env, rows_of, setting):
    spark.conf.set(setting, SETTINGS[setting])
    try:
        for case in UNDER:
            if "PerBatch" not in setting or "types" not in case:  # by nulls in the same batch
                assert_as_spark(env, CASES[case](rows_of))
    finally:
        spark.conf.unset(setting)


@pytest.mark.full
def test_batches_have_at_most_so_many_rows(spark, env, rows_of):
    def sizes(batches):
        for batch in batches:
            yield pa.record_batch({"n": [batch.num_rows]})

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "7")
    try:
        found = env.from_dataframe(rows_of.mapInArrow(sizes, "n bigint")).to_arrow()["n"].to_pylist()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert sum(found) == ROWS
    assert max(found) == 7
    assert len(found) <= math.ceil(ROWS / 7) + 4


VALUES = [None, True, 0, 1, -1, 127, 2**31 - 1, 2**63 - 1, 1.5, -0.0, math.nan, "1", "x", b"y", bytearray(b"z"), decimal.Decimal("1.5"), decimal.Decimal("12345.678"), dt.date(2024, 1, 1), dt.datetime(2024, 1, 1, 12), [1], {"a": 1}, (1,), 2**70, 300]  # fmt: skip
RETURNED = ["boolean", "byte", "short", "int", "long", "float", "double", "string", "binary", "decimal(5,2)"]


@pytest.mark.full
@pytest.mark.parametrize("kind", RETURNED)
def test_any_value_for_any_type(spark, kind):
    """Where tasks take a pickled value, they make of it what the JVM makes."""
    returned = _parse_datatype_string(kind)
    declared = to_arrow_type(returned)
    mine, taken = [], []
    for value in VALUES:
        try:
            mine += _column([value], declared).to_pylist()
        except (EngineStop, pa.ArrowException, OverflowError):
            continue
        taken.append(value)
    assert len(taken) >= 2

    def given(place):
        return taken[place]

    frame = spark.range(len(taken)).coalesce(1).select(udf(given, kind, useArrow=False)("id").alias("a"))
    assert repr(mine) == repr(frame.toArrow()["a"].to_pylist())


FAILING = {
    "raises": lambda d: d.mapInArrow(lambda batches: [1 / 0 for _ in batches], "a int"),
    "wrong type": lambda d: d.mapInArrow(lambda b: (x.select(["id"]) for x in b), "id string"),
    "no iterator": lambda d: d.mapInArrow(lambda b: 3, "id bigint"),
    "wrong column": lambda d: d.mapInPandas(lambda f: (x[["id"]] for x in f), "nope bigint"),
    "wrong rows": lambda d: d.select(pandas_udf(lambda v: v.iloc[:1], "long")("id").alias("a")),
    "exits": lambda d: d.mapInPandas(lambda f: exit(3), "id bigint"),
    "wrong table": lambda d: d.groupBy("k").applyInArrow(lambda t: t.select(["s"]), "id bigint"),
    "unsafe": lambda d: d.select(pandas_udf(lambda v: v + 0.5, "int")("id").alias("a")),
    "group": lambda d: d.groupBy("k").applyInPandas(lambda f: f.nope, d.schema),
    "aggregate": lambda d: d.groupBy("k").agg(failing_aggregate()("id").alias("a")),
}


def failing_aggregate():
    @pandas_udf("long")
    def failing(v: pd.Series) -> int:
        raise KeyError("no")

    return failing


@pytest.mark.full
@pytest.mark.parametrize("case", FAILING)
def test_errors_are_sparks(env, rows_of, case):
    stream = env.from_dataframe(FAILING[case](rows_of))
    assert stream._pipeline.node.kind.startswith("sql(")
    with (
        pytest.warns(UserWarning, match="Spark computes the DataFrame itself now: The Python function"),
        pytest.raises(JobExecutionError, match=r"from_dataframe -> to_arrow.*(PythonException|Spark|Unsupported)"),
    ):
        stream.to_arrow()


@pytest.mark.full
def test_broadcast_variables(spark, env, rows_of):
    names = spark.sparkContext.broadcast({i: f"name {i}" for i in range(10)})
    more = spark.sparkContext.broadcast("!" * 2_000_000)

    def named(v):
        return names.value[v % 10] + more.value[:2]

    frame = rows_of.select(udf(named, "string", useArrow=True)("id").alias("a"))
    assert_as_spark(env, frame)
    assert_as_spark(env, frame.withColumn("b", udf(named, "string")("id" and F.lit(3))))


@pytest.mark.full
def test_a_function_that_is_broadcast_because_it_is_large(env, rows_of):
    large = np.random.default_rng(1).bytes(3_000_000)

    def first(v):
        return large[v]

    assert_as_spark(env, rows_of.select(udf(first, "int", useArrow=True)("id").alias("a")))


@pytest.mark.full
def test_what_tasks_cannot_give_stays_on_spark(spark, env, rows_of, monkeypatch):
    from pyspark import TaskContext

    count = spark.sparkContext.accumulator(0)

    def counting(v):
        count.add(1)
        return v

    frame = rows_of.select(udf(counting, "long")("id").alias("a"))
    stream = env.from_dataframe(frame)
    assert "with an accumulator is not taken over" in stream.explain()
    assert stream.to_arrow().num_rows == ROWS
    assert count.value == ROWS

    def placed(v):
        return TaskContext.get().partitionId()

    assert (
        "Spark's TaskContext is not taken over"
        in env.from_dataframe(rows_of.select(udf(placed, "int")("id"))).explain()
    )
    frame = rows_of.mapInArrow(lambda batches: batches, rows_of.schema, barrier=True)
    assert "barrier" in env.from_dataframe(frame).explain()
    by_floats = rows_of.groupBy("f").applyInPandas(lambda f: f[["id"]], "id bigint")
    assert "floating-point" in env.from_dataframe(by_floats).explain()
    for setting, value, reason in (
        ("spark.sql.execution.arrow.maxRecordsPerBatch", "0", "without a limit"),
        ("spark.sql.pyspark.udf.profiler", "perf", "profiled"),
    ):
        spark.conf.set(setting, value)
        try:
            frame = rows_of.mapInArrow(lambda batches: batches, rows_of.schema)
            assert reason in env.from_dataframe(frame).explain()
        finally:
            spark.conf.unset(setting)


@pytest.mark.full
def test_files_and_modules_of_the_session(spark, env, rows_of, tmp_path):
    module = tmp_path / "our_helper_of_tests.py"
    module.write_text("def tripled(v):\n    return v * 3\n")
    spark.sparkContext.addPyFile(str(module))

    def tripled(v):
        import our_helper_of_tests

        return our_helper_of_tests.tripled(v)

    assert_as_spark(env, rows_of.select(udf(tripled, "long", useArrow=True)("id").alias("a")))


@pytest.mark.full
def test_little_memory_and_many_tasks(spark, home):
    options = {
        "firesteel.progress": "false",
        "firesteel.memory.per-task": "1 MiB",
        "jobmanager.adaptive-batch-scheduler.avg-data-volume-per-task": "4 KiB",
    }
    other = ExecutionEnvironment(spark=spark, options=options)
    for case in (
        "group pandas",
        "group cogroup keyed",
        "group aggregate",
        "group window",
        "udf mixed",
        "map arrow between",
    ):
        assert_as_spark(other, CASES[case](spark.read.parquet(home)))


@pytest.mark.full
def test_a_script_with_python_functions_is_accelerated(spark, rows_of):
    options = {"firesteel.run.in-process": "never"}
    with accelerate(spark, options) as acceleration:
        frame = CASES["map arrow between"](rows_of)
        mine = frame.collect()
        counted = CASES["group pandas"](rows_of).count()
        failing = FAILING["raises"](rows_of)
        with pytest.raises(PythonException, match="ZeroDivisionError"):
            failing.collect()
    assert sorted(mine) == sorted(frame.collect())
    assert counted == ROWS
    assert [bool(query.left) for query in acceleration.queries] == [False, False, True]
