"""Random expressions over columns of edge values: what the engine gives where the allow-list takes one, held to Spark.

``python tests/sql_expressions_kit.py SEED ROUNDS`` prints what a longer run finds; a round is 20 trees in two modes.
"""

from __future__ import annotations

import datetime as dt
import decimal
import logging
import math
import random
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from firesteel.sql.expressions.translator import Expressions
from firesteel.sql.expressions.types import arrow_type, engine_type
from firesteel.sql.plans.catalyst import read_plan
from firesteel.sql.plans.nodes import Unsupported, walk
from firesteel.task.engine.connection import MACROS

MODES = {"ANSI": "true", "LEGACY": "false"}
D = decimal.Decimal
DECIMALS = {"d5": (5, 2), "d9": (9, 0), "d18": (18, 4), "d38": (38, 10), "e38": (38, 0), "d20": (20, 20)}
INTEGERS = {"byte": 7, "short": 15, "int": 31, "long": 63}
TEXTS = [
    "",
    " ",
    "  x ",
    "a",
    "A",
    "ab",
    "aB%_",
    "%",
    "_",
    "\\",
    "x\ny",
    "\t",
    "0",
    "-0",
    "1",
    " 12 ",
    "1.5",
    "1e3",
    "NaN",
    "inf",
    "true",
    "2024-02-29",
    "2023-02-29",
    "1-1-1",
    "2024-02-29 23:59:60",
    "ß",
    "ẞ",
    "İ",
    "é",
    "é",
    "😀",
    "a😀b",
    "ǅ",
    "ﬀ",
    "Σς",
    "x" * 300,
    "日本語",
    "\x7f",
    "\uffff",
    "'",
    '"',
    "12345678901234567890",
    "0.1e-400",
    "+5",
    "1L",
    "1_0",
    "٣",
]
DATES = [
    dt.date(*d)
    for d in ((1, 1, 1), (1582, 10, 4), (1582, 10, 15), (1900, 2, 28), (1969, 12, 31), (1970, 1, 1), (2000, 2, 29))
]
DATES += [dt.date(2024, 2, 29), dt.date(2024, 12, 30), dt.date(2023, 1, 1), dt.date(9999, 12, 31)]
TIMES = [
    0,
    -1,
    1,
    999_999,
    -62135596800 * 10**6,
    253402300799 * 10**6 + 999_999,
    1709251199 * 10**6,
    1483228799 * 10**6 + 999_999,
]
DOUBLES = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    0.1,
    2.5,
    3.5,
    1e15,
    123456789.125,
    1e300,
    -1e300,
    5e-324,
    2.0**53,
    2.0**63,
    math.nan,
    math.inf,
    -math.inf,
]

LEAVES = {
    "byte": ["1Y", "-128Y", "0Y"],
    "short": ["3S", "32767S"],
    "int": ["0", "1", "-7", "2147483647"],
    "long": ["0L", "2L", "-3L", "9223372036854775807L"],
    "float": ["CAST(1.5 AS FLOAT)"],
    "double": ["0D", "1.5D", "-2D", "CAST('NaN' AS DOUBLE)"],
    "dec": ["1.5BD", "0.01BD", "-99999.99BD", "3BD", "12345678901234567890.5BD"],
    "string": ["'a'", "''", "'ab'", "'Straße'", "' '", "'%'"],
    "date": ["DATE'2024-02-29'", "DATE'1582-10-15'"],
    "bool": ["true", "false"],
    "ntz": ["TIMESTAMP_NTZ'2024-02-29 12:34:56.789'"],
    "ts": ["TIMESTAMP'2024-02-29 12:34:56.789Z'"],
    "binary": ["X'00FF'"],
}
"""Constants. ``TRUE`` and such occur, too, where Spark folds an expression."""

ANY = ("byte", "short", "int", "long", "float", "double", "dec", "string", "date", "bool", "ntz", "ts")
NUMBERS = ("byte", "short", "int", "long", "float", "double", "dec")
SAME = {
    kind: [
        f"CASE WHEN {{bool}} THEN {{{kind}}} WHEN {{bool}} THEN {{{kind}}} ELSE {{{kind}}} END",
        f"CASE WHEN {{bool}} THEN {{{kind}}} END",
        f"if({{bool}}, {{{kind}}}, {{{kind}}})",
        f"coalesce({{{kind}}}, {{{kind}}})",
        f"nullif({{{kind}}}, {{{kind}}})",
        f"nvl2({{{kind}}}, {{{kind}}}, {{{kind}}})",
        f"greatest({{{kind}}}, {{{kind}}})",
        f"least({{{kind}}}, {{{kind}}}, {{{kind}}})",
    ]
    for kind in ANY
}
ARITHMETIC = {
    kind: [f"({{{kind}}} {sign} {{{kind}}})" for sign in "+-*%"]
    + [f"(-{{{kind}}})", f"abs({{{kind}}})", f"pmod({{{kind}}}, {{{kind}}})"]
    for kind in NUMBERS
}
BITS = {kind: [f"({{{kind}}} {sign} {{{kind}}})" for sign in "&|^"] + [f"(~{{{kind}}})"] for kind in INTEGERS}
CASTS = {
    kind: [f"CAST({{{other}}} AS {name})" for other in ANY if other != kind]
    for kind, name in {
        **{"byte": "TINYINT", "short": "SMALLINT", "int": "INT", "long": "BIGINT", "float": "FLOAT", "double": "DOUBLE", "string": "STRING"},
        **{"date": "DATE", "bool": "BOOLEAN", "ntz": "TIMESTAMP_NTZ", "ts": "TIMESTAMP"},
    }.items()
}  # fmt: skip
GRAMMAR: dict[str, list[str]] = {
    "bool": [f"({{{kind}}} {sign} {{{kind}}})" for kind in ANY for sign in ("=", "<", ">", "<=", ">=", "<=>", "<>")]
    + ["({bool} AND {bool})", "({bool} OR {bool})", "(NOT {bool})"] * 6
    + [f"({{{kind}}} IS NULL)" for kind in ANY]
    + [f"({{{kind}}} IN ({{{kind}}}, {{{kind}}}))" for kind in ANY]
    + ["isnan({double})", "({long} BETWEEN {long} AND {long})", "({int} IN (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144))"]
    + ["({string} IN ('a', 'b', '', 'x', 'A', 'ab', 'é', 'ß', '1', '0', ' ', NULL))"]
    + [f"({{string}} LIKE '{p}')" for p in ("a%", "%a", "%b%", "_", "%", "a_", "", "x%y", "%ß%", "__")]
    + ["({string} LIKE 'aB|%|_' ESCAPE '|')", "({string} LIKE '%|%%' ESCAPE '|')", r"({string} LIKE '%\\\\%')", "({string} LIKE '_|_%' ESCAPE '|')"]
    + ["startswith({string}, {string})", "endswith({string}, {string})", "contains({string}, {string})"] * 3
    + ["({string} RLIKE '^a')", "({string} RLIKE '[0-9]+$')", "({string} RLIKE 'a.*b')", "({string} RLIKE '(a|b){2,3}')", r"({string} RLIKE '^\\\\w+$')", "({string} ILIKE 'A%')"],
    "int": ["length({string})", "year({date})", "month({date})", "day({date})", "quarter({date})", "datediff({date}, {date})"] * 2
    + ["dayofweek({date})", "weekday({date})", "dayofyear({date})", "weekofyear({date})", "year({ntz})", "hour({ntz})", "minute({ntz})"]
    + ["second({ntz})", "month({ts})", "hour({ts})", "instr({string}, {string})", "locate({string}, {string})", "ascii({string})"]
    + ["({int} >> 3)", "shiftleft({int}, 2)", "sign({int})", "octet_length({string})", "bit_count({long})", "crc32({binary})", "unix_date({date})"]
    + ["levenshtein({string}, {string})", "try_cast({long} AS INT)", "try_cast({dec} AS INT)"],
    "long": ["({long} >> 5)", "({long} div {long})", "ceil({double})", "floor({double})", "round({long}, 0)", "unix_micros({ts})", "try_cast({string} AS BIGINT)", "try_add({long}, {long})", "try_multiply({long}, {long})", "try_cast({double} AS BIGINT)"],
    "double": ["try_divide({double}, {double})", "try_divide({long}, {int})", "nanvl({double}, {double})"]
    + ["({double} / {double})", "({long} / {long})", "sqrt({double})", "round({double}, 2)", "signum({double})"] * 2
    + ["ceil({double})", "exp({double})", "ln({double})", "pow({double}, {double})", "sin({double})", "log10({double})", "cbrt({double})"],
    "float": ["({float} + {float})"],
    "dec": [f"CAST({{{kind}}} AS DECIMAL({p},{s}))" for kind in ANY for p, s in ((7, 2), (38, 18), (18, 0), (38, 0))]
    + ["({dec} / {dec})", "({dec} + {int})", "({dec} * {long})"] * 5
    + ["round({dec}, 1)", "round({dec}, -2)", "ceil({dec})", "floor({dec})", "bround({dec}, 1)", "round({dec})"] * 2,
    "string": ["({string} || {string})", "concat({string}, {string}, {string})", "upper({string})", "lower({string})", "trim({string})"] * 2
    + ["ltrim({string})", "rtrim({string})", "substring({string}, 2, 3)", "substring({string}, 1)", "substring({string}, -2, 5)"]
    + ["substring({string}, 0, 2)", "left({string}, 2)", "right({string}, 2)", "substring({string}, {int}, {int})", "reverse({string})"]
    + ["replace({string}, {string}, {string})", "replace({string}, 'a', 'bb')", "lpad({string}, 5, 'xy')", "rpad({string}, 3)"]
    + ["repeat({string}, 3)", "concat_ws('-', {string}, {string})", "initcap({string})", "translate({string}, 'ab', 'xy')"]
    + ["split_part({string}, 'a', 1)", "regexp_replace({string}, '[0-9]', '#')", "regexp_extract({string}, '(a)(b)?', 1)"]
    + ["regexp_extract({string}, '(a+?)(.*)', 2)", "regexp_extract({string}, '^[^a]*(x|ab)*', 1)", "regexp_extract({string}, '[a-b]+', 0)"]
    + ["trim('x' FROM {string})", "date_format({date}, 'yyyy-MM')", "date_format({ntz}, 'HH:mm:ss')", "md5({binary})", "hex({long})"]
    + ["substring_index({string}, 'a', 1)", "overlay({string} PLACING 'zz' FROM 2)", "chr({long})", "format_string('%d', {int})"],
    "date": ["date_add({date}, {int})", "date_sub({date}, 3)", "date_add({date}, 40)", "trunc({date}, 'MM')", "last_day({date})", "add_months({date}, 3)", "add_months({date}, {int})", "make_date({int}, {int}, {int})", "next_day({date}, 'MO')", "({date} + INTERVAL '2' DAY)", "({date} - INTERVAL '1' MONTH)", "trunc({date}, 'YEAR')", "date_from_unix_date({int})"],
    "ntz": ["({ntz} + INTERVAL '2' HOUR)", "date_trunc('HOUR', {ntz})", "({ntz} - INTERVAL '1' MONTH)"],
    "ts": ["({ts} + INTERVAL '2' HOUR)", "date_trunc('DAY', {ts})", "timestamp_micros({long})", "timestamp_seconds({long})"],
}  # fmt: skip
for _more in (SAME, ARITHMETIC, BITS, CASTS):
    for _kind, _texts in _more.items():
        GRAMMAR[_kind] = GRAMMAR.get(_kind, []) + _texts


def table(rows: int, seed: int) -> pa.Table:
    """Two columns of each type; a third of the values are edges, a tenth null."""
    rng = random.Random(seed)

    def column(edges, ordinary, kind):
        values = [
            None if (x := rng.random()) < 0.1 else rng.choice(edges) if x < 0.4 else ordinary() for _ in range(rows)
        ]
        return pa.array(values, kind)

    columns = {}
    for i in (1, 2):
        for (name, bits), kind in zip(INTEGERS.items(), (pa.int8(), pa.int16(), pa.int32(), pa.int64()), strict=True):
            edges = [0, 1, -1, 2, 7, -(2**bits), 2**bits - 1, 2 ** (bits - 1), -(2**bits) + 1, 10, 100]
            columns[f"{name}{i}"] = column(edges, lambda: rng.randint(-12, 40), kind)
        for name, (p, s) in DECIMALS.items():
            edges = [scaled(n, s) for n in (0, 10**p - 1, -(10**p) + 1, 1, 5, -5)]
            if p > s:
                edges += [D(1), D(-1), D(2), D(7)]

            def some(p=p, s=s):
                return scaled(rng.randint(-(10 ** rng.randint(0, p)) + 1, 10 ** rng.randint(0, p) - 1), s)

            columns[f"dec_{name}{i}"] = column(edges, some, pa.decimal128(p, s))
        columns[f"double{i}"] = column(
            DOUBLES, lambda: rng.choice((rng.uniform(-9, 9), rng.randint(-9, 9) / 4)), pa.float64()
        )
        columns[f"float{i}"] = column(DOUBLES, lambda: rng.randint(-99, 99) / 8, pa.float32())
        columns[f"string{i}"] = column(
            TEXTS, lambda: "".join(rng.choices("abxAB01 é", k=rng.randint(0, 6))), pa.string()
        )
        columns[f"bool{i}"] = column([True, False], lambda: rng.random() < 0.5, pa.bool_())
        columns[f"date{i}"] = column(
            DATES, lambda: dt.date(1990, 1, 1) + dt.timedelta(rng.randint(0, 20000)), pa.date32()
        )
        columns[f"ntz{i}"] = column(TIMES, lambda: rng.randint(0, 2 * 10**15), pa.timestamp("us"))
        columns[f"ts{i}"] = column(TIMES, lambda: rng.randint(0, 2 * 10**15), pa.timestamp("us", "UTC"))
        columns[f"binary{i}"] = column(
            [b"", b"\x00", b"\xff", b"a"], lambda: bytes(rng.choices(range(256), k=3)), pa.binary()
        )
    return pa.table(columns)


def scaled(digits: int, scale: int) -> decimal.Decimal:
    return D(f"{digits}e-{scale}")


class Expressing:
    """Random SQL text. ``constants``: their share among the leaves; the others are columns."""

    def __init__(self, rng: random.Random, constants: float = 0.25) -> None:
        self.rng, self.constants = rng, constants

    def any(self, depth: int) -> str:
        return self.grown(self.rng.choice(ANY), depth)

    def grown(self, kind: str, depth: int) -> str:
        rng = self.rng
        if depth <= 0 or kind not in GRAMMAR or rng.random() < 0.1:
            if kind in LEAVES and rng.random() < self.constants:
                return rng.choice(LEAVES[kind])
            name = f"dec_{rng.choice(list(DECIMALS))}" if kind == "dec" else kind
            return f"{name}{rng.randint(1, 2)}"
        return self.filled(rng.choice(GRAMMAR[kind]), depth)

    def filled(self, template: str, depth: int) -> str:
        return re.sub(r"\{(\w+)\}", lambda found: self.grown(found[1], depth - 1), template)


@dataclass
class Tally:
    """``values``: compared ones; ``left``: those that the engine left to Spark at run time; ``refused``: expressions, by reason."""

    expressions: int = 0
    taken: int = 0
    values: int = 0
    left: int = 0
    classes: Counter = field(default_factory=Counter)
    refused: Counter = field(default_factory=Counter)
    always_left: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Kit:
    """A table of edge values in Spark and in an engine."""

    def __init__(self, spark, home: Path, rows: int = 400, seed: int = 0) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.spark = spark
        self.rows = rows
        rows_of = table(rows, seed).append_column("row", pa.array(range(rows)))
        pq.write_table(rows_of, home / "edges.parquet")
        self.frame = spark.read.parquet(str(home / "edges.parquet"))
        self.home = home
        self.engine = duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False})
        self.engine.execute("SET TimeZone = 'UTC'")
        for macro in MACROS:
            self.engine.execute(macro.replace("error('", "fs_left('"))
        self.engine.execute("CREATE MACRO fs_left(m) AS CAST(CAST(m AS INTEGER) AS VARCHAR)")  # TRY takes no error()
        self.engine.register("edges", rows_of)

    def held(self, texts: list[str], mode: str, tally: Tally) -> None:
        """Compares the expressions' values in one eval mode, adding to the tally."""
        self.spark.conf.set("spark.sql.ansi.enabled", MODES[mode])
        texts = [text for text in texts if self._is_sound(text)]
        frame = self.frame.selectExpr("row", *(f"{text} AS v{i}" for i, text in enumerate(texts)))
        catalyst = read_plan(frame)
        project = catalyst.root
        if project.cls != "Project":
            return
        inner, columns = self._below(project["child"])
        known = {}
        for i, item in enumerate(project["projectList"][1:]):
            tally.expressions += 1
            try:
                text = Expressions().text(item)
                engine_type(item.type)
                if missing := {node.id for node in walk(item) if node.cls == "AttributeReference"} - columns:
                    raise Unsupported(f"common expressions: {len(missing)}")
            except Unsupported as reason:
                tally.refused[re.sub(r"\d+", "#", str(reason))] += 1
                continue
            if item.cls == "AttributeReference" or item["child"].cls == "Literal":
                continue
            tally.taken += 1
            tally.classes.update(node.cls for node in walk(item))
            known[i] = (text, item, self._values(text, item, inner))
        if known:
            self._compare(texts, known, mode, tally)

    def _below(self, node) -> tuple[str, set[str]]:
        """The text and the columns of the relation, or of projections over it: of expressions that Spark computes once."""
        if node.cls != "Project":
            known = {a.id: f"{a['name']} AS {a.id}" for a in node["output"]}
            return f"SELECT {', '.join(known.values())} FROM edges", set(known)
        text, columns = self._below(node["child"])
        items = []
        for item in node["projectList"]:
            try:
                if {one.id for one in walk(item) if one.cls == "AttributeReference"} <= columns:
                    items.append((f"{Expressions().text(item)} AS {item.id}", item.id))
            except Unsupported:
                continue
        return f"SELECT {', '.join(text for text, _ in items)} FROM ({text})", {column for _, column in items}

    def _is_sound(self, text: str) -> bool:
        try:
            read_plan(self.frame.selectExpr(f"{text} AS v"))
            return True
        except Exception:  # Spark refuses it, or fails while it folds constants
            return False

    def _values(self, text, item, inner):
        """(whether the engine gave it, value) of each row."""
        text = text.replace("error('", "fs_left('")
        sql = f"SELECT TRY({{'v': CAST({text} AS {engine_type(item.type)})}}) AS t FROM ({inner})"
        try:
            found = self.engine.sql(sql).to_arrow_table().column("t").combine_chunks()
        except duckdb.Error:  # an expression that is computed once, below
            return [False] * self.rows, [None] * self.rows
        values = found.field("v").cast(arrow_type(item.type))
        return found.is_valid().to_pylist(), plain(values)

    def _compare(self, texts, known, mode, tally):
        """Spark computes only what the engine gave, so that a row that the engine leaves to it does not hide the others."""
        guards = pa.table(
            {
                "guard": range(len(known[next(iter(known))][2][0])),
                **{f"g{i}": ok for i, (_, _, (ok, _)) in known.items()},
            }
        )
        pq.write_table(guards, self.home / "guards.parquet")
        guarded = self.spark.read.parquet(str(self.home / "guards.parquet"))
        items = [f"CASE WHEN g{i} THEN {texts[i]} END AS v{i}" for i in known]
        try:
            theirs = (
                self.frame.join(guarded, self.frame.row == guarded.guard)
                .selectExpr("row", *items)
                .toArrow()
                .sort_by("row")
            )
        except Exception as error:
            if len(known) > 1:
                for i, one in known.items():
                    self._compare(texts, {i: one}, mode, tally)
                return
            i, (text, item, (ok, mine)) = next(iter(known.items()))
            sure = [given and value is not None for given, value in zip(ok, mine, strict=True)]
            if sum(sure) < sum(ok):  # beside a null operand the engine may not look at the other, which would raise
                self._compare(texts, {i: (text, item, (sure, mine))}, mode, tally)
                return
            tally.wrong.append(
                f"{mode}: {texts[next(iter(known))]}: Spark raises {str(error).splitlines()[0][:150]}; the engine gives values of all"
            )
            return
        for i, (text, item, (ok, mine)) in known.items():
            its = theirs.column(f"v{i}")
            assert pa.types.is_timestamp(its.type) or its.type == arrow_type(item.type), (texts[i], its.type)
            tally.values += sum(ok)
            tally.left += len(ok) - sum(ok)
            if not any(ok):
                tally.always_left[texts[i]] += 1
            for row, (given, a, b) in enumerate(zip(ok, mine, plain(its), strict=True)):
                if given and not same(a, b):
                    tally.wrong.append(f"{mode}: {texts[i]}: the engine gives {a!r}, Spark {b!r} in row {row}: {text}")
                    break


def plain(values) -> list:
    """Python's values; days and microseconds as numbers, for Python ends with the year 9999."""
    kind = (
        pa.int32()
        if pa.types.is_date(values.type)
        else pa.int64()
        if pa.types.is_timestamp(values.type)
        else values.type
    )
    return values.cast(kind).to_pylist()


def same(a: object, b: object) -> bool:
    """The same value; zeros of different signs are not; NaN is itself."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return a == b


def run(kit: Kit, seed: int, rounds: int, width: int = 20, depth: int = 3) -> Tally:
    """With the seed 0 each production of the grammar over columns first; then random trees."""
    tally, random_one = Tally(), Expressing(random.Random(seed))
    columns = Expressing(random.Random(seed), constants=0)
    singles = [columns.filled(template, 1) for texts in GRAMMAR.values() for template in texts] if seed == 0 else []
    batches = [singles[i : i + width] for i in range(0, len(singles), width)]
    batches += [[random_one.any(1 + i % depth) for _ in range(width)] for i in range(rounds)]
    for batch in batches:
        for mode in MODES:
            kit.held(batch, mode, tally)
    return tally


def report(tally: Tally) -> str:
    lines = [
        f"{tally.expressions:,} expressions, {tally.taken:,} taken over, {tally.values:,} values compared, {tally.left:,} left to Spark, {len(tally.wrong)} wrong"
    ]
    lines += ["classes: " + ", ".join(f"{name} {n}" for name, n in sorted(tally.classes.items()))]
    lines += ["refused:"] + [f"{n:6} {reason}" for reason, n in tally.refused.most_common(60)]
    lines += ["always left:"] + [f"{n:6} {text}" for text, n in tally.always_left.most_common(10)]
    return "\n".join([*lines, "wrong:", *tally.wrong[:60]])


def main() -> None:
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
    )
    spark = (
        builder.config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    logging.disable(logging.CRITICAL)
    seed, rounds = (int(text) for text in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as directory:
        print(report(run(Kit(spark, Path(directory), 400, seed), seed, rounds)))


if __name__ == "__main__":
    main()
