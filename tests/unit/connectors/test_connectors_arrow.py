"""Arrow IPC files and streams: every type there and back, cut between record batches."""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.feather as feather
import pytest

from connectors_kit import read_all, run_sink
from firesteel.connectors.formats.arrow_files import ArrowSink, ArrowSource
from firesteel.errors import FiresteelError, UsageError


def write_file(path, table, rows=100, **options):
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)


TABLE = pa.table({"n": range(1000), "s": [f"value {i}" for i in range(1000)], "l": [[i, None] for i in range(1000)]})


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("volume", [1, 5000, 1 << 20])
def test_files_are_cut_between_record_batches(tmp_path, compression, volume):
    write_file(tmp_path / "a.arrow", TABLE, compression=compression)
    source = ArrowSource(tmp_path)
    splits = source.list_splits(volume)
    assert len(splits) == (10 if volume < 1 << 20 else 1)
    assert 0.5 < sum(split.bytes for split in splits) / TABLE.nbytes < 2
    assert read_all(source, volume).equals(TABLE)
    assert splits[0].description.endswith("record batch 0" if volume < 1 << 20 else "record batches 0-9")


def test_streams_and_feather_are_read_too(tmp_path):
    with pa.ipc.new_stream(tmp_path / "a.arrows", TABLE.schema) as writer:
        writer.write_table(TABLE, max_chunksize=100)
    feather.write_feather(TABLE, str(tmp_path / "b.feather"))
    assert read_all(ArrowSource(tmp_path), 1).equals(pa.concat_tables([TABLE, TABLE]))


def test_columns_and_filters_are_pushed_down(tmp_path):
    write_file(tmp_path / "a.arrow", TABLE)
    source = ArrowSource(tmp_path).push_down(["l", "s"], pc.field("n") >= 998)
    assert read_all(source).to_pylist() == TABLE.slice(998).select(["l", "s"]).to_pylist()


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("stream", [False, True])
def test_splits_count_the_columns_that_are_read(tmp_path, compression, stream):
    """``s`` has 104 of 120 bytes a row."""
    wide = pa.table({"n": range(1000), "s": [f"{i:04}" * 25 for i in range(1000)], "m": range(1000)})
    new, options = (pa.ipc.new_stream if stream else pa.ipc.new_file), pa.ipc.IpcWriteOptions(compression=compression)
    with new(tmp_path / "a.arrow", wide.schema, options=options) as writer:
        writer.write_table(wide, max_chunksize=100)
    source = ArrowSource(tmp_path)

    def counted(*columns, condition=None):
        return sum(split.bytes for split in source.push_down(list(columns), condition).list_splits(1 << 20))

    whole = counted("n", "s", "m")
    assert 0.5 < whole / wide.nbytes < 2
    assert counted("n") == pytest.approx(whole * 8 / 120, rel=0.1)
    assert counted("n", condition=pc.field("m") > 3) == pytest.approx(whole * 16 / 120, rel=0.1), (
        "a filter's are read too"
    )
    assert counted() == pytest.approx(counted("n"), rel=0.1), "rows are counted by a column"
    assert counted("s") == pytest.approx(whole * 104 / 120, rel=0.1)


@pytest.mark.parametrize("stream", [False, True])
def test_an_empty_file_has_no_bytes(tmp_path, stream):
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(tmp_path / "a.arrow", TABLE.schema):
        pass
    source = ArrowSource(tmp_path).push_down(["n"], None)
    assert sum(split.bytes for split in source.list_splits(1 << 20)) <= (tmp_path / "a.arrow").stat().st_size
    assert read_all(source).num_rows == 0


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_what_is_written_is_read_again(tmp_path, compression):
    words = pa.array(["a", "b"] * 500).dictionary_encode()
    table = TABLE.append_column("w", words)
    sink = ArrowSink(tmp_path / "out", compression=compression)
    other = pa.chunked_array([pa.array(["c", "a"] * 500).dictionary_encode()])  # another dictionary in a later batch
    batches = [*table.to_batches(), *table.set_column(3, "w", other).to_batches()]
    sink.commit(run_sink(sink, [batches], table.schema))
    got = read_all(ArrowSource(tmp_path / "out"))
    assert got["w"].to_pylist() == ["a", "b"] * 500 + ["c", "a"] * 500
    assert got.slice(0, 1000).drop(["w"]).equals(TABLE)
    with pa.ipc.open_file(tmp_path / "out" / "part-00000.arrow") as reader:
        assert reader.num_record_batches == 1  # gathered


def test_a_dictionary_column_is_read(tmp_path):
    write_file(tmp_path / "a.arrow", pa.table({"w": pa.array(["a", None, "b"]).dictionary_encode()}))
    assert read_all(ArrowSource(tmp_path))["w"].to_pylist() == ["a", None, "b"]


def test_mixed_and_damaged_files_are_named(tmp_path):
    write_file(tmp_path / "0.arrow", TABLE)
    write_file(tmp_path / "1.arrow", TABLE.select(["n", "s"]))
    with pytest.raises(UsageError, match=r"column 'l' is list.* in .*0\.arrow and does not exist in .*1\.arrow"):
        ArrowSource(tmp_path)
    whole = (tmp_path / "0.arrow").read_bytes()
    (tmp_path / "1.arrow").write_bytes(whole[:-30])
    with pytest.raises(UsageError, match=r"1\.arrow is truncated, damaged or not an Arrow IPC file"):
        ArrowSource(tmp_path)
    (tmp_path / "1.arrow").write_bytes(b"")
    with pytest.raises(UsageError, match=r"1\.arrow is empty"):
        ArrowSource(tmp_path)


def test_a_file_damaged_meanwhile_is_named(tmp_path):
    write_file(tmp_path / "0.arrow", TABLE, compression="zstd")
    source = ArrowSource(tmp_path)
    (split,) = source.list_splits(1 << 20)
    data = bytearray((tmp_path / "0.arrow").read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = b"\x00" * 400
    (tmp_path / "0.arrow").write_bytes(data)
    with pytest.raises(FiresteelError, match=r"0\.arrow, record batches 0-9 cannot be read"):
        read_all(source)
    assert split.description


def test_options_that_cannot_be(tmp_path):
    with pytest.raises(UsageError, match="compression='gzip' is not one that Arrow IPC has"):
        ArrowSink(tmp_path / "out", compression="gzip")


def test_types_that_cannot_be_read_are_named(tmp_path):
    schema = pa.schema({"n": pa.int64()})
    wide = schema.serialize().to_pybytes().replace(bytes([64, 0, 0, 0]), bytes([128, 0, 0, 0]))
    (tmp_path / "wide.arrow").write_bytes(wide)
    with pytest.raises(UsageError, match=r"wide\.arrow holds what read_arrow cannot read .*The file may be sound"):
        ArrowSource(tmp_path / "wide.arrow")
    union = pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])])
    feather.write_feather(
        pa.table({"u": pa.array([[1]] * 2), "x": union}), str(tmp_path / "union.arrow"), compression="uncompressed"
    )
    with pytest.raises(UsageError, match=r"union\.arrow: column 'x' of type sparse_union.* steps have no unions"):
        ArrowSource(tmp_path / "union.arrow")
