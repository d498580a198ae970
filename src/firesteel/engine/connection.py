"""The engine of this process, with a cursor for each statement: DuckDB 2, with as many threads as a slot has: one."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from firesteel.engine import hashes, strict_math
from firesteel.engine.convert import conformed
from firesteel.engine.file_marks import FileMarks
from firesteel.engine.files import literal
from firesteel.engine.package import EnginePackage, load
from firesteel.errors import EngineStop, Stop

BATCH_ROWS = 1 << 16

SWITCHED_OFF = (
    "statistics_propagation",  # answers from statistics: count(10 / i) loses its error, max(x) its NaN
    "aggregate_function_rewriter",  # sum(i + 1) becomes sum(i) + count(i): the overflow of i + 1 is lost
)
"""Rules of the engine's optimiser that change answers."""
_BY_SIZE = ("join_order", "build_side_probe_side")
"""Rules that go by numbers of rows, which the engine takes for one of a stream: in tasks, joins stay as they are written."""
_BY_RANGES = "partitioned_execution"
"""A rule that computes an aggregate in ranges of its keys, by the statistics of whole files. A task reads a range of rows: it would read
that once for each range of keys."""
_LOOPS = ("asof_loop_join_threshold", "nested_loop_join_threshold", "merge_join_threshold")
"""Numbers of rows below which the engine compares every pair. Tasks set them to 0, because the engine takes a stream for one row."""

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


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """``memory``: bytes that the engine may hold; what does not fit is spilled into ``folder``, which is made. ``package``: the driver's
    DuckDB, None where this process has its packages. ``host``: for messages."""

    folder: Path
    memory: int
    package: EnginePackage | None = None
    host: str = "this machine"


def connect(package: EnginePackage | None = None, host: str = "this machine", **config: Any) -> Any:
    """A new engine, with all that makes its answers Firesteel's. ``config``: more of DuckDB's settings.

    Raises ImportError with a sentence where DuckDB cannot be loaded.
    """
    given = {
        "threads": 1,
        "autoinstall_known_extensions": False,
        "disabled_optimizers": ",".join(SWITCHED_OFF),
        **config,
    }
    made = load(package, host).connect(":memory:", config=given)
    for text in (*SETTINGS, *MACROS):
        made.execute(text)
    hashes.register(made)
    strict_math.register(made)
    return made


@dataclass(slots=True)
class _Engine:
    connection: Any
    folder: Path
    memory: int
    files: FileMarks

    def fits(self, settings: EngineSettings, files: Collection[str]) -> bool:
        """Brings it to these settings. False: another engine is needed."""
        import duckdb

        if not self.files.hold(files):
            return False
        folder, memory = settings.folder, settings.memory
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
_cursors: set[Any] = set()
"""Those that are open."""


def _engine(settings: EngineSettings, files: Collection[str]) -> _Engine:
    """``files``: what the statement reads. The engine keeps their footers: after a change of a file there is a new engine."""
    if _engines and _engines[0].fits(settings, files):
        return _engines[0]
    _engines.clear()
    settings.folder.mkdir(exist_ok=True)
    config = {
        "temp_directory": str(settings.folder),
        "memory_limit": f"{settings.memory}B",
        "disabled_optimizers": ",".join((*SWITCHED_OFF, *_BY_SIZE, _BY_RANGES)),
        **dict.fromkeys(_LOOPS, 0),
    }
    try:
        made = connect(settings.package, settings.host, **config)
    except ImportError as error:
        raise EngineStop(Stop.ENGINE, f"{error}.") from error
    _engines.append(_Engine(made, settings.folder, settings.memory, FileMarks(files)))
    return _engines[0]


@contextmanager
def cursor(settings: EngineSettings, files: Collection[str] = ()) -> Generator[Any]:
    """A cursor of this process's engine. ``files``: the paths of all that its statement reads."""
    one = _engine(settings, files).connection.cursor()
    _cursors.add(one)
    try:
        yield one
    finally:
        _cursors.discard(one)
        one.close()


def interrupt() -> None:
    """Ends all statements of this process with an EngineStop of the kind INTERRUPTED. For any thread."""
    for one in list(_cursors):
        with suppress(Exception):  # it was closed meanwhile
            one.interrupt()


def run(
    sql: str,
    inputs: Mapping[str, tuple[pa.Schema, Iterator[pa.RecordBatch]]],
    tables: Mapping[str, pa.Table],
    schema: pa.Schema,
    settings: EngineSettings,
    *,
    files: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """The rows of a query, as batches of ``schema``.

    ``inputs``: streams that it reads, each once; ``tables``: what it may read several times; both in types that the engine takes as they are
    (``convert``). ``files``: the paths of those that its text names. Raises what an input raises, and EngineStop for what the engine does.
    """
    failed: list[BaseException] = []
    with cursor(settings, files) as engine:
        import duckdb

        try:
            register(engine, inputs, tables, failed)
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
            raise stop_of(error) from error


def register(
    engine: Any,
    inputs: Mapping[str, tuple[pa.Schema, Iterator[pa.RecordBatch]]],
    tables: Mapping[str, pa.Table],
    failed: list[BaseException],
) -> None:
    """Gives a cursor its inputs. ``failed``: gets what an input raises; the engine's own error has only its text."""
    for name, (kind, batches) in inputs.items():
        engine.register(name, pa.RecordBatchReader.from_batches(kind, _watched(batches, failed)))
    for name, table in tables.items():
        engine.register(name, table)


_KINDS = {
    "Out of Range Error": Stop.VALUE,
    "Conversion Error": Stop.VALUE,
    "Invalid Input Error": Stop.VALUE,  # of the function error(), too
    "IO Error": Stop.INPUT,
    "Out of Memory Error": Stop.MEMORY,
    "INTERRUPT Error": Stop.INTERRUPTED,
    "INTERNAL Error": Stop.INTERNAL,
    "FATAL Error": Stop.INTERNAL,
}
"""By the first words of DuckDB's message. Where Arrow raises the error, there is no class that says it."""


LEFT = "A row is left to Spark: "
"""How a stop's message begins where a rule of ours raised it."""


def stop_of(error: Exception) -> EngineStop:
    """What the engine stopped for, by what it raised."""
    text = str(error).strip().partition("\n")[0].rstrip(".")
    kind = _KINDS.get(text.partition(":")[0], Stop.VALUE if isinstance(error, pa.ArrowException) else Stop.ENGINE)
    if kind is Stop.INTERNAL:
        _engines.clear()  # it may refuse whatever it is asked next
    if why := text.partition("left to Spark: ")[2]:
        text = LEFT + why
    return EngineStop(
        kind, f"{text}.", hint="With the option firesteel.sql.dataframes = spark, Spark alone computes DataFrames."
    )


def _watched(batches: Iterator[pa.RecordBatch], failed: list[BaseException]) -> Iterator[pa.RecordBatch]:
    """Keeps what the input raised."""
    try:
        yield from batches
    except BaseException as error:
        failed.append(error)
        raise
