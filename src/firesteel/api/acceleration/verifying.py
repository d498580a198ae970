"""A check of accelerated queries: Spark computes a share of them, too, and the rows are compared."""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, Literal

import pyarrow as pa

from firesteel.engine.connection import connect
from firesteel.errors import FiresteelError, WrongAnswerError, error_words, failure, shortened
from firesteel.humanize import format_bytes
from firesteel.options import SQL_VERIFY_MAX_BYTES, Options
from firesteel.plan.expr import Expr, Unsupported, walk
from firesteel.plan.functions import said_function
from firesteel.render.expressions.near import is_near
from firesteel.sql.plans.catalyst import Catalyst, Operator

Outcome = Literal["", "same", "differs", "skipped"]
"""Of a query's check. Empty: it was not drawn."""
CLOSE = 1e-9
"""Two sums of floating-point numbers are the same where they differ by at most this share of the greater one."""
CLOSE_IN_COLUMN = 1e-12
"""They are the same, too, where they differ by at most this share of the greatest absolute value in their column of either answer.

The error of a sum is a share of the sum of absolute values, which the answer does not have: a sum near zero may come from large numbers.
"""
_LEAST_SIZE = 1000.0
"""Sums up to CLOSE times this, or times the greatest value in the column, are near zero: whether they differ is not judged."""

_RANKS = {"Rank", "DenseRank", "PercentRank", "CumeDist"}
"""Window functions that give one value to rows that tie."""
_BY_ORDER = {"First", "Last", "MaxBy", "MinBy"}
_BY_BATCH = {
    *("MapInPandas", "MapInArrow", "FlatMapGroupsInPandas", "FlatMapGroupsInArrow"),
    *("FlatMapCoGroupsInPandas", "FlatMapCoGroupsInArrow", "PythonUDAF"),
}
"""Operators and expressions whose Python functions see several rows at once."""
_STATE = re.compile(r"\bSQLSTATE: (\w{5})\b")
_OF_VALUES = ("21", "22", "23", "38", "39", "42K0B", "P0")
"""Beginnings of the SQLSTATEs that Spark raises for the values of a query, not for the cluster, the files or the settings."""
_RAISED = re.compile(
    r"\b(?:Spark)?(?:Arithmetic|DateTime|NumberFormat|ArrayIndexOutOfBounds|Runtime|Upgrade|Python)Exception\b"
)
"""Exceptions that say the same in versions of Spark whose messages have no SQLSTATE."""
_SUMS = {
    *("Corr", "CovPopulation", "CovSample", "RegrSlope", "RegrIntercept", "RegrR2", "RegrSXY", "RegrReplacement"),
    *("StddevSamp", "StddevPop", "VarianceSamp", "VariancePop"),
}
"""Aggregates that add up floating-point numbers whatever they are given."""


def is_drawn(mark: str, number: int, share: float) -> bool:
    """``number``: of the query among those that were taken over. Evenly spread, and the same in each run with the same ``mark``."""
    return zlib.crc32(f"{mark}:{number}".encode()) < share * 2**32


class Check:
    """The check of one query. ``reason``: why it was skipped."""

    def __init__(self, plan: Catalyst, options: Options, place: str) -> None:
        self.outcome: Outcome = ""
        self.reason = ""
        self._plan, self._place = plan, place
        self._most: int = options[SQL_VERIFY_MAX_BYTES]

    def run(self, rows: Callable[[], pa.Table]) -> None:
        """Compares what our tasks have computed with Spark's answer. Raises WrongAnswerError."""
        try:
            plan = self._plan
            self._check_size(plan.input_bytes, "reads")
            _check_certain(plan)
            inexact = inexact_columns(plan.root, plan.output_of)
            ours = rows()
            self._check_size(ours.nbytes, "gives")
            found = self._difference(Comparison.of(plan, ours.num_rows, inexact), ours)
            query = _text_of(plan.frame) if found else ""
        except (SkippedError, Unsupported, FiresteelError) as reason:
            self.outcome, self.reason = "skipped", str(reason)
            return
        except Exception as error:
            self.outcome, self.reason = "skipped", failure(error)
            return
        self.outcome = "differs" if found else "same"
        if found:
            raise WrongAnswerError(
                f"The accelerated query at {self._place or 'an unknown place'} gives another answer than Spark. {found} The query: {query}",
                hint="If it calls a function that is not deterministic, declare that with asNondeterministic(). Else report it, and "
                "leave this query to Spark until it is repaired: call release() before it.",
            )

    def _check_size(self, size: int, verb: str) -> None:
        if size > self._most:
            raise SkippedError(
                f"it {verb} {format_bytes(size)}, more than {format_bytes(self._most)} ({SQL_VERIFY_MAX_BYTES.key})"
            )

    def _difference(self, comparison: Comparison, ours: pa.Table) -> str:
        """In words; empty: there is none. Raises SkippedError where Spark fails for another reason than the query's values."""
        from firesteel.spark.session.versions import arrow_schema

        frame = _uniquely_named(self._plan.frame)
        try:
            batches = frame._collect_as_arrow()
        except Exception as error:
            if not is_of_values(error):
                raise SkippedError(f"Spark could not compute it: {error_words(error).splitlines()[0]}") from error
            return f"Spark raises {error_words(error).splitlines()[0]}; Firesteel gives {ours.num_rows:,} rows."
        zone = self._plan.setting("spark.sql.session.timeZone")
        theirs = pa.Table.from_batches(batches, None if batches else arrow_schema(frame.schema, zone))
        return comparison.difference(ours, theirs)


class SkippedError(Exception):
    """A query that is not checked, with the reason."""


def is_of_values(error: Exception) -> bool:
    """Whether the values of a query raised an error in Spark. A lost executor or a limit of the driver raises others."""
    text = f"{type(error).__name__}: {error}"
    states = _STATE.findall(text)
    return any(state.startswith(_OF_VALUES) for state in states) if states else _RAISED.search(text) is not None


def _uniquely_named(frame: Any) -> Any:
    """The frame, with other names where two of its columns have one."""
    names: list[str] = frame.columns
    return frame if len(set(names)) == len(names) else frame.toDF(*(f"_{i}" for i in range(len(names))))


def _check_certain(plan: Catalyst) -> None:
    """Raises SkippedError where Spark itself may give other rows next time."""
    if not plan.deterministic:
        raise SkippedError("it calls a function that is not deterministic")
    root = _below_projections(plan.root)
    top = {id(node) for node in (root, root.get("child"))}
    for node in walk(plan.root):
        limits = node.cls in ("GlobalLimit", "LocalLimit") and id(node) not in top
        if limits or node.cls == "Offset":
            raise SkippedError("a LIMIT or OFFSET in it may take any of the rows that tie")
        if node.cls in _BY_BATCH:
            raise SkippedError(
                "a Python function in it gets many rows at once, in batches and an order that may differ"
            )
        if is_near(node):
            raise SkippedError("the last digit of a function in it may differ (firesteel.sql.near)")
        if node.cls in _BY_ORDER or (node.cls == "WindowExpression" and _is_by_order(node)):
            raise SkippedError("a function in it depends on the order of rows that tie")


def _is_by_order(window: Expr) -> bool:
    function, frame = window["windowFunction"], window["windowSpec"]["frameSpecification"]
    if function.cls in _RANKS:
        return False
    if function.cls != "AggregateExpression":
        return True
    ends = [frame[side].cls for side in ("lower", "upper")]
    return frame["frameType"].cls == "RowFrame" and ends != ["UnboundedPreceding", "UnboundedFollowing"]


def _below_projections(node: Expr) -> Expr:
    while node.cls == "Project":
        node = node["child"]
    return node


class Comparison:
    """``keys``: the columns, by number, that the rows are sorted by. ``cut``: rows with the keys of the last row may be others.

    ``close``: sums of floating-point numbers may differ in their last digits. ``means``: the columns, by number, that are
    averages of decimals.
    """

    def __init__(
        self, keys: Sequence[int] = (), *, cut: bool = False, close: bool = False, means: Set[int] = frozenset()
    ) -> None:
        self.keys, self.cut, self.close, self.means = keys, cut, close, means

    @classmethod
    def of(cls, plan: Catalyst, rows: int, inexact: Set[str]) -> Comparison:
        """For a query that gives so many rows. Raises SkippedError.

        Rows that tie by an inexact key may come in any order, so the keys after it are not compared.
        """
        node, full = _below_projections(plan.root), False
        while node.cls in ("GlobalLimit", "LocalLimit"):
            most = node["limitExpr"]
            full |= most.cls != "Literal" or rows >= most["value"]
            node = _below_projections(node["child"])
        columns = [one.id for one in plan.output_of(plan.root)]
        keys = _shown_keys(node, columns) if node.cls == "Sort" else None
        if keys:
            keys = keys[: next((i for i, key in enumerate(keys, 1) if columns[key] in inexact), len(keys))]
        if full and not keys:
            raise SkippedError("its LIMIT may take any rows: no ORDER BY by columns of the result says which")
        averages = means_of_decimals(plan.root, plan.output_of)
        means = {i for i, column in enumerate(columns) if column in averages}
        return cls(keys or (), cut=full, close=any(_adds_floats(one) for one in walk(plan.root)), means=means)

    def difference(self, ours: pa.Table, theirs: pa.Table) -> str:
        """In words; empty: there is none. Rows are compared as a multiset, and the keys of sorted rows one after another.

        Raises SkippedError where sums differ by so little that the numbers they are made of decide whether it is an error.
        """
        if ours.num_columns != theirs.num_columns:
            return f"Firesteel gives {ours.num_columns} columns, Spark {theirs.num_columns}."
        names, said = theirs.column_names, ""
        for name, mine, its in zip(names, ours.schema.types, theirs.schema.types, strict=True):
            if _kind(mine) != _kind(its):
                return f"The column {name} is of type {mine} in Firesteel's answer, {its} in Spark's."
        if ours.num_rows != theirs.num_rows:
            said = f"Firesteel gives {ours.num_rows:,} rows, Spark {theirs.num_rows:,}. "
        try:
            found = self._found(ours, theirs)
        except SkippedError:
            if not said:
                raise
            found = None
        if found is None:
            return said.strip()
        rows = "; ".join(f"{who}: {_shown(row, names)}" for who, row in zip(("Firesteel", "Spark"), found, strict=True))
        if self.close and not said and self._found(ours, theirs, zero=_LEAST_SIZE) is None:
            raise SkippedError(f"sums near zero differ, which may be a rounding error of the numbers in them: {rows}")
        means = [i for i in self.means if pa.types.is_decimal(theirs.schema.types[i])]
        if means and not said and self._found(_doubled(ours, means), _doubled(theirs, means), means=means) is None:
            raise SkippedError(
                f"averages of decimals differ in their last digits, which Spark rounds where a sum is beyond 2^53: {rows}"
            )
        return f"{said}The first rows that differ: {rows}."

    def _found(
        self, ours: pa.Table, theirs: pa.Table, *, zero: float | None = None, means: Sequence[int] = ()
    ) -> _Pair | None:
        """The first rows that differ. ``zero``: the least size of columns whose numbers near zero are all the same."""
        with _both(ours, theirs) as engine:
            floats = [i for i, field in enumerate(theirs.schema) if pa.types.is_floating(field.type)]
            sizes = {i: _greatest(engine, i) for i in floats if self.close or i in means}
            allowed = {
                i: (CLOSE_IN_COLUMN * size, 0.0 if zero is None else CLOSE * max(size, zero))
                for i, size in sizes.items()
            }
            return self._first(engine, allowed, floats, ours.num_columns)

    def _first(self, engine: Any, allowed: _Allowed, floats: Sequence[int], columns: int) -> _Pair | None:
        """The first rows that differ."""
        return self._other_keys(engine, allowed, floats, columns) or self._other_rows(engine, allowed, floats, columns)

    def _other_keys(self, engine: Any, allowed: _Allowed, floats: Sequence[int], columns: int) -> _Pair | None:
        """The first rows at one place that have other keys."""
        if not self.keys:
            return None
        same = _same(self.keys, allowed)
        return next(
            iter(
                _pairs(
                    engine,
                    f"ours a JOIN theirs b ON a.n = b.n WHERE NOT ({same}) ORDER BY a.n LIMIT 1",
                    floats,
                    columns,
                )
            ),
            None,
        )

    def _other_rows(self, engine: Any, allowed: _Allowed, floats: Sequence[int], columns: int) -> _Pair | None:
        """A row of each side that the other side lacks.

        Both sides are sorted by their exact columns, then by groups of numbers that are near each other. Rows that differ from their
        partners look for another one near by. Raises SkippedError where too many do to find out.
        """
        exact = [f"a.c{i}" for i in range(columns) if i not in floats]
        joins = "".join(f" LEFT JOIN {_groups(engine, i, allowed)} ON a.c{i} = g{i}.v" for i in allowed)
        order = ", ".join([*exact, *(f"g{i}.g" for i in allowed), *(f"a.c{i}" for i in floats)]) or "a.n"
        engine.execute("CREATE OR REPLACE TEMP TABLE bottom AS SELECT * FROM theirs ORDER BY n DESC LIMIT 1")
        cut = f"WHERE NOT EXISTS (SELECT 1 FROM bottom b WHERE {_same(self.keys, allowed)})" if self.cut else ""
        for side in ("ours", "theirs"):
            ranked = f"SELECT a.*, row_number() OVER (ORDER BY {order}) AS r FROM {side} a{joins} {cut}"
            engine.execute(f"CREATE OR REPLACE TEMP TABLE {side}_ranked AS {ranked}")
        same = _same(range(columns), allowed)
        alone = f"a.r IS NULL OR b.r IS NULL OR NOT ({same}) ORDER BY coalesce(a.r, b.r) LIMIT {_MOST_ALONE}"
        pairs = _pairs(engine, f"ours_ranked a FULL JOIN theirs_ranked b ON a.r = b.r WHERE {alone}", floats, columns)
        mine, its = (
            [row for row in side if row is not None] for side in (zip(*pairs, strict=True) if pairs else ((), ()))
        )
        lonely: list[_Row] = []
        for row in mine:
            partner = next((i for i, other in enumerate(its) if _alike(row, other, allowed)), None)
            if partner is None:
                lonely.append(row)
            else:
                its.pop(partner)
        if not lonely and not its:
            return None
        if allowed and len(pairs) == _MOST_ALONE:
            return _lacking(engine, same, alone, floats, columns)
        return (lonely[0] if lonely else None, its[0] if its else None)


def _lacking(engine: Any, same: str, alone: str, floats: Sequence[int], columns: int) -> _Pair:
    """The first of the rows without partners that is like no row of the other side at all, among as many as can be compared soon."""
    rows = max(engine.execute(f"SELECT count(*) FROM {side}_ranked").fetchone()[0] for side in ("ours", "theirs"))
    alone = f"{alone.rpartition(' LIMIT ')[0]} LIMIT {max(1, min(_MOST_ALONE, _MOST_COMPARED // rows))}"
    engine.execute(
        f"CREATE OR REPLACE TEMP TABLE alone AS SELECT a.n AS a_n, b.n AS b_n FROM ours_ranked a FULL JOIN theirs_ranked b ON a.r = b.r WHERE {alone}"
    )
    found: list[_Row | None] = []
    for mine, its in (("a", "b"), ("b", "a")):
        sides = {"a": "ours_ranked", "b": "theirs_ranked"}
        unlike = f"NOT EXISTS (SELECT 1 FROM {sides[its]} {its} WHERE {same})"
        first = f"(SELECT * FROM {sides[mine]} {mine} WHERE n IN (SELECT {mine}_n FROM alone) AND {unlike} ORDER BY r LIMIT 1)"
        pairs = _pairs(engine, f"{first} a, {first} b", floats, columns)
        found.append(pairs[0][0] if pairs else None)
    if found == [None, None]:
        raise SkippedError(
            f"more than {_MOST_ALONE:,} rows differ in the last digits of sums, in too many ways to pair them"
        )
    return found[0], found[1]


def _groups(engine: Any, column: int, allowed: _Allowed) -> str:
    """A table with the group ``g`` of each number ``v`` of a column: a group ends where the next number is not near."""
    name = f"g{column}"
    values = " UNION ".join(f"SELECT c{column} AS v FROM {side}" for side in ("ours", "theirs"))
    before = f"SELECT v, lag(v) OVER (ORDER BY v) AS w FROM ({values})"
    engine.execute(
        f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT v, count(*) FILTER (WHERE NOT {_near_text('v', 'w', *allowed[column])})"
        f" OVER (ORDER BY v) AS g FROM ({before})"
    )
    return name


def _same(columns: Sequence[int], allowed: _Allowed) -> str:
    """A condition in SQL on the rows ``a`` and ``b``; never null."""
    texts: list[str] = []
    for i in columns:
        text = f"a.c{i} IS NOT DISTINCT FROM b.c{i}"
        if i in allowed:
            text = f"({text} OR {_near_text(f'a.c{i}', f'b.c{i}', *allowed[i])})"
        texts.append(text)
    return " AND ".join(texts) or "true"


def _near_text(x: str, y: str, most: float, zero: float) -> str:
    """A condition in SQL; never null."""
    size = f"greatest(abs({x}), abs({y}))"
    near = f"(abs({x} - {y}) <= greatest({CLOSE} * {size}, {most!r}::DOUBLE) OR {size} <= {zero!r}::DOUBLE)"
    return f"coalesce(isfinite({x}) AND isfinite({y}) AND {near}, false)"


def _alike(a: _Row, b: _Row, allowed: _Allowed) -> bool:
    pairs = enumerate(zip(a, b, strict=True))
    return all(x == y or (i in allowed and _near(x, y, *allowed[i])) for i, (x, y) in pairs)


def _greatest(engine: Any, column: int) -> float:
    """The greatest absolute value that is finite."""
    sides = " UNION ALL ".join(f"SELECT c{column} AS c FROM {side}" for side in ("ours", "theirs"))
    return float(engine.execute(f"SELECT coalesce(max(abs(c)), 0) FROM ({sides}) WHERE isfinite(c)").fetchone()[0])


_Row = tuple[Any, ...]
"""Floating-point numbers as they are, all else as text."""
_Pair = tuple[_Row | None, _Row | None]
_Allowed = Mapping[int, tuple[float, float]]
"""For each column that may have sums: the absolute difference that is allowed, and the absolute value up to which any two values are the same."""
_MOST_ALONE = 1000
_MOST_COMPARED = 100_000_000
"""Pairs of rows that are compared one by one."""


def _near(x: Any, y: Any, most: float, zero: float) -> bool:
    if not isinstance(x, float) or not isinstance(y, float):
        return False
    if math.isnan(x) and math.isnan(y):
        return True
    return math.isclose(x, y, rel_tol=CLOSE, abs_tol=most) or (abs(x) <= zero and abs(y) <= zero)


@contextmanager
def _both(ours: pa.Table, theirs: pa.Table) -> Generator[Any]:
    """An engine with two tables, whose columns are ``c0``, ``c1``, ..., and ``n``: the number of the row.

    The entries of maps are sorted.
    """
    with connect() as engine:
        for name, table in (("ours", ours), ("theirs", theirs)):
            columns = [*table.columns, pa.array(range(table.num_rows), pa.int64())]
            engine.register(f"{name}_read", pa.table(columns, [*(f"c{i}" for i in range(table.num_columns)), "n"]))
            texts = [f"{_sorted_maps(f'c{i}', kind)} AS c{i}" for i, kind in enumerate(table.schema.types)]
            engine.execute(f"CREATE TEMP VIEW {name} AS SELECT {', '.join([*texts, 'n'])} FROM {name}_read")
        yield engine


def _sorted_maps(value: str, kind: pa.DataType, depth: int = 0) -> str:
    """An expression in SQL: the value with its maps, at any depth, as sorted lists of entries."""
    each = f"x{depth}"
    if pa.types.is_map(kind):
        key = _sorted_maps(f"{each}.key", kind.key_type, depth + 1)
        entry = f"{{'key': {key}, 'value': {_sorted_maps(f'{each}.value', kind.item_type, depth + 1)}}}"
        return f"list_sort(list_transform(map_entries({value}), lambda {each}: {entry}))"
    if not _has_map(kind):
        return value
    if pa.types.is_struct(kind):
        names = [f'"{field.name.replace(chr(34), chr(34) * 2)}"' for field in kind]
        fields = (
            f"{name} := {_sorted_maps(f'{value}.{name}', field.type, depth)}"
            for name, field in zip(names, kind, strict=True)
        )
        return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(fields)}) END"
    return f"list_transform({value}, lambda {each}: {_sorted_maps(each, kind.value_type, depth + 1)})"


def _has_map(kind: pa.DataType) -> bool:
    return pa.types.is_map(kind) or any(_has_map(kind.field(i).type) for i in range(kind.num_fields))


def _kind(kind: pa.DataType) -> str:
    """A type without what Arrow alone tells apart: the widths of offsets, the names and nullability of fields, zones, units."""
    if pa.types.is_dictionary(kind):
        return _kind(kind.value_type)
    if kind.num_fields:
        outer = "map" if pa.types.is_map(kind) else "struct" if pa.types.is_struct(kind) else "list"
        inner = (
            [kind.key_type, kind.item_type] if outer == "map" else [kind.field(i).type for i in range(kind.num_fields)]
        )
        return f"{outer}<{', '.join(map(_kind, inner))}>"
    if pa.types.is_temporal(kind):
        zone = pa.types.is_timestamp(kind) and kind.tz is not None
        return f"{str(kind).partition('[')[0]}{' with time zone' if zone else ''}"
    return str(kind).removeprefix("large_").removesuffix("_view")


def _doubled(table: pa.Table, columns: Sequence[int]) -> pa.Table:
    for i in columns:
        table = table.set_column(i, table.field(i).name, table.column(i).cast(pa.float64()))
    return table


def _pairs(engine: Any, source: str, floats: Sequence[int], columns: int) -> list[_Pair]:
    """The rows ``a`` and ``b`` of a relation; None where one is lacking."""

    def listed(side: str) -> str:
        texts = (f"{side}.c{i}" if i in floats else f"CAST({side}.c{i} AS VARCHAR)" for i in range(columns))
        return ", ".join([*texts, f"{side}.n"])

    found = engine.execute(f"SELECT {listed('a')}, {listed('b')} FROM {source}").fetchall()
    sides = ((row[: columns + 1], row[columns + 1 :]) for row in found)
    return [(None if a[-1] is None else a[:-1], None if b[-1] is None else b[:-1]) for a, b in sides]


def _shown(row: _Row | None, names: Sequence[str]) -> str:
    if row is None:
        return "no such row"
    return shortened(
        ", ".join(f"{name} = {'null' if value is None else value}" for name, value in zip(names, row, strict=True))
    )


def _shown_keys(sort: Expr, columns: Sequence[str]) -> list[int] | None:
    """The places of a sort's keys among the columns of the result; None: it has others, too."""
    keys = [order["child"] for order in sort["order"]]
    ids = [key.id if key.cls == "AttributeReference" else "" for key in keys]
    return [columns.index(key) for key in ids] if all(key in columns for key in ids) else None


def _adds_floats(node: Expr) -> bool:
    if node.cls == "Average":
        return not str(node["child"].type).startswith("decimal")
    return node.cls in _SUMS or (node.cls == "Sum" and node["child"].type in ("float", "double"))


_EXACT_MEANS = {"byte", "short", "integer", *(f"decimal({p},{s})" for p in range(1, 10) for s in range(p + 1))}
"""Types with up to nine or ten digits: the sum of millions of such numbers is exact in a double."""
_DECIMALS = {f"decimal({p},{s})" for p in range(1, 12) for s in range(p + 1)}
"""Types whose averages Spark computes in doubles."""
_OPERATORS = {
    *("Project", "Filter", "Aggregate", "Window", "Sort", "GlobalLimit", "LocalLimit", "Join", "Union"),
    *("Repartition", "RepartitionByExpression", "RebalancePartitions", "WindowGroupLimit"),
}
"""Operators whose columns are their children's or aliases."""
_VALUES = ("projectList", "aggregateExpressions", "windowExpressions", "order", "partitionExpressions")
"""Fields of operators in which an inexact number does not choose rows."""
_CONTINUOUS = {
    *("AttributeReference", "Alias", "AggregateExpression", "WindowExpression", "SortOrder", "KnownNotNull"),
    *("Add", "Subtract", "Multiply", "Divide", "UnaryMinus", "UnaryPositive", "Abs", "Greatest", "Least"),
    *("If", "CaseWhen", "Tuple2", "Coalesce", "KnownFloatingPointNormalized", "NormalizeNaNAndZero"),
    *("Sum", "Average", "Max", "Min"),
    *_SUMS,
}
"""Expressions that give a slightly different number of slightly different numbers."""
_OF_NULLS = {"IsNull", "IsNotNull", "Count"}
_TOLD = {
    **dict.fromkeys(("Round", "BRound", "RoundCeil", "RoundFloor", "Ceil", "Floor"), "it rounds"),
    "Cast": "it casts",
    **dict.fromkeys(
        ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "In", "InSet"),
        "it compares",
    ),
    **dict.fromkeys((*_RANKS, "WindowSpecDefinition", "orderSpec"), "it orders a window by"),
    "groupingExpressions": "it groups by",
    "partitionSpec": "it groups by",
}


def inexact_columns(root: Operator, output_of: Callable[[Operator], list[Expr]]) -> Set[str]:
    """The ids of columns whose last digits may differ, because floating-point numbers were added up in another order.

    Raises SkippedError where such a number is rounded, cast, compared, or handed to anything that may turn its last digits
    into another value or other rows.
    """
    found: set[str] = set()
    for operator in (node for node in reversed(walk(root)) if isinstance(node, Operator)):
        if operator.cls not in _OPERATORS:
            if any(_is_inexact(node, found) for node in walk(operator)):
                raise _unsure(operator.cls)
        elif operator.cls == "Union":
            columns = [output_of(child) for child in operator["children"]]
            for same, column in zip(zip(*columns, strict=True), output_of(operator), strict=True):
                if any(one.id in found for one in same):
                    found.add(column.id)
        else:
            for name, field in operator.fields.items():
                below = Expr(name, {name: field}).nodes()
                inexact = [_takes_on(one, found) for one in below if not isinstance(one, Operator)]
                if any(inexact) and name not in _VALUES:
                    raise _unsure(name)
    return found


def means_of_decimals(root: Operator, output_of: Callable[[Operator], list[Expr]]) -> Set[str]:
    """The ids of columns that are made of averages of decimals with few digits.

    Spark adds up doubles there, so the last digits may differ where a sum without its decimal point is beyond 2^53.
    """
    found: set[str] = set()
    for node in reversed(walk(root)):
        if node.cls == "Alias" and any(_is_mean(one) or _is_column(one, found) for one in walk(node)):
            found.add(node.id)
        elif isinstance(node, Operator) and node.cls == "Union":
            columns = zip(*(output_of(child) for child in node["children"]), strict=True)
            for same, column in zip(columns, output_of(node), strict=True):
                if any(one.id in found for one in same):
                    found.add(column.id)
    return found


def _is_mean(node: Expr) -> bool:
    if node.cls != "Average":
        return False
    child = node["child"]
    return child.cls == "UnscaledValue" and child["child"].type in _DECIMALS


def _is_column(node: Expr, found: set[str]) -> bool:
    return node.cls == "AttributeReference" and node.id in found


def _takes_on(node: Expr, found: set[str]) -> bool:
    """True: the value of an expression is inexact. Adds the ids of aliases to ``found``. Raises SkippedError."""
    if node.cls == "ScalarSubquery":
        return any(_is_inexact(one, found) for one in walk(node))
    below = [_takes_on(one, found) for one in node.nodes() if not isinstance(one, Operator)]
    inexact = _is_inexact(node, found)
    if node.get("isDistinct") and any(_takes_on(one, found) for one in node["aggregateFunction"].nodes()):
        raise _unsure("groupingExpressions")
    if any(below) and node.cls not in _OF_NULLS:
        if node.cls not in _CONTINUOUS and not (node.cls == "Cast" and node.type == "double"):
            raise _unsure(node.cls if node.cls in _TOLD else said_function(node))
        inexact = True
    if inexact and node.cls == "Alias":
        found.add(node.id)
    return inexact


def _is_inexact(node: Expr, found: set[str]) -> bool:
    if _is_column(node, found):
        return True
    if node.cls == "Average":
        child = node["child"]
        return (
            _adds_floats(node) and (child["child"] if child.cls == "UnscaledValue" else child).type not in _EXACT_MEANS
        )
    return _adds_floats(node)


def _unsure(where: str) -> SkippedError:
    said = _TOLD.get(where, f"it uses {where} on")
    return SkippedError(f"{said} sums or averages of floating-point numbers, whose last digits may differ")


def _text_of(frame: Any) -> str:
    """The SQL text that the query was made from, else its plan."""
    try:
        plan = frame._jdf.queryExecution().logical()
        while not plan.origin().sqlText().isDefined():
            plan = plan.children().head()  # raises for a leaf
        text = str(plan.origin().sqlText().get())
    except Exception:
        text = str(frame._jdf.queryExecution().analyzed().toString())
    return shortened(text.strip())
