"""A check of accelerated queries: Spark computes a share of them, too, and the rows are compared."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import pyarrow as pa

from firesteel.errors import FiresteelError, WrongAnswerError, error_words, shortened
from firesteel.humanize import format_bytes
from firesteel.options import SQL_VERIFY_MAX_BYTES, Options
from firesteel.sql.plans.catalyst import Catalyst, read_plan
from firesteel.sql.plans.nodes import Node, Unsupported, walk

Outcome = Literal["", "same", "differs", "skipped"]
"""Of a query's check. Empty: it was not drawn."""
CLOSE = 1e-9
"""Two sums of floating-point numbers are the same where they differ by at most this share of the greater one."""

_RANKS = {"Rank", "DenseRank", "PercentRank", "CumeDist"}
"""Window functions that give one value to rows that tie."""
_BY_ORDER = {"First", "Last", "MaxBy", "MinBy"}
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

    def __init__(self, frame: Any, input_bytes: int, options: Options, place: str) -> None:
        self.outcome: Outcome = ""
        self.reason = ""
        self._frame, self._input_bytes, self._place = frame, input_bytes, place
        self._most: int = options[SQL_VERIFY_MAX_BYTES]

    def run(self, rows: Callable[[], pa.Table]) -> None:
        """Compares what our tasks have computed with Spark's answer. Raises WrongAnswerError."""
        try:
            self._check_size(self._input_bytes, "reads")
            plan = read_plan(self._frame)
            _check_certain(plan, self._frame)
            ours = rows()
            self._check_size(ours.nbytes, "gives")
            comparison = Comparison.of(plan, ours.num_rows)
        except (_SkippedError, Unsupported, FiresteelError) as reason:
            self.outcome, self.reason = "skipped", str(reason)
            return
        found = self._difference(comparison, ours)
        self.outcome = "differs" if found else "same"
        if found:
            raise WrongAnswerError(
                f"The accelerated query at {self._place or 'an unknown place'} gives another answer than Spark. {found} The query: {_text_of(self._frame)}",
                hint="Report it. Until it is repaired, leave this query to Spark: call release() before it.",
            )

    def _check_size(self, size: int, verb: str) -> None:
        if size > self._most:
            raise _SkippedError(
                f"it {verb} {format_bytes(size)}, more than {format_bytes(self._most)} ({SQL_VERIFY_MAX_BYTES.key})"
            )

    def _difference(self, comparison: Comparison, ours: pa.Table) -> str:
        """In words; empty: there is none."""
        from firesteel.spark.session.versions import arrow_schema

        try:
            batches = self._frame._collect_as_arrow()
        except Exception as error:
            return f"Spark raises {error_words(error).splitlines()[0]}; Firesteel gives {ours.num_rows:,} rows."
        zone = self._frame.sparkSession.conf.get("spark.sql.session.timeZone")
        theirs = pa.Table.from_batches(batches, None if batches else arrow_schema(self._frame.schema, zone))
        return comparison.difference(ours, theirs)


class _SkippedError(Exception):
    """A query that is not checked, with the reason."""


def _check_certain(plan: Catalyst, frame: Any) -> None:
    """Raises _SkippedError where Spark itself may give other rows next time."""
    if not frame._jdf.queryExecution().optimizedPlan().deterministic():
        raise _SkippedError("it calls a function that is not deterministic")
    root = _below_projections(plan.root)
    top = {id(node) for node in (root, root.get("child"))}
    for node in walk(plan.root):
        limits = node.cls in ("GlobalLimit", "LocalLimit") and id(node) not in top
        if limits or node.cls == "Offset":
            raise _SkippedError("a LIMIT or OFFSET in it may take any of the rows that tie")
        if node.cls in _BY_ORDER or (node.cls == "WindowExpression" and _is_by_order(node)):
            raise _SkippedError("a function in it depends on the order of rows that tie")


def _is_by_order(window: Node) -> bool:
    function, frame = window["windowFunction"], window["windowSpec"]["frameSpecification"]
    if function.cls in _RANKS:
        return False
    if function.cls != "AggregateExpression":
        return True
    ends = [frame[side].cls for side in ("lower", "upper")]
    return frame["frameType"].cls == "RowFrame" and ends != ["UnboundedPreceding", "UnboundedFollowing"]


def _below_projections(node: Node) -> Node:
    while node.cls == "Project":
        node = node["child"]
    return node


class Comparison:
    """``keys``: the columns, by number, that the rows are sorted by. ``cut``: rows with the keys of the last row may be others.

    ``close``: sums of floating-point numbers may differ in their last digits.
    """

    def __init__(self, keys: Sequence[int] = (), *, cut: bool = False, close: bool = False) -> None:
        self.keys, self.cut, self.close = keys, cut, close

    @classmethod
    def of(cls, plan: Catalyst, rows: int) -> Comparison:
        """For a query that gives so many rows. Raises _SkippedError."""
        node, full = _below_projections(plan.root), False
        while node.cls in ("GlobalLimit", "LocalLimit"):
            most = node["limitExpr"]
            full |= most.cls != "Literal" or rows >= most["value"]
            node = _below_projections(node["child"])
        keys = _shown_keys(node, [one.id for one in plan.output_of(plan.root)]) if node.cls == "Sort" else None
        if full and not keys:
            raise _SkippedError("its LIMIT may take any rows: no ORDER BY by columns of the result says which")
        return cls(keys or (), cut=full, close=any(_adds_floats(one) for one in walk(plan.root)))

    def difference(self, ours: pa.Table, theirs: pa.Table) -> str:
        """In words; empty: there is none. Rows are compared as a multiset, and the keys of sorted rows one after another."""
        if ours.num_columns != theirs.num_columns:
            return f"Firesteel gives {ours.num_columns} columns, Spark {theirs.num_columns}."
        names, said = theirs.column_names, ""
        if ours.num_rows != theirs.num_rows:
            said = f"Firesteel gives {ours.num_rows:,} rows, Spark {theirs.num_rows:,}. "
        with _both(ours, theirs) as engine:
            floats = [i for i, field in enumerate(theirs.schema) if pa.types.is_floating(field.type)]
            found = self._other_keys(engine, floats, len(names)) or self._other_rows(engine, floats, len(names))
        if found is None:
            return said.strip()
        rows = "; ".join(f"{who}: {_shown(row, names)}" for who, row in zip(("Firesteel", "Spark"), found, strict=True))
        return f"{said}The first rows that differ: {rows}."

    def _other_keys(self, engine: Any, floats: Sequence[int], columns: int) -> _Pair | None:
        """The first rows at one place that have other keys."""
        if not self.keys:
            return None
        same = self._same(self.keys, floats)
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

    def _other_rows(self, engine: Any, floats: Sequence[int], columns: int) -> _Pair | None:
        """A row of each side that the other side lacks. Both are sorted; rows that differ from their partners look for another one near by."""
        order = ", ".join(f"c{i}" for i in sorted(range(columns), key=lambda i: i in floats)) or "n"
        engine.execute("CREATE TEMP TABLE bottom AS SELECT * FROM theirs ORDER BY n DESC LIMIT 1")
        cut = f"WHERE NOT EXISTS (SELECT 1 FROM bottom b WHERE {self._same(self.keys, floats)})" if self.cut else ""
        a, b = (
            f"(SELECT *, row_number() OVER (ORDER BY {order}) AS r FROM {side} a {cut})" for side in ("ours", "theirs")
        )
        same = self._same(range(columns), floats)
        alone = f"{a} a FULL JOIN {b} b ON a.r = b.r WHERE a.r IS NULL OR b.r IS NULL OR NOT ({same})"
        pairs = _pairs(engine, f"{alone} ORDER BY coalesce(a.r, b.r) LIMIT {_MOST_ALONE}", floats, columns)
        mine, its = (
            [row for row in side if row is not None] for side in (zip(*pairs, strict=True) if pairs else ((), ()))
        )
        lonely: list[_Row] = []
        for row in mine:
            partner = next((i for i, other in enumerate(its) if self._alike(row, other)), None)
            if partner is None:
                lonely.append(row)
            else:
                its.pop(partner)
        return (lonely[0] if lonely else None, its[0] if its else None) if lonely or its else None

    def _same(self, columns: Sequence[int], floats: Sequence[int]) -> str:
        """A condition in SQL on the rows ``a`` and ``b``; never null."""
        texts = [f"a.c{i} IS NOT DISTINCT FROM b.c{i}" for i in columns]
        if self.close:
            for place, i in enumerate(columns):
                if i in floats:
                    near = f"abs(a.c{i} - b.c{i}) <= {CLOSE} * greatest(abs(a.c{i}), abs(b.c{i}))"
                    texts[place] = (
                        f"({texts[place]} OR coalesce(isfinite(a.c{i}) AND isfinite(b.c{i}) AND {near}, false))"
                    )
        return " AND ".join(texts) or "true"

    def _alike(self, a: _Row, b: _Row) -> bool:
        return all(x == y or (self.close and _near(x, y)) for x, y in zip(a, b, strict=True))


_Row = tuple[Any, ...]
"""Floating-point numbers as they are, all else as text."""
_Pair = tuple[_Row | None, _Row | None]
_MOST_ALONE = 1000


def _near(x: Any, y: Any) -> bool:
    if not isinstance(x, float) or not isinstance(y, float):
        return False
    return (math.isnan(x) and math.isnan(y)) or math.isclose(x, y, rel_tol=CLOSE)


@contextmanager
def _both(ours: pa.Table, theirs: pa.Table) -> Generator[Any]:
    """An engine with two tables, whose columns are ``c0``, ``c1``, ..., and ``n``: the number of the row."""
    import duckdb

    with duckdb.connect(config={"threads": 1, "autoinstall_known_extensions": False}) as engine:
        for name, table in (("ours", ours), ("theirs", theirs)):
            columns = [*table.columns, pa.array(range(table.num_rows), pa.int64())]
            engine.register(name, pa.table(columns, [*(f"c{i}" for i in range(table.num_columns)), "n"]))
        yield engine


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


def _shown_keys(sort: Node, columns: Sequence[str]) -> list[int] | None:
    """The places of a sort's keys among the columns of the result; None: it has others, too."""
    keys = [order["child"] for order in sort["order"]]
    ids = [key.id if key.cls == "AttributeReference" else "" for key in keys]
    return [columns.index(key) for key in ids] if all(key in columns for key in ids) else None


def _adds_floats(node: Node) -> bool:
    if node.cls == "Average":
        return not str(node["child"].type).startswith("decimal")
    return node.cls in _SUMS or (node.cls == "Sum" and node["child"].type in ("float", "double"))


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
