"""Files in buckets: one of each bucket and subtask, in order, never beside others."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel.engine.hashes import bucket_numbers
from firesteel.errors import UsageError


def people(env, count=2000):
    users = [None if n % 50 == 0 else f"user {n % 37}" for n in range(count)]
    return env.from_arrow(
        pa.table({"user": pa.array(users, pa.string()), "n": range(count), "part": [n % 2 for n in range(count)]})
    )


def bucket_of(path):
    """As Spark finds it: ``BucketingUtils.getBucketId``."""
    return int(re.fullmatch(r".*_(\d+)(?:\..*)?", path.name)[1])


def test_each_file_has_the_rows_of_one_bucket(env, tmp_path):
    people(env).repartition(3).write_parquet(tmp_path / "out", bucket_by=(8, "user"), sort_by=["n"])
    env.execute("buckets")
    files = sorted(tmp_path.glob("out/*.parquet"))
    found = 0
    for path in files:
        table = pq.read_table(path)
        assert table.column_names == ["user", "n", "part"]
        column = table["user"].combine_chunks()
        assert set(bucket_numbers([column], len(column), 8).tolist()) == {bucket_of(path)}
        assert table["n"].to_pylist() == sorted(table["n"].to_pylist())
        found += len(table)
    assert found == 2000
    users = people(env).to_arrow()["user"].combine_chunks()
    assert {bucket_of(path) for path in files} == set(bucket_numbers([users], len(users), 8).tolist())
    assert env.read_parquet(tmp_path / "out").count() == 2000


def test_within_partitions_and_by_several_columns(env, tmp_path):
    people(env, 50_000).write_parquet(
        tmp_path / "out", partition_by="part", bucket_by=(3, "user", "n"), max_file_size="64 kb", compression="none"
    )
    env.execute("buckets")
    for part in (0, 1):
        tables = {path: pq.ParquetFile(path).read() for path in tmp_path.glob(f"out/part={part}/*.parquet")}
        assert len(tables) > 3  # several files of a bucket
        assert sorted(n for table in tables.values() for n in table["n"].to_pylist()) == list(range(part, 50_000, 2))
        for path, table in tables.items():
            columns = [table[name].combine_chunks() for name in ("user", "n")]
            assert set(bucket_numbers(columns, len(table), 3).tolist()) == {bucket_of(path)}


def test_buckets_are_only_beside_the_same(env, tmp_path):
    def write(name, **options):
        people(env, 60).write_parquet(tmp_path / name, mode="append", **options)
        env.execute("append")

    write("out", bucket_by=(4, "user"))
    write("out", bucket_by=[4, ["user"]], sort_by="n")
    assert env.read_parquet(tmp_path / "out").count() == 120
    for wrong, words in [
        ({}, r"is in buckets \(4 by user\), and the rows to write are in none"),
        ({"bucket_by": (8, "user")}, r"are in buckets \(8 by user\)"),
        ({"bucket_by": (4, "n")}, r"are in buckets \(4 by n\)"),
    ]:
        with pytest.raises(UsageError, match=words):
            write("out", **wrong)
    with pytest.raises(UsageError, match=r"is in buckets \(4 by user\)"):
        people(env, 60).merge_parquet(tmp_path / "out", "n")
    write("plain")
    with pytest.raises(UsageError, match="is not known to be in buckets"):
        write("plain", bucket_by=(4, "user"))
    people(env, 60).write_parquet(tmp_path / "plain", mode="overwrite", bucket_by=(4, "user"))
    env.execute("overwrite")
    people(env, 0).write_parquet(tmp_path / "none", bucket_by=(4, "user"))
    env.execute("no rows")
    assert [bucket_of(path) for path in tmp_path.glob("none/*.parquet")] == [0]


def test_a_name_that_is_taken(env, tmp_path):
    stream = people(env, 60).rename({"n": "__bucket"})
    stream.write_parquet(tmp_path / "out", bucket_by=(2, "__bucket"))
    env.execute("names")
    assert sorted(env.read_parquet(tmp_path / "out").to_arrow()["__bucket"].to_pylist()) == list(range(60))


REFUSED = {
    "no number": ({"bucket_by": "user"}, "is not a number of buckets and columns"),
    "no columns": ({"bucket_by": (4,)}, "is not a number of buckets and columns"),
    "none": ({"bucket_by": (0, "user")}, "wants 1 to 100,000 buckets, not 0"),
    "not there": ({"bucket_by": (4, "usr")}, "no column 'usr' for bucket_by. Did you mean 'user'"),
    "twice": ({"bucket_by": (4, "user", "user")}, "bucket_by names the column 'user' twice"),
    "a number": ({"bucket_by": (4, 5)}, "bucket_by wants names of columns, not 5"),
    "order without": ({"sort_by": "n"}, "needs bucket_by"),
    "order not there": ({"bucket_by": (4, "user"), "sort_by": "m"}, "no column 'm' for sort_by"),
    "of the partition": ({"bucket_by": (4, "part"), "partition_by": "part"}, "is in partition_by and in bucket_by"),
    "sizes": ({"bucket_by": (4, "user"), "file_size": "1 mb"}, "no file_size where there is bucket_by"),
    "a list": ({"bucket_by": (4, "list")}, "Spark has no hash for list"),
    "unsigned": ({"bucket_by": (4, "unsigned")}, "Spark has no hash for uint32"),
    "order of a list": ({"bucket_by": (4, "user"), "sort_by": "list"}, "sort_by cannot order by 'list'"),
    "elsewhere": ({"path": "s3a://bucket/out", "bucket_by": (4, "user")}, "there is no bucket_by"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(env, tmp_path, name):
    options, words = REFUSED[name]
    table = pa.table({"user": ["a"], "n": [1], "part": [1], "list": [[1]], "unsigned": pa.array([1], pa.uint32())})
    with pytest.raises(UsageError, match=words):
        env.from_arrow(table).write_parquet(**{"path": tmp_path / "out", **options})
