"""JSON lines: an object a line, cut at line ends by bytes, parsed by Arrow a block at a time.

What Arrow's parser does not take (maps, dates inside of structs, "NaN", a number where a string is wanted), and what is
wrong, a slower parser reads, which also knows the line and the value that does not fit.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from firesteel.connectors.base import Split
from firesteel.connectors.files.compression import (
    codec_of,
    codec_option,
    damaged,
    plain_stream,
    refuse_foreign,
    refuse_other_codecs,
)
from firesteel.connectors.files.paths import PathLike
from firesteel.connectors.files.reading.lines import (
    RefusedError,
    count_lines,
    is_text,
    rows_of_lines,
    with_corrupt_column,
    without_corrupt_column,
)
from firesteel.connectors.files.reading.source import FileSource, Piece, first_blocks
from firesteel.connectors.files.shaping import plain_schema, retyped
from firesteel.connectors.files.writing.part_files import PartWriter
from firesteel.connectors.files.writing.sinks import FileSink
from firesteel.connectors.formats.csv_format import convert
from firesteel.connectors.formats.json_values import (
    BadValueError,
    infer_types,
    is_sound,
    merge_json_types,
    parse_lines,
    parse_objects,
    refused_lines,
    settle_json_type,
)
from firesteel.connectors.formats.text import LinesPart
from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import check_once
from firesteel.task.program import TaskContext

_MANY_LINES = 2048
_DEEP, _DEEPEST_TYPE = 500, 64
_NULL_LINE = re.compile(rb"(?:^|[\r\n])[ \t]*null")
_SEVERAL = re.compile(rb"\}[ \t]*\{")


class JsonSource(FileSource):
    """Rows of files with a JSON object a line.

    ``schema``: names and types of the columns; None: inferred from the first MiB of the first files (see ``inference``;
    strings stay strings, as in Spark). Fields that are not in a given schema are left out; a value in one that is not in
    an inferred schema is an error where all columns are read. Those that a line does not have are null. With
    ``newlines_in_values`` an object may be spread over several lines, or the file be one array of objects; every file is one
    split then and is held in memory whole. ``compression``, ``partitions`` and ``corrupt_column`` as in
    :class:`~firesteel.connectors.formats.csv_files.CsvSource`.

    Raises UsageError for missing paths, empty globs, and files that cannot be read or have nothing to infer from.
    """

    kind = "read_json"

    def __init__(
        self,
        paths: PathLike | Iterable[PathLike],
        *,
        schema: pa.Schema | None = None,
        newlines_in_values: bool = False,
        compression: str | None = None,
        filesystem: Any = None,
        partitions: bool | pa.Schema = True,
        corrupt_column: str | None = None,
    ) -> None:
        self._whole = newlines_in_values
        self._corrupt = corrupt_column
        self._compression = codec_option(compression, "read_json", infer=True)
        found, _ = self._find(paths, filesystem, partitions, schema)
        refuse_other_codecs(found, self._compression, "read_json")
        if schema is not None:
            names = self._partition_names()
            own = plain_schema(pa.schema([field for field in schema if field.name not in names]))
            own = without_corrupt_column(own, corrupt_column, self.name)
        else:
            try:
                own = self._inferred()
            except RecursionError:
                raise _too_deep(self.name) from None
        self._known = frozenset(own.names) if schema is None else None
        """The fields that may have values, where the schema was inferred."""
        for field in own:
            _check_type(field.type, field.name, self.name)
        taken = self._partition_names()
        self._have(with_corrupt_column(own, corrupt_column, self.name, partitions=taken, whole=self._whole))

    def _inferred(self) -> pa.Schema:
        fields: dict[str, pa.DataType] = {}
        for label, block in first_blocks(self, self._compression, self._has_row):
            try:
                found = self._sampled(block)
            except BadValueError as error:
                where = f"object {error.line + 1}" if self._whole else f"line {error.line + 1}"
                raise UsageError(f"{label}, {where}: {error.text}.", hint=error.hint) from None
            for name, data_type in found.items():
                kind = settle_json_type(data_type)
                fields[name] = merge_json_types(fields[name], kind) if name in fields else kind
        if not fields:
            raise UsageError(
                f"{self.name}: the files have no fields to infer columns from.",
                hint='Give schema=, for example "word string, n bigint".',
            )
        return pa.schema([(name, retyped(kind, _no_null)) for name, kind in fields.items()])

    def _has_row(self, block: bytes) -> bool:
        """True if the block holds a whole object."""
        try:
            return not self._whole or any(True for _ in parse_objects(block, prefix=True))
        except BadValueError:  # it may be cut off
            return False

    def _sampled(self, given: bytes) -> dict[str, pa.DataType]:
        block = given if self._corrupt is None else b"".join(filter(is_sound, given.splitlines(keepends=True)))
        if not self._whole and not _has_null_lines(block) and not _is_deep(block):
            read = pajson.ReadOptions(use_threads=False, block_size=len(block) + 1)
            try:
                return {field.name: field.type for field in pajson.read_json(pa.BufferReader(block), read).schema}
            except (pa.ArrowException, UnicodeDecodeError):  # values of several types in one field, or no JSON
                pass
        return infer_types(block, spread=self._whole)

    # --- splits ---

    def list_splits(self, data_volume: int) -> list[Split]:
        return self._list_pieces(data_volume, self._compression, whole=self._whole)

    def _read_part(self, piece: Piece, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        ctx.place = self._where(piece)
        if self._corrupt is not None:
            for batch in self._read_lines(piece):
                yield from self._finish(batch, piece.values)
            return
        names = self._columns_to_read() or [self._file_schema.names[0]]
        schema = pa.schema([self._file_schema.field(name) for name in names])
        # Where only some columns are wanted, nobody misses the others, and Arrow need not parse them to know them.
        known = self._known if len(names) == len(self._file_schema) else None
        read = self._read_whole if self._whole else self._read_blocks
        batches = read(piece, schema, known)
        for batch in batches:
            yield from self._finish(batch, piece.values)

    def _read_blocks(self, piece: Piece, schema: pa.Schema, known: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
        wire = wire_schema(schema)
        first, lines = -1, 0
        for offset, block in self._open_blocks(piece, self._compression):
            first = offset if first < 0 else first
            self._check_utf8(piece, offset, block)
            batch = None if wire is None else _fast(block, schema, wire, known)
            if batch is None:
                try:
                    batch = parse_lines(block, schema, known=known)
                except BadValueError as error:
                    lines += self._lines_in_front(piece, first) if piece.start else 0
                    raise self._bad(piece, f"line {lines + error.line + 1}", error) from None
            lines += count_lines(block)
            if batch.num_rows:
                yield batch

    def _read_lines(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """With the column of corrupt lines."""
        schema = self._file_schema.remove(len(self._file_schema) - 1)
        wire = wire_schema(schema)

        def parse(block: bytes) -> pa.RecordBatch:
            batch = _fast(block, schema, wire, self._known) if wire is not None and is_text(block) else None
            if batch is not None:
                return batch
            lines = [line for line in block.splitlines() if line.strip()]
            if wire is not None and len(lines) > _MANY_LINES:
                raise RefusedError  # most of its parts Arrow will take
            refused = refused_lines(lines, schema, self._known)
            if refused:
                raise RefusedError(refused, all=True)
            try:
                return parse_lines(block, schema, known=self._known)
            except BadValueError as error:
                raise RefusedError([error.line], sure=False) from None

        for _, block in self._open_blocks(piece, self._compression):
            batch = rows_of_lines(block, parse, self._file_schema, blank=None)
            if batch.num_rows:
                yield batch

    def _read_whole(self, piece: Piece, schema: pa.Schema, known: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
        label = self._prefix + piece.path
        codec = codec_of(piece.path, self._compression)
        try:
            with self._opened(piece) as raw, plain_stream(raw, codec) as stream:
                data = stream.read()
        except (OSError, pa.ArrowException) as error:
            raise damaged(label, codec, error) from error
        self._check_utf8(piece, 0, data)
        try:
            batch = parse_lines(data, schema, spread=True, known=known)
        except BadValueError as error:
            raise self._bad(piece, f"object {error.line + 1}", error) from None
        if batch.num_rows:
            yield batch

    def _check_utf8(self, piece: Piece, offset: int, data: bytes) -> None:
        """Arrow's parser takes any bytes for text."""
        if data.isascii():
            return
        try:
            data.decode()
        except UnicodeDecodeError as error:
            if offset == 0 and codec_of(piece.path, self._compression) is None:
                refuse_foreign(self._prefix + piece.path, data, self.kind)
            raise FiresteelError(
                f"{self._prefix + piece.path}, byte {offset + error.start}: this is not UTF-8, which JSON must be.",
                hint="Convert the file, or write it again.",
            ) from None

    def _bad(self, piece: Piece, where: str, error: BadValueError) -> FiresteelError:
        return FiresteelError(f"{self._prefix + piece.path}, {where}: {error.text}.", hint=error.hint)


def _fast(
    block: bytes, schema: pa.Schema, wire: pa.Schema, known: frozenset[str] | None = None
) -> pa.RecordBatch | None:
    """The block's rows, or None where Arrow does not take them. ``known``: as for :func:`parse_lines`."""
    if not block.strip():
        return pa.RecordBatch.from_pylist([], schema)
    if _has_null_lines(block) or _is_deep(block):
        return None
    try:
        table = pajson.read_json(
            pa.BufferReader(block),
            pajson.ReadOptions(use_threads=False, block_size=len(block) + 1),
            pajson.ParseOptions(explicit_schema=wire, unexpected_field_behavior="ignore" if known is None else "infer"),
        )
        if known is not None and not _all_known(table.schema, wire, known):
            return None
        columns = [convert(table.column(field.name), field.type) for field in schema]
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if not _has_lines(
        block, table.num_rows
    ):  # several objects on a line, or one on several: cut there, they are others
        return None
    batches = pa.Table.from_arrays(columns, schema=schema).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema)


def _all_known(found: pa.Schema, wire: pa.Schema, known: frozenset[str]) -> bool:
    """True if Arrow, which adds the fields it did not expect, found none with values."""
    for field in found:
        at = wire.get_field_index(field.name)
        if at >= 0 and field.type != wire.field(at).type:  # a struct in it has a field more
            return False
        if at < 0 and field.name not in known and not pa.types.is_null(field.type):
            return False
    return True


def _has_null_lines(block: bytes) -> bool:
    """Arrow's parser (seen in 26) takes the process down with it when the first value is null, and others for rows of nulls."""
    if b"null" not in block:
        return False
    if block.lstrip().startswith(b"null") or b"\nnull" in block or b"\rnull" in block:
        return True
    indented = any(
        begin in block for begin in (b"\n ", b"\n\t", b"\r ", b"\r\t")
    )  # the search takes longer than parsing
    return indented and _NULL_LINE.search(block) is not None


def _is_deep(block: bytes) -> bool:
    """True if a line may be nested so deeply that Arrow's parser, which calls itself, takes the process down with it."""
    opened = block.count(b"[") + block.count(b"{")
    return opened - count_lines(block) > _DEEP and any(
        len(line) > 2 * _DEEP and line.count(b"[") + line.count(b"{") > _DEEP for line in block.splitlines()
    )


def _has_lines(block: bytes, count: int) -> bool:
    """True if so many lines are not blank, and none holds several objects, which would make up for one on several lines."""
    if _SEVERAL.search(block) is not None:
        return False
    lines = count_lines(block) + (not block.endswith((b"\n", b"\r")))
    return count == lines or count == sum(1 for line in block.splitlines() if line.strip())


def wire_schema(schema: pa.Schema) -> pa.Schema | None:
    """As what Arrow parses the columns; None where it cannot."""
    fields: list[pa.Field] = []
    for field in schema:
        types = pa.types
        data_type = field.type
        if (
            types.is_date(data_type) or types.is_time(data_type) or types.is_timestamp(data_type)
        ):  # of a text with a zone Arrow's parser would make a timestamp without one
            data_type = pa.string()
        elif not _arrow_parses(data_type):
            return None
        fields.append(field.with_type(data_type))
    return pa.schema(fields)


def _arrow_parses(data_type: pa.DataType) -> bool:
    types = pa.types
    if types.is_struct(data_type):
        return all(_arrow_parses(data_type.field(i).type) for i in range(data_type.num_fields))
    if types.is_list(data_type):
        return _arrow_parses(data_type.value_type)
    plain = types.is_integer(data_type) or types.is_boolean(data_type) or types.is_string(data_type)
    real = types.is_float32(data_type) or types.is_float64(data_type) or types.is_decimal128(data_type)
    return plain or real


def _no_null(data_type: pa.DataType) -> pa.DataType:
    """String for a field that never had a value."""
    return pa.string() if pa.types.is_null(data_type) else data_type


def _too_deep(name: str) -> UsageError:
    return UsageError(
        f"{name}: a value is nested too deeply for a column.", hint="Give schema=, with string for that column."
    )


def _check_type(data_type: pa.DataType, column: str, name: str, depth: int = 0) -> None:
    types = pa.types
    if depth > _DEEPEST_TYPE:
        raise _too_deep(name)
    if types.is_dictionary(data_type) or types.is_interval(data_type) or types.is_union(data_type):
        raise UsageError(
            f"{name}: column '{column}' of type {data_type} cannot be read from JSON.", hint="Read it as a string."
        )
    children = [data_type.field(i).type for i in range(data_type.num_fields)] if types.is_nested(data_type) else []
    for child in children:
        _check_type(child, column, name, depth + 1)


# --- sink ----------------------------------------------------------------------------------------------------


class JsonSink(FileSink):
    """Writes a directory of files with a JSON object a line (see ``json_text``).

    ``ignore_null_fields``: leave out fields that are null, as Spark does; False: write them as ``null``. ``compression``: of
    the files, gzip, bz2, zstd or lz4. ``options``: those of :class:`~firesteel.connectors.files.writing.sinks.FileSink`.
    """

    kind = "write_json"
    extension = "json"

    def __init__(
        self, path: PathLike, *, ignore_null_fields: bool = True, compression: str | None = None, **options: Any
    ) -> None:
        super().__init__(path, **options)
        self._compress(codec_option(compression, "write_json", infer=False))
        self._nulls = not ignore_null_fields

    def _check_schema(self, schema: pa.Schema) -> None:
        where = f"write_json to {self.target.label}"
        check_once(schema.names, lambda twice: f"{where}: there are two columns '{twice}'.", "Rename one with select.")
        for field in schema:
            check_json_type(field.type, f"{where}: column '{field.name}'")

    def _new_writer(self, stream: Any, schema: pa.Schema) -> PartWriter:
        return LinesPart(stream, partial(json_rows, nulls=self._nulls))


_TEXT = pa.large_string()
_SPECIAL = {"nan": '"NaN"', "inf": '"Infinity"', "-inf": '"-Infinity"'}


def json_rows(batch: pa.RecordBatch, *, nulls: bool = False) -> pa.Array:
    """An object per row. ``nulls``: write fields that are null as ``null``."""
    return _object(batch.schema.names, [_texts(column, nulls) for column in batch.columns], batch.num_rows, nulls)


def check_json_type(data_type: pa.DataType, what: str) -> None:
    """Raises UsageError for a type that JSON has no form for. ``what``: the column, in words."""
    types = pa.types
    if types.is_dictionary(data_type):
        check_json_type(data_type.value_type, what)
    elif types.is_nested(data_type) and not types.is_union(data_type):
        for i in range(data_type.num_fields):
            check_json_type(data_type.field(i).type, what)
    elif types.is_union(data_type) or types.is_interval(data_type) or types.is_duration(data_type):
        raise UsageError(f"{what} of type {data_type} cannot be written as JSON.", hint="Cast it to another type.")


def _texts(array: Any, nulls: bool) -> Any:
    """The JSON of each value; null where the value is."""
    types = pa.types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    elif types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    if types.is_null(array.type):
        return pa.nulls(len(array), _TEXT)
    if not types.is_nested(array.type):
        return _scalars(array)
    nested = _structs if types.is_struct(array.type) else _maps if types.is_map(array.type) else _lists
    texts = nested(array, nulls)
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, _TEXT)) if array.null_count else texts


def _structs(array: Any, nulls: bool) -> Any:
    names = [array.type.field(i).name for i in range(array.type.num_fields)]
    return _object(names, [_texts(child, nulls) for child in array.flatten()], len(array), nulls)


def _maps(array: Any, nulls: bool) -> Any:
    lengths, flat = _elements(array)
    keys = array.keys.take(flat).cast(_TEXT)
    items = _texts(array.items.take(flat), nulls).fill_null("null")
    return _wrapped("{", _joined(_concat(_quoted(keys), ":", items), lengths), "}")


def _lists(array: Any, nulls: bool) -> Any:
    lengths, flat = _elements(array)
    values = _texts(array.values.take(flat), nulls).fill_null("null")
    return _wrapped("[", _joined(values, lengths), "]")


def _scalars(array: Any) -> Any:
    data_type, types = array.type, pa.types
    if types.is_floating(data_type):
        return _floats(array)
    if types.is_integer(data_type) or types.is_boolean(data_type) or types.is_decimal(data_type):
        return array.cast(_TEXT)
    if types.is_binary(data_type) or types.is_large_binary(data_type) or types.is_fixed_size_binary(data_type):
        texts = [None if v is None else f'"{base64.b64encode(v).decode()}"' for v in array.to_pylist()]
        return pa.array(texts, _TEXT)
    if types.is_timestamp(data_type) and data_type.tz is not None:
        array = array.cast(pa.timestamp(data_type.unit, "UTC"))
    texts = array.cast(_TEXT)
    if types.is_timestamp(data_type):
        return _wrapped('"', pc.replace_substring(texts, " ", "T", max_replacements=1), '"')
    return _quoted(texts)


def _floats(array: Any) -> Any:
    array = array.cast(pa.float32()) if pa.types.is_float16(array.type) else array
    texts = array.cast(_TEXT)
    whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")  # else it would be read as a whole number again
    texts = pc.if_else(whole, _concat(texts, "", _constant(".0")), texts)
    if pc.all(pc.is_finite(array)).as_py() in (True, None):
        return texts
    for text, written in _SPECIAL.items():
        texts = pc.if_else(pc.equal(texts, _constant(text)), _constant(written), texts)
    return texts


def _quoted(texts: Any) -> Any:
    if pc.any(pc.match_substring_regex(texts, '["\\\\\\x00-\\x1f]')).as_py():
        for char, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")):
            texts = pc.replace_substring(texts, char, escaped)
        if pc.any(pc.match_substring_regex(texts, "[\\x00-\\x1f]")).as_py():
            plain = [None if t is None else _escape_control(t) for t in texts.to_pylist()]
            texts = pa.array(plain, _TEXT)
    return _wrapped('"', texts, '"')


def _escape_control(text: str) -> str:
    return "".join(char if char >= " " else f"\\u{ord(char):04x}" for char in text)


def _object(names: list[str], columns: list[Any], rows: int, nulls: bool) -> Any:
    if not names:
        return pa.array(["{}"] * rows, _TEXT)
    fields = [
        # a join that skips nulls loses rows where all are null (seen in Arrow 26), so every field brings its comma
        _concat(
            _constant(f",{json.dumps(name, ensure_ascii=False)}:"), "", values.fill_null("null") if nulls else values
        )
        for name, values in zip(names, columns, strict=True)
    ]
    inner = pc.binary_join_element_wise(
        _constant("{"), *(f.fill_null("") for f in fields), _constant("}"), _constant("")
    )
    return pc.replace_substring(inner, "{,", "{", max_replacements=1)


def _constant(text: str) -> Any:
    return pa.scalar(text, _TEXT)


def _concat(one: Any, separator: str, other: Any) -> Any:
    return pc.binary_join_element_wise(one, other, _constant(separator))


def _wrapped(before: str, texts: Any, after: str) -> Any:
    return pc.binary_join_element_wise(_constant(before), texts, _constant(after), _constant(""))


def _elements(array: Any) -> tuple[Any, Any]:
    """The length of each list (or map), and the child's values that are its elements."""
    offsets = np.asarray(array.offsets.to_numpy(zero_copy_only=False), np.int64)
    lengths = np.diff(offsets)
    if array.null_count:
        lengths = lengths * np.asarray(array.is_valid().to_numpy(zero_copy_only=False), np.int64)
    before = np.cumsum(lengths) - lengths
    return lengths, pa.array(np.repeat(offsets[:-1] - before, lengths) + np.arange(int(lengths.sum())))


def _joined(texts: Any, lengths: Any) -> Any:
    """The texts of each list with commas between."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), texts)
    return pc.binary_join(lists, _constant(","))
