"""What the tests of the operators share: a context, units from plain data, rows as comparable Python values."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

from firesteel.task.operators.units import SpoolInput
from firesteel.task.program import TaskContext


def context(scratch: Path, memory: int = 64 << 20, place: str = "", **kwargs) -> TaskContext:
    values = {
        "job_id": "job",
        "vertex": 0,
        "vertex_name": "vertex",
        "subtask": 0,
        "attempt": 0,
        "parallelism": 1,
        "token": 1,
    }
    made = TaskContext(**(values | kwargs), memory_budget=memory, scratch=scratch)
    made.place = place
    return made


def unit(table: pa.Table, ctx: TaskContext, rows_per_batch: int | None = None) -> SpoolInput:
    """The table as a unit's input, all in memory."""
    spool = SpoolInput(table.schema, ctx.scratch, 1 << 62)
    for batch in table.to_batches(max_chunksize=rows_per_batch):
        spool.write(batch)
    return spool.finish()


@dataclass
class Held:
    """A build side in memory."""

    unit: SpoolInput
    rows: int
    identity: str = ""


def build(table: pa.Table, ctx: TaskContext, rows_per_batch: int | None = None, identity: str = "") -> Held:
    return Held(unit(table, ctx, rows_per_batch), table.num_rows, identity)


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def collect(batches, schema: pa.Schema | None = None) -> pa.Table:
    batches = list(batches)
    for batch in batches:
        batch.validate(full=True)
    return pa.Table.from_batches(batches, schema if schema is not None else batches[0].schema)


def value(v):
    """A value that compares as keys do: NaN equal to itself, -0.0 to 0.0, containers hashable."""
    if isinstance(v, float) and math.isnan(v):
        return "NaN"
    if isinstance(v, bool):
        return ("bool", v)
    if isinstance(v, float) and v == 0:
        return 0.0
    if isinstance(v, Decimal):
        return v.normalize() if v else Decimal(0)
    if isinstance(v, dict):
        return tuple((k, value(x)) for k, x in v.items())
    if isinstance(v, list | tuple):
        return ("list", *(value(x) for x in v))
    return v


def rows(table: pa.Table) -> Counter:
    """The table's rows as a multiset."""
    if table.num_columns == 0:
        return Counter({(): table.num_rows}) if table.num_rows else Counter()
    return Counter(zip(*([value(v) for v in column.to_pylist()] for column in table.columns), strict=True))


def keys_of(table: pa.Table, keys) -> list[tuple]:
    """Of each row."""
    return (
        list(zip(*([value(v) for v in table.column(k).to_pylist()] for k in keys), strict=True))
        if table.num_rows
        else []
    )


def expected_pairs(left, right, left_keys, right_keys, how) -> Counter:
    """What a join of this kind gives: (left row number or None, right row number or None)."""
    lefts, rights = keys_of(left, left_keys), keys_of(right, right_keys)
    pairs = [(i, j) for i, a in enumerate(lefts) for j, b in enumerate(rights) if a == b and None not in a]
    matched_left, matched_right = {i for i, _ in pairs}, {j for _, j in pairs}
    if how == "semi":
        return Counter((i, None) for i in matched_left)
    if how == "anti":
        return Counter((i, None) for i in range(len(lefts)) if i not in matched_left)
    found = Counter(pairs)
    if how in ("left", "full"):
        found.update((i, None) for i in range(len(lefts)) if i not in matched_left)
    if how in ("right", "full"):
        found.update((None, j) for j in range(len(rights)) if j not in matched_right)
    return found


class TableReader:
    """A gate reader over tables in memory, one per subpartition."""

    def __init__(self, tables: list[pa.Table], first: int = 0) -> None:
        self._tables, self._first = tables, first

    def bytes_per_subpartition(self):
        return self._first, np.array([table.nbytes for table in self._tables], dtype=np.int64)

    def read(self, subpartition_from=None, subpartition_to=None):
        low = 0 if subpartition_from is None else subpartition_from - self._first
        high = len(self._tables) if subpartition_to is None else subpartition_to - self._first
        for table in self._tables[low:high]:
            yield from table.to_batches()
