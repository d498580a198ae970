"""Random queries over small tables of awkward rows, held to Spark: joins, groups, sets, windows, subqueries, limits.

``python tests/sql_queries_kit.py SEED QUERIES`` prints what a longer run finds.
"""

from __future__ import annotations

import datetime as dt
import decimal
import logging
import math
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from firesteel import ExecutionEnvironment
from firesteel.errors import FiresteelError

KINDS = {
    "int": pa.int32(),
    "long": pa.int64(),
    "double": pa.float64(),
    "dec": pa.decimal128(9, 2),
    "string": pa.string(),
    "date": pa.date32(),
    "bool": pa.bool_(),
    "ts": pa.timestamp("us", "UTC"),
}
EDGES = {
    "int": [0, -3, 7, 2, 2],
    "long": [0, -3, 7, 2, 2**53 + 1],
    "double": [0.0, -0.0, math.nan, math.inf, 0.5],
    "dec": [decimal.Decimal(v) for v in ("0.00", "-2.50", "0.05", "9999999.99", "2.00")],
    "string": ["", "a", "A", "é", "a ", "b"],
    "date": [dt.date(*v) for v in ((1, 1, 1), (1970, 1, 1), (2024, 2, 29), (9999, 12, 31))],
    "bool": [True, False],
    "ts": [dt.datetime(*v, tzinfo=dt.UTC) for v in ((1, 1, 1), (1969, 12, 31, 23, 59, 59, 999999), (2024, 2, 29))],
}
LITERALS = {
    "int": ["0", "2", "-3", "7"],
    "long": ["0L", "2L", "9007199254740993L"],
    "double": ["0D", "0.5D", "CAST('NaN' AS DOUBLE)", "-1D"],
    "dec": ["0.05BD", "2BD", "-2.50BD"],
    "string": ["'a'", "''", "'é'", "'zz'"],
    "date": ["DATE'2024-02-29'", "DATE'1970-01-01'"],
    "bool": ["true", "false"],
    "ts": ["TIMESTAMP'2024-02-29 00:00:00Z'"],
}
TABLES = {"t0": 0, "t1": 7, "t2": 23, "t3": 60}
"""Rows of each table. Each has two columns of each kind."""

Columns = list[tuple[str, str]]
"""(SQL that names it, kind)."""


def tables(seed: int) -> dict[str, pa.Table]:
    rng = random.Random(seed)

    def value(kind: str) -> object:
        edges = EDGES[kind]
        x = rng.random()
        if x < 0.15:
            return None
        if x < 0.6 or kind in ("bool", "string", "double", "ts"):
            return rng.choice(edges) if kind != "double" or x < 0.4 else rng.randint(-6, 12) / 2
        return {
            "int": lambda: rng.randint(-5, 9),
            "long": lambda: rng.randint(-5, 9),
            "dec": lambda: decimal.Decimal(rng.randint(-500, 999)).scaleb(-2),
            "date": lambda: dt.date(2024, 1, 1) + dt.timedelta(rng.randint(0, 60)),
        }[kind]()

    return {
        name: pa.table(
            {
                f"{kind}{i}": pa.array([value(kind) for _ in range(rows)], to)
                for kind, to in KINDS.items()
                for i in (1, 2)
            }
        )
        for name, rows in TABLES.items()
    }


class Querying:
    """Random queries. Those with limits, and windows of rows, order by every column, so that equal rows alone are tied."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self._names = rng, 0

    def name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def query(self, depth: int) -> tuple[str, Columns]:
        """Its text, and its columns by the names it gives them."""
        shapes = [self.plain] * 3 + [self.grouped] * 4 + [self.windowed, self.sets, self.distinct, self.top]
        return self.rng.choice(shapes if depth else [self.plain, self.grouped])(depth)

    def table(self) -> str:
        return self.rng.choices(list(TABLES), [1, 4, 8, 8])[0]

    # --- sources of rows ---

    def relation(self, depth: int) -> tuple[str, Columns]:
        rng, name = self.rng, self.name("r")
        if depth and rng.random() < 0.5:
            text, columns = self.query(depth - 1)
            return f"({text}) {name}", [(f"{name}.{column}", kind) for column, kind in columns]
        return f"{self.table()} {name}", [(f"{name}.{kind}{i}", kind) for kind in KINDS for i in (1, 2)]

    def source(self, depth: int) -> tuple[str, Columns]:
        rng = self.rng
        text, columns = self.relation(depth)
        for _ in range(rng.choice((0, 0, 1, 1, 2)) if depth else 0):
            other, more = self.relation(depth - 1)
            how = rng.choice(
                ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN")
            )
            text = f"{text} {how} {other} ON {self.on(columns, more)}"
            columns = columns if "SEMI" in how or "ANTI" in how else columns + more
        return text, columns

    def on(self, left: Columns, right: Columns) -> str:
        rng = self.rng
        pairs = [(a, b) for a, kind in left for b, other in right if kind == other and kind != "bool"]
        if not pairs:
            return self.condition(left + right, 0)
        chosen = rng.sample(pairs, min(len(pairs), rng.choice((1, 1, 2))))
        parts = [f"{a} {rng.choice(('=', '=', '=', '<=>'))} {b}" for a, b in chosen]
        if rng.random() < 0.25:
            parts.append(self.condition(left + right, 0))
        return " AND ".join(parts)

    # --- expressions ---

    def column(self, columns: Columns, kind: str) -> str:
        known = [name for name, other in columns if other == kind]
        return self.rng.choice(known) if known and self.rng.random() < 0.85 else self.rng.choice(LITERALS[kind])

    def value(self, columns: Columns, kind: str) -> str:
        rng, one = self.rng, lambda: self.column(columns, kind)
        if rng.random() < 0.5:
            return one()
        texts = [
            f"coalesce({one()}, {one()})",
            f"CASE WHEN {self.condition(columns, 0)} THEN {one()} ELSE {one()} END",
            f"nullif({one()}, {one()})",
        ]
        if kind == "int":
            texts += [
                f"({one()} % 5)",
                f"length({self.column(columns, 'string')})",
                f"year({self.column(columns, 'date')})",
            ]
        if kind == "long":
            texts += [f"({one()} + {self.column(columns, 'int')})", f"(-{one()})"]
        if kind == "double":
            texts += [f"({one()} * 2)", f"(-{one()})", f"CAST({self.column(columns, 'int')} AS DOUBLE)"]
        if kind == "string":
            texts += [
                f"concat({one()}, {one()})",
                f"lower({one()})",
                f"substring({one()}, 1, 1)",
                f"CAST({self.column(columns, 'int')} AS STRING)",
            ]
        return rng.choice(texts)

    def condition(self, columns: Columns, depth: int) -> str:
        rng = self.rng
        if rng.random() < 0.25:
            a, b = self.condition(columns, depth), self.condition(columns, depth)
            return rng.choice((f"({a} AND {b})", f"({a} OR {b})", f"(NOT {a})"))
        kind = rng.choice(list({kind for _, kind in columns}))

        def one() -> str:
            return self.column(columns, kind)

        texts = [f"{one()} {sign} {one()}" for sign in ("=", "<", ">=", "<>", "<=>")]
        texts += [f"{one()} IS NULL", f"{one()} IS NOT NULL", f"{one()} IN ({one()}, {rng.choice(LITERALS[kind])})"]
        if depth:
            texts = [*texts[:4], *self.subqueries(columns, kind, one())]
        return rng.choice(texts)

    def subqueries(self, columns: Columns, kind: str, one: str) -> list[str]:
        table, name = self.table(), self.name("s")
        own = [(f"{name}.{k}{i}", k) for k in KINDS for i in (1, 2)]
        inner = f"FROM {table} {name} WHERE {self.condition(own, 0)}"
        same = f"{name}.{kind}1 = {self.rng.choice([column for column, k in columns if k == kind])}"
        texts = [f"{one} {word} (SELECT {name}.{kind}2 {inner})" for word in ("IN", "NOT IN")]
        texts += [f"{word} (SELECT 1 {inner} AND {same})" for word in ("EXISTS", "NOT EXISTS")]
        if kind != "bool":
            texts += [
                f"{one} > (SELECT max({name}.{kind}1) {inner})",
                f"{one} <= (SELECT min({name}.{kind}2) {inner} AND {same})",
            ]
        return texts

    def where(self, columns: Columns, depth: int) -> str:
        return f" WHERE {self.condition(columns, depth)}" if self.rng.random() < 0.45 else ""

    # --- shapes ---

    def plain(self, depth: int) -> tuple[str, Columns]:
        text, columns = self.source(depth)
        kinds = [self.rng.choice(list(KINDS)) for _ in range(self.rng.randint(1, 5))]
        items = [(self.value(columns, kind), self.name("c"), kind) for kind in kinds]
        listed = ", ".join(f"{item} AS {name}" for item, name, _ in items)
        return f"SELECT {listed} FROM {text}{self.where(columns, depth)}", [(name, kind) for _, name, kind in items]

    def distinct(self, depth: int) -> tuple[str, Columns]:
        text, columns = self.plain(depth)
        return text.replace("SELECT", "SELECT DISTINCT", 1), columns

    def aggregate(self, columns: Columns) -> tuple[str, str]:
        rng, one = self.rng, lambda kind: self.column(columns, kind)
        kind = rng.choice(list(KINDS))
        guard = f" FILTER (WHERE {self.condition(columns, 0)})" if rng.random() < 0.15 else ""
        text, gives = rng.choice(
            [
                ("count(*)", "long"),
                (f"count({one(kind)})", "long"),
                (f"count(DISTINCT {one(kind)})", "long"),
                (f"max({one(kind)})", kind),
                (f"min({one(kind)})", kind),
                (f"sum({one('int')})", "long"),
                (f"CAST(sum({one('dec')}) AS DECIMAL(9,2))", "dec") if not guard else ("count(1)", "long"),
                (f"sum({one('double')})", "double"),
                (f"avg({one('int')})", "double"),
                (f"avg({one('double')})", "double"),
                (f"sum(DISTINCT {one('int')})", "long"),
                (f"bool_or({one('bool')})", "bool"),
            ]
        )
        return text + guard, gives

    def grouped(self, depth: int) -> tuple[str, Columns]:
        rng = self.rng
        text, columns = self.source(depth)
        keys = [(self.value(columns, kind), kind) for kind in rng.sample(list(KINDS), rng.choice((0, 1, 1, 2)))]
        keys = [
            (key, kind) for key, kind in keys if any(name in key for name, _ in columns)
        ]  # no constants: they are places
        found = [self.aggregate(columns) for _ in range(rng.randint(1, 3))]
        items = [(item, self.name("c"), kind) for item, kind in [*keys, *found]]
        listed = ", ".join(f"{item} AS {name}" for item, name, _ in items)
        by = ", ".join(key for key, _ in keys)
        group = f" GROUP BY {by}" if keys else ""
        if keys and rng.random() < 0.2:
            group = rng.choice(
                (f" GROUP BY ROLLUP ({by})", f" GROUP BY CUBE ({by})", f" GROUP BY GROUPING SETS (({by}), ())")
            )
        if keys and rng.random() < 0.25:
            group += rng.choice((" HAVING count(*) > 1", f" HAVING {found[0][0]} IS NOT NULL"))
        return f"SELECT {listed} FROM {text}{self.where(columns, depth)}{group}", [
            (name, kind) for _, name, kind in items
        ]

    def windowed(self, depth: int) -> tuple[str, Columns]:
        rng = self.rng
        text, columns = self.query(depth - 1)
        kind = rng.choice([kind for _, kind in columns])
        part = self.rng.choice([name for name, _ in columns])
        everything = ", ".join(
            f"{name} {rng.choice(('ASC', 'DESC', 'ASC NULLS LAST', 'DESC NULLS FIRST'))}" for name, _ in columns
        )
        one = rng.choice([name for name, k in columns if k == kind])
        window = f"PARTITION BY {part} ORDER BY {everything}"
        function, gives = rng.choice(
            [
                (f"row_number() OVER ({window})", "int"),
                (f"rank() OVER (PARTITION BY {part} ORDER BY {one})", "int"),
                (f"dense_rank() OVER (ORDER BY {one} DESC)", "int"),
                (f"lag({one}) OVER ({window})", kind),
                (f"lead({one}, 2) OVER ({window})", kind),
                (f"max({one}) OVER ({window})", kind),
                (f"min({one}) OVER ({window} ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)", kind),
                (f"count({one}) OVER (PARTITION BY {part})", "long"),
                (f"count(*) OVER (PARTITION BY {part} ORDER BY {one})", "long"),
            ]
        )
        name = self.name("c")
        return f"SELECT *, {function} AS {name} FROM ({text})", [*columns, (name, gives)]

    def sets(self, depth: int) -> tuple[str, Columns]:
        rng = self.rng
        kinds = [rng.choice(list(KINDS)) for _ in range(rng.randint(1, 3))]
        names = [self.name("c") for _ in kinds]

        def side() -> str:
            text, columns = self.source(depth - 1)
            listed = ", ".join(
                f"{self.value(columns, kind)} AS {name}" for kind, name in zip(kinds, names, strict=True)
            )
            return f"(SELECT {listed} FROM {text}{self.where(columns, 0)})"

        word = rng.choice(("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"))
        return f"SELECT * FROM ({side()} {word} {side()})", list(zip(names, kinds, strict=True))

    def top(self, depth: int) -> tuple[str, Columns]:
        text, columns = self.query(depth - 1)
        order = ", ".join(f"{name} {self.rng.choice(('', 'DESC', 'NULLS LAST'))}" for name, _ in columns)
        return f"SELECT * FROM ({text}) ORDER BY {order} LIMIT {self.rng.choice((0, 1, 3, 10))}", columns


@dataclass
class Tally:
    queries: int = 0
    whole: int = 0
    """Taken over with nothing left to Spark."""
    failed: int = 0
    """Queries that Spark refuses, too."""
    rows: int = 0
    left: Counter = field(default_factory=Counter)
    gave_up: Counter = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Kit:
    def __init__(self, spark: object, directory: Path, seed: int = 0, **options: object) -> None:
        self.spark, self.directory, self.jobs = spark, directory, 0
        self.env = ExecutionEnvironment(spark=spark, options={"firesteel.progress": False, **options})
        for name, table in tables(seed).items():
            home = directory / name
            home.mkdir()
            for i in range(2):  # so that there are several tasks
                pq.write_table(table.slice(i * len(table) // 2, len(table) // 2 + i), home / f"{i}.parquet")
            spark.read.parquet(str(home)).createOrReplaceTempView(name)

    def held(self, queries: list[str], tally: Tally) -> None:
        """All of them as results of one job; one by one where that fails."""
        tally.queries += len(queries)
        known = []
        for text in queries:
            try:
                known.append((text, self.spark.sql(text).toArrow()))
            except Exception as error:  # ANSI's errors
                tally.failed += 1
                tally.left["Spark: " + str(error).split("]")[0].strip("[")[:60]] += 1
        try:
            self._compare(known, tally)
        except FiresteelError:
            for one in known:
                try:
                    self._compare([one], tally)
                except FiresteelError as error:
                    tally.wrong.append(f"{one[0]}\n      fails: {error}")

    def _compare(self, known: list[tuple[str, pa.Table]], tally: Tally) -> None:
        self.jobs += 1
        streams = [self.env.from_dataframe(self.spark.sql(text)) for text, _ in known]
        homes = [self.directory / f"job{self.jobs}-{i}" for i in range(len(streams))]
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            if len(streams) == 1:
                found = [streams[0].to_arrow()]
            else:
                for stream, home in zip(streams, homes, strict=True):
                    stream.write_parquet(home)
                self.env.execute()
                found = [pq.read_table(home) for home in homes]
        for warning in told:
            tally.gave_up[str(warning.message)[:120]] += 1
        for stream, (text, theirs), ours in zip(streams, known, found, strict=True):
            left = stream._pipeline.node.left_to_spark
            tally.whole += not left
            tally.left.update(set(left))
            tally.rows += len(theirs)
            difference = differs(ours, theirs)
            if difference:
                tally.wrong.append(f"{text}\n      {difference}")


def differs(ours: pa.Table, theirs: pa.Table) -> str:
    if (ours.schema.names, ours.schema.types) != (theirs.schema.names, theirs.schema.types):
        return f"types {ours.schema.types}, Spark {theirs.schema.types}"
    a, b = (
        sorted(map(plain, zip(*(column.to_pylist() for column in table.columns), strict=True)), key=repr)
        for table in (ours, theirs)
    )
    if a == b:
        return ""
    pair = next(((x, y) for x, y in zip(a, b, strict=False) if x != y), None)
    return f"{len(a)} rows, Spark {len(b)}; {pair}"


def plain(row: tuple) -> tuple:
    """Zeros of both signs are one: either may stand for a group of them. NaN is itself."""
    return tuple(
        "NaN" if isinstance(v, float) and math.isnan(v) else v + 0.0 if isinstance(v, float) else v for v in row
    )


def run(kit: Kit, seed: int, queries: int, batch: int = 10) -> Tally:
    tally, rng = Tally(), random.Random(seed)
    for begin in range(0, queries, batch):
        texts = [Querying(rng).query(1 + (begin + i) % 3)[0] for i in range(min(batch, queries - begin))]
        kit.held(texts, tally)
    return tally


def report(tally: Tally) -> str:
    lines = [
        f"{tally.queries:,} queries, {tally.whole:,} taken over whole, {tally.failed} that Spark refuses, {tally.rows:,} rows, {len(tally.wrong)} wrong"
    ]
    lines += ["left:"] + [f"{n:6} {reason}" for reason, n in tally.left.most_common(40)]
    lines += ["gave up:"] + [f"{n:6} {reason}" for reason, n in tally.gave_up.most_common(10)]
    return "\n".join([*lines, "wrong:", *tally.wrong[:20]])


def main() -> None:
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
    )
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    logging.disable(logging.CRITICAL)
    seed, queries = (int(text) for text in sys.argv[1:3])
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        print(report(run(Kit(spark, Path(directory), seed), seed, queries)))
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
