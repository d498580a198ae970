"""Partitions that a job has rows for are replaced, all or nothing, whatever fails; all others stay as they are."""

import itertools
import subprocess
import sys
import textwrap

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from connectors_kit import run_sink
from firesteel.connectors.files.writing.in_place import Moves
from firesteel.connectors.formats.parquet import ParquetSink
from firesteel.errors import FiresteelError, UsageError

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64())])


def rows(*pairs, schema=SCHEMA):
    return [pa.record_batch([list(column) for column in zip(*pairs, strict=True)], schema=schema)]


class Place:
    def __init__(self, filesystem, root):
        self.fs, self.root = filesystem, root

    def sink(self, mode="overwrite_partitions", **options):
        return ParquetSink(f"{self.root}out", filesystem=self.fs, mode=mode, **{"partition_by": "k", **options})

    def begun(self, *shares, schema=SCHEMA, job_id="job", **options):
        """A sink and its messages, ready to be committed."""
        sink = self.sink(**options)
        sink.check(schema)
        sink.begin(job_id)
        messages = []
        for subtask, batches in enumerate(shares):
            writer = sink.write(subtask, 0)
            for batch in batches:
                writer.write(batch)
            messages.append(writer.finish())
        return sink, messages

    def write(self, *shares, **options):
        sink, messages = self.begun(*shares, **options)
        sink.commit(messages)

    def files(self, name="out"):
        path = f"{self.root}{name}".rstrip("/")
        infos = self.fs.get_file_info(pafs.FileSelector(path, recursive=True))
        return sorted(info.path[len(path) + 1 :] for info in infos if info.type is pafs.FileType.File)

    def values(self):
        """The values of x by folder."""
        found = {}
        for path in self.files():
            if path.endswith(".parquet"):
                with self.fs.open_input_file(f"{self.root}out/{path}") as file:
                    found.setdefault(path.rpartition("/")[0], []).extend(pq.read_table(file).column("x").to_pylist())
        return {folder: sorted(values) for folder, values in found.items()}


@pytest.fixture(params=["local", "elsewhere"])
def place(request, tmp_path):
    if request.param == "local":
        return Place(pafs.LocalFileSystem(), f"{tmp_path}/")
    filesystem = pafs._MockFileSystem()
    filesystem.create_dir("root")
    return Place(filesystem, "root/")


def test_only_partitions_with_rows_are_replaced(place):
    place.write(rows((1, 10), (2, 20), (None, 30)), rows((1, 11)), mode="error")
    kept = [name for name in place.files() if name.startswith("k=2/")]
    place.write(rows((1, 12), (3, 32)), [], rows((None, 31)), rows((1, 13)))
    assert place.values() == {"k=1": [12, 13], "k=2": [20], "k=3": [32], "k=__HIVE_DEFAULT_PARTITION__": [31]}
    assert set(kept) <= set(place.files())
    assert "_SUCCESS" in place.files()
    assert not [name for name in place.files("") if ".firesteel-" in name]


def test_no_rows_touch_nothing(place):
    place.write(rows((1, 10)), mode="error")
    before = place.files()
    place.write([], [])
    assert place.files() == before


def test_a_directory_is_made(place):
    place.write(rows((1, 10)))
    assert place.values() == {"k=1": [10]}
    assert "_SUCCESS" in place.files()


def test_a_value_has_several_names(place):
    """Of numbers: 01 of another writer is 1. Of strings, it is not."""
    names = ("k=01/a.parquet", "k=1/b.parquet", "k=+1/c.parquet", "k=x/d.parquet")
    for name in names:
        place.fs.create_dir(f"{place.root}out/{name}".rpartition("/")[0])
        with place.fs.open_output_stream(f"{place.root}out/{name}") as stream:
            stream.write(b"")
    place.write(rows((1, 10)))
    assert [name for name in place.files() if name in names] == ["k=+1/c.parquet", "k=x/d.parquet"]
    texts = pa.schema([("k", pa.string()), ("x", pa.int64())])
    place.write(rows(("01", 11), schema=texts), schema=texts)
    assert len([name for name in place.files() if name.startswith("k=1/")]) == 1


def test_several_levels(place):
    schema = pa.schema([("k", pa.int64()), ("day", pa.date32()), ("x", pa.int64())])
    days = pa.array([0, 1, 0, 1], pa.date32())
    place.write(
        [pa.record_batch([[1, 1, 2, 2], days, [1, 2, 3, 4]], schema=schema)],
        schema=schema,
        mode="error",
        partition_by=["k", "day"],
    )
    again = pa.record_batch([[1, 3], days[:2], [9, 8]], schema=schema)
    place.write([again], schema=schema, partition_by=["k", "day"])
    assert place.values() == {
        "k=1/day=1970-01-01": [9],
        "k=1/day=1970-01-02": [2],
        "k=2/day=1970-01-01": [3],
        "k=2/day=1970-01-02": [4],
        "k=3/day=1970-01-02": [8],
    }


def test_what_is_partitioned_otherwise_is_refused(place):
    place.write(rows((1, 10)), mode="error")
    three = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("x", pa.int64())])
    for columns in (["j"], ["k", "j"], ["j", "k"]):
        with pytest.raises(UsageError, match="partitioned by k, and partition_by is"):
            place.sink(partition_by=columns).check(three)
    with pytest.raises(UsageError, match="wants partition_by"):
        ParquetSink(f"{place.root}out", filesystem=place.fs, mode="overwrite_partitions")


def test_what_was_held_can_be_taken_back(place):
    place.write(rows((1, 10), (2, 20)), mode="error")
    before = place.files()
    sink, messages = place.begun(rows((1, 11), (3, 31)))
    sink.hold()
    sink.commit(messages)
    assert place.values() == {"k=1": [11], "k=2": [20], "k=3": [31]}
    sink.rollback()
    sink.abort([])
    assert place.files() == before
    assert place.files("") == [f"out/{name}" for name in before]


def each_move_failing(monkeypatch):
    """Lets the first move of what follows fail, the second the next time, and so on; gives its number."""
    real = Moves.move
    for failing in itertools.count():
        count = itertools.count()

        def move(self, source, target, count=count, failing=failing):
            if next(count) == failing:
                raise OSError("no")
            real(self, source, target)

        monkeypatch.setattr(Moves, "move", move)
        yield failing
        monkeypatch.setattr(Moves, "move", real)


def test_a_commit_that_fails_anywhere_changes_nothing(place, monkeypatch):
    place.write(rows((1, 10), (2, 20), (3, 30)), mode="error")
    before = place.files()
    for failing in each_move_failing(monkeypatch):
        sink, messages = place.begun(rows((1, 11), (3, 31), (4, 41)), job_id=f"job{failing}")
        try:
            sink.commit(messages)
            break
        except FiresteelError:
            sink.abort([])
            assert place.files("") == [f"out/{name}" for name in before]
    assert failing > 4
    assert place.values() == {"k=1": [11], "k=2": [20], "k=3": [31], "k=4": [41]}


_DYING = """
import itertools, os, sys, pyarrow as pa
from firesteel.connectors.files.writing.in_place import Moves
from firesteel.connectors.formats.parquet import ParquetSink
schema = pa.schema([("k", pa.int64()), ("x", pa.int64())])
sink = ParquetSink(sys.argv[1], mode="overwrite_partitions", partition_by="k")
sink.check(schema)
sink.begin("dead")
writer = sink.write(0, 0)
writer.write(pa.record_batch([[1, 3, 4], [11, 31, 41]], schema=schema))
message = writer.finish()
real, count, last = Moves.move, itertools.count(), int(sys.argv[2])
def move(self, source, target):
    if next(count) == last:
        os._exit(9)
    real(self, source, target)
Moves.move = move
sink.hold()
sink.commit([message])
if next(count) == last:
    os._exit(9)
sink.release()
"""


@pytest.mark.parametrize("step", [1, *[pytest.param(n, marks=pytest.mark.full) for n in (0, 2, 3, 4, 5, 6, 7, 8)]])
def test_a_driver_killed_while_it_publishes_is_taken_back(tmp_path, step):
    """Before each of its moves, and before the sinks are released: the next job that writes there finds all old rows."""
    place = Place(pafs.LocalFileSystem(), f"{tmp_path}/")
    place.write(rows((1, 10), (2, 20), (3, 30)), mode="error")
    before = place.files()
    command = [sys.executable, "-c", textwrap.dedent(_DYING), str(tmp_path / "out"), str(step)]
    assert subprocess.run(command, check=False).returncode == 9
    assert len(list(tmp_path.iterdir())) == 2
    sink = place.sink()
    sink.check(SCHEMA)
    sink.begin("next")
    assert place.files() == before
    sink.abort([])
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_taking_back_keeps_what_others_wrote_meanwhile(tmp_path):
    place = Place(pafs.LocalFileSystem(), f"{tmp_path}/")
    place.write(rows((1, 10), (2, 20), (3, 30)), mode="error")
    before = place.files()
    command = [sys.executable, "-c", textwrap.dedent(_DYING), str(tmp_path / "out"), "8"]
    assert subprocess.run(command, check=False).returncode == 9
    for folder in ("k=1", "k=4"):
        (tmp_path / "out" / folder / "theirs.parquet").touch()
    sink = place.sink()
    sink.check(SCHEMA)
    sink.begin("next")
    assert place.files() == sorted([*before, "k=1/theirs.parquet", "k=4/theirs.parquet"])
    sink.abort([])


def test_what_cannot_be_taken_back_is_said(tmp_path):
    place = Place(pafs.LocalFileSystem(), f"{tmp_path}/")
    place.write(rows((1, 10), (2, 20), (3, 30)), mode="error")
    command = [sys.executable, "-c", textwrap.dedent(_DYING), str(tmp_path / "out"), "8"]
    assert subprocess.run(command, check=False).returncode == 9
    (tmp_path / "out/k=1").rename(tmp_path / "out/away")
    (tmp_path / "out/k=1").touch()
    with pytest.raises(UsageError, match=r"is half changed: .* cannot be taken back .*\.out\.firesteel-dead/aside"):
        place.sink().begin("next")


def test_other_formats_have_it(tmp_path):
    from firesteel.connectors.formats.json_files import JsonSink

    for x in (1, 2):
        sink = JsonSink(tmp_path / "out", mode="overwrite_partitions", partition_by="k")
        sink.commit(run_sink(sink, [rows((1, x), (x + 1, x))], SCHEMA, f"job{x}"))
    texts = {path.parent.name: path.read_text() for path in (tmp_path / "out").rglob("*.json")}
    assert texts == {"k=1": '{"x":2}\n', "k=2": '{"x":1}\n', "k=3": '{"x":2}\n'}
