"""Random expressions over columns of edge values: what the engine gives where the allow-list takes one, held to Spark.

``python tests/sql_expressions_kit.py SEED ROUNDS ZONE [ROWS]`` prints what a longer run finds; a round is 40 trees in two modes.
"""

from __future__ import annotations

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
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from firesteel.plan.expr import Expr, Unsupported, walk
from firesteel.plan.types import arrow_type, engine_type, is_months
from firesteel.render.expressions.near import is_near
from firesteel.render.expressions.translator import Expressions
from firesteel.sql.plans.catalyst import offsets_of, read_plan
from older_spark import DEFAULTS
from sql_engine_kit import tried, trying_engine
from sql_expressions_grammar import ANY, GRAMMAR, Expressing, table

MODES = {"ANSI": "true", "LEGACY": "false"}


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
    """A table of edge values in Spark and in an engine, in a session of one zone. ``columns``: what makes them."""

    def __init__(self, spark, home: Path, rows: int = 400, seed: int = 0, zone: str = "UTC", columns=table) -> None:
        home.mkdir(parents=True, exist_ok=True)
        spark.conf.set("spark.sql.session.timeZone", zone)
        self.spark, self.rows, self.home = spark, rows, home
        moments = tuple(second for second, _ in offsets_of(zone)["offsets"])
        self.table = columns(rows, seed, moments).append_column("row", pa.array(range(rows)))
        self._files = 0
        self.frame = self._frame(self.table)
        self.engine = trying_engine()
        self.engine.register("edges", self.table)

    def _frame(self, rows: pa.Table):
        self._files += 1
        path = self.home / f"{self._files}.parquet"
        pq.write_table(rows, path)
        return self.spark.read.parquet(str(path))

    def held(self, texts: list[str], mode: str, tally: Tally) -> None:
        """Compares the expressions' values in one eval mode, adding to the tally."""
        self.spark.conf.set("spark.sql.ansi.enabled", MODES[mode])
        for sound, plan in self._planned(texts):
            self._held(sound, plan, mode, tally)

    def _planned(self, texts: list[str]) -> list[tuple[list[str], object]]:
        """The expressions with their plan; without those that Spark refuses, or fails on while it folds constants."""
        try:
            frame = self.frame.selectExpr("row", *(f"{text} AS v{i}" for i, text in enumerate(texts)))
            return [(texts, read_plan(frame).root)]
        except Exception:
            half = len(texts) // 2
            return self._planned(texts[:half]) + self._planned(texts[half:]) if half else []

    def _held(self, texts: list[str], project, mode: str, tally: Tally) -> None:
        if project.cls != "Project":
            return
        inner, columns = self._below(project["child"])
        known = {}
        for i, item in enumerate(project["projectList"][1:]):
            tally.expressions += 1
            try:
                text = Expressions().text(item)
                engine_type(item.type)
                if is_months(item.type):
                    raise Unsupported("a column of months, of which Arrow has no type")
                if any(map(is_near, walk(item))) and not _is_close(item):
                    raise Unsupported("what is computed of a last digit that may differ")
                if missing := {node.id for node in walk(item) if node.cls == "AttributeReference"} - columns:
                    raise Unsupported(f"common expressions: {len(missing)}")
            except Unsupported as reason:
                tally.refused[re.sub(r"\d+", "#", str(reason))] += 1
                continue
            if item.cls == "AttributeReference" or item["child"].cls == "Literal":
                continue
            tally.taken += 1
            tally.classes.update(node.cls for node in walk(item))
            known[i] = (text, item, *self._values(text, item, inner))
        if known:
            self._compare(texts, known, mode, tally)

    def _below(self, node) -> tuple[str, set[str]]:
        """The text and the columns of the relation, or of projections over it: of expressions that Spark computes once."""
        if node.cls == "Filter":  # of nulls, by windows of time; the rows that it drops are not compared
            return self._below(node["child"])
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

    def _values(self, text, item, inner) -> tuple[np.ndarray, pa.Array]:
        """Of each row, whether the engine gave a value, and that."""
        text = tried(text)
        sql = f"SELECT TRY({{'v': CAST({text} AS {engine_type(item.type)})}}) AS t FROM ({inner})"
        try:
            found = self.engine.sql(sql).to_arrow_table().column("t").combine_chunks()
        except duckdb.Error:  # an expression that is computed once, below
            return np.zeros(self.rows, bool), pa.nulls(self.rows, arrow_type(item.type))
        return np.asarray(found.is_valid()), found.field("v").cast(arrow_type(item.type))

    def _theirs(self, texts, known) -> pa.Table:
        """Spark computes only what the engine gave, so that a row that the engine leaves to it does not hide the others."""
        guarded = {i: ok for i, (_, _, ok, _) in known.items() if not ok.all()}
        frame = self.frame
        if guarded:
            guards = [pa.array(ok) for ok in guarded.values()]
            names = [*self.table.column_names, *(f"g{i}" for i in guarded)]
            frame = self._frame(pa.table([*self.table.columns, *guards], names))
        items = [
            f"CASE WHEN g{i} THEN {texts[i]} END AS v{i}" if i in guarded else f"{texts[i]} AS v{i}" for i in known
        ]
        return frame.selectExpr("row", *items).toArrow().sort_by("row")

    def _compare(self, texts, known, mode, tally) -> None:
        try:
            theirs = self._theirs(texts, known)
        except Exception as error:
            if len(known) > 1:
                keys = list(known)
                for some in (keys[: len(keys) // 2], keys[len(keys) // 2 :]):
                    self._compare(texts, {i: known[i] for i in some}, mode, tally)
                return
            i, (text, item, ok, mine) = next(iter(known.items()))
            sure = ok & np.asarray(mine.is_valid())
            if sure.sum() < ok.sum():  # beside a null operand the engine may not look at the other, which would raise
                self._compare(texts, {i: (text, item, sure, mine)}, mode, tally)
                return
            tally.wrong.append(
                f"{mode}: {texts[i]}: Spark raises {str(error).splitlines()[0][:150]}; the engine gives values of all: {text}"
            )
            return
        rows = theirs["row"].combine_chunks()
        for i, (text, item, given, values) in known.items():
            ok, mine = given[rows.to_numpy()], values.take(rows)
            its = theirs.column(f"v{i}").combine_chunks()
            named_otherwise = pa.types.is_temporal(its.type) or pa.types.is_nested(its.type)
            assert named_otherwise or its.type == arrow_type(item.type), (texts[i], its.type)
            tally.values += int(ok.sum())
            tally.left += int((~ok).sum())
            if not ok.any():
                tally.always_left[texts[i]] += 1
            wrong = np.flatnonzero(ok & ~(near(mine, its) if _is_close(item) else alike(mine, its)))
            if wrong.size:
                a, b = (number(values)[wrong[0]].as_py() for values in (mine, its))
                tally.wrong.append(
                    f"{mode}: {texts[i]}: the engine gives {a!r}, Spark {b!r} in row {wrong[0]} ({wrong.size} in all): {text}"
                )


def number(values: pa.Array) -> pa.Array:
    """Days and microseconds as numbers, for Python ends with the year 9999."""
    return values.cast(_numbered(values.type))


def _numbered(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_list(kind):
        return pa.list_(_numbered(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_numbered(kind.key_type), _numbered(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _numbered(field.type)) for field in kind])
    return (
        pa.int32()
        if pa.types.is_date(kind)
        else pa.int64()
        if pa.types.is_timestamp(kind) or pa.types.is_duration(kind)
        else kind
    )


def alike(a: pa.Array, b: pa.Array) -> np.ndarray:
    """The same value, row by row; zeros of different signs are not; NaN is itself."""
    a, b = number(a), number(b)
    if pa.types.is_nested(a.type):
        return np.fromiter(map(same, a.to_pylist(), b.to_pylist()), bool)
    if pa.types.is_floating(a.type):
        bits = np.int64 if a.type.bit_width == 64 else np.int32
        x, y = (np.where(np.isnan(v), np.nan, v) for v in (a.fill_null(0).to_numpy(), b.fill_null(0).to_numpy()))
        equal = np.asarray(x.astype(a.type.to_pandas_dtype())).view(bits) == np.asarray(
            y.astype(a.type.to_pandas_dtype())
        ).view(bits)
    else:
        equal = np.asarray(pc.fill_null(pc.equal(a, b), True))
    return equal & (np.asarray(a.is_null()) == np.asarray(b.is_null()))


def _is_close(item: Expr) -> bool:
    """A value whose last digit may differ, computed of values that are equal."""
    near = [node for node in walk(item) if is_near(node)]
    return len(near) == 1 and item.get("child") is near[0]


def near(a: pa.Array, b: pa.Array) -> np.ndarray:
    """The same double but for its last digit or two."""
    x, y = (v.fill_null(0).to_numpy() for v in (a, b))
    return np.isclose(x, y, rtol=1e-15, atol=1e-322, equal_nan=True) & (
        np.asarray(a.is_null()) == np.asarray(b.is_null())
    )


def same(a: object, b: object) -> bool:
    """The same value of Python, as ``alike`` has it."""
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    return a == b


def run(
    kit: Kit, seed: int, rounds: int, width: int = 40, depth: int = 3, first=None, grammar=GRAMMAR, kinds=ANY
) -> Tally:
    """With the seed 0 each production of the grammar over columns first, or each of ``first``; then random trees."""
    tally, random_one = Tally(), Expressing(random.Random(seed), grammar=grammar, kinds=kinds)
    columns = Expressing(random.Random(seed), 0, grammar)
    singles = [columns.filled(template, 1) for texts in (first or grammar).values() for template in texts]
    singles = singles if seed == 0 else []
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


def session():
    """A Spark for long runs, in which nothing is compiled and nothing written."""
    from pyspark.sql import SparkSession

    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1500m")
    )
    spark = (
        builder.config(map=DEFAULTS)
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    logging.disable(logging.CRITICAL)
    return spark


def main() -> None:
    spark = session()
    seed, rounds = (int(text) for text in sys.argv[1:3])
    zone = sys.argv[3]
    rows = int(sys.argv[4]) if len(sys.argv) > 4 else 1000
    with tempfile.TemporaryDirectory() as directory:
        print(report(run(Kit(spark, Path(directory), rows, seed, zone), seed, rounds)))


if __name__ == "__main__":
    main()
