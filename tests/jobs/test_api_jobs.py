"""Whole pipelines through the public API."""

from __future__ import annotations

import datetime
import decimal

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment, Split, col
from firesteel.errors import JobExecutionError, UsageError
from firesteel.scheduler.kernel.commands import JobStatus


def tokenize(batches):
    import pyarrow.compute as pc

    for batch in batches:
        words = pc.list_flatten(pc.utf8_split_whitespace(batch.column("value")))
        yield pa.record_batch({"word": words, "n": pa.array([1] * len(words), pa.int64())})


def by(key, found):
    return sorted(found, key=lambda row: str(row[key]))


def test_the_example(env, tmp_path):
    for i in range(3):
        (tmp_path / f"{i}.txt").write_text("a b\nb c c\n" * (i + 1))
    lines = env.read_text(f"{tmp_path}/*.txt")
    words = lines.map_in_arrow(tokenize, "word string, n bigint")
    counts = words.key_by("word").aggregate({"n": "sum"})
    counts.write_parquet(tmp_path / "out")
    result = env.execute("word count")
    assert "word count" in result.explain()
    assert {d.what for d in result.decision_records} >= {"source parallelism", "parallelism"}
    assert result.journal.is_file()
    assert (tmp_path / "out" / "_SUCCESS").exists()
    assert by("word", env.read_parquet(tmp_path / "out").collect()) == [
        {"word": "a", "n": 6},
        {"word": "b", "n": 12},
        {"word": "c", "n": 12},
    ]
    with pytest.raises(UsageError, match="exists already"):  # a rerun cell says so
        counts.write_parquet(tmp_path / "out")
        env.execute("again")
    counts.write_parquet(tmp_path / "out", mode="overwrite")
    env.execute("again")


def test_actions(env, capsys):
    rows = env.from_collection([{"k": i % 3, "v": i} for i in range(100)])
    assert rows.count() == 100
    assert rows.filter(col("v") > 1000).count() == 0
    assert len(rows.take(7)) == 7
    assert rows.to_arrow().schema == rows.schema
    frame = rows.key_by("k").aggregate({"v": "max"}).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert sorted(frame["v"]) == [97, 98, 99]
    assert rows.filter(col("v") < 0).to_pandas().columns.tolist() == ["k", "v"]
    rows.top_k(2, "v").show()
    assert capsys.readouterr().out.splitlines()[3:5] == ["| 0 | 99 |", "| 2 | 98 |"]
    rows.show(3)
    assert "only the first 3 rows are shown" in capsys.readouterr().out


def test_collect_is_bounded_and_says_how_to_raise_it(env):
    small = ExecutionEnvironment(spark=env.spark, options={**env.options, "max-collect-bytes": "1 KiB"})
    with pytest.raises(
        JobExecutionError, match=r"to_arrow\(\) would bring .* above firesteel.max-collect-bytes = 1 KiB.*raise it"
    ):
        small.from_collection(list(range(10_000))).to_arrow()


def test_functions_on_pandas_groups_and_sides(env):
    rows = env.from_collection([{"k": i % 4, "v": float(i)} for i in range(40)])
    names = env.from_collection([{"k": i, "name": f"n{i}"} for i in range(3)])

    def with_names(frames, names):
        for frame in frames:
            yield frame.merge(names, on="k")[["name", "v"]]

    named = rows.with_broadcast(names=names).map_in_pandas(with_names, "name string, v double")
    assert named.count() == 30

    def spread(key, frame):
        return pd.DataFrame({"k": [key[0]], "spread": [frame["v"].max() - frame["v"].min()]})

    assert rows.key_by("k").apply_in_pandas(spread, "k bigint, spread double").take(10)[0]["spread"] == 36.0

    def sizes(left, right):
        return pa.table({"l": [left.num_rows], "r": [right.num_rows]})

    grouped = rows.key_by("k").cogroup(names.key_by("k")).apply_in_arrow(sizes, "l bigint, r bigint").to_arrow()
    assert sorted(grouped.column("r").to_pylist()) == [0, 1, 1, 1]


def test_joins_unions_distincts_in_one_job(env):
    a = env.from_collection([{"k": i % 5, "v": i} for i in range(20)])
    b = env.from_collection([{"k": i, "w": i * 10} for i in range(3)])
    both = a.union(a.filter(col("v") < 3)).distinct()
    joined = both.key_by("k").join(b.key_by("k"), "left").key_by("k").aggregate({"v": "count", "w": "max"})
    assert by("k", joined.collect()) == [
        {"k": 0, "v": 4, "w": 0},
        {"k": 1, "v": 4, "w": 10},
        {"k": 2, "v": 4, "w": 20},
        {"k": 3, "v": 4, "w": None},
        {"k": 4, "v": 4, "w": None},
    ]


def test_partitionings_and_parallelisms(env):
    rows = env.from_collection([{"v": i} for i in range(1000)])

    def same(batches):
        yield from batches

    def once(stream):
        return stream.map_in_arrow(same, "v bigint").set_parallelism(3)

    for stream in (rows.rebalance(), rows.rescale(), rows.set_parallelism(3).forward()):
        assert once(stream).count() == 1000
    assert once(env.from_collection([{"v": 1}]).broadcast()).count() == 3
    assert rows.global_().map_in_arrow(same, "v bigint").count() == 1000


def test_values_survive_the_way(env, tmp_path):
    table = pa.table(
        {
            "k": pa.array([1, 2, None, 1], pa.int32()),
            "d": pa.array(
                [decimal.Decimal("1.10"), None, decimal.Decimal("-3.25"), decimal.Decimal(0)], pa.decimal128(9, 2)
            ),
            "t": pa.array([datetime.datetime(2020, 1, 1, 12), None] * 2, pa.timestamp("us", "Europe/Berlin")),
            "s": pa.array([{"a": [1, 2]}, None, {"a": []}, {"a": None}], pa.struct([("a", pa.list_(pa.int64()))])),
            "c": pa.array(["x", "y", "x", None]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    stream = env.read_parquet(tmp_path / "t.parquet")
    found = stream.key_by("k").apply_in_arrow(lambda t: t, stream.schema).to_arrow()
    assert sorted(map(str, found.to_pylist())) == sorted(map(str, table.to_pylist()))
    assert stream.rebalance().map_in_arrow(iter, stream.schema).to_arrow().num_rows == 4


class Countdown:
    """A source and a sink of one's own."""

    name = "countdown"
    schema = pa.schema([("n", pa.int64())])
    supports_concurrent_execution_attempts = True

    def __init__(self):
        self.committed = None

    def __getstate__(self):
        return {}

    def list_splits(self, data_volume):
        return [Split(n, 8, f"number {n}") for n in range(6)]

    def read(self, split, ctx):
        yield pa.record_batch([pa.array([split])], schema=self.schema)

    def check(self, schema):
        assert schema == self.schema

    def begin(self, job_id):
        self.job = job_id

    def write(self, subtask, attempt):
        return Summing()

    def commit(self, winners):
        self.committed = sum(winners)

    def abort(self, attempts):
        pass


class Summing:
    total = 0

    def write(self, batch):
        self.total += sum(batch.column(0).to_pylist())

    def finish(self):
        return self.total

    def abort(self):
        pass


def test_sources_and_sinks_of_ones_own(env):
    both = Countdown()
    env.from_source(both).set_parallelism(3).write_to(both)
    env.execute()
    assert both.committed == 15


def test_jobs_side_by_side_and_their_clients(env, tmp_path):
    jobs = []
    for i in range(3):
        env.from_collection(list(range(100))).filter(col("value") < i * 10).write_parquet(tmp_path / str(i))
        jobs.append(env.execute_async(f"job {i}"))
    assert len({job.job_id for job in jobs}) == 3
    for i, job in enumerate(jobs):
        assert job.wait(600).job_name == f"job {i}"
        assert job.status() is JobStatus.FINISHED
        assert pq.read_table(tmp_path / str(i)).num_rows == i * 10


def test_a_failing_function_names_step_place_and_the_users_frames(env):
    def broken(batches):
        for _ in batches:
            raise ValueError("no such thing")
        yield

    options = {**env.options, "restart-strategy.type": "none"}
    strict = ExecutionEnvironment(spark=env.spark, options=options)
    with pytest.raises(JobExecutionError, match=r"map_in_arrow\(broken\).*test_api_jobs.py:.*no such thing") as raised:
        strict.from_collection([1]).map_in_arrow(broken, "x int").collect()
    assert "in broken" in raised.value.cause_trace


def test_a_function_that_cannot_be_sent(env):
    import threading

    lock = threading.Lock()

    def locked(batches):
        with lock:
            yield from batches

    with pytest.raises(UsageError, match=r"map_in_arrow\(locked\).*cannot be sent"):
        env.from_collection([1]).map_in_arrow(locked, "x int").collect()


def test_the_default_scheduler_and_both_cuts(env):
    rows = env.from_collection([{"k": i % 9, "v": i} for i in range(900)])
    for options in (
        {"jobmanager.scheduler": "Default", "parallelism.default": 3},
        {"firesteel.decider.cut": "by-count"},
    ):
        other = ExecutionEnvironment(spark=env.spark, options={**env.options, **options})
        again = other.from_arrow(rows.to_arrow()).key_by("k").aggregate({"v": "sum"})
        assert sum(row["v"] for row in again.collect()) == sum(range(900))


def test_what_a_closure_keeps_does_not_reach_the_next_subtask(env):
    seen: set[int] = set()

    def first_of_each(batches):
        for batch in batches:
            fresh = [v for v in batch.column("v").to_pylist() if v not in seen]
            seen.update(fresh)
            yield pa.record_batch({"v": pa.array(fresh, pa.int64())})

    numbers = env.from_arrow(pa.table({"v": [1, 2, 3] * 4})).set_parallelism(1).rebalance()
    found = numbers.map_in_arrow(first_of_each, "v bigint").set_parallelism(4).to_arrow()
    assert found.num_rows > 3  # each subtask has a memory of its own, however few worker processes there are


def eight_subtasks(step):
    return 8


def no_answer(step):
    raise LookupError(f"no rule for {step.name}")


def _filled(session, tmp_path, **options):
    """A group-by of some 2.4 MiB, five times what a slot is to have at least, and the decision on it."""
    chosen = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "firesteel.decider.least-volume-per-slot": "400 kb",
        **options,
    }
    env = ExecutionEnvironment(spark=session, options=chosen)
    rows = 150_000
    table = pa.table({"k": list(range(rows)), "v": [1.0] * rows})
    env.from_arrow(table).key_by("k").aggregate({"v": "sum"}).write_parquet(tmp_path / "out", mode="overwrite")
    result = env.execute("sums")
    sums = pq.read_table(tmp_path / "out")
    assert sums.num_rows == rows and set(sums.column("v").unique().to_pylist()) == {1.0}
    (decision,) = [d for d in result.decision_records if d.what == "parallelism"]
    return decision


def test_no_slot_stands_idle_while_there_is_enough_to_read(session, tmp_path):
    slots = session.sparkContext.defaultParallelism
    decision = _filled(session, tmp_path)
    assert slots > 1 and (decision.rule, decision.result["parallelism"]) == ("idle slots", min(slots, 5))
    assert decision.inputs["allowed"]["slots"] == slots
    (tmp_path / "journal").rename(tmp_path / "earlier")  # from which costs would be known
    decision = _filled(session, tmp_path, **{"firesteel.decider.least-volume-per-slot": 0})
    assert (decision.rule, decision.result["parallelism"]) == ("by-bytes", 1)


def test_a_decider_of_the_users_own(session, tmp_path):
    decision = _filled(session, tmp_path, **{"firesteel.decider.function": f"{__name__}:eight_subtasks"})
    assert (decision.rule, decision.result["parallelism"]) == (f"{__name__}:eight_subtasks", 8)
    with pytest.raises(JobExecutionError, match="no_answer' raised LookupError: no rule for") as caught:
        _filled(session, tmp_path, **{"firesteel.decider.function": f"{__name__}:no_answer"})
    assert "in no_answer" in caught.value.cause_trace and "firesteel/scheduler" not in caught.value.cause_trace
    with pytest.raises(UsageError, match="there is no 'nowhere'"):
        _filled(session, tmp_path, **{"firesteel.decider.function": f"{__name__}:nowhere"})
