"""The same functions in PySpark and in Firesteel's operators, over all of Spark's types: same values in, same rows out."""

from __future__ import annotations

import sys
from functools import partial

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from firesteel.errors import FiresteelError
from firesteel.task.functions.batch_functions import MapInArrow, MapInPandas
from firesteel.task.functions.group_functions import ApplyInArrow, ApplyInPandas, CoGroupApplyInArrow
from operators_support import context, rows, unit

pytestmark = pytest.mark.spark

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # PySpark's workers do not have this module

TYPES = {
    "boolean": ("boolean", ["true", "false"]),
    "tinyint": ("tinyint", ["1", "-128"]),
    "smallint": ("smallint", ["1", "-32768"]),
    "int": ("int", ["1", "2147483647"]),
    "bigint": ("bigint", ["1", "-9223372036854775808"]),
    "float": ("float", ["1.5", "float('-0.0')"]),
    "double": ("double", ["1.5", "double('-inf')"]),
    "string": ("string", ["'a'", "''"]),
    "binary": ("binary", ["x'00ff'", "x''"]),
    "date": ("date", ["date'2020-02-29'", "date'0001-01-01'"]),
    "timestamp": ("timestamp", ["timestamp'2020-07-01 12:00:00.123456'", "timestamp'2015-11-01 01:30:00'"]),
    "timestamp_ntz": ("timestamp_ntz", ["timestamp_ntz'2020-07-01 12:00:00.123456'", "timestamp_ntz'1950-01-01 00:00:00'"]),
    "decimal": ("decimal(20,3)", ["1.250bd", "-99999999999999999.999bd"]),
    "interval": ("interval day to second", ["interval '1 02:03:04.5' day to second", "interval '-1' day"]),
    "time": ("time(6)", ["time'12:00:00.5'", "time'00:00:00'"]),
    "array": ("array<int>", ["array(1, null, 3)", "array()"]),
    "strings": ("array<string>", ["array('a', null)", "array('b')"]),
    "stamps": ("array<timestamp>", ["array(timestamp'2020-07-01 12:00:00')", "array()"]),
    "struct": ("struct<x:int,y:string>", ["named_struct('x', 1, 'y', 'q')", "named_struct('x', null, 'y', null)"]),
    "map": ("map<string,int>", ["map('k', 1, 'l', null)", "map()"]),
    "nested": ("array<struct<x:int,l:array<bigint>>>", ["array(named_struct('x', 1, 'l', array(1L)))", "array()"]),
    "structs": ("struct<at:timestamp,m:map<string,double>>", ["named_struct('at', timestamp'2020-07-01 12:00:00', 'm', map('k', 1.5))", "named_struct('at', null, 'm', null)"]),
}  # fmt: skip
PLAIN = ("boolean", "int", "bigint", "double", "binary", "date", "timestamp", "time")
FRAMES = {**{name: (name,) for name in TYPES}, "plain columns": PLAIN, "all columns": tuple(TYPES)}


@pytest.fixture(autouse=True)
def zone(spark):
    settings = {"spark.sql.session.timeZone": "America/New_York", "spark.sql.timeType.enabled": "true"}
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        spark.conf.set(key, value)


def frame(spark, names, nulls=True):
    """Two rows of values (and one of nulls), in one partition, with a key column."""
    chosen = [TYPES[name] for name in names]
    lines = [[f"cast({values[i]} as {type_})" for type_, values in chosen] for i in range(2)]
    if nulls:
        lines.append([f"cast(null as {type_})" for type_, _ in chosen])
    selects = [
        f"select {k} as k, " + ", ".join(f"{v} as {n}" for v, n in zip(line, names, strict=True))
        for k, line in enumerate(lines)
    ]
    return spark.sql(" union all ".join(selects)).coalesce(1)


def arrow_of(df):
    """What PySpark hands to mapInArrow: the batches, not what toArrow makes of them."""
    import pickle

    def dump(batches):
        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.record_batch({"b": pa.array([pickle.dumps(sink.getvalue().to_pybytes())], pa.binary())})

    parts = [pickle.loads(row.b) for row in df.mapInArrow(dump, "b binary").collect()]
    return pa.concat_tables([pa.ipc.open_stream(part).read_all() for part in parts] or [pa.table({})])


def declared(spark, ddl):
    """The Arrow schema that PySpark expects for a DDL string."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import _parse_datatype_string

    schema = to_arrow_schema(_parse_datatype_string(ddl), timezone="America/New_York")
    return pa.schema([field.remove_metadata() for field in schema])


def ours(operator, table, tmp_path):
    ctx = context(tmp_path)
    batches = (
        operator.apply(iter(table.to_batches()), ctx)
        if hasattr(operator, "apply")
        else operator.apply_unit([unit(table, ctx)], ctx)
    )
    return pa.Table.from_batches(list(batches), operator.schema)


def describe(frames):
    for df in frames:
        yield pd.DataFrame(
            {"t": [f"{c} {df[c].dtype} {[(type(v).__name__, repr(v)) for v in df[c]]}" for c in df.columns]}
        )


def describe_group(key, df):
    (text,) = describe([df])
    return pd.DataFrame({"t": [f"{[type(k).__name__ for k in key]} {key} {text['t'].tolist()}"]})


@pytest.mark.full
@pytest.mark.parametrize("nulls", [True, False])
@pytest.mark.parametrize("names", FRAMES.values(), ids=FRAMES)
def test_pandas_functions_see_the_same_values(spark, tmp_path, names, nulls):
    df = frame(spark, names, nulls)
    theirs = [row.t for row in df.mapInPandas(describe, "t string").collect()]
    assert (
        ours(MapInPandas("step", describe, pa.schema({"t": pa.string()})), arrow_of(df), tmp_path)["t"].to_pylist()
        == theirs
    )


@pytest.mark.full
@pytest.mark.parametrize("names", [FRAMES["all columns"], PLAIN], ids=["all columns", "plain columns"])
def test_pandas_functions_on_groups_see_the_same_values_and_keys(spark, tmp_path, names):
    df = frame(spark, names)
    keys = ("k", *[n for n in names if n in ("string", "decimal", "timestamp", "date", "boolean", "double")])
    theirs = sorted(row.t for row in df.groupBy(*keys).applyInPandas(describe_group, "t string").collect())
    operator = ApplyInPandas("step", describe_group, keys, pa.schema({"t": pa.string()}))
    assert sorted(ours(operator, arrow_of(df), tmp_path)["t"].to_pylist()) == theirs


@pytest.mark.full
@pytest.mark.parametrize("kind", ["pandas", "arrow"])
@pytest.mark.parametrize("names", FRAMES.values(), ids=FRAMES)
def test_what_functions_give_back_becomes_the_same_rows(spark, tmp_path, names, kind):
    df = frame(spark, names)
    ddl = ", ".join(["k int", *(f"{name} {TYPES[name][0]}" for name in names)])
    result = (df.mapInPandas if kind == "pandas" else df.mapInArrow)(lambda it: it, ddl)
    make = MapInPandas if kind == "pandas" else MapInArrow
    table = arrow_of(df)
    got = ours(make("step", lambda it: it, declared(spark, ddl)), table, tmp_path)
    assert got.schema == declared(spark, ddl)
    assert rows(got) == rows(arrow_of(result))


def batches_of(columns):
    return lambda it: (pa.record_batch(columns(b)) for b in it)


def frames_of(columns):
    return lambda it: (pd.DataFrame(columns(b)) for b in it)


ARROW = {
    "another name": (batches_of(lambda b: {"z": b["id"]}), "n bigint"),
    "an extra column": (batches_of(lambda b: {"n": b["id"], "m": b["id"]}), "n bigint"),
    "a missing column": (batches_of(lambda b: {"n": b["id"]}), "n bigint, m bigint"),
    "a wrong type": (batches_of(lambda b: {"n": b["id"].cast(pa.string())}), "n bigint"),
    "a narrower type": (batches_of(lambda b: {"n": b["id"].cast(pa.int32())}), "n bigint"),
    "large strings": (batches_of(lambda b: {"n": b["id"].cast(pa.large_string())}), "n string"),
    "another zone": (batches_of(lambda b: {"n": b["id"].cast(pa.timestamp("us", "Europe/Berlin"))}), "n timestamp"),
    "milliseconds": (batches_of(lambda b: {"n": b["id"].cast(pa.timestamp("ms", "UTC"))}), "n timestamp"),
    "nulls of no type": (batches_of(lambda b: {"n": pa.nulls(len(b))}), "n bigint"),
    "a narrower decimal": (batches_of(lambda b: {"n": b["id"].cast(pa.decimal128(20, 0))}), "n decimal(30,0)"),
    "renamed fields": (
        batches_of(lambda b: {"n": pa.array([{"y": 1, "z": "a"}] * len(b))}),
        "n struct<a:bigint,b:string>",
    ),
    "a list": (lambda it: [b.rename_columns(["n"]) for b in it], "n bigint"),
    "nothing": (lambda it: None, "n bigint"),
    "a table": (lambda it: (pa.Table.from_batches([b]) for b in it), "n bigint"),
    "no batch at all": (lambda it: iter([]), "n bigint"),
    "left early": (lambda it: iter([next(it)]), "n bigint"),
    "an error": (lambda it: (1 / 0 for _ in it), "n bigint"),
}
PANDAS = {
    "another order": (frames_of(lambda d: {"m": d["id"], "n": d["id"].astype(str)}), "n string, m bigint"),
    "an extra column": (frames_of(lambda d: {"n": d["id"], "m": d["id"]}), "n bigint"),
    "an extra column first": (frames_of(lambda d: {"m": d["id"], "n": d["id"]}), "n bigint"),
    "a missing column": (frames_of(lambda d: {"n": d["id"]}), "n bigint, m bigint"),
    "numbered columns": (lambda it: (pd.DataFrame([[1, "a"]]) for _ in it), "n bigint, m string"),
    "whole floats": (frames_of(lambda d: {"n": d["id"] * 1.0}), "n bigint"),
    "broken floats": (frames_of(lambda d: {"n": d["id"] * 1.5}), "n bigint"),
    "text of integers": (frames_of(lambda d: {"n": d["id"].astype(str)}), "n bigint"),
    "integers for text": (frames_of(lambda d: {"n": d["id"]}), "n string"),
    "too large": (frames_of(lambda d: {"n": d["id"] + 2**40}), "n int"),
    "an empty frame": (lambda it: (pd.DataFrame() for _ in it), "n bigint"),
    "missing texts": (lambda it: (pd.DataFrame({"n": ["x", None, float("nan")]}) for _ in it), "n string"),
    "missing numbers": (lambda it: (pd.DataFrame({"n": [1.0, None, float("nan")]}) for _ in it), "n double"),
    "nullable integers": (lambda it: (pd.DataFrame({"n": pd.array([1, None], "Int64")}) for _ in it), "n bigint"),
    "categories": (frames_of(lambda d: {"n": d["id"].astype(str).astype("category")}), "n string"),
    "wall clock": (
        lambda it: (pd.DataFrame({"n": pd.to_datetime(["2015-11-01 01:30", "2020-07-01"])}) for _ in it),
        "n timestamp",
    ),
    "zoned": (
        lambda it: (pd.DataFrame({"n": pd.to_datetime(["2020-07-01"]).tz_localize("Europe/Berlin")}) for _ in it),
        "n timestamp",
    ),
    "integers for booleans": (frames_of(lambda d: {"n": d["id"]}), "n boolean"),
    "numbers for decimals": (frames_of(lambda d: {"n": d["id"]}), "n decimal(20,2)"),
    "a series": (lambda it: (d["id"] for d in it), "n bigint"),
    "nothing": (lambda it: None, "n bigint"),
    "tuples for structs": (
        lambda it: (pd.DataFrame({"n": [(1, "a"), None]}) for _ in it),
        "n struct<a:bigint,b:string>",
    ),
}
CASES = [("arrow", name, *case) for name, case in ARROW.items()] + [
    ("pandas", name, *case) for name, case in PANDAS.items()
]


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "fn", "ddl"), [(k, f, d) for k, _, f, d in CASES], ids=[f"{k}: {n}" for k, n, _, _ in CASES]
)
def test_what_is_accepted_and_what_is_refused(spark, tmp_path, kind, fn, ddl):
    df = spark.range(0, 3, 1, 1)
    try:
        theirs = rows(arrow_of((df.mapInArrow if kind == "arrow" else df.mapInPandas)(fn, ddl)))
    except Exception:
        theirs = None
    make = partial(MapInArrow, by_position=True) if kind == "arrow" else MapInPandas
    try:
        got = rows(ours(make("step", fn, declared(spark, ddl)), df.toArrow(), tmp_path))
    except FiresteelError:
        got = None
    assert got == theirs


def test_names_that_agree_in_another_order(spark, tmp_path):
    """PySpark's mapInArrow and union go by position and swap them without a word. Here they go by name, or are refused."""

    def turned(batches):
        return (pa.record_batch({"b": b["id"], "a": pa.array([-1] * len(b))}) for b in batches)

    df, schema = spark.range(2).coalesce(1), pa.schema({"a": pa.int64(), "b": pa.int64()})
    theirs = [row.asDict() for row in df.mapInArrow(turned, "a bigint, b bigint").collect()]
    assert theirs == [{"a": 0, "b": -1}, {"a": 1, "b": -1}]
    by_position = ours(MapInArrow("step", turned, schema, by_position=True), df.toArrow(), tmp_path)
    assert by_position.to_pylist() == theirs
    by_name = ours(MapInArrow("step", turned, schema), df.toArrow(), tmp_path)
    assert by_name.to_pylist() == [{"a": -1, "b": 0}, {"a": -1, "b": 1}]


def test_groups_in_arrow(spark, tmp_path):
    df = spark.sql(
        "select * from values (1, 'a', 1.5d), (1, 'b', -0.0d), (null, 'c', 0.0d), (null, 'd', double('nan')), (2, null, double('nan')) t(k, s, f)"
    ).coalesce(1)

    def fn(key, table):
        return pa.table(
            {
                "n": [table.num_rows],
                "t": [f"{[type(k).__name__ for k in key]} {[k.as_py() for k in key]} {table.column_names}"],
            }
        )

    out = pa.schema({"t": pa.string(), "n": pa.int64()})
    for keys in (("k",), ("f",), ("s", "k")):
        theirs = rows(arrow_of(df.groupBy(*keys).applyInArrow(fn, "t string, n bigint")))
        assert rows(ours(ApplyInArrow("step", fn, keys, out), df.toArrow(), tmp_path)) == theirs, keys


@pytest.mark.full
def test_cogroups_in_arrow(spark, tmp_path):
    left = spark.sql("select * from values (1, 'a'), (1, 'b'), (null, 'c'), (3, 'd') t(k, s)").coalesce(1)
    right = spark.sql("select * from values (1, 10L), (2, 20L), (null, 30L) t(k, v)").coalesce(1)

    def fn(key, a, b):
        return pa.table(
            {
                "t": [
                    f"{key[0].as_py()} {sorted(a['s'].to_pylist())} {sorted(b['v'].to_pylist())} {a.column_names} {b.column_names}"
                ]
            }
        )

    theirs = rows(arrow_of(left.groupBy("k").cogroup(right.groupBy("k")).applyInArrow(fn, "t string")))
    ctx = context(tmp_path)
    operator = CoGroupApplyInArrow("step", fn, ("k",), ("k",), pa.schema({"t": pa.string()}))
    batches = operator.apply_unit([unit(left.toArrow(), ctx), unit(right.toArrow(), ctx)], ctx)
    assert rows(pa.Table.from_batches(list(batches))) == theirs
