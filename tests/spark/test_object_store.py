"""Sources, sinks and results on a real S3 server. Needs moto (PyPI: moto[server]) to import, or moto_server on the path."""

from __future__ import annotations

import urllib.request

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment, col
from firesteel.connectors.formats.parquet import ParquetSink, ParquetSource
from firesteel.connectors.formats.text import TextSource
from firesteel.errors import FiresteelError, JobExecutionError, UsageError
from firesteel.spark.storage.cleaning import late
from s3_server import new_bucket

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])
TABLE = pa.table({"k": range(1000), "s": [f"row {i}" for i in range(1000)]}, schema=SCHEMA)


@pytest.fixture(scope="module")
def server(server):
    yield server
    late.run_all()  # results that lie in the store until the process ends


@pytest.fixture
def bucket(s3):
    """The URL of a bucket of its own."""
    return f"s3://{new_bucket()[0]}"


def names(url):
    """All that lies below a URL, relative to it."""
    filesystem, path = pafs.FileSystem.from_uri(url)
    infos = filesystem.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    return sorted(info.path[len(path) + 1 :] for info in infos if info.type is pafs.FileType.File)


def put(url, data):
    filesystem, path = pafs.FileSystem.from_uri(url)
    with filesystem.open_output_stream(path) as stream:
        stream.write(data)


@pytest.fixture
def env(spark, bucket, server, tmp_path):
    """An environment that keeps its results in the bucket too. Executors get the variables as a cluster's would."""
    variables = spark.sparkContext.environment
    before = dict(variables)
    variables.update(server)
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "firesteel.storage.directory": f"{bucket}/storage",
        "data-volume-per-task": "4 kb",
    }
    yield ExecutionEnvironment(spark=spark, options=options)
    variables.clear()
    variables.update(before)
    assert names(f"{bucket}/storage") == []


def by_key(rows):
    return sorted(rows, key=lambda row: row["k"])


def test_a_job_reads_exchanges_and_writes_in_the_store(env, bucket):
    for i in range(4):
        sink = pa.BufferOutputStream()
        pq.write_table(TABLE.slice(250 * i, 250), sink)
        put(f"{bucket}/in/part-{i}.parquet", sink.getvalue())
    put(f"{bucket}/words/a.txt", b"one two\nthree\n")
    rows = env.read_parquet(f"{bucket}/in").filter(col("k") >= 10)
    rows.rebalance().map_in_arrow(lambda batches: batches, SCHEMA).write_parquet(f"{bucket}/out/rows")
    env.read_text(f"{bucket}/words/*.txt").write_text(f"{bucket}/out/words")
    env.execute("in the store")
    assert by_key(env.read_parquet(f"{bucket}/out/rows").collect()) == TABLE.slice(10).to_pylist()
    assert sorted(env.read_text(f"{bucket}/out/words").to_arrow()["value"].to_pylist()) == ["one two", "three"]
    found = names(f"{bucket}/out")
    assert {name for name in found if "part-" not in name} == {"rows/_SUCCESS", "words/_SUCCESS"}
    assert not [name for name in found if name.startswith(".")], "staging is gone"
    env.from_arrow(TABLE.slice(0, 5)).write_parquet(f"{bucket}/out/rows")
    with pytest.raises(UsageError, match="exists already"):
        env.execute()
    env.from_arrow(TABLE.slice(0, 5)).write_parquet(f"{bucket}/out/rows", mode="overwrite")
    env.execute("again")
    assert names(f"{bucket}/out/rows") == ["_SUCCESS", "part-00000.parquet"]


@pytest.mark.full
def test_a_failed_attempt_is_made_up_for_and_a_failed_job_leaves_nothing(env, bucket, tmp_path):
    once = str(tmp_path / "failed once")

    def fail_once(batches):
        from pathlib import Path

        yield from batches
        if not Path(once).exists():
            Path(once).touch()
            raise ValueError("the first time")

    def fail(batches):
        yield next(batches)
        raise ValueError("each time")

    stream = env.from_arrow(TABLE).map_in_arrow(fail_once, SCHEMA)
    stream.write_parquet(f"{bucket}/out")
    env.execute("fails once")
    assert by_key(env.read_parquet(f"{bucket}/out").collect()) == TABLE.to_pylist()
    env.from_arrow(TABLE).map_in_arrow(fail, SCHEMA).write_parquet(f"{bucket}/never")
    with pytest.raises(JobExecutionError, match="each time"):
        env.execute("fails")
    assert [name for name in names(bucket) if "never" in name] == []


@pytest.mark.full
def test_nothing_is_seen_before_the_commit_and_a_half_one_is_taken_back(bucket):
    old = ParquetSink(f"{bucket}/out")
    old.commit(staged(old, "job-0", TABLE.slice(0, 5)))
    sink = ParquetSink(f"{bucket}/out", mode="overwrite")
    messages = staged(sink, "job-1", TABLE.slice(0, 10), TABLE.slice(10, 10))
    loser = sink.write(0, 1)
    loser.write(TABLE.to_batches()[0])
    loser.finish()
    assert names(f"{bucket}/out") == ["_SUCCESS", "part-00000.parquet"]
    moves, move = [], sink.target.filesystem.move

    class Failing:
        """The store's own file system; the fifth move of an object fails (the old ones are two)."""

        def __getattr__(self, name):
            return getattr(filesystem, name)

        def move(self, source, target):
            moves.append(target)
            if len(moves) == 4:
                raise OSError("AWS Error NETWORK_CONNECTION during CopyObject operation")
            move(source, target)

    filesystem, place = sink.target.filesystem, sink.target
    sink.target = type(place)(Failing(), place.path, place.prefix)
    with pytest.raises(FiresteelError, match="cannot be reached"):
        sink.commit(messages)
    sink.target = place
    sink.abort([])
    assert len(moves) > 4, "moved back"
    assert names(bucket) == ["out/_SUCCESS", "out/part-00000.parquet"]
    with pafs.FileSystem.from_uri(bucket)[0].open_input_file(f"{bucket[5:]}/out/part-00000.parquet") as file:
        assert pq.read_table(file).num_rows == 5


def staged(sink, job, *tables):
    sink.check(SCHEMA)
    sink.begin(job)
    messages = []
    for subtask, table in enumerate(tables):
        writer = sink.write(subtask, 0)
        for batch in table.to_batches():
            writer.write(batch)
        messages.append(writer.finish())
    return messages


@pytest.mark.full
def test_what_is_missing_is_said_in_a_sentence(bucket, server):
    with pytest.raises(UsageError, match=r"There is no s3://no-such-bucket/x.*no bucket 'no-such-bucket'"):
        TextSource("s3://no-such-bucket/x")
    with pytest.raises(UsageError, match="no bucket 'no-such-bucket'"):
        ParquetSink("s3://no-such-bucket/x").check(SCHEMA)
    put(f"{bucket}/data/a.txt", b"a")
    with pytest.raises(UsageError, match=rf"Did you mean {bucket}/data\?"):
        TextSource(f"{bucket}/dada")
    assert TextSource(f"{bucket}/data?endpoint_override={server['AWS_ENDPOINT_URL'][7:]}&scheme=http")
    with pytest.raises(UsageError, match="pyarrow knows no usable 's4' filesystem"):
        ParquetSource("s4://bucket/x")
    look_at_credentials(server, b"0")
    try:
        with pytest.raises(UsageError, match=r"refuses these credentials.*AWS_ACCESS_KEY_ID"):
            TextSource(f"{bucket}/data")
        with pytest.raises(UsageError, match=r"refuses these credentials.*AWS_ACCESS_KEY_ID"):
            ParquetSink(f"{bucket}/other").check(SCHEMA)
    finally:
        look_at_credentials(server, b"inf")


def look_at_credentials(server, after):
    """The server does so from now on, or after so many requests."""
    url = f"{server['AWS_ENDPOINT_URL']}/moto-api/reset-auth"
    request = urllib.request.Request(url, data=after, headers={"Content-Type": "text/plain"}, method="POST")
    urllib.request.urlopen(request).close()
