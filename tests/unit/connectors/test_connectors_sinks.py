"""Files are published once, all or nothing, whatever fails: on this machine's filesystem and on one that is not local."""

import dataclasses
import json
import os
import pickle
import shlex
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from connectors_kit import run_sink
from firesteel.connectors.base import Sink
from firesteel.connectors.files.writing.in_place import Moves
from firesteel.connectors.formats.parquet import ParquetSink
from firesteel.connectors.formats.text import TextSink
from firesteel.errors import FiresteelError, UsageError
from firesteel.results.storage.owner import myself

SCHEMA = pa.schema([("x", pa.int64())])


def rows(*values):
    return [pa.record_batch([list(values)], schema=SCHEMA)]


class Place:
    """A filesystem to write to, looked at with the same words wherever it is."""

    def __init__(self, filesystem, root):
        self.fs, self.root = filesystem, root

    def sink(self, **kwargs):
        return ParquetSink(f"{self.root}out", filesystem=self.fs, **kwargs)

    def names(self, path=""):
        infos = self.fs.get_file_info(pafs.FileSelector(f"{self.root}{path}".rstrip("/"), recursive=True))
        start = len(f"{self.root}{path}")
        return sorted(i.path[start:].lstrip("/") for i in infos if i.type is pafs.FileType.File)

    def values(self):
        paths = [name for name in self.names("out") if name.endswith(".parquet")]
        tables = [pq.read_table(self.fs.open_input_file(f"{self.root}out/{p}")) for p in paths]
        return pa.concat_tables(tables).column("x").to_pylist()

    def put(self, name):
        self.fs.create_dir(f"{self.root}{name}".rsplit("/", 1)[0])
        with self.fs.open_output_stream(f"{self.root}{name}") as stream:
            stream.write(b"x")


@pytest.fixture(params=["local", "elsewhere"])
def place(request, tmp_path):
    if request.param == "local":
        return Place(pafs.LocalFileSystem(), f"{tmp_path}/")
    filesystem = pafs._MockFileSystem()
    filesystem.create_dir("root")
    return Place(filesystem, "root/")


def job(sink, shares, job_id="job-1"):
    """As run_sink, but without pickling: an in-memory filesystem cannot travel."""
    sink.check(SCHEMA)
    sink.begin(job_id)
    messages = []
    for subtask, batches in enumerate(shares):
        writer = sink.write(subtask, 0)
        for batch in batches:
            writer.write(batch)
        messages.append(writer.finish())
    return messages


def test_nothing_is_visible_before_commit_and_everything_after(place):
    sink = place.sink()
    assert isinstance(sink, Sink)
    messages = job(sink, [rows(1, 2), [], rows(3)])
    assert [name for name in place.names() if not name.startswith(".out.firesteel-")] == []
    assert [m.rows for m in messages] == [2, 0, 1]
    sink.commit(messages)
    assert place.names() == ["out/_SUCCESS", "out/part-00000.parquet", "out/part-00002.parquet"]
    assert place.values() == [1, 2, 3]


def test_only_winners_are_published(place):
    sink = place.sink()
    (first,) = job(sink, [rows(1)])
    mirror = sink.write(0, 1)
    mirror.write(rows(1)[0])
    second = mirror.finish()
    unfinished = sink.write(0, 2)
    unfinished.write(rows(1)[0])
    sink.abort([first])
    assert not [name for name in place.names() if name.endswith(first.name)]
    unfinished.abort()
    sink.commit([second])
    assert place.names() == ["out/_SUCCESS", "out/part-00000.parquet"]
    assert place.values() == [1]


def test_abort_leaves_nothing(place):
    sink = ParquetSink(f"{place.root}a/b/out", filesystem=place.fs)
    job(sink, [rows(1)])
    sink.abort([])
    assert place.fs.get_file_info(pafs.FileSelector(place.root.rstrip("/"), recursive=True)) == []


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_what_was_held_can_be_taken_back(place, mode):
    if mode == "overwrite":
        place.put("out/old")
    before = place.names()
    sink = place.sink(mode=mode)
    messages = job(sink, [rows(1), rows(2)])
    sink.hold()
    sink.commit(messages)
    assert place.values() == [1, 2]
    sink.rollback()
    sink.abort([])
    assert place.names() == before
    again = job(sink, [rows(3)])
    sink.hold()
    sink.commit(again)
    sink.release()
    assert place.names() == ["out/_SUCCESS", "out/part-00000.parquet"]


def test_abort_before_begin_is_nothing(place):
    place.sink().abort([])


def test_an_existing_output_is_refused(place):
    place.put("out/old")
    with pytest.raises(UsageError, match=r"The output .*out exists already, as a directory\. .*mode='overwrite'"):
        place.sink().check(SCHEMA)
    assert place.names() == ["out/old"]


def test_a_file_in_the_way_is_refused_in_every_mode(place):
    place.put("out")
    for mode in ("error", "overwrite"):
        with pytest.raises(UsageError, match="exists already, as a file"):
            place.sink(mode=mode).check(SCHEMA)
    with pytest.raises(UsageError, match="out is a file, not a directory"):
        ParquetSink(f"{place.root}out/deeper/x", filesystem=place.fs).check(SCHEMA)


def test_overwrite_replaces_all_of_it(place):
    place.put("out/part-00000.parquet")
    place.put("out/part-00009.parquet")
    place.put("out/_SUCCESS")
    sink = place.sink(mode="overwrite")
    messages = job(sink, [rows(7)])
    assert "out/part-00009.parquet" in place.names()
    sink.commit(messages)
    assert place.names() == ["out/_SUCCESS", "out/part-00000.parquet"]
    assert place.values() == [7]


def test_an_output_made_meanwhile_is_not_touched(place):
    sink = place.sink()
    messages = job(sink, [rows(1), rows(2)])
    place.put("out/theirs")
    with pytest.raises(FiresteelError, match=r"out was created by another program while the job was running"):
        sink.commit(messages)
    assert [n for n in place.names() if n.startswith("out")] == ["out/theirs"]
    sink.abort([])
    assert place.names() == ["out/theirs"]


def test_a_commit_that_failed_can_be_tried_again(place):
    sink = place.sink()
    messages = job(sink, [rows(1), rows(2)])
    place.put("out/theirs")
    with pytest.raises(FiresteelError):
        sink.commit(messages)
    place.fs.delete_dir(f"{place.root}out")
    sink.commit(messages)
    assert place.values() == [1, 2]


@pytest.mark.parametrize("mode", ["error", "overwrite"])
def test_a_move_that_fails_half_way_is_undone(mode):
    place = Place(pafs._MockFileSystem(), "root/")
    place.fs.create_dir("root")
    before = []
    if mode == "overwrite":
        for name in ("out/_SUCCESS", "out/part-00000.parquet", "out/part-00001.parquet"):
            place.put(name)
        before = place.names()
    sink = place.sink(mode=mode)
    messages = job(sink, [rows(1), rows(2), rows(3)])
    place.fs.create_dir("root/out/part-00002.parquet")  # no file can be moved here
    with pytest.raises(FiresteelError, match="cannot be written"):
        sink.commit(messages)
    assert [n for n in place.names() if n.startswith("out")] == before
    sink.abort([])
    assert place.names() == before


@pytest.mark.parametrize("damage", ["remove", "truncate"])
def test_a_winner_that_is_not_there_whole_publishes_nothing(tmp_path, damage):
    sink = ParquetSink(tmp_path / "out")
    messages = run_sink(sink, [rows(1), rows(2)], SCHEMA)
    (victim,) = tmp_path.glob(f".out.firesteel-job-1/attempts/{messages[1].name}")
    if damage == "remove":
        victim.unlink()
    else:
        os.truncate(victim, 10)
    with pytest.raises(
        FiresteelError,
        match=r"Nothing was published to .*out: the file that subtask 1 wrote, .* (is gone|has 10 bytes)",
    ):
        sink.commit(messages)
    assert not (tmp_path / "out").exists()


def test_a_vanished_staging_directory_is_a_sentence(tmp_path):
    sink = ParquetSink(tmp_path / "out")
    messages = run_sink(sink, [rows(1)], SCHEMA)
    late = sink.write(1, 0)
    shutil.rmtree(tmp_path / ".out.firesteel-job-1")
    with pytest.raises(FiresteelError, match="its directory is gone"):
        late.write(rows(2)[0])
    late.abort()
    with pytest.raises(FiresteelError, match="is gone"):
        sink.commit(messages)
    sink.abort([])
    assert list(tmp_path.iterdir()) == []


def test_a_zombie_that_finishes_after_the_commit_leaves_nothing(tmp_path):
    sink = ParquetSink(tmp_path / "out")
    messages = run_sink(sink, [rows(1)], SCHEMA)
    zombie = sink.write(0, 1)
    zombie.write(rows(1)[0])
    sink.commit(messages)
    zombie.finish()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["_SUCCESS", "part-00000.parquet"]


def test_two_sinks_of_one_job_on_one_path(place):
    job(place.sink(), [])
    with pytest.raises(UsageError, match=r"Two sinks of this job write to .*out"):
        job(place.sink(), [])


def test_a_writer_that_fails_leaves_no_file(tmp_path):
    sink = ParquetSink(tmp_path / "out")
    sink.check(SCHEMA)
    sink.begin("job-1")
    writer = sink.write(0, 0)
    writer.write(rows(1)[0])
    with pytest.raises(KeyError):
        writer.write(pa.record_batch({"y": [1]}))
    writer.abort()
    assert list((tmp_path / ".out.firesteel-job-1" / "attempts").iterdir()) == []


def test_the_link_is_kept_when_its_target_is_overwritten(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    sink = ParquetSink(tmp_path / "link", mode="overwrite")
    sink.commit(run_sink(sink, [rows(1)], SCHEMA))
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "_SUCCESS").exists()


def test_what_is_no_path():
    with pytest.raises(UsageError, match="None is not a path"):
        TextSink(None)


def test_bad_mode():
    with pytest.raises(UsageError, match="mode='appendix'"):
        TextSink("out", mode="appendix")


# --- modes ---


def added(place, *values, job_id="job-2", **options):
    sink = place.sink(mode="append", **options)
    messages = job(sink, [rows(*values)], job_id)
    return sink, messages


def test_append_adds_files_and_touches_none(place):
    first = place.sink()
    first.commit(job(first, [rows(1)]))
    before = place.names()
    for number in (2, 3):
        sink, messages = added(place, number, job_id=f"job-{number}")
        sink.commit(messages)
    assert set(before) < set(place.names())
    assert sorted(place.values()) == [1, 2, 3]
    assert len(place.names("out")) == 4  # three parts and one mark
    assert not [name for name in place.names() if ".firesteel-" in name]


def test_append_makes_what_is_not_there(place):
    sink, messages = added(place, 1)
    sink.commit(messages)
    assert place.values() == [1]
    assert "out/_SUCCESS" in place.names()


def test_two_jobs_append_at_once(place):
    one, first = added(place, 1, job_id="a")
    two, second = added(place, 2, job_id="b")
    one.commit(first)
    two.commit(second)
    assert sorted(place.values()) == [1, 2]


def test_append_that_fails_half_way_takes_its_files_back():
    place = Place(pafs._MockFileSystem(), "root/")
    place.fs.create_dir("root")
    place.put("out/theirs.parquet")
    sink = place.sink(mode="append")
    messages = job(sink, [rows(1), rows(2)])
    place.fs.create_dir(f"root/out/part-00001-{sink._tag}.parquet")  # no file can be moved here
    with pytest.raises(FiresteelError, match="cannot be written"):
        sink.commit(messages)
    assert [n for n in place.names("out") if n] == ["theirs.parquet"]
    sink.abort([])
    assert place.names() == ["out/theirs.parquet"]


def test_what_was_appended_can_be_taken_back(place):
    place.put("out/theirs.parquet")
    sink, messages = added(place, 1)
    sink.hold()
    sink.commit(messages)
    assert len(place.names("out")) == 3
    sink.rollback()
    sink.abort([])
    assert place.names() == ["out/theirs.parquet"]


def test_append_wants_the_same_partitions(place):
    place.put("out/k=1/j=1/a.parquet")
    with pytest.raises(UsageError, match=r"is partitioned by k, and partition_by is \[\]"):
        place.sink(mode="append").check(SCHEMA)
    two = pa.schema([("x", pa.int64()), ("k", pa.int64()), ("j", pa.int64())])
    with pytest.raises(UsageError, match=r"partition_by is \['j'\]"):
        place.sink(mode="append", partition_by="j").check(two)
    place.sink(mode="append", partition_by=["k", "j"]).check(two)
    place.put("out/stray.parquet")
    with pytest.raises(UsageError, match="partitioned"):
        place.sink(mode="append", partition_by="k").check(two)


def test_partitions_that_no_reader_would_look_into_are_refused(place):
    place.put("out/.trash=1/_y=1/a.parquet")
    schema = pa.schema([("x", pa.int64()), ("_y", pa.int64()), (".y", pa.int64())])
    place.sink(mode="append", partition_by="_y").check(schema)
    with pytest.raises(UsageError, match=r"the partition column '\.y' would begin with a dot"):
        place.sink(mode="append", partition_by=["_y", ".y"]).check(schema)


def test_ignore_leaves_what_is_there(place):
    place.put("out/old")
    sink = place.sink(mode="ignore")
    messages = job(sink, [rows(1)])
    sink.hold()
    sink.commit(messages)
    sink.release()
    sink.abort([])
    assert place.names() == ["out/old"]
    new = Place(place.fs, f"{place.root}new/")
    new.fs.create_dir(new.root.rstrip("/"))
    fresh = new.sink(mode="ignore")
    fresh.commit(job(fresh, [rows(1)]))
    assert new.values() == [1]


def test_errorifexists_is_error(place):
    place.put("out/old")
    with pytest.raises(UsageError, match="exists already"):
        place.sink(mode="errorifexists").check(SCHEMA)


def test_the_next_job_takes_back_what_a_dead_one_had_appended_half(tmp_path):
    first = ParquetSink(tmp_path / "out")
    first.commit(run_sink(first, [rows(1)], SCHEMA))
    die(
        tmp_path / "out",
        """
        adding = ParquetSink(sys.argv[1], mode="append")
        adding.check(schema)
        adding.begin("half")
        messages = []
        for subtask in range(3):
            writer = adding.write(subtask, 0)
            writer.write(pa.record_batch([[9]], schema=schema))
            messages.append(writer.finish())
        from firesteel.connectors.files.writing import in_place
        move = in_place.Moves.move
        def one_then_die(self, source, target):
            move(self, source, target)
            os._exit(9)
        in_place.Moves.move = one_then_die
        adding.commit(messages)
        """,
    )
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 2
    sink = ParquetSink(tmp_path / "out", mode="append")
    sink.commit(run_sink(sink, [rows(2)], SCHEMA, "next"))
    assert sorted(pq.read_table(tmp_path / "out").column("x").to_pylist()) == [1, 2]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


# --- jobs that died ---

_DYING_JOB = """
import os, sys, pyarrow as pa
from firesteel.connectors.formats.parquet import ParquetSink
schema = pa.schema([("x", pa.int64())])
sink = ParquetSink(sys.argv[1], mode="overwrite")
sink.check(schema)
sink.begin("dead")
writer = sink.write(0, 0)
writer.write(pa.record_batch([[1]], schema=schema))
writer.finish()
"""


def die(target, then=""):
    code = _DYING_JOB + textwrap.dedent(then) + "\nos._exit(9)\n"
    assert subprocess.run([sys.executable, "-c", code, str(target)], check=False).returncode == 9


def test_the_next_job_removes_what_a_dead_one_left(tmp_path):
    die(tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == [".out.firesteel-dead"]
    sink = ParquetSink(tmp_path / "out")
    sink.commit(run_sink(sink, [rows(1)], SCHEMA))
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_what_belongs_to_others_stays(tmp_path):
    alive = ParquetSink(tmp_path / "out")
    messages = run_sink(alive, [rows(1)], SCHEMA, "alive")
    other_host = tmp_path / ".out.firesteel-far"
    other_host.mkdir()
    (other_host / "_owner.json").write_text(json.dumps({"host": "far away", "pid": 1, "started": None}))
    unknown = tmp_path / ".out.firesteel-unknown"
    unknown.mkdir()
    (tmp_path / ".output.firesteel-x").mkdir()
    mine = ParquetSink(tmp_path / "out")
    run_sink(mine, [rows(2)], SCHEMA, "mine")
    mine.abort([])
    alive.commit(messages)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        ".out.firesteel-far",
        ".out.firesteel-unknown",
        ".output.firesteel-x",
        "out",
    ]


def test_an_overwrite_that_died_half_way_gives_the_old_output_back(tmp_path):
    first = ParquetSink(tmp_path / "out")
    first.commit(run_sink(first, [rows(1)], SCHEMA))
    die(
        tmp_path / "out",
        "os.rename(sys.argv[1], os.path.join(os.path.dirname(sys.argv[1]), '.out.firesteel-dead/old'))",
    )
    assert not (tmp_path / "out").exists()
    ParquetSink(tmp_path / "out", mode="overwrite").begin("next")
    assert pq.read_table(tmp_path / "out").column("x").to_pylist() == [1]
    assert not (tmp_path / ".out.firesteel-dead").exists()


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_what_a_dead_overwrite_gives_back_is_there_already(tmp_path, mode):
    """Told, or left alone, before the job runs and not when it commits."""
    first = ParquetSink(tmp_path / "out")
    first.commit(run_sink(first, [rows(1)], SCHEMA))
    die(
        tmp_path / "out",
        "os.rename(sys.argv[1], os.path.join(os.path.dirname(sys.argv[1]), '.out.firesteel-dead/old'))",
    )
    second = ParquetSink(tmp_path / "out", mode=mode)
    second.check(SCHEMA)
    if mode == "error":
        with pytest.raises(UsageError, match="exists already, as a directory"):
            second.begin("next")
    else:
        second.begin("next")
        second.commit([])
    assert pq.read_table(tmp_path / "out").column("x").to_pylist() == [1]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# --- the disk itself, in a mount namespace of our own ---

_MOUNTS = shutil.which("unshare") is not None and (
    subprocess.run(
        ["unshare", "-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"], capture_output=True, check=False
    ).returncode
    == 0
)
needs_mounts = pytest.mark.skipif(not _MOUNTS, reason="no mount namespaces here")


def on_a_mount(tmp_path, options, code):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(code))
    (tmp_path / "disk").mkdir()
    command = f"mount -t tmpfs -o {options} tmpfs {tmp_path}/disk && exec {shlex.quote(sys.executable)} {script} {tmp_path}/disk"
    return subprocess.run(["unshare", "-rm", "sh", "-c", command], capture_output=True, text=True, check=False)


def test_a_limit_of_the_files_size_is_a_failure_of_the_storage(tmp_path):
    code = """
import resource, signal, sys, numpy as np, pyarrow as pa
from firesteel.connectors.formats.csv_files import CsvSink
from firesteel.errors import FiresteelError
from firesteel.task.executor.failures import describe_failure
batch = pa.record_batch({"x": np.arange(1 << 20)})
sink = CsvSink(sys.argv[1] + "/out")
sink.check(batch.schema)
sink.begin("j")
writer = sink.write(0, 0)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    writer.write(batch)
    writer.finish()
except FiresteelError as error:
    print(describe_failure(error).kind, error)
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout.startswith(f"STORAGE {tmp_path}/.out.firesteel-j/"), done.stderr
    assert "cannot be written: the file would be larger than files may be there." in done.stdout


@needs_mounts
def test_a_full_disk_is_a_sentence_and_leaves_nothing(tmp_path):
    done = on_a_mount(
        tmp_path,
        "size=256k",
        """
        import os, sys, numpy as np, pyarrow as pa
        from firesteel.connectors.formats.parquet import ParquetSink
        from firesteel.errors import FiresteelError
        from firesteel.task.executor.failures import describe_failure
        batch = pa.record_batch({"x": np.random.default_rng(0).integers(0, 1 << 60, 1 << 20)})
        sink = ParquetSink(sys.argv[1] + "/out")
        sink.check(batch.schema)
        sink.begin("j")
        writer = sink.write(0, 0)
        try:
            for _ in range(9):
                writer.write(batch)
            writer.finish()
        except FiresteelError as error:
            print(error)
            print(describe_failure(error).kind)
        writer.abort()
        sink.abort([])
        print(os.listdir(sys.argv[1]))
        """,
    )
    first, kind, second = done.stdout.splitlines()
    assert kind == "STORAGE", "nobody's function is to blame"
    assert first.endswith(
        "cannot be written: no space is left on the device. Free some space there or write elsewhere."
    )
    assert "/disk/.out.firesteel-j/attempts/part-00000-0-" in first
    assert second == "[]"


@needs_mounts
def test_a_read_only_disk_is_found_before_the_job_and_at_the_commit(tmp_path):
    done = on_a_mount(
        tmp_path,
        "size=1m",
        """
        import os, subprocess, sys, pyarrow as pa
        from firesteel.connectors.formats.parquet import ParquetSink
        from firesteel.errors import FiresteelError, UsageError
        schema = pa.schema([("x", pa.int64())])
        sink = ParquetSink(sys.argv[1] + "/out")
        sink.check(schema)
        sink.begin("j")
        writer = sink.write(0, 0)
        writer.write(pa.record_batch([[1]], schema=schema))
        message = writer.finish()
        subprocess.run(["mount", "-o", "remount,ro", "tmpfs", sys.argv[1]], check=True)
        try:
            sink.commit([message])
        except FiresteelError as error:
            print(error)
        print(os.path.exists(sys.argv[1] + "/out"))
        try:
            ParquetSink(sys.argv[1] + "/other").check(schema)
        except UsageError as error:
            print(error)
        subprocess.run(["mount", "-o", "remount,rw", "tmpfs", sys.argv[1]], check=True)
        sink.commit([message])
        print(sorted(os.listdir(sys.argv[1] + "/out")))
        """,
    )
    commit, exists, check, files = done.stdout.splitlines()
    assert "/disk/out cannot be written: the file system is read-only." in commit
    assert exists == "False"
    assert check.endswith(
        "/disk/other cannot be written: you may not write in " + str(tmp_path / "disk") + ". Choose another path."
    )
    assert files == "['_SUCCESS', 'part-00000.parquet']"


def test_messages_and_sinks_are_small_and_picklable(tmp_path):
    sink = ParquetSink(Path(tmp_path) / "out")
    (message,) = run_sink(sink, [rows(1)], SCHEMA)
    assert len(pickle.dumps(message)) < 300
    assert len(pickle.dumps(sink)) < 2000


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_a_begin_that_fails_half_way_leaves_nothing(tmp_path, monkeypatch, fails_at):
    """Whichever of its steps fails: what it made is removed, the parent directories too."""
    sink = ParquetSink(str(tmp_path / "deep" / "out"))
    sink.check(SCHEMA)
    calls = iter(range(1, 10))

    def failing(step):
        def run(*args, **kwargs):
            if next(calls) == fails_at:
                raise OSError(28, "No space left on device")
            return step(*args, **kwargs)

        return run

    class Full:
        def __init__(self, inner):
            self._inner = inner
            self.create_dir, self.open_output_stream = failing(inner.create_dir), failing(inner.open_output_stream)

        def __getattr__(self, name):
            return getattr(self._inner, name)

    sink.target = dataclasses.replace(sink.target, filesystem=Full(pafs.LocalFileSystem()))
    with pytest.raises(FiresteelError, match="no space is left"):
        sink.begin("job")
    assert list(tmp_path.rglob("*")) == []


def test_the_owner_is_known_by_the_boot_of_the_machine(tmp_path):
    sink = ParquetSink(str(tmp_path / "out"))
    sink.check(SCHEMA)
    sink.begin("job")
    owner = json.loads((tmp_path / ".out.firesteel-job" / "_owner.json").read_text())
    boot = Path("/proc/sys/kernel/random/boot_id")
    assert not boot.exists() or boot.read_text().strip() in owner["host"]


def test_taking_back_leaves_what_another_job_put_into_a_new_directory(place):
    place.fs.create_dir(f"{place.root}out")
    with pytest.raises(RuntimeError), Moves(place.fs) as moves:
        place.put("mine")
        moves.move(f"{place.root}mine", f"{place.root}out/a=1/b=1/mine")
        place.put("more")
        moves.move(f"{place.root}more", f"{place.root}out/a=2/b=1/more")
        place.put("out/a=1/theirs")
        raise RuntimeError
    assert place.names() == ["mine", "more", "out/a=1/theirs"]
    folders = place.fs.get_file_info(pafs.FileSelector(f"{place.root}out", recursive=True))
    assert sorted(info.base_name for info in folders) == ["a=1", "theirs"]


def test_nothing_is_appended_to_what_is_half_overwritten():
    place = Place(pafs._MockFileSystem(), "root/")
    for name in ("out/part-00000.parquet", ".out.firesteel-dead/old/part-00001.parquet"):
        place.put(name)
    owner = json.dumps({**myself(), "pid": 1 << 30}).encode()
    with place.fs.open_output_stream("root/.out.firesteel-dead/_owner.json") as stream:
        stream.write(owner)
    before = place.names()
    with pytest.raises(UsageError, match=r"half overwritten: .* moved lie in .*out.firesteel-dead/old"):
        job(place.sink(mode="append"), [rows(1)])
    assert place.names() == before
    sink = place.sink(mode="overwrite")
    sink.commit(job(sink, [rows(2)]))
    assert place.values() == [2]


@pytest.mark.parametrize("key", ["", "k", "_k", "_"])
def test_parquet_is_appended_to_what_has_the_same_columns_only(tmp_path, key):
    schema = pa.schema([(key or "k", pa.int64()), ("amount", pa.float64())])
    partition_by = (key,) if key else ()
    first = ParquetSink(tmp_path / "out", partition_by=partition_by)
    first.commit(run_sink(first, [[pa.record_batch([[1], [2.5]], schema=schema)]], schema))
    same = ParquetSink(tmp_path / "out", mode="append", partition_by=partition_by)
    same.check(schema)
    for other, said in (
        (pa.schema([schema.field(0), ("amount", pa.int64())]), "'amount' is double there and int64 in the stream"),
        (pa.schema([*schema, ("x", pa.int8())]), "'x' is no such column there"),
    ):
        with pytest.raises(UsageError, match=said):
            ParquetSink(tmp_path / "out", mode="append", partition_by=partition_by).check(other)
