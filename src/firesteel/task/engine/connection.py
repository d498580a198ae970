"""One engine in each Python worker, with a cursor for each statement of a task: DuckDB 2, with as many threads as a slot has: one."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from firesteel.errors import FiresteelError
from firesteel.task.engine.clocks import has_endless
from firesteel.task.engine.files import literal
from firesteel.task.engine.package import load
from firesteel.task.file_marks import FileMarks
from firesteel.task.program import TaskContext

BATCH_ROWS = 1 << 16
STOPPED = "The engine stopped: "
"""Begins the message of a FragmentError: by it the driver knows one."""

SWITCHED_OFF = (
    "statistics_propagation",  # answers from statistics: count(10 / i) loses its error, max(x) its NaN
    "aggregate_function_rewriter",  # sum(i + 1) becomes sum(i) + count(i): the overflow of i + 1 is lost
)
"""Rules of the engine's optimiser that change answers."""

MACROS = (
    # a quotient of integers, half up; the divisor is not zero
    "CREATE MACRO fs_half_up(n, d) AS (CASE WHEN (n < 0) <> (d < 0) THEN -1 ELSE 1 END)"
    " * ((abs(n) // abs(d)) + (CASE WHEN abs(n) % abs(d) >= abs(d) - abs(n) % abs(d) THEN 1 ELSE 0 END))",
    # n, or an end of the fragment where it is too large
    "CREATE MACRO fs_below(n, most) AS CASE WHEN abs(n) >= most"
    " THEN CAST(error('left to Spark: a division beyond 38 digits') AS HUGEINT) ELSE n END",
    # a quotient of integers rounded down; the divisor is positive
    "CREATE MACRO fs_floor(n, d) AS n // d - CAST(n % d < 0 AS TINYINT)",
    "CREATE MACRO fs_ceiling(n, d) AS -fs_floor(-n, d)",
    # a quotient rounded to the even one of two equally near; the divisor is positive
    "CREATE MACRO fs_half_even(n, d) AS fs_half_up(n, d) - CASE WHEN abs(n) % d * 2 = d AND fs_half_up(n, d) % 2 <> 0"
    " THEN sign(n) ELSE 0 END",
    # an integer as a signed one of few bits; ``half``: 2 ** (bits - 1)
    "CREATE MACRO fs_wrapped(n, half) AS n - fs_floor(n + half, 2 * half) * 2 * half",
    # n, or an overflow, which ends the fragment, where it is farther from the middle than 2 ** 63 / factor
    "CREATE MACRO fs_within(n, middle, factor) AS (n - middle) * factor // factor + middle",
)
SETTINGS = ("SET TimeZone = 'UTC'", "SET parquet_metadata_cache = true")
"""Of every engine, for all its cursors."""
SPILLED = "engine"
"""The folder of what the engine spills, in a worker's scratch directory."""


class FragmentError(FiresteelError):
    """The engine gave up on a query: an overflow, a cast that fails, too little memory. Spark runs the query instead."""


@dataclass(slots=True)
class _Engine:
    connection: Any
    folder: Path
    memory: int
    files: FileMarks

    def fits(self, folder: Path, memory: int, files: Collection[str]) -> bool:
        """Brings the settings to these. False: another engine is needed."""
        import duckdb

        if not self.files.hold(files):
            return False
        try:
            if self.folder != folder or not folder.exists():
                folder.mkdir(exist_ok=True)
                self.connection.execute(f"SET temp_directory = {literal(str(folder))}")
                self.folder = folder
            if self.memory != memory:
                self.connection.execute(f"SET memory_limit = '{memory}B'")
                self.memory = memory
        except duckdb.Error:  # one that has spilled keeps its folder
            return False
        return True


_engines: list[_Engine] = []
"""This process's, once there is one. An earlier one lives on until its cursors are closed."""


def _engine(ctx: TaskContext, files: Collection[str]) -> _Engine:
    """This worker's engine, which may hold half of the task's memory and spills into the worker's scratch directory.

    ``files``: what the statement reads. The engine keeps their footers: after a change of a file there is a new engine.
    """
    folder, memory = ctx.scratch / SPILLED, max(ctx.memory_budget // 2, 64 << 20)
    if _engines and _engines[0].fits(folder, memory, files):
        return _engines[0]
    try:
        duckdb = load(ctx.engine)
    except ImportError as error:
        raise FragmentError(f"{STOPPED}{error}.") from error
    _engines.clear()
    folder.mkdir(exist_ok=True)
    config = {
        "threads": 1,
        "autoinstall_known_extensions": False,
        "disabled_optimizers": ",".join(SWITCHED_OFF),
        "temp_directory": str(folder),
        "memory_limit": f"{memory}B",
    }
    made = duckdb.connect(":memory:", config=config)
    for text in (*SETTINGS, *MACROS):
        made.execute(text)
    _engines.append(_Engine(made, folder, memory, FileMarks(files)))
    return _engines[0]


@contextmanager
def cursor(ctx: TaskContext, files: Collection[str] = ()) -> Generator[Any]:
    """A cursor of this worker's engine. ``files``: the paths of all that its statement reads."""
    one = _engine(ctx, files).connection.cursor()
    try:
        yield one
    finally:
        one.close()


def run(
    sql: str,
    inputs: Mapping[str, tuple[pa.Schema, Iterator[pa.RecordBatch]]],
    tables: Mapping[str, pa.Table],
    schema: pa.Schema,
    ctx: TaskContext,
    *,
    files: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of a query, as batches of ``schema``.

    ``inputs``: streams that it reads, each once; ``tables``: what it may read several times; ``files``: the paths of those that its
    text names. Raises what an input raises, and FragmentError for what the engine does.
    """
    failed: list[BaseException] = []
    with cursor(ctx, files) as engine:
        import duckdb

        try:
            for name, (kind, batches) in inputs.items():
                engine.register(name, pa.RecordBatchReader.from_batches(kind, _watched(batches, failed)))
            for name, table in tables.items():
                _known(table)
                engine.register(name, table)
            reader = engine.sql(sql).to_arrow_reader(BATCH_ROWS)  # what execute gives holds all rows at once
            try:
                for batch in reader:
                    if batch.num_rows:
                        yield conformed(batch, schema)
            finally:
                reader.close()  # else what it has spilled stays as long as this generator
        except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
            if failed:
                raise failed[0] from None
            if isinstance(error, duckdb.InterruptException):
                raise
            raise FragmentError(
                f"{STOPPED}{_sentence(error)}.",
                hint="With the option firesteel.sql.dataframes = spark, Spark alone computes DataFrames.",
            ) from error


def _watched(batches: Iterator[pa.RecordBatch], failed: list[BaseException]) -> Iterator[pa.RecordBatch]:
    """Keeps what the input raised, of which the engine would only tell the text."""
    try:
        for batch in batches:
            _known(batch)
            yield batch
    except BaseException as error:
        failed.append(error)
        raise


def _known(rows: pa.RecordBatch | pa.Table) -> None:
    if has_endless(rows):
        raise FragmentError(f"{STOPPED}left to Spark: a time at the end of its type.")


def conformed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch's columns, by position, under the names and types of ``schema``."""
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _sentence(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".")
