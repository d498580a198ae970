"""Whatever happens to an object: its reader says so, naming the producer, or reads what was written. Never anything else."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from firesteel.errors import PartitionException
from firesteel.results.reader import GateReader
from firesteel.results.storage.store import ResultStore, StorageError, object_name
from firesteel.results.writer import ResultWriter

SUBPARTITIONS = 8
NAME = object_name(3, 1, 2, 99)


def table(rows):
    return pa.table({"k": np.arange(rows), "s": [f"row {i}" for i in range(rows)]})


def write(store, data, name=NAME, *, budget=1 << 20, codec="none", subpartitions=SUBPARTITIONS):
    writer = ResultWriter(store, name, data.schema, subpartitions, ("k",), memory_budget=budget, codec=codec)
    for batch in data.to_batches(10):
        writer.write(batch)
    return writer.finish()


def gate(store, schema, low=0, high=SUBPARTITIONS, subpartitions=SUBPARTITIONS):
    attempts, tokens = np.array([0, 2]), np.array([0, 99])
    return GateReader(store, 3, schema, subpartitions, attempts, tokens, np.array([[1, 2, low, high]], np.int32))


def read(store, schema, low=0, high=SUBPARTITIONS):
    return pa.Table.from_batches(list(gate(store, schema, low, high).read()), schema=schema)


@pytest.fixture(params=["one region", "regions", "lz4", "sparse", "empty"])
def written(request, tmp_path):
    store = ResultStore(str(tmp_path))
    data = table({"sparse": 1, "empty": 0}.get(request.param, 24))
    write(
        store,
        data,
        budget=800 if request.param == "regions" else 1 << 20,
        codec="lz4" if request.param == "lz4" else "none",
    )
    return store, data, tmp_path / NAME


def ranges(store, data):
    return {bounds: read(store, data.schema, *bounds) for bounds in [(0, 8), (2, 3), (5, 8)]}


def check_all(store, data, expected, what):
    """Reads of the damaged object: right, or the exception that names the producer."""
    refused = 0
    for bounds, rows in expected.items():
        try:
            assert read(store, data.schema, *bounds).equals(rows), (what, bounds)
            gate(store, data.schema, *bounds).bytes_per_subpartition()
        except PartitionException as error:
            refused += 1
            assert (error.dataset, error.partition, error.attempt, error.token) == (3, 1, 2, 99)
            assert NAME in str(error)
    return refused


def places(content):
    """All near the end, where everything hangs together; a good many before."""
    near = max(len(content) - 160, 0)
    return [*range(0, near, max(near // 100, 1)), *range(near, len(content))]


def test_cut_anywhere(written):
    store, data, path = written
    expected = ranges(store, data)
    content = path.read_bytes()
    for length in places(content):
        path.write_bytes(content[:length])
        assert check_all(store, data, expected, length) == 3


def test_any_byte_changed(written):
    store, data, path = written
    expected = ranges(store, data)
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(1)
    for place in places(content):
        change = int(rng.integers(1, 256))
        content[place] ^= change
        path.write_bytes(content)
        refused = check_all(store, data, expected, place)
        assert refused or place < len(content) - 64  # nothing in the trailer goes unnoticed
        content[place] ^= change


def test_anything_appended_or_replaced(written):
    store, data, path = written
    expected = ranges(store, data)
    content = path.read_bytes()
    rng = np.random.default_rng(2)
    others = [
        b"",
        b"\0" * 4096,
        rng.bytes(4096),
        content + b"\0",
        content + content[-64:],
        content[:-64] * 2,
        content + content,
    ]
    for other in others:
        path.write_bytes(other)
        refused = check_all(store, data, expected, len(other))
        assert refused == 3 or other == content + content


def test_blocks_of_zeros(written):
    """What a crash leaves of a file whose blocks never reached the disk."""
    store, data, path = written
    expected = ranges(store, data)
    content = path.read_bytes()
    for start in range(0, len(content), 64):
        path.write_bytes(content[:start] + b"\0" * min(64, len(content) - start) + content[start + 64 :])
        check_all(store, data, expected, start)


def expect(store, schema, sentence, **more):
    with pytest.raises(PartitionException, match=sentence) as error:
        list(gate(store, schema, **more).read())
    assert error.value.partition == 1
    return str(error.value)


def test_the_sentences(tmp_path):
    store, data = ResultStore(str(tmp_path)), table(40)
    path = Path(tmp_path / NAME)
    text = expect(store, data.schema, "is missing")
    assert "partition 1 of data set 3, as attempt 2 (token 99)" in text
    write(store, data)
    expect(store, data.schema.set(1, pa.field("s", pa.binary())), "another schema")
    expect(store, data.schema, "has 8 subpartitions where 9 were expected", subpartitions=9, high=9)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + b"1")
    expect(store, data.schema, "another version of Firesteel")
    path.write_bytes(content[:-10])
    expect(store, data.schema, "has no trailer")
    path.unlink()
    path.mkdir()
    expect(store, data.schema, "cannot be read")


def test_an_unfinished_object_is_not_readable(tmp_path):
    store, data = ResultStore(str(tmp_path)), table(1000)
    writer = ResultWriter(store, NAME, data.schema, SUBPARTITIONS, ("k",), memory_budget=4000)
    for batch in data.to_batches(100):
        writer.write(batch)
    assert (tmp_path / NAME).stat().st_size > 1000
    expect(store, data.schema, "has no trailer")
    writer.abort()
    assert store.list() == []


def test_an_object_under_another_name_is_refused(tmp_path):
    store, data = ResultStore(str(tmp_path)), table(40)
    other = object_name(3, 1, 1, 98)
    write(store, data, other)
    (tmp_path / other).rename(tmp_path / NAME)
    expect(store, data.schema, "holds what another object should hold")


def test_an_object_that_goes_while_it_is_read(tmp_path):
    store, data = ResultStore(str(tmp_path)), table(2000)  # too large to come with its index
    write(store, data)
    reader = gate(store, data.schema)
    reader.bytes_per_subpartition()
    store.delete([NAME])
    with pytest.raises(PartitionException, match="is missing"):
        list(reader.read(0, SUBPARTITIONS))


def test_trouble_of_the_store_is_not_blamed_on_the_producer(tmp_path, monkeypatch):
    store, data = ResultStore(str(tmp_path)), table(1)

    def refuse(name):
        raise PermissionError(errno.EACCES, "Permission denied", name)

    monkeypatch.setattr(store, "open_input", refuse)
    with pytest.raises(StorageError, match="Permission denied"):
        list(gate(store, data.schema).read())


def test_lack_of_memory_is_not_blamed_on_the_producer(tmp_path, monkeypatch):
    store, data = ResultStore(str(tmp_path)), table(1)
    write(store, data)

    def refuse(message, schema):
        raise pa.ArrowMemoryError("no more")

    monkeypatch.setattr(pa.ipc, "read_record_batch", refuse)
    with pytest.raises(MemoryError):
        list(gate(store, data.schema).read())


def test_abort_never_hides_what_went_wrong(tmp_path, monkeypatch):
    store, data = ResultStore(str(tmp_path)), table(1)
    writer = ResultWriter(store, NAME, data.schema, SUBPARTITIONS, memory_budget=1 << 20)

    def refuse(names):
        raise StorageError("cannot")

    monkeypatch.setattr(store, "delete", refuse)
    writer.abort()
    writer.abort()


@pytest.mark.skipif(
    not Path("/dev/shm").is_dir(), reason="no file system in memory here, whose directories have no end"
)
def test_a_directory_in_the_place_of_an_object_is_told_as_one_and_stays_closed():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        (Path(folder) / "d0-p0-a0-t1.fsr").mkdir()
        store, before = ResultStore(folder), len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(OSError) as caught:
            store.open_input("d0-p0-a0-t1.fsr")
        assert caught.value.errno == errno.EISDIR
        assert len(list(Path("/proc/self/fd").iterdir())) == before
