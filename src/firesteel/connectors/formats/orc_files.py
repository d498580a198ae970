"""ORC files that were listed already, split by stripes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.connectors.base import Split
from firesteel.connectors.files.partitions import Values
from firesteel.connectors.files.paths import InputFile, InputFiles, first_line
from firesteel.connectors.files.reading.source import FileSource, Listed, Piece, for_each_file, pack, piece_bytes
from firesteel.connectors.files.shaping import rows_without_columns
from firesteel.connectors.formats.plain_lines import stopped
from firesteel.errors import FiresteelError, UsageError
from firesteel.task.program import TaskContext

_BATCH_ROWS = 1 << 16
_REFORM = -141427
"""The 15th of October 1582: days before it are others in files of the old calendar, which do not say that they are."""


@dataclass(frozen=True, slots=True)
class OrcFooter:
    schema: pa.Schema
    stripes: int


@dataclass(frozen=True, slots=True)
class _Stripe:
    """``counted``: a column to count its rows by."""

    piece: Piece
    number: int
    counted: tuple[str, ...]


class OrcSource(FileSource):
    """``schema``: the columns to read, with the types that all of the files have. A day before 1582 ends the fragment."""

    kind = "read_orc"
    counts_by_column = False

    def __init__(self, listed: Listed, name: str, schema: pa.Schema, footers: list[OrcFooter]) -> None:
        self._take(listed, name)
        self._footers = footers
        self._have(schema)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_footers": []}

    def list_splits(self, data_volume: int) -> list[Split]:
        items: list[_Stripe] = []
        weights: list[int] = []
        assert self._found is not None, "list_splits is called on the driver"
        for number in self._kept:
            file, footer = self._found.files[number], self._footers[number]
            piece = Piece(file.path, file.size, 0, file.size, self._values[number])
            items += [_Stripe(piece, i, tuple(footer.schema.names[:1])) for i in range(footer.stripes)]
            weights += [file.size // footer.stripes + 1] * footer.stripes if footer.stripes else []
        splits: list[Split] = []
        for group, size in pack(items, weights, piece_bytes(sum(weights), data_volume)):
            pieces = list(dict.fromkeys(one.piece for one in group))
            splits.append(Split(tuple(group), size, self._describe(pieces)))
        return splits

    def _read_part(self, stripe: _Stripe, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        from pyarrow import orc  # only these jobs need it

        names = self._columns_to_read()
        read = names or stripe.counted
        ctx.place = place = f"{self._prefix + stripe.piece.path}, stripe {stripe.number}"
        values: Values = stripe.piece.values
        try:
            with self._opened(stripe.piece) as file:
                batch = orc.ORCFile(file).read_stripe(stripe.number, columns=list(read))
        except (OSError, pa.ArrowException) as error:
            raise FiresteelError(f"{place} cannot be read: {first_line(error)}.") from error
        if any((pc.min(days.cast(pa.int32())).as_py() or 0) < _REFORM for days in _days_of(batch.columns)):
            raise stopped(place, "days before October 1582")
        if not names:
            for empty in rows_without_columns(batch.num_rows):
                yield from self._finish(empty, values)
            return
        for start in range(0, batch.num_rows, _BATCH_ROWS):
            yield from self._finish(batch.slice(start, _BATCH_ROWS), values)


def _days_of(arrays: Iterable[Any]) -> Iterator[Any]:
    """The arrays of days among these and inside them."""
    for array in arrays:
        if pa.types.is_date32(array.type):
            yield array
        elif pa.types.is_map(array.type):
            yield from _days_of((array.keys, array.items))
        elif pa.types.is_nested(array.type):
            yield from _days_of(array.flatten() if pa.types.is_struct(array.type) else (array.flatten(),))


def orc_footers(found: InputFiles) -> list[OrcFooter]:
    """Of each file. Raises UsageError for a file that cannot be read."""
    return list(for_each_file(found, range(len(found.files)), _footer).values())


def _footer(found: InputFiles, file: InputFile) -> OrcFooter:
    from pyarrow import orc

    try:
        with found.filesystem.open_input_file(file.path) as stream:
            opened = orc.ORCFile(stream)
            return OrcFooter(opened.schema, opened.nstripes)
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"{found.label(file.path)} cannot be read as ORC: {first_line(error)}.") from error
