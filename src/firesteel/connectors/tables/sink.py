"""The base of sinks that write tables: Parquet files written aside, moved into the table's folder, and logged in one transaction.

Nobody sees a file of a table before the log names it. So the move does not publish, the transaction does. It cannot be taken
back, and comes after the sinks that can. It bears the name of the job, by which a driver that goes on with one that was killed in the middle asks the log
whether it is in there; if not, the files, staged or moved, are published under the same names. Where no driver goes on, what was moved is in no log: files for
the table's own vacuum.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from firesteel.connectors.base import BEGUN, PUBLISHED, Recovered
from firesteel.connectors.files.partitions import check_partition_columns
from firesteel.connectors.files.paths import DatasetName, Location, dataset_of, first_line
from firesteel.connectors.files.writing.in_place import Moves, storage_errors
from firesteel.connectors.files.writing.part_files import FileCommit, Layout, PartFile, PartWriter
from firesteel.connectors.files.writing.sinks import StagedSink
from firesteel.connectors.files.writing.staging import Staging, remove_leftovers
from firesteel.connectors.formats.parquet import ROW_GROUP_BYTES, WITHOUT_NAN, ParquetPart, check_compression
from firesteel.errors import FiresteelError, OutputExistsError, UsageError
from firesteel.humanize import check_once
from firesteel.results.storage.filesystem import rest

_LEAVES = {
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.string(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")),
}
AS: Mapping[pa.DataType, pa.DataType] = {
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
MODES = ("error", "append", "overwrite", "overwrite_partitions", "ignore")


class TableSink(StagedSink):
    """``mode``, for a table that exists: ``"error"``, ``"append"``, ``"overwrite"`` (all rows are replaced), ``"overwrite_partitions"``
    (those of partitions that there are rows for), ``"ignore"``. ``partition_by``: of a new table; of one that exists it may be left out.
    """

    kind = "write_table"
    keeps_columns = False
    """Columns that the table is partitioned by are in its files, too."""
    looks_for_nan = False
    """Footers name the columns without NaN."""
    as_types = AS
    """Types, also inside others, that are written as these."""

    def __init__(
        self,
        label: str,
        *,
        mode: str = "error",
        partition_by: str | Iterable[str] = (),
        max_file_size: int | None = None,
        file_size: int | None = None,
        compression: str = "snappy",
    ) -> None:
        if mode not in MODES:
            raise UsageError(f"mode={mode!r} is not a way to write a table.", hint=f"Use one of {', '.join(MODES)}.")
        self.label = label
        self.name = f"write {label}"
        self.mode = mode
        self._given_columns = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
        self._max_file_size, self._file_size = max_file_size, file_size
        self._compression = check_compression(compression)
        super().__init__()
        self._layout = Layout("parquet", ROW_GROUP_BYTES)
        self._id = self._job = ""
        """The job whose name the staged files bear, and the name of the transaction."""

    def datasets(self) -> list[DatasetName]:
        """The place of the table, as lineage names it; known once it was checked."""
        return [dataset_of(self.target)] if hasattr(self, "target") else []

    # --- a table format's part ---

    def _found(self, schema: pa.Schema) -> tuple[Location, Sequence[str] | None]:
        """The place of files, and the columns that the table is partitioned by; None: there is no table. Raises UsageError unless rows
        of this schema can be written, of a table that is there."""
        raise NotImplementedError

    def _check_free(self) -> None:
        """Raises OutputExistsError where files lie at the place of a table that is not there; those of a driver that died may."""

    def _log(self, files: Sequence[tuple[str, PartFile]]) -> None:
        """One transaction that adds files (the path in the target, and what was written), and removes what the mode says.

        Does nothing where the job's is in the log already. Raises Conflict, NotKnown, FiresteelError.
        """
        raise NotImplementedError

    def _is_logged(self) -> bool:
        """The job's transaction is in the log. Raises FiresteelError where it cannot be asked."""
        raise NotImplementedError

    # --- driver, before ---

    def check(self, schema: pa.Schema) -> None:
        schema = table_schema(schema, f"{self.kind} to {self.label}", self.as_types)
        columns = self._given_columns
        if columns:
            check_partition_columns(schema, columns, f"{self.kind} to {self.label}")
        self.target, there = self._found(schema)
        if there is not None:
            columns = self._agreed(columns, tuple(there))
        self._ignored = there is not None and self.mode == "ignore"
        self._partitioned(columns)
        self._schema = schema
        self._layout = Layout(
            *("parquet", ROW_GROUP_BYTES, columns, self._max_file_size),
            file_size=self._file_size if columns else None,
            keeps_columns=self.keeps_columns,
        )
        if there is not None and self.mode == "error":
            raise OutputExistsError(
                f"The table {self.label} exists already.",
                hint="Write with mode='append' or mode='overwrite', or to another place.",
            )
        if there is None:
            self._check_free()

    def _agreed(self, given: tuple[str, ...], there: tuple[str, ...]) -> tuple[str, ...]:
        if self.mode == "error":
            return given
        if given and given != there and self.mode != "ignore":
            raise UsageError(
                f"The table {self.label} is partitioned by {list(there)}, and partition_by is {list(given)}.",
                hint="Leave partition_by out: the table's own is taken.",
            )
        return there

    @property
    def partition_by(self) -> tuple[str, ...]:
        """Known once it was checked."""
        return self._layout.partition_by

    def _partitioned(self, columns: tuple[str, ...]) -> None:
        if self.mode == "overwrite_partitions" and not columns:
            raise UsageError(
                f"mode='overwrite_partitions' wants a table that is partitioned, and {self.label} is not.",
                hint="mode='overwrite' replaces all rows.",
            )

    def begin(self, job_id: str) -> None:
        if self._ignored:
            return
        remove_leftovers(self.target, keeps=True)
        self._id, self._job = job_id, f"firesteel-{job_id}-{uuid.uuid4().hex[:12]}"
        self._staging = Staging(self.target, job_id)
        self._staging.make()

    def state(self) -> dict[str, str]:
        if self._staging is None:
            return {"ignored": "yes"}
        return {"id": self._id, "job": self._job, "parents": json.dumps(self._staging.parents)}

    def recover(self, job_id: str, winners: Sequence[FileCommit], state: Mapping[str, str], *, step: str) -> Recovered:
        """Raises UsageError where files that were to be published are gone, FiresteelError where the table cannot be asked."""
        self._ignored = "ignored" in state
        if self._ignored:
            return Recovered(published=step == PUBLISHED)
        own = state.get("id", job_id)
        staging = Staging.taken_over(self.target, own, json.loads(state.get("parents", "[]")))
        if step == BEGUN and (staging is None or "job" not in state):
            if staging is not None:
                staging.remove()
            self.begin(job_id)
            return Recovered(missing=tuple(range(len(winners))))
        self._id, self._job, self._again = own, state["job"], step != BEGUN
        if step == PUBLISHED or (self._again and self._is_logged()):
            if staging is not None:
                staging.remove()
            return Recovered(published=True)
        if staging is None:
            if any(message.files for message in winners):
                raise UsageError(
                    f"Nothing was published to the table {self.label} when the driver died, and what it had written aside is gone.",
                    hint="Run the script without resuming.",
                )
            staging = Staging(self.target, own)
            staging.make()
        self._staging = staging
        return Recovered(missing=tuple(self._missing(staging, winners, self.target.path)))

    def _new_writer(self, stream: Any, schema: pa.Schema) -> PartWriter:
        enough = ROW_GROUP_BYTES if self._layout.is_direct else 0
        return ParquetPart(stream, schema, self._compression, enough, looks_for_nan=self.looks_for_nan)

    # --- driver, after ---

    def commit(self, winners: Sequence[FileCommit]) -> None:
        """Raises FiresteelError with nothing published."""
        if self._ignored:
            return
        assert self._staging is not None, "begin comes before commit"
        if not self._again:  # else they were looked for, and may have been moved
            self._staging.verify(winners)
        staged, is_ours = self._staging.path, self._staging.is_ours
        to_table = Moves(self.target.filesystem, again=self._again, inside=staged, is_ours=is_ours)
        with storage_errors(self.label), to_table as moves:
            files: list[tuple[str, PartFile]] = []
            for message in winners:
                for file in message.files:
                    path = self._final_name(message.subtask, file)
                    moves.move(self._staging.place(file), f"{self.target.path}/{path}")
                    files.append((path, file))
            try:
                transact(lambda: self._log(files), self.label)
            except NotKnown as error:
                moves.keep()
                raise FiresteelError(
                    f"It is not known whether the rows were published to the table {self.label}: {error}.",
                    hint=f"They were if its history names {self._job}; else its next vacuum removes the files.",
                ) from error
        self._staging.remove()

    def _final_name(self, subtask: int, file: PartFile) -> str:
        """In the table's folder: the same for every driver of the job."""
        folder = f"{file.folder}/" if file.folder else ""
        return f"{folder}part-{subtask:05d}-{file.number:05d}-{self._job.rpartition('-')[2]}.parquet"

    def _check_columns(self, there: pa.Schema, schema: pa.Schema) -> None:
        """Raises UsageError where the stream's columns are not those of the table. ``there``: the table's."""
        for name in dict.fromkeys([*there.names, *schema.names]):
            kinds = [s.field(name).type if name in s.names else "no such column" for s in (there, schema)]
            if kinds[0] != kinds[1]:
                raise UsageError(
                    f"The table {self.label} does not fit: column '{name}' is {kinds[0]} there and {kinds[1]} in the stream.",
                    hint="Bring the stream's columns to those of the table (with_column, select), or change the table first.",
                )


def table_schema(schema: pa.Schema, what: str, as_types: Mapping[pa.DataType, pa.DataType]) -> pa.Schema:
    """The schema without metadata, all nullable, dictionaries as their values, and others as ``as_types`` says.

    Raises UsageError for types that tables do not have: unsigned numbers would come out as others, times finer than microseconds lose digits.
    """
    check_once(schema.names, lambda twice: f"{what}: there are two columns '{twice}'.", "Rename one with select.")
    if not len(schema):
        raise UsageError(f"{what}: the stream has no columns.")
    return pa.schema([pa.field(field.name, _type(field.type, field.name, what, as_types)) for field in schema])


def _type(kind: pa.DataType, name: str, what: str, as_types: Mapping[pa.DataType, pa.DataType]) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    kind = as_types.get(kind, kind)
    if kind in _LEAVES or types.is_decimal128(kind):
        return kind
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, _type(field.type, name, what, as_types)) for field in kind])
    if types.is_map(kind):
        return pa.map_(*(_type(part, name, what, as_types) for part in (kind.key_type, kind.item_type)))
    if types.is_list(kind) or types.is_large_list(kind):
        return pa.list_(_type(kind.value_type, name, what, as_types))
    raise UsageError(
        f"{what}: column '{name}' has the type {kind}, for which tables have none.",
        hint='Cast it: to a signed type, timestamp("us") with UTC or no zone, date32, string ...',
    )


@contextmanager
def as_usage(label: str) -> Generator[None]:
    """Turns whatever a library raises while it looks at the table ``label`` into a UsageError."""
    try:
        yield
    except FiresteelError:
        raise
    except Exception as error:
        raise UsageError(f"The table {label} cannot be looked at: {words(error)}.") from error


def words(error: BaseException) -> str:
    """The first line of what was said."""
    return first_line(error).rstrip(". ") if isinstance(error, OSError | pa.ArrowException) else _first(str(error))


def _first(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in lines if line), "no reason was given").rstrip(". ")


_PAUSES = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2, 3.2)
"""Seconds before each further try, give or take half."""


class Conflict(Exception):
    """Somebody else's transaction came between: ours was not written."""


class NotKnown(Exception):
    """Ours may have been written."""


def transact(attempt: Callable[[], None], label: str) -> None:
    """``attempt`` looks at the table ``label`` anew each time. Raises FiresteelError; NotKnown as it comes."""
    for pause in _PAUSES:
        try:
            return attempt()
        except Conflict:
            rest(pause)
    try:
        return attempt()
    except Conflict as conflict:
        raise FiresteelError(
            f"Nothing was published to the table {label}: {len(_PAUSES) + 1} times another transaction came between ({conflict}).",
            hint="Run the job again when fewer programs write to the table.",
        ) from conflict


_THREADS = 16
_LONGEST_TEXT = 64
_LAST_CHARACTER = "\U0010ffff"
_ORDERED = (int, float, decimal.Decimal, str, dt.date)  # bool is an int, datetime a date


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """What the footer says about each column.

    ``bounds`` holds the least and the greatest value of all columns that have values, except binary and nested ones, or it is empty:
    ``deltalake`` finds no row in a file that has some bounds and lacks another one. The bounds of long texts are their beginnings.
    """

    rows: int
    nulls: dict[str, int] = field(default_factory=dict[str, int])
    bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict[str, tuple[Any, Any]])


def statistics_of(
    filesystem: pafs.FileSystem, paths: Sequence[str], schema: pa.Schema, most: int | None
) -> list[FileStatistics]:
    """Read the statistics of each file. ``schema``: of all files; ``most``: this many columns; None: all. Raises OSError."""
    columns = [one for one in schema if not pa.types.is_nested(one.type)][:most]
    ordered = {one.name: not pa.types.is_binary(one.type) for one in columns}

    def read(path: str) -> FileStatistics:
        with filesystem.open_input_file(path) as file:
            return _folded(pq.read_metadata(file), ordered)

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(read, paths))


def _folded(metadata: Any, ordered: Mapping[str, bool]) -> FileStatistics:
    """``ordered``: for each column, whether it must have bounds."""
    result = FileStatistics(metadata.num_rows)
    without_nan = json.loads((metadata.metadata or {}).get(WITHOUT_NAN, b"[]"))
    names = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    leaves, is_whole = Counter(names), True
    for place, name in enumerate(names):
        if name not in ordered:
            continue
        told = [metadata.row_group(group).column(place).statistics for group in range(metadata.num_row_groups)]
        if leaves[name] > 1 or any(one is None or not one.has_null_count for one in told):
            is_whole = is_whole and not ordered[name]  # a field of a struct may have the name of a column with a dot
            continue
        result.nulls[name] = sum(one.null_count for one in told)
        with_values = [one for one in told if one.num_values]
        if ordered[name] and with_values:
            bounds = _bounds(with_values, name in without_nan)
            if bounds is None:
                is_whole = False
            else:
                result.bounds[name] = bounds
    return result if is_whole else FileStatistics(result.rows, result.nulls)


def _bounds(told: Sequence[Any], is_without_nan: bool) -> tuple[Any, Any] | None:
    """Return None where the footer does not say them, or the log cannot hold them."""
    if not all(one.has_min_max for one in told):  # texts of more than 4 kB
        return None
    try:
        least, most = min(one.min for one in told), max(one.max for one in told)
    except (ValueError, OverflowError):  # years that Python does not have
        return None
    if isinstance(least, str):
        return least[:_LONGEST_TEXT], _above(most)
    if isinstance(least, float) and not (is_without_nan and math.isfinite(least) and math.isfinite(most)):
        return None  # footers leave NaN out, which Spark sorts after all numbers
    return (least, most) if isinstance(least, _ORDERED) else None


def _above(text: str) -> str:
    """Return a text of bounded length that is not less than this one, by code points."""
    end = _LONGEST_TEXT
    while text[end : end + 1] == _LAST_CHARACTER:
        end += 1
    return text if len(text) <= end else text[:end] + _LAST_CHARACTER
