"""CSV files: cut at line ends by bytes, types given or inferred, parsed by Arrow a block at a time.

A value that holds line ends itself needs ``newlines_in_values=True``, which makes every file one split.

Arrow's messages do not name the line of the file. The code here finds it, the value, and quotes that span a cut.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from firesteel.connectors.base import Split
from firesteel.connectors.files.compression import (
    codec_of,
    codec_option,
    damaged,
    plain_stream,
    refuse_foreign,
    refuse_other_codecs,
)
from firesteel.connectors.files.paths import InputFile, InputFiles, PathLike, first_line
from firesteel.connectors.files.reading.lines import (
    BOM,
    RefusedError,
    count_lines,
    is_text,
    refused_values,
    rows_of_lines,
    with_corrupt_column,
    with_line_end,
    without_corrupt_column,
)
from firesteel.connectors.files.reading.source import FileSource, Piece, first_blocks, for_each_file, merge_types
from firesteel.connectors.files.shaping import fit, plain_schema
from firesteel.connectors.files.writing.part_files import PartWriter
from firesteel.connectors.files.writing.sinks import FileSink
from firesteel.connectors.formats.csv_format import CsvFormat, convert, difference, header_line, settled, wire_type
from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import check_once, first_of
from firesteel.task.program import TaskContext

_MOST_BLOCK = 0x7FFF_0000
_READ_BLOCK = 4 << 20
_LONGEST_NULL = 20
_EMPTY = "Empty CSV file"
"""Arrow's message, also for a header that is longer than its block."""
_COMPARED = 500
"""Files whose headers are compared before the job starts."""
_HEADER_BLOCK, _LONGEST_HEADER = 1 << 14, 64 << 20
_ROW = re.compile(r"Row #(\d+)")
_COLUMN = re.compile(r"In CSV column #(\d+)")
_VALUE = re.compile(r"invalid value '(.*)'", re.DOTALL)


class CsvSource(FileSource):
    """Rows of CSV files.

    ``schema``: names and types of the files' columns, in their order; None: names from the header (``_c0``, ``_c1``, ...
    without one) and types inferred from the first MiB of the first files (see ``inference``), or all strings with
    ``infer_schema=False``. With a header its names must be those of the schema. ``compression``: of all files; None: by
    their endings. ``partitions``: as in :func:`~firesteel.connectors.files.partitions.find_partitions`. ``corrupt_column``: a last
    column, with the text of lines that cannot be read and whose other columns are null (see ``corrupt``).

    The first files are opened now when something is inferred. Raises UsageError for missing paths, empty globs, files
    that cannot be read and types that CSV does not have.
    """

    kind = "read_csv"

    def __init__(
        self,
        paths: PathLike | Iterable[PathLike],
        *,
        schema: pa.Schema | None = None,
        csv: CsvFormat | None = None,
        infer_schema: bool = True,
        compression: str | None = None,
        filesystem: Any = None,
        partitions: bool | pa.Schema = True,
        corrupt_column: str | None = None,
    ) -> None:
        self._csv = csv or CsvFormat()
        self._csv.check()
        self._corrupt = corrupt_column
        self._compression = codec_option(compression, "read_csv", infer=True)
        found, _ = self._find(paths, filesystem, partitions, schema)
        refuse_other_codecs(found, self._compression, "read_csv")
        if schema is not None:
            names = self._partition_names()
            own = plain_schema(pa.schema([field for field in schema if field.name not in names]))
            own = without_corrupt_column(own, corrupt_column, self.name)
        else:
            own = self._inferred(infer_schema)
        if not len(own):
            raise UsageError(f"{self.name}: the files have no columns.", hint="Give schema=.")
        for field in own:
            _check_type(field, self.name)
        self._own = own
        whole, taken = self._csv.newlines_in_values, self._partition_names()
        self._have(with_corrupt_column(own, corrupt_column, self.name, partitions=taken, whole=whole))

    def _inferred(self, infer: bool) -> pa.Schema:
        names: list[str] | None = None
        first = ""
        found: dict[str, list[pa.DataType]] = {}
        for label, block in first_blocks(self, self._compression, self._has_row):
            try:
                read = pacsv.ReadOptions(
                    use_threads=False,
                    block_size=max(2 * len(block) + 1, 1 << 16),
                    autogenerate_column_names=not self._csv.header,
                )
                plain = self._sample(with_line_end(block))
                table = pacsv.read_csv(
                    pa.BufferReader(plain),
                    read_options=read,
                    parse_options=self._csv.parse_options(self._skipping(plain)),
                    convert_options=self._csv.convert_options(None, None),
                )
                these = table.column_names if self._csv.header else [f"_c{i}" for i in range(table.num_columns)]
            except UnicodeDecodeError:
                raise self._header_not_text(label) from None
            except pa.ArrowException as error:
                raise UsageError(f"{label} cannot be read as CSV: {first_line(error)}.", hint=_HINT_ROWS) from None
            first = first or label
            names = self._same_names(names, these, label, first)
            types = self._sampled(plain, table.schema, read) if infer else [pa.string()] * len(names)
            for name, data_type in zip(names, types, strict=True):
                found.setdefault(name, []).append(data_type)
        if names is None:
            raise UsageError(
                f"{self.name}: the files are empty, so there is nothing to infer columns from.",
                hint='Give schema=, for example "word string, n bigint".',
            )
        return pa.schema([(name, merge_types(found[name])) for name in names])

    def _sample(self, block: bytes) -> bytes:
        """In UTF-8; where lines may be corrupt, without those that no text can be made of."""
        if self._corrupt is None or is_text(block):
            return self._csv.plain(block)
        return self._csv.plain(b"".join(line for line in block.splitlines(keepends=True) if is_text(line)))

    def _sampled(self, block: bytes, schema: pa.Schema, read: pacsv.ReadOptions) -> list[pa.DataType]:
        """The types of columns that Arrow took for ``schema`` in the block; string where reading would not take one so.

        Those in doubt are read once more, together.
        """
        found: dict[str, pa.DataType] = {field.name: settled(field.type) for field in schema}
        hexadecimal = b"0x" in block or b"0X" in block
        doubted = {
            name: pa.string() if pa.types.is_integer(t) else wire_type(t, self._csv)
            for name, t in found.items()
            if (hexadecimal and pa.types.is_integer(t)) or pa.types.is_timestamp(t)
        }
        for name, column in self._columns(block, doubted, read).items():
            if not self._is_so(column, found[name]):
                found[name] = pa.string()
        return list(found.values())

    @staticmethod
    def _is_so(column: Any, data_type: pa.DataType) -> bool:
        """True if a column that was read again is of this type. ``column`` None: it could not be read."""
        if column is None:
            return False
        if pa.types.is_integer(
            data_type
        ):  # Arrow makes a number of 0x1f. Who writes such means an id, whose form would be lost.
            return not pc.any(pc.match_substring_regex(column, r"^\s*0[xX]")).as_py()
        try:  # seven digits of a second and more are nanoseconds to Arrow, and none of our microseconds
            convert(column, data_type)
        except pa.ArrowException:
            return False
        return True

    def _columns(self, block: bytes, types: dict[str, pa.DataType], read: pacsv.ReadOptions) -> dict[str, Any]:
        """Returns these columns of the block, as these types; None where that is not possible."""
        if not types:
            return {}
        parse = self._csv.parse_options(self._skipping(block))
        try:
            table = pacsv.read_csv(pa.BufferReader(block), read, parse, self._csv.convert_options(types, list(types)))
        except pa.ArrowException:
            if len(types) == 1:
                return dict.fromkeys(types)
            return {
                name: column
                for one in types.items()
                for name, column in self._columns(block, dict([one]), read).items()
            }
        return {name: table.column(name) for name in types}

    def _skipping(self, block: bytes) -> Callable[[Any], str] | None:
        """For rows of a sample: those that are corrupt are left out where there is a column for them, and so is the last one
        where it may be cut off in the middle of a value."""
        if self._corrupt is not None:
            return lambda _row: "skip"
        if not self._csv.newlines_in_values or not is_text(block):
            return None
        return lambda row: "skip" if block.rstrip().endswith(row.text.encode().rstrip()) else "error"

    def _has_row(self, block: bytes) -> bool:
        """True if the first block of a file holds a whole row behind the header."""
        if not self._csv.newlines_in_values:
            lines = (line for line in block.splitlines() if line)
            return next(islice(lines, int(self._csv.header), None), None) is not None
        read = pacsv.ReadOptions(
            use_threads=False, block_size=2 * len(block) + 1, autogenerate_column_names=not self._csv.header
        )
        try:
            plain = self._csv.plain(with_line_end(block))
            return (
                pacsv.read_csv(pa.BufferReader(plain), read, self._csv.parse_options(self._skipping(plain))).num_rows
                > 0
            )
        except (pa.ArrowException, UnicodeDecodeError):  # it may be cut off
            return False

    @staticmethod
    def _same_names(names: list[str] | None, these: list[str], label: str, first: str) -> list[str]:
        check_once(these, lambda twice: f"{label} has two columns '{twice}'.", "Give schema= and header=False.")
        if names is not None and names != these:
            raise UsageError(
                f"The files do not have one schema: {label} has the columns {first_of(these)}; {first} has "
                f"{first_of(names)}: {difference(these, names)}.",
                hint="Read them as two sources and join them with union_by_name()"
                + (
                    "."
                    if sorted(names) == sorted(these)
                    else "; with allow_missing_columns=True, what one lacks is null."
                ),
            )
        return these

    # --- splits ---

    def list_splits(self, data_volume: int) -> list[Split]:
        self._compare_headers()
        return self._list_pieces(data_volume, self._compression, whole=self._csv.newlines_in_values)

    def _read_part(self, piece: Piece, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        ctx.place = self._where(piece)
        batches = self._read_stream(piece) if self._csv.newlines_in_values else self._read_blocks(piece)
        for batch in batches:
            yield from self._finish(batch, piece.values)

    def _wire(self) -> tuple[list[str], dict[str, pa.DataType]]:
        """The columns to parse (at least one: rows must be counted), and as what Arrow parses each column."""
        if self._corrupt is not None:
            wanted = self._file_schema.names[:-1]
        else:
            wanted = self._columns_to_read() or [self._own.names[0]]
        types = {field.name: wire_type(field.type, self._csv) for field in self._own}
        return wanted, types

    def _read_blocks(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        wanted, types = self._wire()
        convert = self._csv.convert_options(types, wanted)
        first, lines_before = -1, 0
        header = self._csv.header and piece.start == 0
        plain = codec_of(piece.path, self._compression) is None
        for at, given in self._open_blocks(piece, self._compression):
            if plain and at == 0:
                refuse_foreign(self._prefix + piece.path, given, self.kind)
            offset, block = at, self._decoded(piece, given)
            first = at if first < 0 else first
            if header:
                skipped = self._check_header(block, piece)
                header = skipped == 0 and not block.strip()
                lines_before += count_lines(block[:skipped])
                offset, block = offset + skipped, block[skipped:]
            if not block.strip(b"\r\n"):
                lines_before += count_lines(block)
                continue
            if self._corrupt is not None:
                yield rows_of_lines(block, partial(self._blaming, wanted, convert), self._file_schema)
                continue
            try:
                batch = self._parsed(block, wanted, convert)
            except (pa.ArrowException, UnicodeDecodeError) as error:
                lines_before += self._lines_in_front(piece, first) if piece.start else 0
                raise self._bad_block(piece, block, lines_before, offset, error) from None
            if self._quote_spans_lines(block, batch.num_rows):
                raise self._line_end_in_value(piece, offset, block)
            lines_before += count_lines(block)
            if batch.num_rows:
                yield batch

    def _parsed(
        self, block: bytes, wanted: list[str], convert: Any, skip: Callable[[Any], str] | None = None
    ) -> pa.RecordBatch:
        # Without a line end a missing value behind one in quotes would be an empty text.
        data = with_line_end(block)
        read = pacsv.ReadOptions(
            use_threads=False, column_names=self._own.names, block_size=min(len(data) + 1, _MOST_BLOCK)
        )
        table = pacsv.read_csv(pa.BufferReader(data), read, self._csv.parse_options(skip), convert)
        return self._converted(table, wanted)

    def _blaming(self, wanted: list[str], convert: Any, block: bytes) -> pa.RecordBatch:
        """The rows of the block. Raises RefusedError, with the rows that Arrow names."""
        numbers: list[int] = []
        if not is_text(block) and not any(_holds_bytes(field.type) for field in self._own):
            lines = enumerate(filter(None, block.splitlines()))
            raise RefusedError([n for n, line in lines if not is_text(line)], all=True)

        def skip(row: Any) -> str:
            numbers.append(row.number - 1)
            return "skip"

        # A value that holds a line end makes one row of several lines, and the rows behind have other numbers.
        sure = not self._has_special(block)
        try:
            batch = self._parsed(block, wanted, convert, skip)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            if numbers:
                raise RefusedError(numbers, all=True, sure=sure) from None
            suspects = self._suspects(block) if count_lines(block) > 1 else []
            if suspects:
                raise RefusedError(suspects, all=True, sure=False) from None
            row = _ROW.search(str(error))
            raise RefusedError([] if row is None else [int(row[1]) - 1], sure=sure) from None
        if self._quote_spans_lines(block, batch.num_rows + len(numbers)):
            raise RefusedError(self._left_open(block), all=True, sure=False)
        if numbers:
            raise RefusedError(numbers, all=True, sure=sure)
        return batch

    def _left_open(self, block: bytes) -> list[int]:
        """Lines in which quotes may be left open, or that an escape may join with the next."""
        quote, escape = ((char or "\0").encode() for char in (self._csv.quote, self._csv.escape))
        lines = enumerate(filter(None, block.splitlines()))
        return [n for n, line in lines if line.count(quote) % 2 or line.endswith(escape)]

    def _suspects(self, block: bytes) -> list[int]:
        """Rows with a value that a cast does not make its column's type; Arrow's CSV may take some of them, or refuse others."""
        try:
            table = self._strings(block)
        except (pa.ArrowException, UnicodeDecodeError):
            return []
        rows: set[int] = set()
        formats = bool(self._csv.date_formats or self._csv.timestamp_formats)
        for field in self._own:
            if not (pa.types.is_string(field.type) or (formats and pa.types.is_temporal(field.type))):
                texts = pc.utf8_trim(table.column(field.name).combine_chunks(), " \t")
                rows.update(refused_values(texts, partial(convert, data_type=field.type)))
        return sorted(rows)

    def _decoded(self, piece: Piece, block: bytes) -> bytes:
        try:
            return self._csv.plain(block)
        except UnicodeDecodeError as error:
            raise FiresteelError(
                f"{self._prefix + piece.path} is not {self._csv.encoding}: {first_line(error)}.",
                hint=_HINT_ENCODING,
            ) from None

    def _quote_spans_lines(self, block: bytes, rows: int) -> bool:
        """True if a value in quotes, or by an escape, holds a line end. Arrow takes it, but where a file is cut there it would be two."""
        if not self._has_special(block):
            return False
        ended = block.endswith((b"\n", b"\r"))
        if rows != count_lines(block) + (not ended) and rows < sum(1 for line in block.splitlines() if line):
            return True
        line = block.rstrip(b"\r\n")
        line = line[max(line.rfind(b"\n"), line.rfind(b"\r")) + 1 :]
        if not self._has_special(line):
            return False
        try:  # left open, the quotes would swallow what comes after them
            return self._strings(line + b"\n" + line).num_rows != 2
        except pa.ArrowException:
            return True

    def _has_special(self, data: bytes) -> bool:
        return any(char is not None and char.encode() in data for char in (self._csv.quote, self._csv.escape))

    def _line_end_in_value(self, piece: Piece, offset: int, block: bytes) -> FiresteelError:
        return FiresteelError(
            f"{self._prefix + piece.path}, bytes {offset}-{offset + len(block)}: a value in quotes holds a line end.",
            hint="Read it with newlines_in_values=True; or, if these are no quotes, with quote=None or another quote=.",
        )

    def _read_stream(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The whole file, with values that hold line ends.

        Arrow needs a block that holds the longest row: where one is longer it begins anew with larger blocks, and what was
        given already is left out.
        """
        given, size = 0, _READ_BLOCK
        while True:
            rows = 0
            try:
                for batch in self._stream_batches(piece, size):
                    rows += batch.num_rows
                    if rows > given:
                        yield batch.slice(max(0, batch.num_rows - (rows - given)))
                        given = rows
                return
            except pa.ArrowInvalid as error:
                too_long = _EMPTY in str(error) or "straddl" in str(error)
                is_plain = codec_of(piece.path, self._compression) is None
                if not too_long or size == _MOST_BLOCK or (is_plain and size >= piece.size):
                    if _EMPTY in str(error):
                        return
                    raise self._bad_row(self._prefix + piece.path, error, f"after row {rows}") from None
                size = min(8 * size, _MOST_BLOCK)

    def _stream_batches(self, piece: Piece, block_size: int) -> Iterator[pa.RecordBatch]:
        """Raises ArrowInvalid for what cannot be parsed."""
        wanted, types = self._wire()
        label = self._prefix + piece.path
        codec = codec_of(piece.path, self._compression)
        names = [] if self._csv.header else self._own.names
        read = pacsv.ReadOptions(
            use_threads=False, column_names=names, block_size=block_size, encoding=self._csv.encoding
        )
        convert = self._csv.convert_options(types, None)
        try:
            with self._opened(piece) as raw, plain_stream(raw, codec) as stream:
                if codec is None:
                    refuse_foreign(label, raw.read(16), self.kind)
                    raw.seek(0)
                reader = pacsv.open_csv(stream, read, self._csv.parse_options(), convert)
                self._check_names(reader.schema.names, label)
                for batch in reader:
                    if batch.num_rows:
                        yield self._converted(pa.Table.from_batches([batch]), wanted)
        except pa.ArrowInvalid:
            raise
        except UnicodeDecodeError:
            raise self._header_not_text(label) from None
        except (OSError, pa.ArrowException) as error:
            raise damaged(label, codec, error) from error

    def _check_header(self, block: bytes, piece: Piece) -> int:
        """Bytes of the header, which must name the schema's columns. 0 where the block holds none."""
        begin, end = header_line(block)
        try:
            names = self._header_names(block[begin:end])
        except UnicodeDecodeError:
            raise self._header_not_text(self._prefix + piece.path) from None
        if names is not None:
            self._check_names(names, self._prefix + piece.path)
        return end

    def _header_names(self, line: bytes) -> list[str] | None:
        """None: there are none, or they cannot be parsed. Raises UnicodeDecodeError."""
        line = line.removeprefix(BOM)
        read = pacsv.ReadOptions(use_threads=False, block_size=max(len(line) + 1, 1 << 16))
        try:
            return list(pacsv.read_csv(pa.BufferReader(line), read, self._csv.parse_options()).column_names)
        except pa.ArrowException:
            return None

    def _header_not_text(self, label: str) -> UsageError:
        return UsageError(
            f"{label} has a header with bytes that are not {self._csv.encoding.upper()}.", hint=_HINT_ENCODING
        )

    def _check_names(self, names: Sequence[str], label: str) -> None:
        if list(names) != self._own.names:
            message, hint = self._of_other_names(names, label)
            raise FiresteelError(message, hint=hint)

    def _of_other_names(self, names: Sequence[str], label: str, like: str = "") -> tuple[str, str]:
        """The problem and the hint. ``like``: a file that has the schema's columns, if one is known."""
        own = self._own.names
        return (
            f"{label} has the columns {first_of(names)} in its header, not {first_of(own)}"
            f"{like and f' as {like} has'}: {difference(names, own)}.",
            "Read it as a source of its own and join the two with union_by_name(), give a schema that names its columns, "
            "or, if it has no header, say header=False.",
        )

    # --- headers, before the job starts ---

    def _compare_headers(self) -> None:
        """Raises UsageError for a file whose header does not name the schema's columns in their order.

        Of many files, _COMPARED are looked at, spread evenly; a task tells of the others when it reads them. So it does of
        a file that cannot be read, and of a header that ends behind the first part of its file or cannot be parsed.
        """
        if not self._csv.header or self._found is None:
            return
        files = [number for number in self._kept if self._found.files[number].size]
        step = max(1, -(-len(files) // _COMPARED))
        headers = for_each_file(self._found, files[::step], self._read_header)
        own = self._own.names
        other = next((number for number, names in headers.items() if names is not None and names != own), None)
        if other is None:
            return
        alike = next((number for number, names in headers.items() if names == own), None)
        label = self._found.label
        like = "" if alike is None else label(self._found.files[alike].path)
        message, hint = self._of_other_names(headers[other] or [], label(self._found.files[other].path), like)
        raise UsageError(message, hint=hint)

    def _read_header(self, found: InputFiles, file: InputFile) -> list[str] | None:
        """The names in a file's first line, if it is read easily; see ``_compare_headers``. Raises UsageError for a file that is no text."""
        codec = codec_of(file.path, self._compression)
        try:
            with found.filesystem.open_input_file(file.path) as raw, plain_stream(raw, codec) as stream:
                if codec is None:
                    refuse_foreign(found.label(file.path), raw.read(16), self.kind)
                    raw.seek(0)
                head = b""
                while len(head) < _LONGEST_HEADER:
                    part = stream.read(max(_HEADER_BLOCK, len(head)))
                    head = (head + part).removeprefix(BOM)
                    begin, end = header_line(head)
                    if not part or begin < end < len(head):
                        line = self._csv.plain(head[begin:end])
                        goes_on = self._csv.newlines_in_values and self._left_open(line)
                        return None if goes_on else self._header_names(line)
        except (OSError, pa.ArrowException, UnicodeDecodeError):
            pass
        return None

    def _converted(self, table: pa.Table, wanted: list[str]) -> pa.RecordBatch:
        """From what Arrow parsed to the columns' own types."""
        columns = [convert(table.column(name), self._own.field(name).type) for name in wanted]
        schema = pa.schema([self._own.field(name) for name in wanted])
        combined = pa.Table.from_arrays(columns, schema=schema).combine_chunks().to_batches()
        return fit(combined[0] if combined else pa.RecordBatch.from_pylist([], schema), schema)

    # --- what went wrong ---

    def _bad_block(self, piece: Piece, block: bytes, lines: int, offset: int, error: Exception) -> FiresteelError:
        """Names the line. ``lines``: how many lines of the file are before the block, which begins at ``offset``."""
        label = self._prefix + piece.path
        row, cell = self._find_row(block, error)
        if row is None:
            return self._bad_row(label, error, f"bytes {offset}-{offset + len(block)}", cell)
        begin = _row_offset(block, row)
        return self._bad_row(label, error, f"line {lines + count_lines(block[:begin]) + 1}", cell)

    def _find_row(self, block: bytes, error: Exception) -> tuple[int | None, tuple[str, str] | None]:
        """The row's number in the block, from 0, and the (column, value) that does not fit."""
        text = str(error)
        row, column, value = _ROW.search(text), _COLUMN.search(text), _VALUE.search(text)
        number = int(row[1]) - 1 if row is not None else None
        name = None
        if column is not None:
            wanted, _ = self._wire()
            name = self._name_of(int(column[1]), wanted)
        if number is None or name is None:
            found = self._unconverted(block)
            if found is not None:
                return found
        if name is None:
            return number, None
        return number, (name, value[1] if value is not None else self._cell(block, number, name))

    def _name_of(self, index: int, wanted: list[str]) -> str:
        """Arrow numbers columns as they lie in the file."""
        return self._own.names[index] if index < len(self._own.names) else wanted[-1]

    def _strings(self, block: bytes) -> pa.Table:
        types = dict.fromkeys(self._own.names, pa.string())
        read = pacsv.ReadOptions(use_threads=False, column_names=self._own.names, block_size=len(block) + 1)
        return pacsv.read_csv(
            pa.BufferReader(block), read, self._csv.parse_options(), self._csv.convert_options(types, None)
        )

    def _cell(self, block: bytes, row: int | None, name: str) -> str:
        try:
            return str(self._strings(block).column(name)[row or 0].as_py())
        except (pa.ArrowException, IndexError):
            return "?"

    def _unconverted(self, block: bytes) -> tuple[int, tuple[str, str]] | None:
        """For columns that are converted after parsing: the first value that cannot be."""
        try:
            table = self._strings(block)
        except pa.ArrowException:
            return None
        for field in self._own:
            if wire_type(field.type, self._csv) == field.type:
                continue
            column = table.column(field.name).combine_chunks()
            for row in range(len(column)):
                try:
                    convert(column.slice(row, 1), field.type)
                except pa.ArrowException:
                    return row, (field.name, str(column[row].as_py()))
        return None

    def _bad_row(self, label: str, error: Exception, where: str, cell: tuple[str, str] | None = None) -> FiresteelError:
        if "UTF8" in str(error):
            which = f"column '{cell[0]}'" if cell is not None else "a value"
            return FiresteelError(
                f"{label}, {where}: {which} has bytes that are not UTF-8.",
                hint=_HINT_ENCODING,
            )
        if cell is not None:
            name, value = cell
            data_type = self._own.field(name).type
            shown = value if len(value) <= 80 else value[:80] + "..."
            return FiresteelError(
                f"{label}, {where}: column '{name}' is {data_type}, and {shown!r} does not fit.",
                hint=f"Give its type, schema='{name} string, ...' (with all columns){self._or_null(value, data_type)}.",
            )
        text = re.sub(r"^CSV parse error: (Row #\d+: )?", "", first_line(error))
        return FiresteelError(f"{label}, {where}: {text}.", hint=_HINT_ROWS)

    def _or_null(self, value: str, data_type: pa.DataType) -> str:
        """More for a hint, where the value may be what somebody wrote for null: a short word, or 0000-00-00 for a date."""
        digits = {char for char in value if char.isdigit()}
        no_day = pa.types.is_temporal(data_type) and digits in ({"0"}, {"9"})
        if len(value) > _LONGEST_NULL or (digits and not no_day):
            return ""
        return f", or name what stands for null, null_values={[*self._csv.null_values, value]!r}"


_HINT_ENCODING = "Say which encoding the file has, encoding='latin-1' for example, or convert it."
_HINT_ROWS = (
    "Check sep=, quote= and escape=; where values hold line ends, read with newlines_in_values=True. If the file is "
    "damaged, write it again or leave it out. To go on, corrupt_column='_corrupt_record' keeps such lines in a column of its own."
)


def _row_offset(block: bytes, row: int) -> int:
    """Returns the position at which the row begins; empty lines are not rows."""
    at, seen = 0, 0
    for line in block.splitlines(keepends=True):
        if line.strip(b"\r\n"):
            if seen == row:
                return at
            seen += 1
        at += len(line)
    return at


def _holds_bytes(data_type: pa.DataType) -> bool:
    types = pa.types
    return types.is_binary(data_type) or types.is_large_binary(data_type) or types.is_fixed_size_binary(data_type)


def _check_type(field: pa.Field, name: str) -> None:
    data_type, types = field.type, pa.types
    if types.is_nested(data_type) or types.is_interval(data_type):
        raise UsageError(
            f"{name}: column '{field.name}' of type {data_type} cannot be read from CSV.",
            hint="Read it as a string, or read JSON or Parquet.",
        )


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
