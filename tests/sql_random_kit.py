"""Random queries as text, over small tables of awkward rows: joins, groups, sets, windows, subqueries, limits."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import random
from typing import NamedTuple

import pyarrow as pa

D = decimal.Decimal
KINDS = {
    "int": pa.int32(),
    "long": pa.int64(),
    "short": pa.int16(),
    "double": pa.float64(),
    "float": pa.float32(),
    "dec": pa.decimal128(9, 2),
    "big": pa.decimal128(38, 4),
    "string": pa.string(),
    "date": pa.date32(),
    "bool": pa.bool_(),
    "ts": pa.timestamp("us", "UTC"),
    "ntz": pa.timestamp("us"),
}
_MOMENTS = ((1, 1, 1), (1969, 12, 31, 23, 59, 59, 999999), (2024, 2, 29), (9999, 12, 31, 23, 59, 59, 999999))
EDGES = {
    "int": [0, -3, 7, 2, 2],
    "long": [0, -3, 7, 2, 2**53 + 1],
    "short": [0, -3, 7, 2, 32767],
    "double": [0.0, -0.0, math.nan, math.inf, 0.5],
    "float": [0.0, -0.0, math.nan, -math.inf, 0.5],
    "dec": [D(v) for v in ("0.00", "-2.50", "0.05", "9999999.99", "2.00")],
    "big": [D(v) for v in ("0", "-2.5", "2", "0.0001", "9" * 34 + ".9999", "-" + "9" * 34 + ".9999")],
    "string": ["", "a", "A", "é", "a ", "b", "\U0001f600"],
    "date": [dt.date(*v) for v in ((1, 1, 1), (1970, 1, 1), (2024, 2, 29), (9999, 12, 31))],
    "bool": [True, False],
    "ts": [dt.datetime(*v, tzinfo=dt.UTC) for v in _MOMENTS],
    "ntz": [dt.datetime(*v) for v in _MOMENTS],
}
LITERALS = {
    "int": ["0", "2", "-3", "7"],
    "long": ["0L", "2L", "9007199254740993L"],
    "short": ["0S", "2S", "-3S"],
    "double": ["0D", "0.5D", "CAST('NaN' AS DOUBLE)", "-1D"],
    "float": ["0F", "0.5F", "CAST('-Infinity' AS FLOAT)"],
    "dec": ["CAST(0.05 AS DECIMAL(9,2))", "CAST(2 AS DECIMAL(9,2))", "CAST(-2.50 AS DECIMAL(9,2))"],
    "big": ["CAST(2 AS DECIMAL(38,4))", "CAST(-2.5 AS DECIMAL(38,4))"],
    "string": ["'a'", "''", "'é'", "'zz'"],
    "date": ["DATE'2024-02-29'", "DATE'1970-01-01'"],
    "bool": ["true", "false"],
    "ts": ["TIMESTAMP'2024-02-29 00:00:00Z'"],
    "ntz": ["TIMESTAMP_NTZ'2024-02-29 00:00:00'"],
}
NUMBERS = ("short", "int", "long", "dec", "big", "float", "double")
TABLES = {"t0": 0, "t1": 4, "t2": 12, "t3": 30}
"""Rows of each table. Each has two columns of each kind."""

Columns = list[tuple[str, str]]
"""(SQL that names it, kind)."""


class Query(NamedTuple):
    """``ordered``: by all of its columns."""

    text: str
    ordered: bool


def tables(seed: int) -> dict[str, pa.Table]:
    rng = random.Random(seed)

    def value(kind: str) -> object:
        edges = EDGES[kind]
        x = rng.random()
        if x < 0.15:
            return None
        if x < 0.6 or kind in ("bool", "string", "ts", "ntz", "big"):
            return rng.choice(edges) if kind not in ("double", "float") or x < 0.4 else rng.randint(-6, 12) / 2
        return {
            "int": lambda: rng.randint(-5, 9),
            "long": lambda: rng.randint(-5, 9),
            "short": lambda: rng.randint(-5, 9),
            "double": lambda: rng.randint(-6, 12) / 2,
            "float": lambda: rng.randint(-6, 12) / 2,
            "dec": lambda: D(rng.randint(-500, 999)).scaleb(-2),
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

    def whole(self, depth: int) -> Query:
        if self.rng.random() < 0.2:
            return Query(self.sorted(depth)[0], True)
        return Query(self.query(depth)[0], False)

    def query(self, depth: int) -> tuple[str, Columns]:
        """Its text, and its columns by the names it gives them."""
        shapes = [self.plain] * 4 + [self.grouped] * 5 + [self.windowed] * 2 + [self.sets] * 2
        shapes += [self.distinct, self.top, self.twice, self.lateral, self.unpivoted]
        return self.rng.choice(shapes if depth else [self.plain, self.grouped])(depth)

    def table(self) -> str:
        return self.rng.choices(list(TABLES), [1, 4, 8, 8])[0]

    # --- sources of rows ---

    def relation(self, depth: int) -> tuple[str, Columns]:
        rng, name = self.rng, self.name("r")
        if depth and rng.random() < 0.5:
            text, columns = self.query(depth - 1)
            return f"({text}) {name}", [(f"{name}.{column}", kind) for column, kind in columns]
        if rng.random() < 0.08:
            return self.constants(name)
        return f"{self.table()} {name}", self.columns_of(name)

    def columns_of(self, name: str) -> Columns:
        return [(f"{name}.{kind}{i}", kind) for kind in KINDS for i in (1, 2)]

    def constants(self, name: str) -> tuple[str, Columns]:
        kinds = self.rng.sample(list(KINDS), 3)
        rows = [
            ", ".join("NULL" if self.rng.random() < 0.2 else self.rng.choice(LITERALS[kind]) for kind in kinds)
            for _ in range(self.rng.randint(1, 3))
        ]
        rows.append(", ".join(LITERALS[kind][0] for kind in kinds))  # so that each column has a type
        columns = [f"v{i}" for i in range(len(kinds))]
        listed = ", ".join(f"({row})" for row in rows)
        return f"(VALUES {listed}) {name}({', '.join(columns)})", [
            (f"{name}.{column}", kind) for column, kind in zip(columns, kinds, strict=True)
        ]

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
        if rng.random() < 0.1:  # of other types
            pairs = [(a, b) for a, kind in left for b, other in right if kind in NUMBERS and other in NUMBERS] or pairs
        if not pairs or rng.random() < 0.05:
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
        if kind == "big":
            texts += [f"CAST({self.column(columns, other)} AS DECIMAL(38,4))" for other in ("dec", "int")]
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
        kind = rng.choice(list(dict.fromkeys(kind for _, kind in columns)))  # a set has another order in each process

        def one() -> str:
            return self.column(columns, kind)

        other = self.column(columns, rng.choice(NUMBERS)) if kind in NUMBERS and rng.random() < 0.3 else one()
        texts = [f"{one()} {sign} {other}" for sign in ("=", "<", ">=", "<>", "<=>")]
        texts += [f"{one()} IS NULL", f"{one()} IS NOT NULL", f"{one()} IN ({one()}, {rng.choice(LITERALS[kind])})"]
        texts += [f"{one()} NOT IN ({rng.choice(LITERALS[kind])}, NULL)", f"{one()} BETWEEN {one()} AND {one()}"]
        if depth:
            texts = [*texts[:4], *self.subqueries(columns, kind, one())]
        return rng.choice(texts)

    def subqueries(self, columns: Columns, kind: str, one: str) -> list[str]:
        table, name = self.table(), self.name("s")
        own = self.columns_of(name)
        inner = f"FROM {table} {name} WHERE {self.condition(own, 0)}"
        outer = self.rng.choice([column for column, k in columns if k == kind])
        same = f"{name}.{kind}1 = {outer}"
        texts = [f"{one} {word} (SELECT {name}.{kind}2 {inner})" for word in ("IN", "NOT IN")]
        texts += [f"{one} {word} (SELECT {name}.{kind}2 {inner} AND {same})" for word in ("IN", "NOT IN")]
        texts += [f"{word} (SELECT 1 {inner} AND {same})" for word in ("EXISTS", "NOT EXISTS")]
        texts += [f"{word} (SELECT 1 {inner} AND {name}.{kind}2 < {outer})" for word in ("EXISTS", "NOT EXISTS")]
        texts += [f"(SELECT count(*) {inner} AND {same}) > {self.rng.randint(0, 2)}"]
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
        if depth and self.rng.random() < 0.15:
            items.append((self.scalar(columns), self.name("c"), "long"))
        listed = ", ".join(f"{item} AS {name}" for item, name, _ in items)
        return f"SELECT {listed} FROM {text}{self.where(columns, depth)}", [(name, kind) for _, name, kind in items]

    def scalar(self, columns: Columns) -> str:
        """A subquery of one value, mostly for each row."""
        rng, name = self.rng, self.name("s")
        column, kind = rng.choice(columns)
        text = (
            f"SELECT {rng.choice(('count(*)', f'sum({name}.int1)', f'max({name}.long2)'))} FROM {self.table()} {name}"
        )
        return f"({text} WHERE {name}.{kind}1 = {column})" if rng.random() < 0.75 else f"({text})"

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
                (f"count(DISTINCT {one(kind)}, {one(rng.choice(list(KINDS)))})", "long"),
                (f"max({one(kind)})", kind),
                (f"min({one(kind)})", kind),
                (f"sum({one('int')})", "long"),
                (f"sum({one('short')})", "long"),
                (f"CAST(sum({one('dec')}) AS DECIMAL(38,4))", "big") if not guard else ("count(1)", "long"),
                (f"sum({one('big')})", "big"),
                (f"sum({one('double')})", "double"),
                (f"avg({one('int')})", "double"),
                (f"avg({one('double')})", "double"),
                (f"CAST(avg({one('dec')}) AS DECIMAL(38,4))", "big") if not guard else ("count(2)", "long"),
                (f"sum(DISTINCT {one('int')})", "long"),
                (f"bool_or({one('bool')})", "bool"),
                (f"every({one('bool')})", "bool"),
            ]
        )
        return (text if gives != "big" or text.startswith("CAST") else f"CAST({text}{guard} AS DECIMAL(38,4))") + (
            "" if gives == "big" else guard
        ), gives

    def grouped(self, depth: int) -> tuple[str, Columns]:
        rng = self.rng
        text, columns = self.source(depth)
        keys = [(self.value(columns, kind), kind) for kind in rng.sample(list(KINDS), rng.choice((0, 1, 1, 2, 3)))]
        keys = [
            (key, kind) for key, kind in keys if any(name in key for name, _ in columns)
        ]  # no constants: they are places
        found = [self.aggregate(columns) for _ in range(rng.randint(1, 3))]
        by = ", ".join(key for key, _ in keys)
        group = f" GROUP BY {by}" if keys else ""
        if keys and rng.random() < 0.25:
            sets = [f" GROUP BY {word} ({by})" for word in ("ROLLUP", "CUBE")]
            sets += [f" GROUP BY GROUPING SETS (({by}), (), ({keys[0][0]}))"]
            group = rng.choice(sets)
            found.append(("grouping_id()", "long"))
        items = [(item, self.name("c"), kind) for item, kind in [*keys, *found]]
        listed = ", ".join(f"{item} AS {name}" for item, name, _ in items)
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
        frame = rng.choice(
            (
                "2 PRECEDING AND CURRENT ROW",
                "1 PRECEDING AND 1 FOLLOWING",
                "UNBOUNDED PRECEDING AND 1 FOLLOWING",
                "1 FOLLOWING AND 3 FOLLOWING",
                "CURRENT ROW AND UNBOUNDED FOLLOWING",
            )
        )
        function, gives = rng.choice(
            [
                (f"row_number() OVER ({window})", "int"),
                (f"rank() OVER (PARTITION BY {part} ORDER BY {one})", "int"),
                (f"dense_rank() OVER (ORDER BY {one} DESC)", "int"),
                (f"lag({one}) OVER ({window})", kind),
                (f"lead({one}, 2) OVER ({window})", kind),
                (f"max({one}) OVER ({window})", kind),
                (f"min({one}) OVER ({window} ROWS BETWEEN {frame})", kind),
                (f"count({one}) OVER ({window} ROWS BETWEEN {frame})", "long"),
                (f"max({one}) OVER (PARTITION BY {part} ORDER BY {one} RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)", kind),
                (f"count({one}) OVER (PARTITION BY {part})", "long"),
                (f"first_value({one}) OVER ({window} ROWS BETWEEN {frame})", kind),
                (f"last_value({one}, true) OVER ({window} ROWS BETWEEN {frame})", kind),
                (f"nth_value({one}, 2) OVER ({window})", kind),
                (f"ntile(3) OVER ({window})", "int"),
                (f"percent_rank() OVER ({window})", "double"),
                (f"cume_dist() OVER (PARTITION BY {part} ORDER BY {one})", "double"),
                (f"count(*) OVER (PARTITION BY {part} ORDER BY {one})", "long"),
                (f"count(*) OVER (PARTITION BY {part}, {one} IS NULL)", "long"),
            ]
        )  # fmt: skip
        integers = [column for column, k in columns if k in ("int", "long", "short")]
        if integers and rng.random() < 0.15:
            by = rng.choice(integers)
            ends = rng.choice(
                ("1 PRECEDING AND CURRENT ROW", "2 PRECEDING AND 1 FOLLOWING", "1 FOLLOWING AND 4 FOLLOWING")
            )
            way = rng.choice(("", " DESC", " NULLS LAST"))
            function, gives = f"count({one}) OVER (PARTITION BY {part} ORDER BY {by}{way} RANGE BETWEEN {ends})", "long"
        name = self.name("c")
        if function.startswith(("row_number", "rank")) and rng.random() < 0.3:
            return f"SELECT * FROM (SELECT *, {function} AS {name} FROM ({text})) WHERE {name} < 3", [
                *columns,
                (name, gives),
            ]
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

        words = ("UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL")
        first, more = side(), [f"{rng.choice(words)} {side()}" for _ in range(rng.choice((1, 1, 1, 2)))]
        if len(more) == 1 and rng.random() < 0.15:  # of narrower types, which are cast
            narrower = {"long": "int", "int": "short", "double": "float", "big": "dec"}
            inner = [narrower.get(kind, kind) for kind in kinds]
            listed = ", ".join(f"{kind}1 AS {name}" for kind, name in zip(inner, names, strict=True))
            more = [f"UNION ALL (SELECT {listed} FROM {self.table()})"]
        return f"SELECT * FROM ({' '.join([first, *more])})", list(zip(names, kinds, strict=True))

    def order(self, columns: Columns) -> str:
        ways = ("", "DESC", "NULLS LAST", "DESC NULLS FIRST")
        return ", ".join(f"{name} {self.rng.choice(ways)}" for name, _ in columns)

    def sorted(self, depth: int) -> tuple[str, Columns]:
        text, columns = self.query(depth - 1 if depth else 0)
        end = self.rng.choice(("", "", " LIMIT 3", " LIMIT 10", " OFFSET 2", " LIMIT 4 OFFSET 3"))
        return f"SELECT * FROM ({text}) ORDER BY {self.order(columns)}{end}", columns

    def top(self, depth: int) -> tuple[str, Columns]:
        text, columns = self.query(depth - 1)
        end = self.rng.choice(("LIMIT 0", "LIMIT 1", "LIMIT 3", "LIMIT 10", "OFFSET 1", "LIMIT 5 OFFSET 2"))
        return f"SELECT * FROM ({text}) ORDER BY {self.order(columns)} {end}", columns

    def twice(self, depth: int) -> tuple[str, Columns]:
        """A query under a name, read twice."""
        rng, name = self.rng, self.name("w")
        text, columns = self.query(depth - 1)
        first, kind = rng.choice(columns)
        other = rng.choice([column for column, k in columns if k == kind])
        if rng.random() < 0.3:
            return (
                f"WITH {name} AS ({text}) SELECT * FROM {name} UNION ALL SELECT * FROM {name} WHERE {first} IS NOT NULL",
                columns,
            )
        mine, its = self.name("c"), self.name("c")
        how = rng.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
        return (
            f"WITH {name} AS ({text}) SELECT a.{first} AS {mine}, b.{other} AS {its} FROM {name} a {how} {name} b ON a.{first} = b.{other}",
            [(mine, kind), (its, kind)],
        )

    def lateral(self, depth: int) -> tuple[str, Columns]:
        rng, outer, inner, name = self.rng, self.name("r"), self.name("s"), self.name("c")
        kind = rng.choice(list(KINDS))
        function, gives = rng.choice(
            (("count(*)", "long"), (f"max({inner}.{kind}2)", kind), (f"sum({inner}.int2)", "long"))
        )
        chosen = [(f"{outer}.{k}1", self.name("c"), k) for k in rng.sample(list(KINDS), 2)]
        listed = ", ".join([*(f"{item} AS {own}" for item, own, _ in chosen), name])
        return (
            f"SELECT {listed} FROM {self.table()} {outer}, LATERAL (SELECT {function} AS {name} FROM {self.table()} {inner} WHERE {inner}.{kind}1 = {outer}.{kind}1)",
            [*((own, k) for _, own, k in chosen), (name, gives)],
        )

    def unpivoted(self, depth: int) -> tuple[str, Columns]:
        kind, name, value = self.rng.choice(list(KINDS)), self.name("c"), self.name("c")
        nulls = self.rng.choice(("", "INCLUDE NULLS "))
        return (
            f"SELECT {name}, {value} FROM {self.table()} UNPIVOT {nulls}({value} FOR {name} IN ({kind}1, {kind}2))",
            [(name, "string"), (value, kind)],
        )
