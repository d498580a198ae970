"""Rows merged by key into folders of Parquet files: what is there afterwards, which files were touched, and what goes wrong."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import col
from firesteel.errors import JobExecutionError, UsageError

SCHEMA = "id bigint, v string"


def write(folder, *files, schema=None):
    """Each a list of (id, v)."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, rows in enumerate(files):
        ids, values = zip(*rows, strict=True)
        table = pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array(values, pa.string())})
        pq.write_table(table, folder / f"old-{number}.parquet", row_group_size=3)


def rows_in(env, folder):
    return sorted(((row["id"], row["v"]) for row in env.read_parquet(folder).collect()), key=repr)


def merge(env, folder, rows, **options):
    env.from_collection(rows, SCHEMA).merge_parquet(folder, "id", **options)
    return env.execute("merge")


def merged(old, new, matched, not_matched):
    """As the guide says it."""
    keys, there = {k for k, _ in new}, {k for k, _ in old}
    kept = [(k, v) for k, v in old if matched == "ignore" or k not in keys]
    taken = {"update": lambda k: k in there, "delete": lambda _: False, "ignore": lambda _: False}[matched]
    added = [(k, v) for k, v in new if (taken(k) if k in there else not_matched == "insert")]
    return sorted([*kept, *added], key=repr)


@pytest.mark.parametrize("not_matched", ["insert", "ignore"])
@pytest.mark.parametrize("matched", ["update", "delete", "ignore"])
def test_every_way_to_merge(env, tmp_path, matched, not_matched):
    """Old keys may be there several times, and null."""
    if matched == not_matched:
        with pytest.raises(UsageError, match="nothing to do"):
            merge(env, tmp_path / "t", [(1, "n")], when_matched=matched, when_not_matched=not_matched)
        return
    files = [[(n, f"old{n}") for n in range(low, low + 10)] for low in (0, 10, 20)] + [[(5, "again"), (None, "null")]]
    write(tmp_path / "t", *files)
    new = [(5, "new5"), (25, "new25"), (100, "new100"), (101, None)]
    merge(env, tmp_path / "t", new, when_matched=matched, when_not_matched=not_matched)
    assert rows_in(env, tmp_path / "t") == merged([row for file in files for row in file], new, matched, not_matched)
    left = {path.name for path in (tmp_path / "t").glob("old-*")}
    assert left == ({"old-1.parquet"} if matched != "ignore" else {f"old-{n}.parquet" for n in range(4)})


def test_a_folder_that_is_not_there_is_made(env, tmp_path):
    merge(env, tmp_path / "t", [(1, "a"), (2, "b")])
    assert rows_in(env, tmp_path / "t") == [(1, "a"), (2, "b")]
    merge(env, tmp_path / "t", [(2, "c"), (3, "d")])
    assert rows_in(env, tmp_path / "t") == [(1, "a"), (2, "c"), (3, "d")]
    before = sorted((tmp_path / "t").iterdir())
    merge(env, tmp_path / "t", [])
    merge(env, tmp_path / "t", [(7, "x")], when_not_matched="ignore")
    assert sorted((tmp_path / "t").iterdir()) == before
    merge(env, tmp_path / "t", [(1, None), (2, None), (3, None)], when_matched="delete")
    assert rows_in(env, tmp_path / "t") == []
    assert env.read_parquet(tmp_path / "t").schema.names == ["id", "v"]


@pytest.mark.parametrize("there", [False, True])
def test_keys_must_be_of_one_row_and_no_null(env, tmp_path, there):
    if there:
        write(tmp_path / "t", [(1, "a")])
    with pytest.raises(JobExecutionError, match=r"2 rows of the stream have the key id=7; which of them shall stay"):
        merge(env, tmp_path / "t", [(6, "x"), (7, "y"), (8, "z"), (7, "y")])
    with pytest.raises(JobExecutionError, match=r"the key column 'id' is null in a row of the stream \(id=None\)"):
        merge(env, tmp_path / "t", [(6, "x"), (None, "y")], when_matched="ignore")
    assert (tmp_path / "t").exists() == there
    assert not there or rows_in(env, tmp_path / "t") == [(1, "a")]


def test_partitions_and_several_keys(env, tmp_path):
    """A row whose partition changes moves; partitions without a match are not touched."""
    rows = [{"day": f"2024-01-0{1 + n % 3}", "a": n // 3, "b": str(n % 3), "x": n * 0.5} for n in range(30)]
    env.from_collection(rows).write_parquet(tmp_path / "t", partition_by="day")
    env.execute("write")
    third = sorted((tmp_path / "t" / "day=2024-01-03").iterdir())
    new = [
        {"day": "2024-01-02", "a": 0, "b": "0", "x": -1.0},
        {"day": None, "a": 4, "b": "1", "x": -2.0},
        {"day": "2024-01-09", "a": 99, "b": "9", "x": -3.0},
    ]
    env.from_collection(new, "day string, a bigint, b string, x double").merge_parquet(
        tmp_path / "t", ["a", "b"], partition_by="day"
    )
    env.execute("merge")
    expected = [row for row in rows if (row["a"], row["b"]) not in {(0, "0"), (4, "1")}] + new
    types = "day string"
    assert sorted(env.read_parquet(tmp_path / "t", partitions=types).collect(), key=repr) == sorted(
        ({name: row[name] for name in ("a", "b", "x", "day")} for row in expected), key=repr
    )
    assert sorted((tmp_path / "t" / "day=2024-01-03").iterdir()) == third


def test_an_attempt_that_fails_and_a_read_from_the_folder_itself(env, tmp_path):
    write(tmp_path / "t", [(n, "old") for n in range(20)], [(n, "old") for n in range(20, 40)])
    marker = tmp_path / "failed"

    def fail_once(batches):
        for batch in batches:
            yield batch.set_column(1, "v", pa.array(["new"] * batch.num_rows))
        if not marker.exists():
            marker.touch()
            raise ValueError("once")

    own = env.read_parquet(tmp_path / "t").filter(col("id") >= 35)
    own.map_in_arrow(fail_once, own.schema).merge_parquet(tmp_path / "t", "id")
    env.execute("merge")
    assert marker.exists()
    assert rows_in(env, tmp_path / "t") == sorted([(n, "new" if n >= 35 else "old") for n in range(40)], key=repr)
    assert (tmp_path / "t" / "old-0.parquet").exists()


def test_what_another_program_changes_meanwhile_is_noticed(env, tmp_path):
    for change in ("new", "gone", "changed"):
        folder = tmp_path / change
        write(folder, [(1, "a")], [(2, "b")])

        def act(batches, change=change, folder=folder):
            if change == "gone":
                (folder / "old-1.parquet").unlink(missing_ok=True)
            else:
                write(folder / ("" if change == "changed" else "x"), [(1, "other")])
            yield from batches

        stream = env.from_collection([(9, "n")], SCHEMA)
        stream.map_in_arrow(act, stream.schema).merge_parquet(
            folder, "id", when_matched="ignore" if change == "changed" else "update"
        )
        with pytest.raises(
            JobExecutionError, match=r"another program wrote there|changed while the job was running|gone now"
        ):
            env.execute("merge")
        assert not list(folder.glob("part-*"))


def test_bad_arguments_are_told_at_once(env, tmp_path):
    write(tmp_path / "t", [(1, "a")])
    stream = env.from_collection([(1, "a")], SCHEMA)
    with pytest.raises(UsageError, match="column 'v' is string there and int64 in the stream"):
        env.from_collection([(1, 2)], "id bigint, v bigint").merge_parquet(tmp_path / "t", "id")
    with pytest.raises(
        UsageError,
        match=r"^In step 'merge_parquet' at [^']*: There is no column 'nokey' for the key of merge_parquet\.",
    ):
        stream.merge_parquet(tmp_path / "t", "nokey")
    with pytest.raises(UsageError, match="names the column 'id' twice"):
        stream.merge_parquet(tmp_path / "t", ["id", "id"])
    with pytest.raises(UsageError, match="wants the columns of the key"):
        stream.merge_parquet(tmp_path / "t", [])
    with pytest.raises(UsageError, match="when_matched='replace' is not known"):
        stream.merge_parquet(tmp_path / "t", "id", when_matched="replace")
    with pytest.raises(UsageError, match="is not partitioned, and partition_by is"):
        stream.merge_parquet(tmp_path / "t", "id", partition_by="v")


@pytest.mark.full
@pytest.mark.parametrize("seed", range(8))
def test_random_merges(env, tmp_path, seed):
    """Keys of two columns, floats with NaN and two zeros among them, in random files."""
    draw = random.Random(seed)
    floats = [0.0, -0.0, float("nan"), 1.5, -2.0, None]
    old = [(draw.choice(floats), draw.randrange(20), n) for n in range(draw.randrange(1, 80))]
    (tmp_path / "t").mkdir()
    schema = pa.schema([("f", pa.float64()), ("k", pa.int64()), ("n", pa.int64())])
    for number in range(4):
        part = old[number::4]
        if part:
            table = pa.table([list(column) for column in zip(*part, strict=True)], schema=schema)
            pq.write_table(table, tmp_path / "t" / f"{number}.parquet", row_group_size=5)

    def key(row):
        return (repr(row[0] + 0.0), row[1]) if row[0] is not None else None

    new = {key(row): row for row in ((draw.choice(floats[:-1]), draw.randrange(20), -n) for n in range(1, 30))}
    matched = draw.choice(["update", "delete"])
    stream = env.from_collection(list(new.values()), "f double, k bigint, n bigint")
    stream.merge_parquet(tmp_path / "t", ["f", "k"], when_matched=matched)
    env.execute("merge")
    there = {key(row) for row in old}
    expected = [row for row in old if key(row) not in new]
    expected += [row for k, row in new.items() if matched == "update" or k not in there]
    found = [(row["f"], row["k"], row["n"]) for row in env.read_parquet(tmp_path / "t").collect()]
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
