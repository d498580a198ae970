"""``firesteel.functions`` beside ``pyspark.sql.functions``: the same expression gives the same values and types, or both refuse it."""

from __future__ import annotations

import math
import re
import tempfile
from datetime import UTC, date, datetime
from decimal import Context, Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Window
from pyspark.sql import functions as spark_functions
from tests.operators_support import value

from firesteel import ExecutionEnvironment
from firesteel import functions as our_functions
from firesteel import window as our_window
from firesteel.api.resolved import Resolved
from firesteel.api.steps.actions import collected
from firesteel.compile.compiler import compile_job
from firesteel.errors import FiresteelError
from graph_kit import run_local

pytestmark = [pytest.mark.spark, pytest.mark.full]

INTS = [0, 1, -1, 7, -7, 3, None, 100, -100, 2]
TABLE = pa.table({
    "id": pa.array(range(10)),
    "b": pa.array(INTS, pa.int8()),
    "h": pa.array(INTS[::-1], pa.int16()),
    "i": pa.array(INTS[3:] + INTS[:3], pa.int32()),
    "l": pa.array([*INTS[5:], *INTS[:4], 1 << 53], pa.int64()),
    "f": pa.array([0.0, -0.0, 1.5, -2.5, math.nan, math.inf, None, 0.1, -math.inf, 3.0], pa.float32()),
    "x": pa.array([math.nan, 0.0, 1.5, None, math.nan, -math.inf, 2.0, 0.1, 1e20, -3.7]),
    "m": pa.array([None if v is None else Decimal(v).scaleb(-2) for v in INTS], pa.decimal128(9, 2)),
    "q": pa.array([None if v is None else Decimal(v).scaleb(-4) * 125 for v in INTS[::-1]], pa.decimal128(12, 4)),
    "t": pa.array([True, False, None, True, False, None, True, True, False, None]),
    "u": pa.array([True, True, True, None, None, None, False, False, False, True]),
    "s": pa.array(["", "abc", " a%b_c ", None, "a\nb", "ÄÖü", "a\\b", "42", "x\r\n", "aab"]),
    "v": pa.array(["a", None, "a%b", "abc", "", "ä", "a.b", "42", "x", "b"]),
    "w": pa.array(["1", " 22 ", "-3", "+4", None, "0", "00012", "9", "10", "-0"]),
    "y": pa.array(["1.5", " 2e3 ", "-.5", "+4.", None, "0", "1E-2", "9", "10.25", "-0"]),
    "d": pa.array([date(2024, 2, 29), date(1969, 12, 31), None, *[date(2026, m, 1) for m in range(1, 8)]]),
    "z": pa.array([datetime(2024, 2, 29, 12), datetime(1969, 12, 31, 23, 59, 59, 999999), None, *[datetime(2026, m, 1) for m in range(1, 8)]], pa.timestamp("us")),
    "c": pa.array([datetime(2024, 1, m + 1, tzinfo=UTC) for m in range(10)], pa.timestamp("us", "UTC")),
    "r": pa.array([{"n": 1, "s": "x"}, None, {"n": None, "s": None}, *[{"n": i, "s": "y"} for i in range(7)]], pa.struct({"n": pa.int32(), "s": pa.string()})),
})  # fmt: skip

NUMBERS = "bhilfx"
ALIKE = {
    **{f"{a} {name} {b}": (lambda F, a=a, b=b, op=op: op(F.col(a), F.col(b))) for a in NUMBERS for b in NUMBERS for name, op in {"<": lambda p, q: p < q, "=": lambda p, q: p == q, ">=": lambda p, q: p >= q}.items()},
    "add": lambda F: F.col("h") + F.col("b"),
    "subtract": lambda F: F.col("l") - F.col("i"),
    "multiply": lambda F: F.col("i") * F.col("b"),
    "of floats": lambda F: F.col("f") * F.col("f"),
    "of a float and an int": lambda F: F.col("f") + F.col("i"),
    "of a float and a byte": lambda F: F.col("f") + F.col("b"),
    "of a float and a double": lambda F: F.col("f") - F.col("x"),
    "a number on the left": lambda F: 3 - F.col("i"),
    "a large one": lambda F: F.col("i") + (1 << 40),
    "a fraction": lambda F: F.col("i") * 0.5,
    "divided": lambda F: F.col("i") / 3,
    "divides": lambda F: 1 / (F.col("l") * 2 + 1),
    "divided by a column": lambda F: F.when(F.col("b") != 0, F.col("i") / F.col("b")).otherwise(-1.0),
    "guarded": lambda F: (F.col("b") != 0) & (F.col("i") / F.col("b") > 1),
    "guarded by or": lambda F: (F.col("b") == 0) | (F.col("i") / F.col("b") > 1),
    "guarded by coalesce": lambda F: F.coalesce(F.col("i"), F.when(F.col("b") != 0, 1 / F.col("b"))),
    "guarded by two": lambda F: F.when(F.col("b") == 0, 0).when(F.col("h") == 0, 1).otherwise(F.col("i") % F.col("b") + F.col("i") % F.col("h")),
    "remainder": lambda F: F.col("l") % 3,
    "remainder by a negative": lambda F: F.col("i") % -3,
    "remainder by minus one": lambda F: F.col("b") % -1,
    "remainder of a column": lambda F: F.when(F.col("b") != 0, F.col("i") % F.col("b")),
    "on the left of remainder": lambda F: 100 % (F.col("i") * 2 + 1),
    "minus": lambda F: -F.col("b"),
    "minus of a float": lambda F: -F.col("x"),
    "minus of a decimal": lambda F: -F.col("m"),
    "abs": lambda F: F.abs("i"),
    "abs of a double": lambda F: F.abs(F.col("x")),
    "abs of a decimal": lambda F: F.abs("m"),
    "decimals added": lambda F: F.col("m") + F.col("q"),
    "decimals multiplied": lambda F: F.col("m") * F.col("q"),
    "a decimal and a number": lambda F: F.col("m") - 1,
    "a decimal and an int": lambda F: F.col("m") + F.col("i"),
    "a decimal and a double": lambda F: F.col("m") * F.col("x"),
    "decimals compared": lambda F: F.col("m") > F.col("q"),
    "a decimal compared with a number": lambda F: F.col("m") >= 1,
    "a decimal compared with a long": lambda F: F.col("m") < F.col("l"),
    "a decimal compared with a fraction": lambda F: F.col("m") == 0.07,
    "between": lambda F: F.col("x").between(0, 2),
    "between texts": lambda F: F.col("s").between("a", "b"),
    "isin": lambda F: F.col("i").isin(7, 100),
    "isin with null": lambda F: F.col("i").isin(7, None),
    "isin of other types": lambda F: F.col("i").isin(7, 1 << 40),
    "isin of doubles": lambda F: F.col("x").isin(1.5, math.nan),
    "isin of texts": lambda F: ~F.col("v").isin("a", "b"),
    "isin of a list": lambda F: F.col("v").isin(["a", "b"]),
    "isin of nothing": lambda F: F.col("v").isin([]),
    "isNull": lambda F: F.col("x").isNull(),
    "isNotNull": lambda F: F.col("x").isNotNull(),
    "isnan": lambda F: F.isnan("x"),
    "isNaN": lambda F: F.col("f").isNaN(),
    "null safe": lambda F: F.col("x").eqNullSafe(F.col("f")),
    "null safe with null": lambda F: F.col("i").eqNullSafe(None),
    "above null": lambda F: F.lit(None).cast("double") < F.col("x"),
    "and": lambda F: F.col("t") & F.col("u"),
    "or": lambda F: F.col("t") | F.col("u"),
    "not": lambda F: ~F.col("t"),
    "with a constant": lambda F: F.col("t") & True,
    "booleans compared": lambda F: F.col("t") < F.col("u"),
    "not equal": lambda F: F.col("x") != 1.5,
    "NaN": lambda F: F.col("x") > 1,
    "below NaN": lambda F: F.col("x") <= F.lit(math.nan),
    "when": lambda F: F.when(F.col("i") > 1, "big").otherwise("small"),
    "when without otherwise": lambda F: F.when(F.col("t"), F.col("b")).when(F.col("u"), F.col("l")),
    "when of a null": lambda F: F.when(F.col("t"), None).otherwise(1),
    "when of two types": lambda F: F.when(F.col("t"), F.col("f")).otherwise(F.col("i")),
    "when of decimals": lambda F: F.when(F.col("t"), F.col("m")).otherwise(F.col("q")),
    "coalesce": lambda F: F.coalesce("b", "l", F.lit(0)),
    "coalesce of dates": lambda F: F.coalesce("d", F.lit(date(2020, 1, 1))),
    "greatest": lambda F: F.greatest("b", "i", "x"),
    "least": lambda F: F.least("f", "x"),
    "least of texts": lambda F: F.least("s", "v"),
    "like": lambda F: F.col("s").like("a%"),
    "like one": lambda F: F.col("s").like("a_b"),
    "like escaped": lambda F: F.col("s").like(r"%a\%b\__ "),
    "like a backslash": lambda F: F.col("s").like(r"a\\b"),
    "like all": lambda F: F.col("s").like("%"),
    "rlike": lambda F: F.col("s").rlike("^a+b?"),
    "rlike a dot": lambda F: F.col("s").rlike("a.b"),
    "rlike at the end": lambda F: F.col("v").rlike("x$"),
    "rlike a class": lambda F: F.col("v").rlike(r"[^a-z]\s*$"),
    "startswith": lambda F: F.col("v").startswith("a."),
    "endswith": lambda F: F.col("s").endswith("b"),
    "contains": lambda F: F.col("s").contains("%"),
    "substr": lambda F: F.col("s").substr(2, 2),
    **{f"substring {p} {n}": (lambda F, p=p, n=n: F.substring("s", p, n)) for p in (-9, -5, -2, 0, 1, 3, 9) for n in (-1, 0, 1, 3, 20)},
    **{name: (lambda F, name=name: getattr(F, name)("x")) for name in ("exp", "expm1", "ln", "log", "log2", "log10", "log1p", "atanh")},
    **{f"{name} of {c}": (lambda F, name=name, c=c: getattr(F, name)(c)) for name in ("exp", "log", "log10") for c in "filmy"},
    "log by a base": lambda F: F.log(3.0, "x"),
    "log of a base": lambda F: F.log(0.5, F.col("l")),
    "pow": lambda F: F.pow("x", "h"),
    "power": lambda F: F.power("x", 2.5),
    "pow of a constant": lambda F: F.pow(2, "b"),
    "**": lambda F: F.col("i") ** 2,
    "** of fractions": lambda F: F.col("x") ** F.col("f"),
    "to the power": lambda F: 1.5 ** F.col("b"),
    "soundex": lambda F: F.soundex("s"),
    "mask": lambda F: F.mask(F.concat(F.lit("aB3-"), "w")),
    "mask by other letters": lambda F: F.mask("w", digitChar=F.lit("#")),
    "format_number": lambda F: F.format_number("i", 2),
    "format_number of doubles": lambda F: F.format_number(F.col("m").cast("double"), 1),
    "get_json_object": lambda F: F.get_json_object(F.concat(F.lit('{"a":{"b":'), F.col("w").cast("int").cast("string"), F.lit("}}")), "$.a.b"),
    "str_to_map": lambda F: F.str_to_map(F.concat("w", F.lit(":x,k:y"))),
    "find_in_set": lambda F: F.find_in_set("v", F.lit("x,a,,42")),
    "split into two": lambda F: F.split("s", "a", 2),
    "texts of doubles": lambda F: F.when(F.col("x") != 1e20, F.col("x")).cast("string"),
    "texts of floats": lambda F: F.col("f").cast("string"),
    "ilike": lambda F: F.col("s").ilike("A%"),
    **{f"right {n}": (lambda F, n=n: F.right("s", F.lit(n))) for n in (-1, 0, 2, 9)},
    "position": lambda F: F.position(F.lit("b"), "s"),
    "position from": lambda F: F.position(F.lit("b"), "s", F.lit(3)),
    "regexp_substr": lambda F: F.regexp_substr("v", F.lit("b+")),
    **{f"lpad {n}": (lambda F, n=n: F.lpad("s", F.col("b") % 7, F.lit(n))) for n in ("", "xy")},
    "rpad by a column": lambda F: F.rpad("s", 6, F.col("v")),
    "trim of a column": lambda F: F.trim("s", F.col("v")),
    "replace by columns": lambda F: F.replace("s", F.col("v"), F.col("w")),
    "split_part by columns": lambda F: F.split_part("s", F.col("v"), F.when(F.col("i") != 0, F.col("i"))),
    "repeat by a column": lambda F: F.repeat("s", F.col("h")),
    "overlay by columns": lambda F: F.overlay("s", "v", F.col("b"), F.col("h")),
    "rlike of columns": lambda F: F.rlike(F.col("w"), F.when(F.col("t"), F.lit(r"^-?\d$")).otherwise(F.lit("0+"))),
    "regexp_count": lambda F: F.regexp_count("s", F.lit("[ab]")),
    "regexp_extract_all": lambda F: F.regexp_extract_all("v", F.lit("(.)b"), 1),
    "regexp_instr": lambda F: F.regexp_instr("w", F.lit(r"\d+$")),
    "conv": lambda F: F.conv(F.hex(F.abs("i")), 16, 36),
    "array_insert": lambda F: F.array_insert(F.array("i", "b"), -4, 7),
    "array_insert at a column": lambda F: F.array_insert(F.array("s"), F.when(F.col("b") != 0, F.col("b")), "z"),
    "map_zip_with": lambda F: F.map_zip_with(F.create_map(F.lit("a"), "i"), F.create_map(F.coalesce("v", F.lit("x")), "b"), lambda k, a, b: F.coalesce(a, b)),
    "base64": lambda F: F.base64("s"),
    "upper": lambda F: F.upper("s"),
    "lower": lambda F: F.lower("s"),
    "trim": lambda F: F.trim("s"),
    "ltrim": lambda F: F.ltrim("s"),
    "rtrim": lambda F: F.rtrim("s"),
    "length": lambda F: F.length("s"),
    "concat": lambda F: F.concat("s", F.lit("-"), "v"),
    "hash": lambda F: F.hash(*"bhilfxmqtsdzc"),
    "hash of one": lambda F: F.hash("s"),
    "xxhash64": lambda F: F.xxhash64(*"bhilfxmqtsdzc"),
    "xxhash64 of a struct": lambda F: F.xxhash64("r", F.array("i", "b")),
    "crc32": lambda F: F.crc32("s"),
    "concat_ws": lambda F: F.concat_ws("-", "s", "v"),
    "a date and text": lambda F: F.col("d") > "2024-02-29",
    "a date and text on the left": lambda F: F.lit("2026-3-1") <= F.col("d"),
    "a date in texts": lambda F: F.col("d").isin("2024-02-29", "2026-01-01"),
    "dates between": lambda F: F.col("d").between("2024-01-01", date(2026, 2, 1)),
    "a time and text": lambda F: F.col("z") >= "2024-02-29 12:00:00",
    "a time and a day": lambda F: F.col("z") == "2026-01-01",
    "a time and a fraction": lambda F: F.col("z") > "1969-12-31T23:59:59.5",
    "a time with a zone and text": lambda F: F.col("c") > "2024-01-03T00:00:00Z",
    "a time with a zone and another": lambda F: F.col("c") > "2024-01-03T00:00:00+02:00",
    "a time": lambda F: F.col("z") > F.lit(datetime(2026, 1, 1)).cast("timestamp_ntz"),
    "year": lambda F: F.year("d"),
    "month": lambda F: F.month("z"),
    "dayofmonth": lambda F: F.dayofmonth("d"),
    **{f"extract {part}": (lambda F, part=part: F.extract(F.lit(part), "d")) for part in ("year", "QTR", "w", "dow", "dow_iso", "doy")},
    "hour of a time": lambda F: F.date_part(F.lit("hour"), "z"),
    "timestamp_seconds": lambda F: F.timestamp_seconds("i"),
    "timestamp_millis": lambda F: F.timestamp_millis("i"),
    "timestamp_micros": lambda F: F.timestamp_micros("l"),
    **{f"unix_{unit}": (lambda F, unit=unit: getattr(F, f"unix_{unit}")("c")) for unit in ("seconds", "millis", "micros")},
    "from_utc_timestamp": lambda F: F.from_utc_timestamp("c", "+09:00"),
    "to_utc_timestamp": lambda F: F.to_utc_timestamp("c", "-03:30"),
    "convert_timezone": lambda F: F.convert_timezone(F.lit("UTC"), F.lit("+05:00"), "z"),
    **{f"timestamp_add {unit}": (lambda F, unit=unit: F.timestamp_add(unit, "i", "z")) for unit in ("SECOND", "DAY", "MONTH", "YEAR")},
    "to_timestamp_ntz": lambda F: F.to_timestamp_ntz("d"),
    "make_timestamp_ntz": lambda F: F.make_timestamp_ntz(F.year("d"), F.month("d"), F.dayofmonth("d"), F.lit(23), F.lit(59), F.lit(59.999999)),
    "try_divide": lambda F: F.try_divide("i", "b"),
    "try_divide of decimals": lambda F: F.try_divide("m", "q"),
    "try_mod": lambda F: F.try_mod("x", "b"),
    "typeof": lambda F: F.typeof("m"),
    "positive": lambda F: F.positive("i"),
    "negate": lambda F: F.negate("m"),
    "array_append": lambda F: F.array_append(F.array("i", "b"), 1 << 40),
    "array_prepend": lambda F: F.array_prepend(F.array("s", "v"), "z"),
    "array_append to null": lambda F: F.array_append(F.when(F.col("t"), F.array("i")), 7),
    "array_compact": lambda F: F.array_compact(F.array("i", "b", "h")),
    "array_sort": lambda F: F.array_sort(F.array("x", F.lit(0.5), F.lit(None))),
    "array_sort of texts": lambda F: F.array_sort(F.array("s", "v")),
    "arrays_zip": lambda F: F.arrays_zip(F.array("i", "b"), F.when(F.col("u"), F.array("s"))),
    "sequence": lambda F: F.sequence(F.col("b"), F.lit(101), F.lit(50)),
    "sequence down": lambda F: F.sequence(F.lit(3), F.lit(-1)),
    "sequence of days": lambda F: F.sequence("d", F.date_add("d", F.lit(2))),
    "a field": lambda F: F.col("r.n") + 1,
    "getField": lambda F: F.col("r").getField("s"),
    "a column": lambda F: F.col("x"),
    "a text and a number": lambda F: F.col("w").cast("int") + F.lit("2"),
    "decimals divided": lambda F: F.col("m") / F.when(F.col("q") != 0, F.col("q")),
    "a remainder of fractions": lambda F: F.when(F.col("x") != 0, F.lit(7.5) % F.col("x")),
    "two kinds": lambda F: F.coalesce(F.col("i"), F.lit("5")),
    "of a long and a decimal": lambda F: F.col("l") % F.lit(3).cast("decimal(5,2)"),
    **{f"cast {c} to {to}": (lambda F, c=c, to=to: F.col(c).cast(to)) for c in "bhil" for to in ("smallint", "bigint", "double", "float", "string", "boolean", "decimal(20,2)") if (c, to) != ("l", "smallint")},
    **{f"cast {c} to {to}": (lambda F, c=c, to=to: F.when(~F.isnan(c) & (F.abs(F.col(c)) < 100), F.col(c)).cast(to)) for c in "fx" for to in ("tinyint", "int", "bigint", "double", "float")},
    **{f"cast m to {to}": (lambda F, to=to: F.col("m").cast(to)) for to in ("decimal(9,1)", "decimal(4,0)", "decimal(20,6)", "double")},
    **{f"cast t to {to}": (lambda F, to=to: F.col("t").cast(to)) for to in ("int", "bigint", "string")},
    **{f"cast w to {to}": (lambda F, to=to: F.col("w").cast(to)) for to in ("tinyint", "int", "bigint", "double", "float")},
    **{f"cast y to {to}": (lambda F, to=to: F.col("y").cast(to)) for to in ("double", "float")},
    "cast of dates": lambda F: F.col("d").cast("timestamp_ntz"),
    "cast of times": lambda F: F.col("z").cast("date"),
    "cast of text to dates": lambda F: F.lit(" 2024-02-29 ").cast("date"),
}  # fmt: skip
NEAR = {
    **{name: (lambda F, name=name: getattr(F, name)("x")) for name in ("cbrt", "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "sinh", "cosh", "tanh")},
    "atan2": lambda F: F.atan2("x", "f"),
}  # fmt: skip
"""Whose last digit may be another one."""
ERRORS = {
    "overflow": lambda F: F.col("b") + F.col("b"),
    "overflow of a product": lambda F: F.col("l") * F.col("l"),
    "division": lambda F: F.col("i") / F.col("b"),
    "division of doubles": lambda F: F.col("x") / 0.0,
    "remainder": lambda F: F.col("i") % F.col("b"),
    "cast down": lambda F: F.col("l").cast("int"),
    "cast of NaN": lambda F: F.col("x").cast("int"),
    "cast of text": lambda F: F.col("s").cast("int"),
    "cast of hexadecimal text": lambda F: F.lit("0x1F").cast("bigint"),
    "cast of a fraction's text": lambda F: F.lit("1.5").cast("int"),
    "cast of a decimal": lambda F: F.col("m").cast("decimal(2,2)"),
    "a text that is no date": lambda F: F.col("d") > "never",
    "not guarded": lambda F: F.when(F.col("b") < 7, F.col("i") / F.col("b")),
    "a condition that is none": lambda F: F.col("t") & F.col("i"),
    "a pattern": lambda F: F.col("s").like("a\\b"),
    "otherwise twice": lambda F: F.when(F.col("t"), 1).otherwise(2).otherwise(3),
}


def ours(expressions: dict) -> pa.Table:
    stream = ExecutionEnvironment().from_arrow(TABLE)
    return run(stream.select("id", **{name: build(our_functions) for name, build in expressions.items()})).sort_by("id")


def run(stream) -> pa.Table:
    job = compile_job([collected(stream._pipeline)], stream._pipeline.env.options, "functions")
    with tempfile.TemporaryDirectory() as directory:
        return run_local(job, Path(directory))[0]


SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.codegen.wholeStage": "true",
    # else what several columns have in common is computed for all rows, in branches that are not taken as well
    "spark.sql.subexpressionElimination.enabled": "false",
}
"""Whatever other tests left in the session."""


@pytest.fixture(scope="module")
def frame(spark):
    before = {name: spark.conf.get(name) for name in SETTINGS}
    for name, setting in SETTINGS.items():
        spark.conf.set(name, setting)
    made = spark.createDataFrame(TABLE.drop(["z"])).join(
        spark.createDataFrame(
            [(i, str(v) if v else None) for i, v in enumerate(TABLE["z"].to_pylist())], "id bigint, zt string"
        ),
        "id",
    )
    yield made.withColumn("z", spark_functions.col("zt").cast("timestamp_ntz")).cache()
    for name, setting in before.items():
        spark.conf.set(name, setting)


def test_values_and_types_are_sparks(frame):
    theirs = (
        frame.orderBy("id").select(*(build(spark_functions).alias(name) for name, build in ALIKE.items())).toArrow()
    )
    found = ours(ALIKE)
    wrong = {}
    for name in ALIKE:
        a, b = (str(table[name].type).replace(" not null", "") for table in (found, theirs))
        same_type = a == b or pa.types.is_null(found[name].type)
        a, b = ([value(v) for v in table[name].to_pylist()] for table in (found, theirs))
        if not same_type or a != b:
            wrong[name] = (str(found[name].type), str(theirs[name].type), a, b)
    assert not wrong, "\n".join(f"{name}: {said}" for name, said in wrong.items())


def test_angles_and_cube_roots_are_sparks_but_for_the_last_digits(frame):
    theirs = frame.orderBy("id").select(*(build(spark_functions).alias(name) for name, build in NEAR.items())).toArrow()
    found = ours(NEAR)
    for name in NEAR:
        a, b = (table[name].to_pylist() for table in (found, theirs))
        assert [v is None for v in a] == [v is None for v in b], name
        known = [(x, y) for x, y in zip(a, b, strict=True) if x is not None]
        assert all((math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=1e-15) for x, y in known), name


NAMED = [
    lambda F: F.col("i").cast("string").cast("int"),
    lambda F: (F.col("i") + 1).cast("decimal(5,2)"),
    lambda F: F.hex(F.col("i").cast("bigint").cast("string")),
    lambda F: F.col("i").alias("z").cast("string"),
    lambda F: F.col("r.n").cast("string"),
    lambda F: F.col("r.N"),
    lambda F: F.struct("i", (F.col("i") + 1).alias("a b")),
    lambda F: 2 + F.col("i") * F.col("b") - 1,
    lambda F: True & ~F.col("t"),
    lambda F: F.col("d") + 1,
    lambda F: 1 + F.date_add("d", 2),
    lambda F: F.col("d") - F.col("h"),
    lambda F: F.create_map(F.lit("k"), "i")["k"],
    lambda F: F.concat(F.lit("it's"), F.lit(1.5), F.lit(None), F.lit(True)),
    lambda F: F.coalesce("z", F.lit(datetime(2020, 1, 2, 3, 4, 5, 60000))),
    lambda F: F.coalesce("m", F.lit(Decimal("0.0000001"))),
    lambda F: F.coalesce(F.encode("s", "UTF-8"), F.lit(b"ab")),
    lambda F: F.trim("s", F.lit("x")),
    lambda F: F.aggregate(F.array("i"), F.lit(0), lambda a, b: a + b),
    lambda F: F.filter(F.array("i"), lambda x, at: (x > 1) & (at > 0)),
    lambda F: F.pi() + F.ceil("x") + F.floor("x") + F.sqrt("x") + F.signum("x") + F.sign("x"),
]


def test_columns_without_a_name_have_sparks(frame):
    builds = [*ALIKE.values(), *NEAR.values(), *NAMED]
    theirs = frame.select(*(build(spark_functions) for build in builds)).columns
    rows = Resolved.of(TABLE.schema)
    wrong = {}
    for build, name in zip(builds, theirs, strict=True):
        try:
            found = rows.name(build(our_functions))
        except FiresteelError:
            assert re.search(r"\dE[0-9-]", name) or "TIMESTAMP" in name, name
            continue
        if found != name:
            wrong[name] = found
    assert not wrong


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_sparks(frame, name):
    with pytest.raises(Exception):  # noqa: B017 - which one is Spark's matter
        frame.select(ERRORS[name](spark_functions)).collect()
    with pytest.raises(FiresteelError):
        ours({name: ERRORS[name]})


def of_groups(F):
    return [
        F.sum("i"), F.sum(F.col("i") * 2), F.sum("x"), F.avg("h"), F.mean("b"), F.count("*"), F.count(F.lit(1)).alias("c"), F.count("i"),
        F.countDistinct("i"), F.max_by("v", "id"), F.count_if(F.col("i") > 1), F.min("m"), F.max("x"), F.bool_or("u"), F.every("u"), F.median("i"),
        F.bit_xor("h"), F.sum("m"), F.avg("m"), F.sum("q"), F.avg(F.col("q") * 2), F.sum("y"), F.max(F.col("d") + 1),
        F.sum(F.col("m").cast("decimal(38,2)")), F.avg(F.col("m").cast("decimal(29,3)")),
    ]  # fmt: skip


def in_order(table):
    return sorted(([value(row[name]) for name in table.column_names] for row in table.to_pylist()), key=str)


def test_aggregates_have_sparks_names_types_and_values(frame):
    theirs = frame.groupBy("t").agg(*of_groups(spark_functions)).toArrow()
    found = run(ExecutionEnvironment().from_arrow(TABLE).groupBy("t").agg(*of_groups(our_functions)))
    assert found.column_names == theirs.column_names
    assert found.schema.types == theirs.schema.types
    assert in_order(found) == in_order(theirs)


def of_one_value(F, rows):
    """Groups of rows with one value: each row of the table twice, the second time with nulls but for its ``id`` where ``ignorenulls`` passes over them."""
    names = TABLE.column_names[1:]
    rows = rows.select(*TABLE.column_names)
    twice = rows.unionByName(rows)
    whole = twice.groupBy("id").agg(
        *map(F.first, names),
        F.last("i").alias("last"),
        F.last("x"),
        F.first(F.col("i") * 2),
        F.first(F.col("r.s")),
        F.any_value("v"),
        F.any_value("x", ignoreNulls=True),
    )
    nulls = rows.select("id", *(F.when(F.col("id") < 0, F.col(name)).alias(name) for name in names))
    known = (
        rows.unionByName(nulls)
        .groupBy("id")
        .agg(*(F.last(name, ignorenulls=True) for name in names), F.first("s", True).alias("s"))
    )
    none = rows.filter(F.col("id") < 0).agg(F.first("x"), F.last("s", True))
    by_name = twice.groupBy("id").agg({"s": "first", "m": "last"})
    return whole, known, none, by_name


def test_the_first_of_groups_with_one_value_is_sparks(frame):
    theirs = [one.toArrow() for one in of_one_value(spark_functions, frame)]
    found = list(map(run, of_one_value(our_functions, ExecutionEnvironment().from_arrow(TABLE))))
    for ours, sparks in zip(found, theirs, strict=True):
        assert ours.column_names == sparks.column_names
        assert ours.schema.types == sparks.schema.types
        assert in_order(ours) == in_order(sparks)


@pytest.mark.parametrize(
    "values",
    [
        ["a", "b"],
        ["a", None],
        [0.0, -0.0],
        [math.nan, 1.0],
        [[0.0], [-0.0]],
        [(1 << 53) + 1, 1 << 53],
        [{"a": 1}, {"a": None}],
    ],
    ids=str,
)
def test_the_first_of_several_values_is_refused(values):
    rows = ExecutionEnvironment().from_arrow(pa.table({"k": [1, 1], "v": values}))
    said = r"first as column 'f' finds several values in a group.*agg\.first\(\.\.\., order_by="
    with pytest.raises(FiresteelError, match=said):
        run(rows.groupBy("k").agg(our_functions.first("v").alias("f")))
    if None in values:
        assert run(rows.agg(our_functions.first("v", True)))["first(v)"].to_pylist() == ["a"]


def test_groups_of_expressions_are_sparks(frame):
    def made(F, rows):
        keys = [F.year("d"), F.col("r.n") % 2, (F.col("x") > 1).alias("more"), "u"]
        return rows.groupBy(*keys).agg(F.sum("i"), F.count("*"), F.max(F.col("r.n")))

    theirs, found = (
        made(spark_functions, frame).toArrow(),
        run(made(our_functions, ExecutionEnvironment().from_arrow(TABLE))),
    )
    assert found.column_names == theirs.column_names
    assert found.schema.types == theirs.schema.types
    assert in_order(found) == in_order(theirs)


def test_rows_ordered_by_expressions_are_sparks(frame):
    def made(F, rows):
        return rows.orderBy(F.abs("x").desc(), F.col("i") % 2, F.col("r.n"), "id").select("id")

    found = made(our_functions, ExecutionEnvironment().from_arrow(TABLE)).run_locally()
    assert [row["id"] for row in found] == [row.id for row in made(spark_functions, frame).collect()]


def test_the_first_rows_of_an_order_of_expressions_are_sparks(frame):
    ours = ExecutionEnvironment().from_arrow(TABLE)
    theirs = frame.orderBy(
        spark_functions.abs("x").desc(), (spark_functions.col("i") % 2).desc(), spark_functions.desc("id")
    ).limit(4)
    found = ours.top_k(4, our_functions.abs("x"), [our_functions.col("i") % 2, "id"])
    assert found.columns == TABLE.column_names
    assert [row["id"] for row in found.run_locally()] == [row.id for row in theirs.collect()]


DIGITS = {(38, 0): "9" * 33, (38, 38): "9" * 36, (29, 9): "9" * 29, (28, 0): "9" * 28, (18, 18): "5", (1, 0): "9"}
"""By the digits and the scale of a decimal, the digits of a large value. Sums and means of two fit."""


def of_decimals():
    units = {kind: [int(n), -int(n), 1, -1, None, None, 0, int(n), 2, 3] for kind, n in DIGITS.items()}
    columns = {
        f"p{p}_{s}": pa.array([None if n is None else Decimal(n).scaleb(-s, Context(prec=76)) for n in rows], pa.decimal128(p, s))
        for (p, s), rows in units.items()
    }  # fmt: skip
    return pa.table({"k": pa.array([0, 1, 2, 2, 3, 4, 4, 4, 5, 5]), **columns})


@pytest.mark.parametrize("name", [f"p{p}_{s}" for p, s in DIGITS])
def test_sums_and_means_of_decimals_are_sparks(frame, name):
    rows = of_decimals()
    theirs = frame.sparkSession.createDataFrame(rows).groupBy("k")
    ours = ExecutionEnvironment().from_arrow(rows).groupBy("k")
    for function in ("sum", "avg", "min", "max"):
        made = theirs.agg(getattr(spark_functions, function)(name)).toArrow()
        try:
            found = run(ours.agg(getattr(our_functions, function)(name)))
        except FiresteelError as refused:
            assert function == "avg" and "beyond 38 digits" in str(refused), name
            continue
        assert found.schema.remove_metadata() == made.schema.remove_metadata()
        assert in_order(found) == in_order(made)


@pytest.mark.parametrize("digits", ["9" * 38, "6" + "0" * 37])
def test_a_sum_of_decimals_that_does_not_fit_is_an_error(frame, digits):
    rows = pa.table({"m": pa.array([Decimal(digits)] * 2, pa.decimal128(38, 0))})
    with pytest.raises(Exception, match=r"overflow|OVERFLOW|NUMERIC_VALUE"):
        frame.sparkSession.createDataFrame(rows).agg(spark_functions.sum("m")).collect()
    with pytest.raises(FiresteelError, match="does not fit"):
        run(ExecutionEnvironment().from_arrow(rows).agg(our_functions.sum("m")))


WINDOWS = {
    "of groups": lambda W: W.partitionBy("t"),
    "of all": lambda W: W.partitionBy(),
    "up to peers": lambda W: W.partitionBy("t").orderBy("b"),
    "up to peers of floats": lambda W: W.partitionBy("u").orderBy("f"),
    "of all in order": lambda W: W.orderBy("h"),
    "of neighbours": lambda W: W.partitionBy("t").orderBy("id").rowsBetween(-1, 1),
    "of what follows": lambda W: W.orderBy("id").rowsBetween(W.currentRow, W.unboundedFollowing),
    "of no rows at first": lambda W: W.partitionBy("u").orderBy("id").rowsBetween(-3, -2),
    "of near numbers": lambda W: W.partitionBy("u").orderBy("i").rangeBetween(-3, 7),
    "of smaller numbers": lambda W: W.orderBy("l").rangeBetween(W.unboundedPreceding, -1),
}  # fmt: skip


def aggregates_over(F, window):
    made = [
        F.sum("i"), F.sum("m"), F.avg("q"), F.avg("b"), F.sum(F.col("b") * 2), F.min("s"), F.max("d"), F.max("f"), F.min("t"), F.count("*"),
        F.count("v"), F.sum("f"), F.bool_or("u"), F.max("z"), F.sum(F.col("m").cast("decimal(38,2)")),
    ]  # fmt: skip
    return [*(one.over(window) for one in made), F.sum("i").over(window) - F.col("i")]


@pytest.mark.parametrize("name", WINDOWS)
def test_aggregates_over_windows_are_sparks(frame, name):
    theirs = frame.select("id", *aggregates_over(spark_functions, WINDOWS[name](Window))).toArrow()
    stream = ExecutionEnvironment().from_arrow(TABLE)
    found = run(stream.select("id", *aggregates_over(our_functions, WINDOWS[name](our_window))))
    assert found.column_names == theirs.column_names
    assert found.schema.types == theirs.schema.types
    assert in_order(found) == in_order(theirs)


def in_frames(F, window):
    made = [
        F.first("i"), F.first("v", ignorenulls=True), F.last("x"), F.last(F.col("b") * 2, True), F.last("r"), F.nth_value("d", 2),
        F.nth_value("i", 2, ignoreNulls=True), F.collect_list("x"), F.collect_list("s"), F.collect_list(F.col("b") * 2), F.collect_list("d"),
        F.collect_list("m"), F.collect_list("r"), F.collect_list("c"), F.first("z"),
    ]  # fmt: skip
    sets = [F.collect_set(name).over(window) for name in "ismdzctb"]
    return [*(one.over(window) for one in made), *map(F.sort_array, sets), *map(F.size, sets)]


FRAMES = {
    "of one order": lambda W: W.orderBy("id"),
    "of groups": lambda W: W.partitionBy("t").orderBy("id"),
    "of whole groups": lambda W: W.partitionBy("t").orderBy("id").rowsBetween(W.unboundedPreceding, W.unboundedFollowing),
    "of NaN and nulls": lambda W: W.partitionBy("t").orderBy("x", "id").rowsBetween(-1, 1),
    "of no rows at first": lambda W: W.partitionBy("u").orderBy("f", "id").rowsBetween(-3, -2),
    "of what follows": lambda W: W.orderBy("id").rangeBetween(1, W.unboundedFollowing),
    "of near numbers": lambda W: W.partitionBy("u").orderBy("i").rangeBetween(-3, 7),
}  # fmt: skip


@pytest.mark.parametrize("name", FRAMES)
def test_rows_of_frames_are_sparks(frame, name):
    theirs = frame.select("id", *in_frames(spark_functions, FRAMES[name](Window))).toArrow()
    found = run(
        ExecutionEnvironment().from_arrow(TABLE).select("id", *in_frames(our_functions, FRAMES[name](our_window)))
    )
    assert found.column_names == theirs.column_names
    assert found.schema.types == [
        pa.list_(one.value_type) if pa.types.is_list(one) else one for one in theirs.schema.types
    ]
    assert in_order(found) == in_order(theirs)


ORDERS = {
    **{name: lambda F, W, name=name: W.partitionBy("t").orderBy(name) for name in "hfxmsdzu"},
    "of all": lambda F, W: W.orderBy("b"),
    "descending": lambda F, W: W.partitionBy("u").orderBy(F.desc("x")),
    "of two": lambda F, W: W.partitionBy("u").orderBy("t", F.desc("f")),
    "of lists": lambda F, W: W.partitionBy(["t", "u"]).orderBy(["b"]),
    "of expressions": lambda F, W: W.partitionBy(F.year("d"), F.col("l") % 2).orderBy(
        F.abs("x"), F.desc(F.col("i") * 2)
    ),
}
"""Of columns with nulls, NaN, zeros of two signs and ties."""


@pytest.mark.parametrize("name", ORDERS)
def test_ranks_of_edge_values_are_sparks(frame, name):
    def made(F, W):
        ranks = [F.percent_rank(), F.cume_dist(), F.rank(), F.dense_rank()]
        return ["id", *(one.over(ORDERS[name](F, W)) for one in ranks)]

    for rows in (TABLE, TABLE.slice(0, 1), TABLE.slice(0, 0)):
        theirs = frame.filter(f"id < {rows.num_rows}").select(*made(spark_functions, Window)).toArrow()
        found = run(ExecutionEnvironment().from_arrow(rows).select(*made(our_functions, our_window)))
        assert (found.column_names, found.schema.types) == (theirs.column_names, theirs.schema.types)
        assert in_order(found) == in_order(theirs)


def test_names_of_functions_over_windows_are_sparks(frame):
    def made(F, W):
        of, all_ = W.partitionBy("t").orderBy(F.desc("u"), "id"), W.orderBy("id")
        ranks = [
            F.row_number(),
            F.rank(),
            F.dense_rank(),
            F.ntile(2),
            F.lag("i"),
            F.lead("s", 2, "x"),
            F.lag(F.col("h") * 2, 2, 7),
        ]
        return [*(one.over(of) for one in ranks), F.rank().over(all_) + 1, F.lag("d").over(all_) + 1]

    found = run(ExecutionEnvironment().from_arrow(TABLE).select(*made(our_functions, our_window)))
    theirs = frame.select(*made(spark_functions, Window)).toArrow()
    assert (found.column_names, found.schema.types) == (theirs.column_names, theirs.schema.types)
    assert in_order(found) == in_order(theirs)


def over(F, window):
    by = window.partitionBy("t").orderBy(F.desc("u"), "id")
    made = {
        "n": F.row_number(),
        "r": F.rank(),
        "d": F.dense_rank(),
        "t2": F.ntile(2),
        "a": F.lag("i"),
        "l": F.lead("i", 2, 7),
    }
    return {name: one.over(by) for name, one in made.items()}


def test_functions_over_windows_are_sparks(frame):
    theirs = frame.withColumns(over(spark_functions, Window)).toArrow()
    found = run(ExecutionEnvironment().from_arrow(TABLE).withColumns(over(our_functions, our_window)))
    names = ["id", "n", "r", "d", "t2", "a", "l"]
    assert found.select(names).schema.types == theirs.select(names).schema.types
    assert in_order(found.select(names)) == in_order(theirs.select(names))
