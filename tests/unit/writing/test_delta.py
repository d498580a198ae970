"""Delta tables: what is written is what deltalake reads, in one transaction, whatever comes between."""

import decimal
import json
import math
import pickle
import string
import struct

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from connectors_kit import read_all, run_sink
from firesteel.connectors.tables import delta
from firesteel.connectors.tables.delta import DeltaSink, delta_source
from firesteel.errors import FiresteelError, UsageError

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64())])


def rows(*pairs, schema=SCHEMA):
    return [pa.record_batch([list(column) for column in zip(*pairs, strict=True)], schema=schema)]


@pytest.fixture
def table(tmp_path):
    return tmp_path / "table"


def write(table, *shares, schema=SCHEMA, **options):
    sink = DeltaSink(table, **options)
    sink.commit(run_sink(sink, shares, schema))


def values(table):
    """By deltalake itself."""
    return sorted(DeltaTable(table).to_pyarrow_table().column("x").to_pylist())


def data_files(table):
    return sorted(str(path.relative_to(table)) for path in table.rglob("*.parquet"))


@pytest.mark.parametrize("partition_by", [(), "k"])
def test_modes(table, partition_by):
    write(table, rows(("a", 1), ("b", 2)), [], rows(("a", 3)), partition_by=partition_by)
    assert values(table) == [1, 2, 3]
    with pytest.raises(UsageError, match="exists already"):
        write(table, rows(("a", 4)))
    write(table, rows(("a", 4)), mode="append")
    assert values(table) == [1, 2, 3, 4]
    write(table, rows(("a", 5)), mode="ignore")
    assert values(table) == [1, 2, 3, 4]
    write(table, rows(("c", 6)), mode="overwrite")
    assert values(table) == [6]
    assert DeltaTable(table).metadata().partition_columns == (["k"] if partition_by else [])
    assert [path.name for path in table.parent.iterdir()] == ["table"]


def test_no_rows(table):
    write(table, [])
    assert values(table) == []
    write(table, [], mode="append")
    assert DeltaTable(table).version() == 0
    write(table, rows(("a", 1)), mode="append")
    write(table, [], mode="overwrite")
    assert values(table) == []
    assert read_all(delta_source(table)).num_rows == 0


def test_partitions_with_rows_are_replaced(table):
    write(table, rows(("a", 1), ("b/ c%d é", 2), ("", 3), (None, 4), ("k=1", 5)), partition_by="k")
    assert read_all(delta_source(table)).sort_by("x").to_pydict() == {
        "k": ["a", "b/ c%d é", None, None, "k=1"],
        "x": [1, 2, 3, 4, 5],
    }
    write(table, rows(("b/ c%d é", 20), (None, 40), ("new", 60)), mode="overwrite_partitions")
    assert values(table) == [1, 5, 20, 40, 60]
    write(table, [], mode="overwrite_partitions")
    assert DeltaTable(table).version() == 1


def test_partitions_of_all_types(table):
    schema = pa.schema(
        [
            ("i", pa.int32()), ("b", pa.bool_()), ("d", pa.date32()), ("t", pa.timestamp("us", "UTC")),
            ("n", pa.timestamp("us")), ("m", pa.decimal128(9, 2)), ("f", pa.float64()), ("x", pa.int64()),
        ]
    )  # fmt: skip
    batch = pa.record_batch(
        [
            pa.array([1, None], pa.int32()), [True, None], pa.array([7, None], pa.date32()),
            pa.array([1_500_000, None], pa.timestamp("us", "UTC")), pa.array([3, None], pa.timestamp("us")),
            pa.array(["1.50", None]).cast(pa.decimal128(9, 2)), [0.5, None], [1, 2],
        ],
        schema=schema,
    )  # fmt: skip
    columns = schema.names[:-1]
    write(table, [batch], schema=schema, partition_by=columns)
    assert DeltaTable(table).to_pyarrow_table().sort_by("x").select(schema.names).equals(pa.Table.from_batches([batch]))
    assert read_all(delta_source(table)).sort_by("x").equals(pa.Table.from_batches([batch]))
    write(table, [batch.slice(0, 1)], schema=schema, mode="overwrite_partitions")
    assert DeltaTable(table).to_pyarrow_table().num_rows == 2


def test_types_come_back_and_others_are_refused(table):
    array = pa.array(["a", None, "a"]).dictionary_encode()
    schema = pa.schema(
        [("x", pa.int64()), ("d", array.type), ("l", pa.large_string()), ("s", pa.struct([("y", pa.list_(pa.int8()))]))]
    )
    batch = pa.record_batch([[1, 2, 3], array, ["p", "q", None], [{"y": [1]}, None, {"y": None}]], schema=schema)
    write(table, [batch], schema=schema)
    assert DeltaTable(table).to_pyarrow_table().sort_by("x").to_pylist() == batch.to_pylist()
    for kind in (pa.uint8(), pa.timestamp("ns"), pa.timestamp("us", "Europe/Berlin"), pa.list_(pa.duration("us"))):
        with pytest.raises(UsageError, match=r"column 'x' has the type .*, for which tables have none"):
            DeltaSink(table.parent / "other").check(pa.schema([("x", kind)]))


def told(table):
    """The statistics of each file, in the order of the log."""
    lines = [line for log in sorted((table / "_delta_log").glob("*.json")) for line in log.read_text().splitlines()]
    return [json.loads(json.loads(line)["add"]["stats"]) for line in lines if '"add"' in line]


def test_statistics_are_true(table):
    """Rounded outwards; none where there may be NaN, which Spark sorts behind all others."""
    schema = pa.schema([("t", pa.timestamp("us", "UTC")), ("f", pa.float64()), ("s", pa.string()), ("x", pa.int64())])
    times = pa.array([1_001, 5_000_999], pa.timestamp("us", "UTC"))
    for floats, mode in (([1.5, -0.0], "error"), ([1.0, math.nan], "append"), ([1.0, math.inf], "append")):
        batch = pa.record_batch([times, floats, ["a", "z" * 100], [None, 3]], schema=schema)
        write(table, [batch], schema=schema, mode=mode)
    counts = {"numRecords": 2, "nullCount": {"t": 0, "f": 0, "s": 0, "x": 1}}
    assert told(table) == [
        {
            **counts,
            "minValues": {"t": "1970-01-01T00:00:00.001Z", "f": -0.0, "s": "a", "x": 3},
            "maxValues": {"t": "1970-01-01T00:00:05.001Z", "f": 1.5, "s": "z" * 64 + "\U0010ffff", "x": 3},
        },
        counts,
        counts,
    ]


M = decimal.Decimal
OF_TYPES = {
    "f": (pa.float64(), [[0.5, 2.5], [1.0, 5e-324], [-1.7976931348623157e308, 3.0], [math.nan, 7.0], [9.0, None], [math.inf]]),
    "g": (pa.float32(), [[0.5, 2.5], [0.1, 16777216.0], [None, None], [math.nan, 7.0], [-math.inf, 3.4028234663852886e38]]),
    "b": (pa.bool_(), [[True, False], [True, True], [False, None], [None, None]]),
    "m": (pa.decimal128(7, 2), [[M("1.50"), M("-3.25")], [M("99999.99"), M("-0.01")], [M(0), None], [None]]),
    "l": (pa.decimal128(38, 18), [[M(1), M(2)], [M("12345678901234567890.123456789012345678"), M("1E-18")], [M("-1E-7")]]),
    "s": (pa.string(), [["a", "b"], ["c" * 5000, "é"], ["", None], ["d" * 5000]]),
    "d": (pa.date32(), [[1, 2], [-800_000, 3], [2_932_897, 4], [None, 5]]),
    "a.b": (pa.int16(), [[1, 2], [3, None], [-32768, 32767]]),
    "y": (pa.binary(), [[b"a", b"b"], [b"", b"\xff"]]),
}  # fmt: skip


@pytest.mark.parametrize("theirs_first", [pytest.param(True, marks=pytest.mark.full), False])
@pytest.mark.parametrize("name", OF_TYPES)
def test_deltalake_finds_all_rows(table, name, theirs_first):
    """deltalake finds no row in a file that has some bounds and lacks another one. The expected rows are those that Arrow's filter leaves of
    all rows."""
    kind, shares = OF_TYPES[name]
    schema = pa.schema([(name, kind), ("x", pa.int64()), ("t", pa.struct([("u", pa.int64())]))])
    everything = []
    for number, share in enumerate(shares):
        array = pa.array(share, pa.int32()).cast(kind) if name == "d" else pa.array(share, kind)
        batch = pa.record_batch([array, [number] * len(share), [{"u": 1}] * len(share)], schema=schema)
        everything.append(batch)
        if theirs_first and not number:
            write_deltalake(table, pa.Table.from_batches([batch]))
        else:
            write(table, [batch], schema=schema, mode="append" if number else "error")
    rows = pa.Table.from_batches(everything)
    dataset, field = DeltaTable(table).to_pyarrow_dataset(), pc.field(name)
    filters = [field.is_null(), ~field.is_null(), *(pc.field("x") == number for number in range(len(shares)))]
    for value in rows[name].drop_null():
        if pa.types.is_floating(kind) and math.isnan(value.as_py()):  # Arrow is wrong for NaN as a constant
            continue
        filters += [field == value, field > value, field < value]
    for one in filters:
        found = dataset.to_table(filter=one)["x"]
        assert sorted(found.to_pylist()) == sorted(rows.filter(one)["x"].to_pylist()), one


def test_more_columns_than_have_statistics(table):
    names = [f"c{i}" for i in range(34)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    batch = pa.record_batch([[i] for i in range(34)], schema=schema)
    write(table, [batch], schema=schema)
    write_deltalake(
        table.parent / "all", pa.Table.from_batches([batch]), configuration={"delta.dataSkippingNumIndexedCols": "-1"}
    )
    write(table.parent / "all", [batch], schema=schema, mode="append")
    assert list(told(table)[0]["minValues"]) == names[:32]
    for place, number in ((table, 1), (table.parent / "all", 2)):
        assert DeltaTable(place).to_pyarrow_dataset().count_rows(filter=pc.field("c33") == 33) == number


def test_bounds_of_long_texts_hold(table):
    texts = ["a", "z" * 64, "z" * 65, "z" * 64 + "\U0010ffff" * 3 + "x", "é" * 70, "\U0010ffff" * 80, "😀"]
    schema = pa.schema([("s", pa.string())])
    for number, text in enumerate(texts):
        write(table, [pa.record_batch([[text]], schema=schema)], schema=schema, mode="append" if number else "error")
    theirs = DeltaTable(table).to_pyarrow_dataset()
    for text in texts:
        assert theirs.to_table(filter=pc.field("s") == text)["s"].to_pylist() == [text]


FIRST, LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
"""0001-01-01 and the last microsecond of the year 9999."""


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_statistics_at_the_ends_of_time(table, zone, mode):
    schema = pa.schema([("t", pa.timestamp("us", zone)), ("d", pa.date32()), ("n", pa.int64())])
    files = [[FIRST, -1, 0], [-1_000_001, LAST - 999, 1], [LAST, None, 2], [LAST + 1, FIRST - 1, 3]]
    write(table, [pa.record_batch([[None], [None], [9]], schema=schema)], schema=schema)
    for a, b, n in files:
        times = pa.array([a, b], schema.field("t").type)
        days = pa.array([v and v // 86_400_000_000 for v in (a, b)], pa.int32()).cast(pa.date32())
        write(
            table,
            [pa.record_batch([times, days, [n, n]], schema=schema)],
            schema=schema,
            mode=mode if n == 0 else "append",
        )
    z = "" if zone is None else "Z"
    assert [(one.get("minValues"), one.get("maxValues")) for one in told(table)[-4:]] == [
        (
            {"t": f"0001-01-01T00:00:00.000{z}", "d": "0001-01-01", "n": 0},
            {"t": f"1970-01-01T00:00:00.000{z}", "d": "1969-12-31", "n": 0},
        ),
        (
            {"t": f"1969-12-31T23:59:58.999{z}", "d": "1969-12-31", "n": 1},
            {"t": f"9999-12-31T23:59:59.999{z}", "d": "9999-12-31", "n": 1},
        ),
        ({"t": f"9999-12-31T23:59:59.999{z}", "d": "9999-12-31", "n": 2},) * 2,
        (None, None),
    ]
    theirs = DeltaTable(table).to_pyarrow_dataset()
    last = pa.scalar(LAST, schema.field("t").type)
    assert theirs.to_table(filter=pc.field("t") == last)["n"].to_pylist() == [2]
    assert read_all(delta_source(table)).filter(pc.field("t") == last)["n"].to_pylist() == [2]


def test_what_does_not_fit_the_table_is_told_before(table):
    write(table, rows(("a", 1)), partition_by="k")
    for schema, said in (
        (pa.schema([("k", pa.string()), ("x", pa.int32())]), "'x' is int64 there and int32 in the stream"),
        (pa.schema([("k", pa.string())]), "'x' is int64 there and no such column in the stream"),
        (pa.schema([*SCHEMA, ("y", pa.int8())]), "'y' is no such column there"),
    ):
        with pytest.raises(UsageError, match=said):
            DeltaSink(table, mode="append").check(schema)
    with pytest.raises(UsageError, match=r"partitioned by \['k'\], and partition_by is \['x'\]"):
        DeltaSink(table, mode="append", partition_by="x").check(SCHEMA)
    with pytest.raises(UsageError, match="wants a table that is partitioned"):
        DeltaSink(table.parent / "new", mode="overwrite_partitions").check(SCHEMA)
    (table.parent / "full").mkdir()
    (table.parent / "full" / "a.txt").touch()
    with pytest.raises(UsageError, match="holds files and is no Delta table"):
        DeltaSink(table.parent / "full").check(SCHEMA)
    with pytest.raises(UsageError, match="not a way to write a table"):
        DeltaSink(table, mode="merge")


def test_what_we_would_not_keep_is_refused(table):
    write_deltalake(table, pa.table({"k": ["a"], "x": [1]}), configuration={"delta.appendOnly": "true"})
    with pytest.raises(UsageError, match="takes only more rows"):
        DeltaSink(table, mode="overwrite").check(SCHEMA)
    DeltaSink(table, mode="append").check(SCHEMA)
    DeltaTable(table).alter.add_constraint({"positive": "x > 0"})
    with pytest.raises(UsageError, match=r"it has delta\.constraints\.positive, which Firesteel would not keep"):
        DeltaSink(table, mode="append").check(SCHEMA)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (7, r"has no version 7: the latest is 1\."),
        (-1, "version=-1 is no version of a Delta table: these are whole numbers from 0 on"),
        ("1", "version='1' is no version"),
        (True, "version=True is no version"),
    ],
)
def test_versions_that_there_are_not(table, version, said):
    write(table, rows(("a", 1)))
    write(table, rows(("a", 2)), mode="append")
    assert read_all(delta_source(table, 0)).num_rows == 1
    with pytest.raises(UsageError, match=said) as caught:
        delta_source(table, version)
    assert "1" in str(caught.value.hint)


def between(monkeypatch, *commits):
    """Lets each of these happen after our sink has looked at the table, and before its transaction."""
    left = list(commits)
    real = delta.DeltaLog.table

    def looked_at(self, version=None):
        found = real(self, version)
        if left:
            left.pop(0)()
        return found

    return lambda: monkeypatch.setattr(delta.DeltaLog, "table", looked_at)


def other(table, x):
    return lambda: write_deltalake(table, pa.table({"k": ["a"], "x": pa.array([x], pa.int64())}), mode="append")


@pytest.mark.parametrize(
    ("mode", "left"), [("append", [1, 2, 7, 8, 9]), ("overwrite", [9]), ("overwrite_partitions", [2, 9])]
)
def test_a_concurrent_commit_is_built_upon(table, monkeypatch, mode, left):
    """Rows that came between are replaced too, if the mode replaces them."""
    write(table, rows(("a", 1), ("b", 2)), partition_by="k")
    sink = DeltaSink(table, mode=mode)
    messages = run_sink(sink, [rows(("a", 9))], SCHEMA)
    between(monkeypatch, other(table, 7), other(table, 8))()
    sink.commit(messages)
    assert values(table) == left
    assert len([one for one in DeltaTable(table).history() if "firesteel.job" in one]) == 2


def test_conflicts_without_end_publish_nothing(table, monkeypatch):
    monkeypatch.setattr("firesteel.connectors.tables.sink._PAUSES", (0.001, 0.001))
    write(table, rows(("a", 1)))
    before = data_files(table)
    sink = DeltaSink(table, mode="overwrite")
    messages = run_sink(sink, [rows(("a", 9))], SCHEMA)
    between(monkeypatch, *[other(table, n) for n in range(2, 20)])()
    with pytest.raises(FiresteelError, match=r"Nothing was published .*: 3 times another transaction came between"):
        sink.commit(messages)
    monkeypatch.undo()
    sink.abort([])
    assert 9 not in values(table)
    assert not [name for name in data_files(table) if name.startswith("part-00000-00000-") and name not in before]
    assert [path.name for path in table.parent.iterdir()] == ["table"]


def test_a_table_that_is_made_meanwhile(table):
    first, second = DeltaSink(table), DeltaSink(table, mode="append")
    one, two = run_sink(first, [rows(("a", 1))], SCHEMA), run_sink(second, [rows(("a", 2))], SCHEMA, "job-2")
    write_deltalake(table, pa.table({"k": ["a"], "x": [3]}))
    second.commit(two)
    with pytest.raises(FiresteelError, match="made by another program while the job was running"):
        first.commit(one)
    first.abort([])
    assert values(table) == [2, 3]


def test_a_commit_that_was_written_though_it_failed_is_one(table, monkeypatch):
    write(table, rows(("a", 1)))
    sink = DeltaSink(table, mode="append")
    messages = run_sink(sink, [rows(("a", 2))], SCHEMA)
    real = DeltaTable.create_write_transaction

    def cut_off(self, *args, **options):
        real(self, *args, **options)
        raise OSError("the connection broke")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", cut_off)
    sink.commit(messages)
    assert values(table) == [1, 2]
    sink.commit([])  # told again: it is in the log
    assert DeltaTable(table).version() == 1


def test_files_stay_where_nobody_knows(table, monkeypatch):
    write(table, rows(("a", 1)))
    sink = DeltaSink(table, mode="append")
    messages = run_sink(sink, [rows(("a", 2))], SCHEMA)
    real = DeltaTable.create_write_transaction

    def cut_off(self, *args, **options):
        real(self, *args, **options)
        monkeypatch.setattr(delta.DeltaLog, "exists", broken)
        raise OSError("the connection broke")

    def broken(self):
        raise UsageError("still broken")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", cut_off)
    with pytest.raises(FiresteelError, match=r"not known whether the rows were published .*: the connection broke"):
        sink.commit(messages)
    sink.abort([])
    assert values(table) == [1, 2]


def test_versions_are_read_and_filters_prune(table):
    for x, folder in ((1, "a"), (2, "b"), (3, "c")):
        write(table, rows((folder, x)), mode="append", partition_by="k")
    assert read_all(delta_source(table, 0)).to_pydict() == {"k": ["a"], "x": [1]}
    source = delta_source(table)
    assert source.schema == SCHEMA
    assert source.name == "read_delta table (version 2)"
    pushed = source.push_down(["x"], pc.field("k") == "b")
    assert pushed.pruned == "1 of 3 partitions"
    assert read_all(pushed).to_pydict() == {"x": [2]}
    with pytest.raises(UsageError, match="has no version 17: the latest is 2"):
        delta_source(table, 17)
    with pytest.raises(UsageError, match="is no Delta table"):
        delta_source(table.parent)


def test_a_column_that_came_later_is_null(table):
    write_deltalake(table, pa.table({"x": [1]}))
    write_deltalake(table, pa.table({"x": [2], "y": ["new"]}), mode="append", schema_mode="merge")
    assert read_all(delta_source(table)).sort_by("x").to_pydict() == {"x": [1, 2], "y": [None, "new"]}


_Z85 = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"


def rows_deleted(*numbers):
    """A deletion vector as the protocol has it inside of the log: a roaring bitmap of one container."""
    bitmap = struct.pack("<IIHHI", 12346, 1, 0, len(numbers) - 1, 16) + struct.pack(f"<{len(numbers)}H", *numbers)
    data = struct.pack("<IQI", 1681511377, 1, 0) + bitmap
    words = [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]
    text = "".join(_Z85[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))
    return {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": len(data), "cardinality": len(numbers)}


def test_deletion_vectors_are_refused(table):
    write_deltalake(table, pa.table({"x": list(range(30))}))
    log = table / "_delta_log" / "00000000000000000000.json"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "protocol" in line:
            line["protocol"] = {
                "minReaderVersion": 3, "minWriterVersion": 7,
                "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"],
            }  # fmt: skip
        if "add" in line:
            line["add"]["deletionVector"] = rows_deleted(3, 4)
    log.write_text("\n".join(json.dumps(line) for line in lines))
    with pytest.raises(UsageError, match="has deletion vectors"):
        delta_source(table)


def test_names_of_columns_that_are_mapped_are_refused(table):
    write_deltalake(table, pa.table({"x": [1]}))
    log = table / "_delta_log" / "00000000000000000000.json"
    log.write_text(log.read_text().replace('"configuration":{}', '"configuration":{"delta.columnMapping.mode":"name"}'))
    with pytest.raises(UsageError, match="other names in its files"):
        delta_source(table)


def test_sinks_are_small_and_picklable(table):
    sink = DeltaSink(table, storage_options={"key": "secret"})
    sink.check(SCHEMA)
    assert len(pickle.dumps(sink)) < 2000
    assert b"secret" not in pickle.dumps(sink)
