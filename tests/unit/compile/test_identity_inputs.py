"""Inputs of sources: rows in the splits, files by what their storage says of them, what sources say themselves."""

from __future__ import annotations

import os
import time

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel.arrow import col
from firesteel.compile.identity.prints import JobPrints, input_prints
from firesteel.compile.identity.walk import Known, Walk
from firesteel.connectors.files.paths import WRITTEN_ONCE
from firesteel.errors import UsageError
from firesteel.options import DATA_VOLUME_PER_TASK
from identity_kit import QUIET, SETTLED, Own, table, write_files


@pytest.fixture
def folder(tmp_path):
    write_files(tmp_path / "data")
    return tmp_path / "data"


def read(make, now=None, **options):
    """The print of the one source's vertex."""
    env = ExecutionEnvironment(options=QUIET | options)
    make(env).write_parquet("/tmp/nowhere-that-is", mode="overwrite")
    (found,) = JobPrints(env.compile(), time.time_ns() + SETTLED if now is None else now).vertices
    return found


READERS = {
    "parquet": ("rows.parquet", lambda env, path: env.read_parquet(path)),
    "csv": ("rows.csv", lambda env, path: env.read_csv(path)),
    "json": ("rows.json", lambda env, path: env.read_json(path)),
    "text": ("lines.txt", lambda env, path: env.read_text(path)),
    "arrow": ("rows.arrow", lambda env, path: env.read_arrow(path)),
}


@pytest.mark.parametrize("kind", READERS)
def test_bytes_that_change_with_the_time_kept_make_another_input(folder, kind):
    name, reader = READERS[kind]
    path = folder / name

    def look():
        return read(lambda env: reader(env, str(path)))

    first = look()
    assert first.input == look().input is not None
    assert first.unprovable == ()
    times, data = path.stat(), path.read_bytes()
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_size == times.st_size
    assert path.stat().st_mtime_ns == times.st_mtime_ns
    second = look()
    assert first.program == second.program
    assert first.input != second.input is not None


def test_a_file_that_changed_just_now_is_not_known(folder):
    def make(env):
        return env.read_parquet(str(folder / "rows.parquet"))

    found = read(make, now=(folder / "rows.parquet").stat().st_ctime_ns + 1_000_000_000)
    assert found.input is None
    assert found.unprovable == (f"reads {folder}/rows.parquet, of which it is not known whether it has changed since",)


def test_files_that_come_leave_the_other_splits_as_they_were(folder):
    def splits():
        env = ExecutionEnvironment(options=QUIET | {DATA_VOLUME_PER_TASK.key: "1 kb"})  # a split for each file
        env.read_parquet(str(folder / "tree")).write_parquet("/tmp/nowhere-that-is", mode="overwrite")
        job = env.compile()
        (vertex,) = job.job_graph.vertices
        prints = JobPrints(job, time.time_ns() + SETTLED)
        source = vertex.program.head.source
        return prints.vertices[0].program, set(
            input_prints(source, job.splits[0], time.time_ns() + SETTLED, Known()).splits
        )

    program, before = splits()
    (folder / "tree/year=2027").mkdir()
    pq.write_table(table(), folder / "tree/year=2027/rows.parquet")
    os.utime(folder / "tree/year=2025/rows.parquet")
    again, after = splits()
    assert program == again
    assert (len(before), len(after), len(before & after)) == (2, 3, 1)


def test_filters_and_columns_are_of_the_program(folder):
    path = str(folder / "tree")
    found = [
        read(lambda env: env.read_parquet(path)),
        read(lambda env: env.read_parquet(path).filter(col("v") > 1)),
        read(lambda env: env.read_parquet(path).filter(col("v") > 2)),
        read(lambda env: env.read_parquet(path).select("v")),
    ]
    assert len({one.program for one in found}) == 4
    assert len({one.input for one in found[:3]}) == 1


def test_rows_in_memory_are_known_by_their_values():
    def of(rows):
        return read(lambda env: env.from_collection(rows, ["a", "b"])).input

    assert of([(1, "x"), (2, "y")]) == of([(1, "x"), (2, "y")]) != of([(1, "x"), (2, "z")])


def test_a_source_of_ones_own_says_it_or_is_not_known():
    class Silent(Own):
        fingerprint = None

    class Wrong(Own):
        def fingerprint(self):
            return "of today"

    class Failing(Own):
        def fingerprint(self):
            raise OSError("no such file")

    class Other(Own):
        def fingerprint(self):
            return b"of tomorrow"

    def of(source):
        return read(lambda env: env.from_source(source))

    assert of(Own()).input == of(Own()).input is not None
    assert of(Own()).input != of(Other()).input
    assert of(Silent()).input is None
    assert of(Silent()).unprovable == ("reads own, which does not say by a fingerprint whether its rows are the same",)
    with pytest.raises(UsageError, match=r"fingerprint\(\) of source 'own' gave a str"):
        of(Wrong())
    with pytest.raises(UsageError, match=r"fingerprint\(\) of source 'own' failed: OSError: no such file"):
        of(Failing())


def test_a_file_system_counts_without_its_keys(folder):
    def at(**keys):
        filesystem = pafs.S3FileSystem(region="eu-west-1", endpoint_override="localhost:1", **keys)
        return read_of(filesystem)

    def read_of(filesystem):
        return Walk(Known()).encoded(filesystem)

    assert at(access_key="a", secret_key="b") == at(access_key="c", secret_key="d", session_token="e")
    other = pafs.S3FileSystem(region="eu-west-1", endpoint_override="localhost:2", access_key="a", secret_key="b")
    assert at(access_key="a", secret_key="b") != read_of(other)
    sub = pafs.SubTreeFileSystem(str(folder), pafs.LocalFileSystem())
    assert read_of(sub) != read_of(pafs.LocalFileSystem())


def test_data_files_of_tables_never_change(tmp_path):
    pytest.importorskip("deltalake")
    import deltalake

    deltalake.write_deltalake(str(tmp_path / "table"), pa.table({"v": [1, 2]}))

    def make(env):
        return env.read_delta(str(tmp_path / "table"))

    found = read(make, now=0)  # not even settled
    assert found.input is not None
    deltalake.write_deltalake(str(tmp_path / "table"), pa.table({"v": [3]}), mode="append")
    assert read(make, now=0).input != found.input
    assert WRITTEN_ONCE
