"""Iceberg tables of a local catalog: what is written is what pyiceberg reads, in one transaction, whatever comes between."""

import pickle

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table, Transaction

from connectors_kit import read_all, run_sink
from firesteel.connectors.files.partitions import NULL_NAME
from firesteel.connectors.tables import iceberg
from firesteel.connectors.tables.iceberg import IcebergSink, iceberg_source
from firesteel.errors import FiresteelError, UsageError

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64())])
NAME = "shop.orders"


@pytest.fixture
def catalog(tmp_path):
    (tmp_path / "ware house").mkdir()
    given = {
        "name": "here",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/ware house",
    }
    made = load_catalog(**given)
    made.create_namespace("shop")
    yield given
    made.engine.dispose()


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    """Connections of SQLite, which would warn when they are collected."""
    real, made = iceberg.opened, []

    def opened(catalog, step):
        made.append(real(catalog, step))
        return made[-1]

    monkeypatch.setattr(iceberg, "opened", opened)
    yield
    for one in made:
        one.engine.dispose()


def rows(*pairs, schema=SCHEMA):
    return [pa.record_batch([list(column) for column in zip(*pairs, strict=True)], schema=schema)]


def write(catalog, *shares, schema=SCHEMA, **options):
    sink = IcebergSink(NAME, catalog, **options)
    sink.commit(run_sink(sink, shares, schema))


def loaded(catalog):
    found = iceberg.opened(catalog, "test")
    return found.load_table(NAME)


def values(catalog):
    """By pyiceberg itself."""
    return sorted(loaded(catalog).scan().to_arrow().column("x").to_pylist())


@pytest.mark.parametrize("partition_by", [(), "k"])
def test_modes(catalog, partition_by, tmp_path):
    write(catalog, rows(("a", 1), ("b", 2)), [], rows(("a", 3)), partition_by=partition_by)
    assert values(catalog) == [1, 2, 3]
    with pytest.raises(UsageError, match="exists already"):
        write(catalog, rows(("a", 4)))
    write(catalog, rows(("a", 4)), mode="append")
    write(catalog, [], mode="append")
    write(catalog, rows(("a", 5)), mode="ignore")
    assert values(catalog) == [1, 2, 3, 4]
    write(catalog, rows(("c", 6)), mode="overwrite")
    assert values(catalog) == [6]
    write(catalog, [], mode="overwrite")
    assert values(catalog) == []
    assert read_all(iceberg_source(NAME, catalog)).num_rows == 0
    assert not list(tmp_path.rglob("*.firesteel-*"))


def test_partitions_with_rows_are_replaced(catalog):
    write(catalog, rows(("a", 1), ("b/ c%d é", 2), ("", 3), (None, 4), ("k=1", 5), (NULL_NAME, 6)), partition_by="k")
    assert len(list(loaded(catalog).scan(row_filter="k IS NULL").plan_files())) == 1
    assert loaded(catalog).scan(row_filter="k IS NULL").to_arrow().column("x").to_pylist() == [4]
    assert read_all(iceberg_source(NAME, catalog)).sort_by("x").to_pydict() == {
        "k": ["a", "b/ c%d é", "", None, "k=1", NULL_NAME],
        "x": [1, 2, 3, 4, 5, 6],
    }
    write(catalog, rows(("b/ c%d é", 20), (None, 40), ("new", 60)), mode="overwrite_partitions")
    assert values(catalog) == [1, 3, 5, 6, 20, 40, 60]
    with pytest.raises(UsageError, match="'f' is of floating-point numbers"):
        IcebergSink("shop.other", catalog, partition_by="f").check(pa.schema([("f", pa.float64()), ("x", pa.int64())]))


def test_types_come_back(catalog):
    schema = pa.schema([
        ("x", pa.int64()), ("b", pa.int8()), ("d", pa.date32()), ("t", pa.timestamp("us", "UTC")), ("n", pa.timestamp("us")),
        ("m", pa.decimal128(9, 2)), ("s", pa.struct([("y", pa.list_(pa.int16()))])), ("c", pa.dictionary(pa.int8(), pa.string())),
    ])  # fmt: skip
    batch = pa.record_batch(
        [
            [1, 2], pa.array([1, None], pa.int8()), pa.array([7, None], pa.date32()), pa.array([15, None], pa.timestamp("us", "UTC")),
            pa.array([3, None], pa.timestamp("us")), pa.array(["1.50", None]).cast(pa.decimal128(9, 2)),
            pa.array([{"y": [1, None]}, None], schema.field("s").type), pa.array(["p", None]).dictionary_encode().cast(schema.field("c").type),
        ],
        schema=schema,
    )  # fmt: skip
    write(catalog, [batch], schema=schema)
    assert loaded(catalog).scan().to_arrow().to_pylist() == batch.to_pylist()
    assert read_all(iceberg_source(NAME, catalog)).to_pylist() == batch.to_pylist()
    write(catalog, [batch], schema=schema, mode="append")
    assert read_all(iceberg_source(NAME, catalog)).num_rows == 4


def test_what_does_not_fit_is_told_before(catalog):
    write(catalog, rows(("a", 1)))
    with pytest.raises(UsageError, match="'x' is int64 there and int32 in the stream"):
        IcebergSink(NAME, catalog, mode="append").check(pa.schema([("k", pa.string()), ("x", pa.int32())]))
    with pytest.raises(UsageError, match="cannot be looked at"):
        IcebergSink("nowhere.orders", catalog, mode="append").commit(
            run_sink(IcebergSink("nowhere.orders", {**catalog, "type": "unknown"}), [], SCHEMA)
        )
    with loaded(catalog).update_spec() as spec:
        spec.add_field("x", "bucket[4]", "x_bucket")
    with pytest.raises(UsageError, match=r"is partitioned by bucket\[4\] of 'x'"):
        IcebergSink(NAME, catalog, mode="append").check(SCHEMA)


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
def test_a_concurrent_commit_is_built_upon(catalog, monkeypatch, mode):
    write(catalog, rows(("a", 1), ("b", 2)), partition_by="k")
    sink = IcebergSink(NAME, catalog, mode=mode)
    messages = run_sink(sink, [rows(("a", 9))], SCHEMA)
    real = Transaction.add_files
    left = [1]

    def add_files(self, *args, **options):
        if left:
            left.pop()
            loaded(catalog).append(pa.table({"k": ["b"], "x": [7]}))
        real(self, *args, **options)

    monkeypatch.setattr(Transaction, "add_files", add_files)
    sink.commit(messages)
    assert values(catalog) == ([1, 2, 7, 9] if mode == "append" else [2, 7, 9])


def test_a_commit_that_was_written_though_it_failed_is_one(catalog, monkeypatch):
    write(catalog, rows(("a", 1)))
    sink = IcebergSink(NAME, catalog, mode="append")
    messages = run_sink(sink, [rows(("a", 2))], SCHEMA)
    real = Transaction.commit_transaction

    def cut_off(self):
        real(self)
        raise OSError("the connection broke")

    monkeypatch.setattr(Transaction, "commit_transaction", cut_off)
    sink.commit(messages)
    monkeypatch.undo()
    assert values(catalog) == [1, 2]


def test_a_commit_that_fails_leaves_nothing(catalog, monkeypatch, tmp_path):
    write(catalog, rows(("a", 1)))
    before = sorted(tmp_path.rglob("*.parquet"))
    sink = IcebergSink(NAME, catalog, mode="append")
    messages = run_sink(sink, [rows(("a", 2))], SCHEMA)

    def no(self):
        raise OSError("no room")

    monkeypatch.setattr(Transaction, "commit_transaction", no)
    with pytest.raises(FiresteelError, match="could not be changed: no room"):
        sink.commit(messages)
    sink.abort([])
    assert sorted(tmp_path.rglob("*.parquet")) == before
    assert values(catalog) == [1]


def test_snapshots_are_read(catalog):
    write(catalog, rows(("a", 1)))
    first = loaded(catalog).current_snapshot().snapshot_id
    write(catalog, rows(("a", 2)), mode="append")
    assert read_all(iceberg_source(NAME, catalog, first)).column("x").to_pylist() == [1]
    with pytest.raises(UsageError, match="has no snapshot 17"):
        iceberg_source(NAME, catalog, 17)


def test_columns_are_told_by_their_ids(catalog):
    """A file of pyiceberg's has ids, one of ours is mapped by its names."""
    for ours in (True, False):
        if ours:
            write(catalog, rows(("a", 1)))
        else:
            iceberg.opened(catalog, "test").create_table(NAME, SCHEMA).append(pa.table({"k": ["a"], "x": [1]}))
        with loaded(catalog).update_schema() as update:
            update.add_column("later", iceberg_type())
        assert read_all(iceberg_source(NAME, catalog)).to_pylist() == [{"k": "a", "x": 1, "later": None}]
        with loaded(catalog).update_schema() as update:
            update.rename_column("k", "key")
        with pytest.raises(UsageError, match="column 'k' was renamed or made anew"):
            iceberg_source(NAME, catalog)
        iceberg.opened(catalog, "test").drop_table(NAME)


def iceberg_type():
    from pyiceberg.types import StringType

    return StringType()


def test_delete_files_are_refused(catalog, monkeypatch):
    """As the plan of a scan tells them: pyiceberg itself writes none."""
    write(catalog, rows(("a", 1)))
    real = Table.scan

    def scan(self, **options):
        found = real(self, **options)
        tasks = list(found.plan_files())
        for task in tasks:
            task.delete_files = {task.file}
        monkeypatch.setattr(type(found), "plan_files", lambda _: tasks)
        return found

    monkeypatch.setattr(Table, "scan", scan)
    with pytest.raises(UsageError, match="has delete files"):
        iceberg_source(NAME, catalog)


def test_sinks_travel_without_the_catalog(catalog):
    sink = IcebergSink(NAME, catalog)
    sink.check(SCHEMA)
    assert b"sqlite" not in pickle.dumps(sink)
