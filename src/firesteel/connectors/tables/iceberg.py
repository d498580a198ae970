"""Iceberg tables, written and read. Their metadata are ``pyiceberg``'s business, on the driver."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any, ClassVar

import pyarrow as pa

from firesteel.connectors.files.paths import WRITTEN_ONCE, InputFile, InputFiles, Location, find_target
from firesteel.connectors.files.reading.source import Listed
from firesteel.connectors.files.shaping import plain_schema
from firesteel.connectors.files.writing.part_files import PartFile
from firesteel.connectors.formats.parquet import Footer, ParquetSource
from firesteel.connectors.tables.sink import AS, Conflict, NotKnown, TableSink, as_usage, words
from firesteel.errors import FiresteelError, UsageError
from firesteel.extras import load

Catalog = str | Mapping[str, str]
_JOB = "firesteel.job"
_FIELD_ID = b"PARQUET:field_id"


def opened(catalog: Catalog, step: str) -> Any:
    """The catalog of this name, or of these properties. Raises UsageError."""
    load("pyiceberg", "iceberg", step)
    from pyiceberg.catalog import load_catalog

    with as_usage(f"of the catalog {catalog if isinstance(catalog, str) else catalog.get('name', 'given')}"):
        if isinstance(catalog, str):
            return load_catalog(catalog)
        return load_catalog(**{"name": "default", **catalog})


class IcebergSink(TableSink):
    """Writes rows of an Iceberg table. ``table``: ``"namespace.name"``. ``catalog``: its name, or its properties."""

    kind = "write_iceberg"
    keeps_columns = True
    as_types: ClassVar = {**AS, pa.int8(): pa.int32(), pa.int16(): pa.int32()}
    """Iceberg has whole numbers of 32 and 64 bits."""

    def __init__(self, table: str, catalog: Catalog, **options: Any) -> None:
        """``options``: those of :class:`~firesteel.connectors.tables.sink.TableSink`."""
        super().__init__(table, **options)
        self._catalog = catalog if isinstance(catalog, str) else dict(catalog)
        self._location = ""
        opened(self._catalog, self.kind)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_catalog": ""}  # it may hold passwords, and only the driver asks it

    def check(self, schema: pa.Schema) -> None:
        super().check(schema)
        assert self._schema is not None
        floating = next(
            (name for name in self.partition_by if pa.types.is_floating(self._schema.field(name).type)), None
        )
        if floating is not None:
            raise UsageError(
                f"write_iceberg to {self.label}: the column '{floating}' is of floating-point numbers, by which partitions are not told apart.",
                hint="Partition by another column, or by its text.",
            )

    def _found(self, schema: pa.Schema) -> tuple[Location, Sequence[str] | None]:
        catalog = opened(self._catalog, self.kind)
        with as_usage(self.label):
            if not catalog.table_exists(self.label):
                made = catalog.create_table_transaction(self.label, schema)
                return self._placed(made.table_metadata.location), None
            table = catalog.load_table(self.label)
        columns = _identities(table)
        if self.mode in ("append", "overwrite", "overwrite_partitions"):
            self._check_table(table, schema)
        return self._placed(table.location()), columns

    def _placed(self, location: str) -> Location:
        self._location = location
        return place_of(f"{location}/data")

    def _check_table(self, table: Any, schema: pa.Schema) -> None:
        there = plain_schema(_without_large(table.schema().as_arrow()))
        self._check_columns(there, schema)

    def _log(self, files: Sequence[tuple[str, PartFile]]) -> None:
        assert self._schema is not None
        catalog = opened(self._catalog, self.kind)
        paths = [f"{self._location}/data/{path}" for path, _ in files]
        if not catalog.table_exists(self.label):
            transaction = catalog.create_table_transaction(self.label, self._schema, location=self._location)
            with transaction.update_spec() as spec:
                for column in self.partition_by:
                    spec.add_identity(column)
        else:
            table = catalog.load_table(self.label)
            if _has(table, self._job):
                return
            if self.mode in ("error", "ignore"):
                raise FiresteelError(
                    f"Nothing was published: the table {self.label} was made by another program while the job was running.",
                    hint="Write with mode='append' or mode='overwrite'.",
                )
            self._check_table(table, self._schema)
            if not paths and self.mode != "overwrite":
                return
            transaction = table.transaction()
        with self._told(catalog):
            told = {_JOB: self._job}
            if self.mode == "overwrite":
                _delete(transaction, None, told)
            elif self.mode == "overwrite_partitions" and files:
                _delete(transaction, self._partitions(transaction, paths), told)
            if paths:
                transaction.add_files(paths, snapshot_properties=told, check_duplicate_files=False)
            transaction.commit_transaction()

    def _is_logged(self) -> bool:
        catalog = opened(self._catalog, self.kind)
        with as_usage(self.label):
            return bool(catalog.table_exists(self.label)) and _has(catalog.load_table(self.label), self._job)

    def _partitions(self, transaction: Any, paths: list[str]) -> Any:
        """The condition of rows in the partitions that these files are of."""
        made: Any = load("pyiceberg.expressions", "iceberg", self.kind)
        values: dict[tuple[Any, ...], None] = {}
        for path in paths:
            place = place_of(path)
            with place.filesystem.open_input_file(place.path) as file:
                values[_first_row(file, self.partition_by)] = None
        each = [
            reduce(
                made.And,
                [
                    made.IsNull(name) if value is None else made.EqualTo(name, value)
                    for name, value in zip(self.partition_by, row, strict=True)
                ],
            )
            for row in values
        ]
        return reduce(made.Or, each)

    @contextmanager
    def _told(self, catalog: Any) -> Generator[None]:
        """Whatever the library raises, the table says what came of it."""
        from pyiceberg import exceptions

        try:
            yield
        except Exception as error:
            try:
                if catalog.table_exists(self.label) and _has(catalog.load_table(self.label), self._job):
                    return
            except Exception:
                raise NotKnown(words(error)) from error
            if isinstance(
                error,
                exceptions.CommitFailedException | exceptions.TableAlreadyExistsError | exceptions.ValidationException,
            ):
                raise Conflict(words(error)) from error
            raise FiresteelError(f"The table {self.label} could not be changed: {words(error)}.") from error


def _delete(transaction: Any, condition: Any, told: dict[str, str]) -> None:
    """``told``: properties of the snapshot."""
    from pyiceberg.expressions import AlwaysTrue

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that nothing was there to be deleted
        transaction.delete(AlwaysTrue() if condition is None else condition, told)


def _has(table: Any, job: str) -> bool:
    return any(
        one.summary is not None and one.summary.additional_properties.get(_JOB) == job for one in table.snapshots()
    )


def _first_row(file: Any, names: Sequence[str]) -> tuple[Any, ...]:
    import pyarrow.parquet as pq

    row = next(pq.ParquetFile(file).iter_batches(batch_size=1, columns=list(names))).to_pylist()[0]
    return tuple(row[name] for name in names)


def _identities(table: Any) -> list[str]:
    """The columns that the table is partitioned by. Raises UsageError where it is by something else than values."""
    from pyiceberg.transforms import IdentityTransform

    schema = table.schema()
    for field in table.spec().fields:
        if not isinstance(field.transform, IdentityTransform):
            raise UsageError(
                f"The table {'.'.join(table.name())} is partitioned by {field.transform} of '{schema.find_column_name(field.source_id)}', for "
                "which Firesteel does not write files.",
                hint="Write it with Spark: stream.write_with_spark('iceberg', ...).",
            )
    return [schema.find_column_name(field.source_id) for field in table.spec().fields]


def place_of(location: str) -> Location:
    """Of a file or directory as the table's metadata name it, where nothing is escaped."""
    return find_target(location.removeprefix("file://"))


# --- source --------------------------------------------------------------------------------------------------


def iceberg_source(table: str, catalog: Catalog, snapshot: int | None = None) -> ParquetSource:
    """The rows of the table as it is now, or was at ``snapshot``. Raises UsageError."""
    loaded = opened(catalog, "read_iceberg")
    with as_usage(table):
        found = loaded.load_table(table)
        if snapshot is not None and found.snapshot_by_id(snapshot) is None:
            raise UsageError(
                f"The table {table} has no snapshot {snapshot}.", hint="table.history() of pyiceberg lists them."
            )
        scan = found.scan(snapshot_id=snapshot)
        tasks = list(scan.plan_files())
        wanted = scan.projection()
    if any(task.delete_files for task in tasks):
        raise UsageError(
            f"The table {table} has delete files: rows that are deleted are still in its data files.",
            hint="Have them rewritten (in Spark: CALL ...rewrite_data_files), or read the table with Spark.",
        )
    other = next(
        (task.file.file_format for task in tasks if str(task.file.file_format.value).upper() != "PARQUET"), None
    )
    if other is not None:
        raise UsageError(f"The table {table} has files of {other.value}.", hint="Read it with Spark.")
    root = place_of(found.location())
    places = [place_of(task.file.file_path) for task in tasks] or [root]
    files = tuple(
        InputFile(p.path, t.file.file_size_in_bytes, root.path, WRITTEN_ONCE)
        for p, t in zip(places, tasks, strict=False)
    )
    listing = InputFiles(places[0].filesystem, places[0].prefix, files)
    schema = plain_schema(_without_large(wanted.as_arrow()))
    names = _Names(table, found, wanted)

    def agreed(footers: list[Footer]) -> pa.Schema:
        for footer in footers:
            names.check(footer)
        return schema

    source = ParquetSource.of_listed(Listed(listing, None, [() for _ in files]), "", agreed, {})
    source.name = f"read_iceberg {table}"
    return source


class _Names:
    """The columns of a table by their ids, which tell a column that was renamed from one that is another."""

    def __init__(self, table: str, found: Any, wanted: Any) -> None:
        self._table = table
        self._ids: dict[int, str] = {field.field_id: field.name for field in wanted.fields}
        self._required = {
            field.name for field in wanted.fields if getattr(field, "initial_default", None) is not None
        } | {found.schema().find_column_name(one.source_id) for spec in found.specs().values() for one in spec.fields}
        mapping = found.metadata.name_mapping()
        self._mapped = {name: one.field_id for one in (mapping.root if mapping else ()) for name in one.names}

    def check(self, footer: Footer) -> None:
        """Raises UsageError where the file's columns have other names than the table's, or lack what only the metadata tell."""
        there = {field.name: self._id_of(field) for field in footer.schema}
        for name, number in there.items():
            now = self._ids.get(-1 if number is None else number)
            if (now is not None and now != name) or (now is None and name in self._ids.values() and number is not None):
                raise self._refused(
                    f"its column '{name}' was renamed or made anew since {footer.file.path} was written"
                )
        missing = sorted(name for name in self._required & set(self._ids.values()) if name not in there)
        if missing:
            raise self._refused(
                f"{footer.file.path} lacks the column '{missing[0]}', whose values only the metadata tell"
            )

    def _id_of(self, field: pa.Field) -> int | None:
        number = (field.metadata or {}).get(_FIELD_ID)
        return self._mapped.get(field.name) if number is None else int(number)

    def _refused(self, why: str) -> UsageError:
        return UsageError(f"The table {self._table} cannot be read: {why}.", hint="Read it with Spark.")


def _without_large(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_large_string(kind):
        return pa.string()
    if types.is_large_binary(kind):
        return pa.binary()
    if types.is_struct(kind):
        return pa.struct([kind.field(i).with_type(_plain(kind.field(i).type)) for i in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return pa.list_(_plain(kind.value_type)) if types.is_list(kind) or types.is_large_list(kind) else kind
