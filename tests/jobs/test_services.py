"""Steps that call services, and rows that functions cannot do, in whole jobs."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment, lit
from firesteel.errors import JobExecutionError, UsageError


def numbers(env, count, subtasks=2):
    return env.from_arrow(pa.table({"n": pa.array(range(count), pa.int64())})).repartition(subtasks)


def sorted_by(key, table):
    return table.sort_by(key).to_pylist()


async def doubled(row):
    await asyncio.sleep(0.001)
    return row.n, 2 * row.n


class Client:
    """A service's client whose connection is opened by the first call in a worker."""

    def __init__(self, factor):
        self.factor = factor
        self.loop = None

    async def __call__(self, row):
        self.loop = self.loop or asyncio.get_running_loop()
        assert self.loop is asyncio.get_running_loop()
        return row.n, self.factor * row.n


def test_a_service_is_called_for_every_row(env, tmp_path):
    stream = numbers(env, 3000).map_async(doubled, "n bigint, m bigint", concurrency=200).name("ask")
    stream.write_parquet(tmp_path / "answers")
    result = env.execute("ask a service")
    assert sorted_by("n", env.read_parquet(tmp_path / "answers").to_arrow()) == [
        {"n": n, "m": 2 * n} for n in range(3000)
    ]
    assert "3,000 calls by ask, " in result.explain()
    small = env.from_collection([{"f": 3}])
    by_object = numbers(env, 10).map_async(Client(3), "n bigint, m bigint")

    async def times(row, factor, small):
        return row.n, factor * row.n * small["f"][0].as_py()

    bound = numbers(env, 10).with_broadcast(small=small).map_async(partial(times, factor=1), "n bigint, m bigint")
    assert sorted_by("n", by_object.to_arrow()) == sorted_by("n", bound.to_arrow())
    assert numbers(env, 3000).map_async(doubled, "n bigint, m bigint").limit(5).count() == 5


def test_subtasks_share_a_rate(env):
    async def when(row):
        return time.monotonic()

    stream = numbers(env, 120, 3).map_async(when, "at double", concurrency=30, rate="150/s")
    times = sorted(row["at"] for row in stream.collect())
    assert len(times) == 120
    assert times[-1] - times[0] >= 119 / 150 * 0.9  # three subtasks by themselves would take a third of it
    assert max(sum(begin <= at < begin + 0.4 for at in times) for begin in times) <= 150 * 0.4 + 4


def test_calls_that_fail_end_the_job_or_go_where_they_should(env):
    async def broken(row):
        if row.n % 50 == 3:
            await asyncio.sleep(0.001)
            raise ConnectionError("no answer")
        return row.n, row.n

    ask = partial(numbers(env, 300).map_async, broken, "n bigint, m bigint", concurrency=20)
    with pytest.raises(JobExecutionError, match=r"map_async\(broken\).*ConnectionError: no answer for Row\(n=\d+\)"):
        ask().collect()
    assert ask(on_error="skip").count() == 294
    answers = ask(on_error="route")
    assert sorted_by("n", answers.errors.to_arrow()) == [
        {"n": n, "error": "ConnectionError: no answer"} for n in range(3, 300, 50)
    ]
    with pytest.raises(JobExecutionError, match=r"failed for.* rows.*max_errors"):
        ask(on_error="skip", max_errors=5).count()  # none of the subtasks has so many


class Prepared:
    def setup(self):
        self.session = object()

    async def __call__(self, row):
        return {"n": row.n}


def parsed(row):
    return {"n": row.n, "half": 60 // (row.n % 7)}


def test_one_job_has_the_rows_and_the_errors(env, tmp_path):
    stream = numbers(env, 700, 3).map(parsed, "n bigint, half bigint", on_error="route").name("parse")
    stream.filter(lambda row: row.half > 20).write_parquet(tmp_path / "good")
    stream.errors.select("error", "n").write_parquet(tmp_path / "bad")
    stream.errors.key_by("error").count().write_parquet(tmp_path / "kinds")
    result = env.execute("parse")
    good = sorted_by("n", env.read_parquet(tmp_path / "good").to_arrow())
    assert good == [{"n": n, "half": 60 // (n % 7)} for n in range(700) if n % 7 and 60 // (n % 7) > 20]
    bad = env.read_parquet(tmp_path / "bad").to_arrow()
    assert sorted(bad["n"].to_pylist()) == list(range(0, 700, 7))
    assert set(bad["error"].to_pylist()) == {"ZeroDivisionError: integer division or modulo by zero"}
    assert env.read_parquet(tmp_path / "kinds").to_arrow()["count"].to_pylist() == [100]
    explained = result.explain()
    assert "parse failed for 100 rows." in explained
    assert "ZeroDivisionError: integer division or modulo by zero for Row(n=" in explained
    assert explained.count("for Row(n=") == 3


def test_nobody_has_to_read_either(env):
    stream = numbers(env, 70).map(parsed, "n bigint, half bigint", on_error="route")
    assert stream.count() == 60
    assert stream.errors.count() == 10
    assert stream.union(stream).count() == 120
    assert stream.errors.union(stream.select("n", error=lit("fine"))).count() == 70
    nothing = numbers(env, 0).map(parsed, "n bigint, half bigint", on_error="route")
    assert (nothing.count(), nothing.errors.count()) == (0, 0)


def test_errors_behind_keys_and_before_them(env):
    def checked(row):
        if row.n % 10 == 4:
            raise ValueError("four")
        return True

    keyed = numbers(env, 200).key_by("n").count()
    kept = keyed.filter(checked, on_error="route")
    assert kept.key_by("n").count().count() == 180
    assert kept.errors.count() == 20
    both = kept.select("n").union(kept.errors.select("n"))
    assert both.key_by("n").aggregate(m=("n", "count")).aggregate(all=("m", "sum")).collect() == [{"all": 200}]


def test_rows_that_failed_are_stored_where_the_others_are_pipelined(env, tmp_path):
    options = {"execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED", "jobmanager.scheduler": "Default"}
    pipelined = ExecutionEnvironment(spark=env.spark, options={**env.options, **options})
    numbers = pipelined.from_arrow(pa.table({"n": pa.array(range(70), pa.int64())}))
    stream = numbers.map(parsed, "n bigint, half bigint", on_error="route").set_parallelism(1)
    stream.filter(lambda row: row.half > 20).disable_chaining().set_parallelism(1).write_parquet(tmp_path / "good")
    stream.errors.set_parallelism(1).write_parquet(tmp_path / "bad")
    pipelined.execute("pipelined")
    assert env.read_parquet(tmp_path / "good").count() == sum(60 // (n % 7) > 20 for n in range(70) if n % 7)
    assert env.read_parquet(tmp_path / "bad").count() == 10


def halves(batches):
    for batch in batches:
        yield pa.record_batch({"n": batch["n"], "half": [60 // (n % 7) for n in batch["n"].to_pylist()]})


def test_batches_are_cut_down_to_the_row(env):
    stream = numbers(env, 210).map_in_arrow(halves, "n bigint, half bigint", on_error="route")
    assert stream.count() == 180
    assert sorted(row["n"] for row in stream.errors.collect()) == list(range(0, 210, 7))


def test_errors_survive_a_restart_once(env, tmp_path):
    """What an attempt that failed counted and wrote is not there twice."""
    marker = tmp_path / "failed-once"

    def fails_once(row):
        if row.n % 7 == 0:
            raise ValueError("seven")
        if row.n == 401 and not marker.exists():
            marker.touch()
            raise SystemExit("the worker is unwell")
        return row.n

    stream = numbers(env, 700, 4).map(fails_once, "n bigint", on_error="route").name("once")
    stream.write_parquet(tmp_path / "good")
    stream.errors.write_parquet(tmp_path / "bad")
    result = env.execute("restarted")
    assert marker.exists()
    assert env.read_parquet(tmp_path / "bad").count() == 100
    assert env.read_parquet(tmp_path / "good").count() == 600
    assert "once failed for 100 rows." in result.explain()


def test_samples_are_masked(env, tmp_path):
    rows = [{"n": n, "password": "verysecret1"} for n in range(30)]

    def broken(row):
        raise ValueError(f"token={row.password}")

    stream = env.from_collection(rows).map(broken, "n bigint", on_error="skip")
    assert stream.count() == 0
    journal = next((tmp_path / "journal").glob("*.jsonl")).read_text()
    assert "RowErrors" in journal
    assert "verysecret1" not in journal.split('"RowErrors"', 1)[1]


def test_what_is_refused(env):
    stream = numbers(env, 5)
    for wrong, words in [
        ({"on_error": "ignore"}, "on_error is one of"),
        ({"max_errors": 3}, "max_errors=3 needs on_error"),
        ({"on_error": "skip", "max_errors": -1}, "whole number"),
    ]:
        with pytest.raises(UsageError, match=words):
            stream.map(parsed, "n bigint, half bigint", **wrong)
    with pytest.raises(UsageError, match="'n' is declared as not null"):
        stream.map(parsed, pa.schema([pa.field("n", pa.int64(), nullable=False)]), on_error="null")
    with pytest.raises(UsageError, match="a filter has no row to make null"):
        stream.filter(lambda row: True, on_error="null")
    with pytest.raises(UsageError, match="this condition is an expression"):
        stream.filter("n > 3", on_error="skip")
    with pytest.raises(UsageError, match="adds a column 'error'"):
        stream.rename({"n": "error"}).map(parsed, "n bigint, half bigint", on_error="route")
    with pytest.raises(UsageError, match="routes no rows"):
        _ = stream.map(parsed, "n bigint, half bigint", on_error="skip").errors
    routed = stream.map(parsed, "n bigint, half bigint", on_error="route")
    bad = routed.errors
    routed.cache()
    with pytest.raises(UsageError, match="cannot be read while its rows are cached"):
        bad.count()
    routed.uncache()
    with pytest.raises(UsageError, match="wants an async function"):
        stream.map_async(parsed, "n bigint")
    with pytest.raises(UsageError, match=r"no function with a set-up, such as Prepared, which has setup\(\)") as caught:
        stream.map_async(Prepared(), "n bigint")
    assert "opens the client in its first call" in str(caught.value.hint)
    for wrong, words in [
        ({"concurrency": 0}, "concurrency"),
        ({"rate": "many"}, "rate of map_async"),
        ({"rate": 0}, "rate of map_async must be above 0 .* 0 is not"),
        ({"timeout": "2 parsecs"}, "timeout of map_async"),
        ({"retries": -1}, "retries"),
    ]:
        with pytest.raises(UsageError, match=words):
            stream.map_async(doubled, "n bigint, m bigint", **wrong)
    assert (
        "never mirrored: a mirror would call the service" in stream.map_async(doubled, "n bigint, m bigint").explain()
    )
