"""CSV files written, as RFC 4180 has them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from firesteel.connectors.files.compression import codec_option
from firesteel.connectors.files.paths import PathLike
from firesteel.connectors.files.writing.part_files import PartWriter
from firesteel.connectors.files.writing.sinks import FileSink
from firesteel.connectors.formats.csv_format import CsvFormat
from firesteel.errors import FiresteelError, UsageError


class CsvSink(FileSink):
    """Writes a directory of CSV files: values of text in quotes, doubled inside (RFC 4180), as :class:`~firesteel.connectors.formats.csv_files.CsvSource` reads them.

    ``header``: names of the columns in the first line of every file. ``null_value``: what is written for null, without
    quotes. NaN and infinities are written as Spark does. ``compression``: of the files, gzip, bz2, zstd or lz4.
    ``options``: those of :class:`~firesteel.connectors.files.writing.sinks.FileSink`.
    """

    kind = "write_csv"
    extension = "csv"

    def __init__(
        self,
        path: PathLike,
        *,
        header: bool = True,
        sep: str = ",",
        null_value: str = "",
        compression: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(path, **options)
        CsvFormat(sep=sep).check()
        if '"' in null_value or sep in null_value or "\n" in null_value or "\r" in null_value:
            raise UsageError(f"null_value={null_value!r} would need quotes.", hint="Use a plain word, such as NULL.")
        self._compress(codec_option(compression, "write_csv", infer=False))
        self._header = header
        self._sep = sep
        self._null_value = null_value

    def _check_schema(self, schema: pa.Schema) -> None:
        where = f"write_csv to {self.target.label}"
        if not len(schema):
            raise UsageError(f"{where}: the stream has no columns, and there is nothing to write.")
        for field in schema:
            try:
                if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
                    raise TypeError  # Arrow would write bytes that are not text
                probe = pa.table({"probe": pa.nulls(1, _plain_value(field.type))})
                pacsv.write_csv(probe, pa.BufferOutputStream())
            except (OSError, pa.ArrowException, TypeError):
                raise UsageError(
                    f"{where}: CSV cannot hold column '{field.name}' of type {field.type}.",
                    hint="Take its parts out into columns, or write JSON or Parquet.",
                ) from None

    def _new_writer(self, stream: Any, schema: pa.Schema) -> PartWriter:
        options = pacsv.WriteOptions(include_header=self._header, delimiter=self._sep)
        if self._header:
            pacsv.write_csv(schema.empty_table(), stream, options)
        rows = pacsv.WriteOptions(include_header=False, delimiter=self._sep, null_string=self._null_value)
        return _CsvPart(stream, schema, rows)


class _CsvPart(PartWriter):
    def __init__(self, stream: Any, schema: pa.Schema, options: Any) -> None:
        self._stream = stream
        self._names = schema.names
        self._options = options
        self._blank_nulls = len(schema) == 1 and not options.null_string

    def write(self, batch: pa.RecordBatch) -> None:
        columns = [_writable(column) for column in batch.columns]
        if self._blank_nulls and columns[0].null_count:
            raise FiresteelError(
                f"Column '{self._names[0]}' has a null, which would be an empty line: readers of CSV skip these.",
                hint="Write it with null_value='NULL' and read it with null_values=['NULL'].",
            )
        pacsv.write_csv(pa.RecordBatch.from_arrays(columns, names=self._names), self._stream, self._options)


def _plain_value(data_type: pa.DataType) -> pa.DataType:
    data_type = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return pa.timestamp(data_type.unit, "UTC")
    return pa.float32() if pa.types.is_float16(data_type) else data_type


def _writable(column: Any) -> Any:
    """Dictionaries as their values; zoned timestamps in UTC; numbers that are none as Spark writes them."""
    column = column.cast(_plain_value(column.type))
    if not pa.types.is_floating(column.type) or pc.all(pc.is_finite(column)).as_py() in (True, None):
        return column
    texts = column.cast(pa.string())
    for text, written in (("nan", "NaN"), ("inf", "Inf"), ("-inf", "-Inf")):
        texts = pc.if_else(pc.equal(texts, text), written, texts)
    return texts
