"""Parquet files on a far store: few requests, asked for ahead of time, and the rows that a local file would have."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from benchmarks.kit.far import BUCKET, counted, far_store

from connectors_kit import context
from far_storage import FarHandler
from firesteel.connectors.files.reading import far
from firesteel.connectors.formats import parquet
from firesteel.connectors.formats.parquet import ParquetSource
from firesteel.errors import FiresteelError

ROWS = 6000
TABLE = pa.table(
    {
        "n": pa.array(range(ROWS)),
        "unread": pa.array([f"a text that nobody wants {i}" for i in range(ROWS)]),
        "deep": pa.array([[{"a.b": i, "c": str(i)}] if i % 7 else None for i in range(ROWS)]),
        "last": pa.array([i / 3 for i in range(ROWS)]),
    }
)


class Asked(list):
    """What the store was asked for. Reads fail from request ``fails`` on."""

    fails = 10**9

    def __call__(self, name, nbytes=None, bytes_name=""):
        self.append((name, nbytes))
        if name == "reads" and len(self) > self.fails:
            raise OSError("the store is on fire")

    @property
    def reads(self):
        return [nbytes for name, nbytes in self if name == "reads"]


@pytest.fixture
def asked():
    return Asked()


@pytest.fixture
def files(tmp_path):
    for i in range(3):
        pq.write_table(TABLE.slice(i * 2000, 2000), tmp_path / f"{i}.parquet", row_group_size=400)
    return tmp_path


def source_of(files, asked, **more):
    return ParquetSource(str(files), filesystem=pafs.PyFileSystem(FarHandler(asked)), **more)


def all_rows(source, volume=1 << 14):
    splits = [split.payload for split in source.list_splits(volume)]
    return pa.Table.from_batches(source.read_all(splits, context()), source.schema)


@pytest.mark.parametrize("gap", [0, far.REMOTE_GAP_BYTES])
@pytest.mark.parametrize("columns", [["n", "last"], ["deep"], ["last", "unread", "deep", "n"]])
def test_rows_are_those_of_local_files(files, asked, monkeypatch, columns, gap):
    monkeypatch.setattr(far, "REMOTE_GAP_BYTES", gap)
    monkeypatch.setattr(far, "PART_BYTES", 1000)
    assert all_rows(source_of(files, asked, columns=columns)).equals(TABLE.select(columns))


def test_a_row_group_is_one_request_and_a_footer_is_not_read_again_for_the_next_split(files, asked):
    source = source_of(files, asked, columns=["n", "last"])
    splits = [split.payload for split in source.list_splits(1)]
    assert len(splits) == 15
    asked.clear()
    list(source.read_all(splits, context()))
    assert [name for name, _ in asked].count("opens") == 3
    assert len(asked.reads) == 3 + 15


def test_the_driver_looks_at_statistics_in_the_footer_that_it_has_read(files, asked):
    source = source_of(files, asked)
    asked.clear()
    assert len(source.push_down(["n"], pc.field("n") >= 5600).list_splits(1)) == 1
    assert asked == []


def test_what_waits_has_a_limit(files, asked, monkeypatch):
    monkeypatch.setattr(far, "AHEAD_BYTES", 250)
    with pafs.PyFileSystem(FarHandler(asked)).open_input_file(str(files / "0.parquet")) as stream:
        file = far.FarFile(stream, stream.size())
        ready = far.fetched_ahead((i, file, [(100 * i, 100 * i + 100)]) for i in range(10))
        number, parts = next(ready)
        assert number == 0 and [(begin, len(data)) for begin, data in parts()] == [(0, 100)]
        ready.close()
    assert len(asked.reads) <= 3


def test_few_files_are_open_at_a_time(tmp_path, asked, monkeypatch):
    """Nothing is fetched of rows that are only counted."""
    for i in range(40):
        pq.write_table(pa.table({"n": [i]}), tmp_path / f"{i}.parquet")
    source = source_of(tmp_path, asked).push_down([], None)
    opened, closed = [], []
    original, close = parquet.ParquetSource._open, parquet._Opened.close
    monkeypatch.setattr(parquet.ParquetSource, "_open", lambda *given: opened.append(1) or original(*given))
    monkeypatch.setattr(parquet._Opened, "close", lambda one: closed.append(1) or close(one))
    splits = [split.payload for split in source.list_splits(1 << 30)]
    most = rows = 0
    for opened_file, _ in source._read_far([groups for split in splits for groups in split]):
        rows += opened_file.file.metadata.num_rows
        most = max(most, len(opened) - len(closed))
    assert rows == len(closed) == 40 and most <= far.WAITING + far.FILES_AHEAD + 3


def test_what_the_store_says_is_told_with_the_row_group(files, asked):
    source = source_of(files / "1.parquet", asked)
    splits = [split.payload for split in source.list_splits(1)]
    asked.clear()
    asked.fails = 2  # to open it, and the footer
    with pytest.raises(FiresteelError, match=r"1\.parquet, row group 0 cannot be read: .*the store is on fire"):
        list(source.read_all(splits, context()))


def test_a_read_that_comes_short_is_an_error(files):
    class Short:
        def read_at(self, size, begin):
            return bytes(size - 1)

    ((_, parts),) = far.fetched_ahead([(0, far.FarFile(Short(), 1000), [(0, 100)])])
    with pytest.raises(OSError, match="99 bytes came in place of 100"):
        parts()


def test_a_file_that_changes_is_named_and_not_the_one_before(files, asked):
    source = source_of(files, asked, columns=["n"])
    splits = [split.payload for split in source.list_splits(1)]
    size = (files / "2.parquet").stat().st_size
    pq.write_table(TABLE.slice(0, 10), files / "2.parquet", row_group_size=10)
    with (files / "2.parquet").open("ab") as file:  # as long as before, with fewer row groups
        data = (files / "2.parquet").read_bytes()
        file.truncate(0)
        file.write(bytes(size - len(data)) + data)
    ctx = context()
    with pytest.raises(FiresteelError, match=r"2\.parquet changed while the job was running"):
        list(source.read_all(splits, ctx))
    assert ctx.place == ""


def test_a_footer_is_kept_until_the_stores_etag_changes(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    pq.write_table(TABLE, path, row_group_size=500)
    with far_store(tmp_path, 0.0) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

        def requests_and_rows():
            asks = counted(lambda _: ParquetSource(f"s3://{BUCKET}/a.parquet", columns=["n"]))
            source, requests = asks("")
            return requests, all_rows(source)["n"].to_pylist()

        first, again = requests_and_rows(), requests_and_rows()
        pq.write_table(TABLE.take(list(range(ROWS))[::-1]), path, row_group_size=500)
        after = requests_and_rows()
    assert first[1] == again[1] == list(range(ROWS)) and again[0] < first[0]
    assert after[1] == list(range(ROWS))[::-1] and after[0] == first[0]
