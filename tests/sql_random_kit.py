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
    "byte": pa.int8(),
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
INTEGERS = {"byte": (7, "Y"), "short": (15, "S"), "int": (31, ""), "long": (63, "L")}
"""Bits beside the sign, and the letter after a constant."""
DERIVED = {"quot": "DECIMAL(21,12)", "ratio": "DECIMAL(38,6)"}
"""What decimals are divided into; no column of a table is one."""
_DAYS = ["0001-01-01", "1582-10-04", "1582-10-15", "1900-02-28", "1969-12-31", "1970-01-01", "2000-02-29", "2024-02-29"]
_DAYS += ["2023-12-31", "9999-12-31"]
_CLOCKS = [f"{day} 00:00:00" for day in _DAYS] + [f"{day} 23:59:59.999999" for day in _DAYS]
_EXACT = [2**53 - 1, 2**53, 2**53 + 1, -(2**53) - 1]


def _limits(bits: int) -> list[int]:
    return [-(2**bits), -(2**bits) + 1, 2**bits - 2, 2**bits - 1]


EDGES = {
    **{kind: _limits(bits) for kind, (bits, _) in INTEGERS.items()},
    "long": [*_limits(63), *_limits(31), *_EXACT],
    "double": [0.0, -0.0, math.nan, math.inf, -math.inf, 0.5, -0.5, 5e-324, 1.7976931348623157e308, *map(float, _EXACT)],
    "float": [0.0, -0.0, math.nan, math.inf, -math.inf, 0.5, 16777216.0, 3.4028234663852886e38],
    "dec": [D(v) for v in ("0.01", "-0.01", "0.05", "-0.05", "0.50", "2.50", "-2.50", "81.92", "-163.84", "9999999.99", "-9999999.98")],
    "big": [D(v) for v in ("0.0001", "-0.0005", "0.5", "-2.5", "1", "128", "9" * 34 + ".9999", "-" + "9" * 34 + ".9998")],
    "string": ["", " ", "a ", "\x00", "A", "e\u0301", "\U0001f600", "9007199254740993", "1e2", "-0"],
    "date": [dt.date.fromisoformat(day) for day in _DAYS],
    "bool": [True, False],
    "ts": [dt.datetime.fromisoformat(clock + "+00:00") for clock in _CLOCKS],
    "ntz": [dt.datetime.fromisoformat(clock) for clock in _CLOCKS],
}  # fmt: skip
"""One value in five: limits of types and their neighbours, halves, zeros of both signs, borders of calendars, texts that look alike."""
COMMON = {
    **{kind: lambda rng: rng.randint(-5, 9) for kind in INTEGERS},
    **{kind: lambda rng: rng.randint(-6, 12) / 2 for kind in ("double", "float")},
    "dec": lambda rng: D(rng.randint(-500, 999)).scaleb(-2),
    "big": lambda rng: D(rng.randint(-6, 12)) / 2,
    "string": lambda rng: rng.choice(("a", "b", "é", "ab")),
    "date": lambda rng: dt.date(2024, 1, 1) + dt.timedelta(rng.randint(0, 60)),
    "bool": lambda rng: rng.random() < 0.5,
    "ts": lambda rng: dt.datetime(2024, 1, 1, rng.randint(0, 23), tzinfo=dt.UTC),
    "ntz": lambda rng: dt.datetime(2024, 1, 1, rng.randint(0, 23)),
}
LITERALS = {
    "byte": ["0Y", "2Y", "-3Y"],
    "short": ["0S", "2S", "-3S"],
    "int": ["0", "2", "-3", "7"],
    "long": ["0L", "2L", "7L"],
    "double": ["0D", "0.5D", "2D", "-1D"],
    "float": ["0F", "0.5F"],
    "dec": ["CAST(0.05 AS DECIMAL(9,2))", "CAST(2 AS DECIMAL(9,2))", "CAST(-2.50 AS DECIMAL(9,2))"],
    "big": ["CAST(2 AS DECIMAL(38,4))", "CAST(-2.5 AS DECIMAL(38,4))"],
    "string": ["'a'", "'b'", "'é'", "'zz'"],
    "date": ["DATE'2024-02-29'", "DATE'2024-01-03'"],
    "bool": ["true", "false"],
    "ts": ["TIMESTAMP'2024-01-01 02:00:00Z'"],
    "ntz": ["TIMESTAMP_NTZ'2024-01-01 02:00:00'"],
    **{kind: [f"CAST(0.5 AS {name})", f"CAST(0.007813 AS {name})"] for kind, name in DERIVED.items()},
}
LIMITS = {
    **{kind: [f"{value}{letter}" for value in EDGES[kind]] for kind, (_, letter) in INTEGERS.items()},
    "double": ["CAST('NaN' AS DOUBLE)", "CAST('-Infinity' AS DOUBLE)", "-0.0D", "9007199254740993D", "4.9E-324D"],
    "float": ["CAST('-Infinity' AS FLOAT)", "-0.0F", "16777217F"],
    **{kind: [f"CAST({value}BD AS {name})" for value in EDGES[kind]] for kind, name in (("dec", "DECIMAL(9,2)"), ("big", "DECIMAL(38,4)"))},
    "string": ["''", "' '", "'a '", "'1e2'"],
    "date": [f"DATE'{day}'" for day in _DAYS],
    "bool": ["CAST(NULL AS BOOLEAN)"],
    "ts": [f"TIMESTAMP'{clock}Z'" for clock in _CLOCKS],
    "ntz": [f"TIMESTAMP_NTZ'{clock}'" for clock in _CLOCKS],
    **{kind: [f"CAST(0 AS {name})", f"CAST(0.0078125 AS {name})"] for kind, name in DERIVED.items()},
}  # fmt: skip
"""One constant in five."""
_NAMES = {"byte": "TINYINT", "short": "SMALLINT", "int": "INT", "long": "BIGINT"}
_NARROWED = {
    kind: [(other, name) for other in ("long", "int", "short", "dec", "double", "string") if other != kind]
    for kind, name in _NAMES.items()
}
"""Kinds that are cast to one of integers, and its name in SQL."""
HUGE = 20_000_000
"""Characters of one text in the table ``th``."""
NUMBERS = ("byte", "short", "int", "long", "dec", "big", "float", "double", *DERIVED)
TABLES = {"t0": 0, "t1": 4, "t2": 12, "t3": 32}
"""Rows of each table. Each has two columns of each kind. The averages of 32 decimals end in a half."""

Columns = list[tuple[str, str]]
"""(SQL that names it, kind)."""


class Query(NamedTuple):
    """``ordered``: by all of its columns."""

    text: str
    ordered: bool


def huge_table() -> pa.Table:
    """The table ``th``: one text of 20 MB among short ones."""
    texts = ["ab", "ab" * (HUGE // 2 - 1) + "é", None, "", "ab" * 3]
    return pa.table({"id": range(len(texts)), "text": texts})


def tables(seed: int) -> dict[str, pa.Table]:
    rng = random.Random(seed)

    def value(kind: str) -> object:
        x = rng.random()
        return None if x < 0.15 else rng.choice(EDGES[kind]) if x < 0.35 else COMMON[kind](rng)

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
        if self.rng.random() < 1 / 200:
            return Query(self.huge(), False)
        if self.rng.random() < 0.2:
            return Query(self.sorted(depth)[0], True)
        return Query(self.query(depth)[0], False)

    def query(self, depth: int) -> tuple[str, Columns]:
        """Its text, and its columns by the names it gives them."""
        shapes = [self.plain] * 4 + [self.grouped] * 5 + [self.windowed] * 2 + [self.sets] * 2
        shapes += [self.distinct, self.top, self.twice, self.lateral, self.unpivoted, self.constants_only]
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
            ", ".join("NULL" if self.rng.random() < 0.2 else self.constant(kind) for kind in kinds)
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

    def constant(self, kind: str) -> str:
        return self.rng.choice(LIMITS[kind] if self.rng.random() < 0.2 else LITERALS[kind])

    def near(self, kind: str) -> str:
        """A constant of integers near a limit, over which small numbers go or do not go, or nothing."""
        bits, letter = INTEGERS[kind]
        far = 2**bits - 1 - self.rng.randint(0, 12)
        ends = (far, far, -far - 1, -far, 0, 1, -1, *(_EXACT if kind == "long" else ()))
        return f"{self.rng.choice(ends)}{letter}"

    def strained(self, columns: Columns, kind: str) -> str:
        """Arithmetic of integers that may leave its type, or divide by nothing."""
        x, y, c = self.column(columns, kind), self.column(columns, kind), self.near(kind)
        texts = [
            f"({x} + {c})",
            f"({c} - {x})",
            f"({x} - {c})",
            f"({x} * {c})",
            f"({x} + {y})",
            f"(- {x})",
            f"abs({x})",
        ]
        texts += [f"({x} % {c})", f"({x} % {y})", f"pmod({x}, {c})", f"({x} + {c} - {c})", f"(- {x} - {c})"]
        texts += [f"CAST({self.column(columns, other)} AS {name})" for other, name in _NARROWED[kind]]
        if kind == "long":
            texts += [
                f"({x} div {c})",
                f"({c} div {x})",
                f"ceil({c} - {x})",
                *(f"{way}({x})" for way in ("ceil", "floor") * 2),
            ]
        return self.rng.choice(texts)

    def divided(self, columns: Columns, kind: str) -> str:
        """A decimal quotient, many of which end in a half."""
        dec, big, integer = (self.column(columns, one) for one in ("dec", "big", "int"))
        texts = [f"{big} / {self.column(columns, 'big')}", f"{big} / CAST(128 AS DECIMAL(38,4))"]
        if kind == "quot":
            texts = [
                f"{dec} / {self.column(columns, 'dec')}",
                f"{dec} / 1.28BD",
                f"{dec} / 81.92BD",
                f"try_divide({dec}, {dec})",
            ]
            texts += [f"CAST(({integer} % 100) AS DECIMAL(4,0)) / 128BD", f"1BD / nullif({dec}, 0)"]
        return f"CAST({self.rng.choice(texts)} AS {DERIVED[kind]})"

    def strained_condition(self, columns: Columns) -> str:
        """Comparisons of arithmetic with constants near limits. Where an optimiser of algebra moves it, its errors go."""
        rng = self.rng
        if rng.random() < 0.2:
            kind = rng.choice(list(DERIVED))
            return f"{self.divided(columns, kind)} {rng.choice(('=', '<', '>='))} {self.constant(kind)}"
        kind = rng.choice(list(INTEGERS))
        x, a, b = self.column(columns, kind), self.strained(columns, kind), self.strained(columns, kind)
        c, d = sorted((self.near(kind) for _ in "12"), key=lambda text: int(text.rstrip("YSL")))
        texts = [f"{a} {sign} {rng.choice((c, d, self.constant(kind)))}" for sign in ("=", "<", ">", ">=", "<>", "<=>")]
        texts += [f"{a} BETWEEN {c} AND {d}", f"{a} BETWEEN {d} AND {c}", f"{a} IS NOT NULL", f"{a} IS NULL"]
        texts += [f"{a} IN ({c}, {d})", f"- {x} > {c}", f"{x} % 0{INTEGERS[kind][1]} BETWEEN 5 AND -1", f"10 / {x} > 0"]
        texts += [
            f"CASE WHEN {x} > 0{INTEGERS[kind][1]} THEN {a} ELSE {b} END > {c}",
            f"coalesce({a}, {b}) < {d}",
            f"{a} = {b}",
        ]
        return rng.choice(texts)

    def column(self, columns: Columns, kind: str) -> str:
        known = [name for name, other in columns if other == kind]
        return self.rng.choice(known) if known and self.rng.random() < 0.85 else self.constant(kind)

    def value(self, columns: Columns, kind: str) -> str:
        rng, one = self.rng, lambda: self.column(columns, kind)
        if kind in DERIVED:
            return self.divided(columns, kind)
        if kind in INTEGERS and rng.random() < 0.2:
            return self.strained(columns, kind)
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
            texts += [f"({one()} + {self.column(columns, 'int')})", f"(- {one()})", f"ceil({one()})", f"floor({one()})"]
        if kind == "double":
            texts += [f"({one()} * 2)", f"(- {one()})", f"CAST({self.column(columns, 'int')} AS DOUBLE)"]
        if kind == "big":
            texts += [f"CAST({self.column(columns, other)} AS DECIMAL(38,4))" for other in ("dec", "int", *DERIVED)]
            texts += [
                f"CAST(round({self.column(columns, other)}, {rng.randint(-1, 3)}) AS DECIMAL(38,4))"
                for other in ("dec", "big")
            ]
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
        if rng.random() < 0.2:
            return self.strained_condition(columns)
        kind = rng.choice(list(dict.fromkeys(kind for _, kind in columns)))  # a set has another order in each process

        def one() -> str:
            return self.column(columns, kind)

        other = self.column(columns, rng.choice(NUMBERS)) if kind in NUMBERS and rng.random() < 0.3 else one()
        texts = [f"{one()} {sign} {other}" for sign in ("=", "<", ">=", "<>", "<=>")]
        texts += [f"{one()} IS NULL", f"{one()} IS NOT NULL", f"{one()} IN ({one()}, {self.constant(kind)})"]
        texts += [f"{one()} NOT IN ({self.constant(kind)}, NULL)", f"{one()} BETWEEN {one()} AND {one()}"]
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
        kinds = [self.rng.choice([*KINDS, *DERIVED]) for _ in range(self.rng.randint(1, 5))]
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
        if rng.random() < 0.25:
            return self.strained_aggregate(columns)
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
                (f"sum({one('double')} % 1024)", "double"),
                (f"avg({one('int')})", "double"),
                (f"avg({one('double')} % 1024)", "double"),
                (f"CAST(avg({one('dec')}) AS DECIMAL(38,4))", "big") if not guard else ("count(2)", "long"),
                (f"sum(DISTINCT {one('int')})", "long"),
                (f"bool_or({one('bool')})", "bool"),
                (f"every({one('bool')})", "bool"),
            ]
        )
        return (text if gives != "big" or text.startswith("CAST") else f"CAST({text}{guard} AS DECIMAL(38,4))") + (
            "" if gives == "big" else guard
        ), gives

    def strained_aggregate(self, columns: Columns) -> tuple[str, str]:
        rng = self.rng
        kind = rng.choice(list(INTEGERS))
        a, dec = self.strained(columns, kind), self.column(columns, "dec")
        texts = [(f"count({a})", "long"), (f"max({a})", kind), (f"min({a})", kind), (f"count(DISTINCT {a})", "long")]
        texts += [
            (f"bool_or({self.strained_condition(columns)})", "bool"),
            (f"count_if({self.strained_condition(columns)})", "long"),
        ]
        texts += [
            (f"CAST(avg({text}) AS {DERIVED['quot']})", "quot") for text in (dec, dec, f"coalesce({dec}, 0.01BD)")
        ]
        texts += [(f"CAST(avg({self.divided(columns, 'quot')}) AS DECIMAL(38,4))", "big")]
        if kind != "long":
            texts += [
                (f"sum({a})", "long"),
                (f"avg({a})", "double"),
                (f"sum(DISTINCT {a})", "long"),
                (f"sum({a})", "long"),
            ]
            texts += [(f"sum(CASE WHEN {self.condition(columns, 0)} THEN {a} ELSE 0 END)", "long")]
            texts += [(f"sum({a}) FILTER (WHERE {self.condition(columns, 0)})", "long")]
        return rng.choice(texts)

    def having(self, columns: Columns, found: str) -> str:
        rng = self.rng
        kind = rng.choice(list(INTEGERS))
        far, near = self.near(kind), self.near("long")
        texts = [
            "count(*) > 1",
            f"{found} IS NOT NULL",
            f"max({self.column(columns, kind)}) + {far} > {self.near(kind)}",
        ]
        texts += [
            f"count(*) + {near} > {self.near('long')}",
            f"sum({self.strained(columns, 'short')}) > {self.near('int')}",
        ]
        texts += [f"avg({self.column(columns, 'dec')}) >= 0.0003125BD", f"bool_or({self.strained_condition(columns)})"]
        return f" HAVING {rng.choice(texts)}"

    def constants_only(self, depth: int) -> tuple[str, Columns]:
        """Columns of constants over a filter that may raise."""
        rng = self.rng
        text, columns = self.source(depth)
        kind, name = rng.choice(list(KINDS)), self.name("c")
        begin, where = self.constant(kind), f" WHERE {self.strained_condition(columns)}"
        ends = (
            " HAVING 1 < 2",
            " HAVING true",
            " GROUP BY 'k'",
            f" GROUP BY {rng.choice(columns)[0]}",
            "",
            " HAVING count(*) >= 0",
        )
        word = rng.choice(("", "DISTINCT "))
        return f"SELECT {word}{begin} AS {name} FROM {text}{where}{rng.choice(ends)}", [(name, kind)]

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
            group += self.having(columns, found[0][0])
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
        kinds = [k for _, k in columns]
        strained = [k for k in ("byte", "short", "int") if k in kinds]
        if strained and rng.random() < 0.3:
            function, gives = (
                f"sum({self.strained(columns, rng.choice(strained))}) OVER ({window} ROWS BETWEEN {frame})",
                "long",
            )
        elif "dec" in kinds and rng.random() < 0.3:
            function, gives = (
                f"CAST(avg({self.column(columns, 'dec')}) OVER (PARTITION BY {part}) AS {DERIVED['quot']})",
                "quot",
            )
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
        kinds = [k for _, k in columns if k in INTEGERS]
        first = [self.strained(columns, self.rng.choice(kinds))] if kinds and self.rng.random() < 0.1 else []
        return ", ".join([*first, *(f"{name} {self.rng.choice(ways)}" for name, _ in columns)])

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

    def huge(self) -> str:
        items = (
            "length(text)",
            "md5(text)",
            "max(text)",
            "min(upper(text))",
            "count(DISTINCT text)",
            "max(length(concat(text, text)))",
        )
        items += (
            "max(substring(text, 19999999, 5))",
            "count_if(text LIKE '%x')",
            "max(reverse(text))",
            "max(replace(text, 'a', 'bb'))",
        )
        item = self.rng.choice(items)
        if item.startswith(("length", "md5")):
            return f"SELECT id, {item} AS c, text FROM th ORDER BY text LIMIT 2"
        return f"SELECT {item} AS c, count(*) AS n FROM th GROUP BY {self.rng.choice(('text', 'id', 'length(text)', 'text IS NULL'))}"

    def unpivoted(self, depth: int) -> tuple[str, Columns]:
        kind, name, value = self.rng.choice(list(KINDS)), self.name("c"), self.name("c")
        nulls = self.rng.choice(("", "INCLUDE NULLS "))
        return (
            f"SELECT {name}, {value} FROM {self.table()} UNPIVOT {nulls}({value} FOR {name} IN ({kind}1, {kind}2))",
            [(name, "string"), (value, kind)],
        )
