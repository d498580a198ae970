"""Pipelined forward edges: both ends in the same tasks, nothing stored between them."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from firesteel import ExecutionEnvironment
from firesteel.connectors.formats.parquet import ParquetSink
from firesteel.errors import JobCancelledError, JobExecutionError
from firesteel.journal.file import read
from firesteel.scheduler.kernel.records import StateChange

PIPELINED = {"execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED", "jobmanager.scheduler": "Default"}
SCHEMA = "word string, subtask bigint, worker bigint, stored bigint"
FILES = 3


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.txt").write_text("".join(f"w{k % 10}\n" for k in range(2_000 * (number + 1))))
    return folder


@pytest.fixture
def pipelined(env):
    given = {**env.options, **PIPELINED, "restart-strategy.fixed-delay.delay": "10 ms", "data-volume-per-task": "2k"}
    return ExecutionEnvironment(spark=env.spark, options=given)


def words(batches):
    """Which subtask and process it is in, beside each word."""
    from pyspark import TaskContext

    for batch in batches:
        numbers = [TaskContext.get().partitionId(), os.getpid(), None]
        columns = [pa.array([number] * len(batch), pa.int64()) for number in numbers]
        yield pa.record_batch([batch["value"], *columns], names=["word", "subtask", "worker", "stored"])


def looking(storage):
    """What is stored between steps while rows come by; and only rows of its own process are let through."""

    def look(batches):
        for batch in batches:
            stored = len(list(Path(storage).rglob("*.fsr")))
            same = pa.array([w.as_py() == os.getpid() for w in batch["worker"]])
            yield batch.set_column(3, "stored", pa.array([stored] * len(batch), pa.int64())).filter(same)

    return look


def steps(env, texts, *functions):
    """Source, then each function in a vertex of its own."""
    stream = env.read_text(f"{texts}/*.txt").set_parallelism(FILES)
    for fn in functions:
        stream = stream.map_in_arrow(fn, SCHEMA).name(fn.__name__).disable_chaining()
    return stream


def expected():
    return Counter({f"w{k}": sum(200 * (number + 1) for number in range(FILES)) for k in range(10)})


def counted(out):
    return Counter(pq.read_table(out)["word"].to_pylist())


def states(result, state):
    """vertex -> sorted (subtask, attempt) of those that went to ``state``."""
    found = {}
    for record in read(result.journal):
        if isinstance(record, StateChange) and record.state == state:
            found.setdefault(record.vertex, []).extend(zip(record.subtasks, record.attempts, strict=True))
    return {vertex: sorted(pairs) for vertex, pairs in found.items()}


def test_the_same_answer_with_nothing_stored_between(env, pipelined, texts, tmp_path):
    storage = tmp_path / "storage"
    steps(pipelined, texts, words, looking(storage)).write_parquet(tmp_path / "fused")
    result = pipelined.execute("fused")
    table = pq.read_table(tmp_path / "fused")
    assert counted(tmp_path / "fused") == expected(), "both functions ran in the same process for every row"
    assert set(table["stored"].to_pylist()) == {0} and set(table["subtask"].to_pylist()) == set(range(FILES))
    assert states(result, "FINISHED") == {v: [(k, 0) for k in range(FILES)] for v in range(4)}
    assert "[2] look: 3 subtasks" in result.explain()

    def let_all_through(batches):
        yield from batches

    steps(env, texts, words, let_all_through).write_parquet(tmp_path / "apart")
    env.execute("apart")
    assert counted(tmp_path / "apart") == expected()


def test_streams_of_a_union_and_what_several_read(pipelined, texts, tmp_path):
    one = steps(pipelined, texts, words)
    more = steps(pipelined, texts, words).union(steps(pipelined, texts, words))
    more.map_in_arrow(lambda batches: batches, SCHEMA).disable_chaining().write_parquet(tmp_path / "union")
    for name in ("left", "right"):
        one.map_in_arrow(lambda batches: batches, SCHEMA).name(name).disable_chaining().write_parquet(tmp_path / name)
    mixed = one.union(steps(pipelined, texts, words))
    mixed.map_in_arrow(lambda batches: batches, SCHEMA).name("mixed").disable_chaining().write_parquet(
        tmp_path / "mixed"
    )
    result = pipelined.execute("shapes")
    twice = Counter({word: 2 * n for word, n in expected().items()})
    assert counted(tmp_path / "union") == counted(tmp_path / "mixed") == twice
    assert counted(tmp_path / "left") == counted(tmp_path / "right") == expected()
    stored = [d.reason for d in result.decision_records if d.what == "exchange" and d.result == "blocking"]
    assert stored == [
        "What it makes is stored before it is read, not streamed: it has several readers: 'left', 'right', 'mixed'."
    ]
    assert stored[0] in result.explain()


def test_rows_for_the_driver(pipelined, texts):
    """The collect's result is stored; what leads to it is not."""
    assert steps(pipelined, texts, words).to_arrow().num_rows == sum(expected().values())


def test_an_error_in_the_second_part_names_its_step_and_leaves_nothing(pipelined, texts, tmp_path):
    def picky(batches):
        for batch in batches:
            if len(batch):
                raise ValueError("not today")
            yield batch

    steps(pipelined, texts, words, picky).write_parquet(tmp_path / "out")
    with pytest.raises(JobExecutionError) as raised:
        pipelined.execute("fails")
    assert "failed in 'picky'" in str(raised.value) and "ValueError: not today" in str(raised.value)
    assert "picky" in raised.value.cause_trace
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("alone", [False, True], ids=["attempts side by side", "attempts alone"])
def test_a_killed_worker_restarts_the_region_and_the_answer_is_right(pipelined, texts, tmp_path, alone):
    mark = tmp_path / "killed"

    def dying(batches):
        for batch in batches:
            try:
                os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                yield batch
            else:
                os.kill(os.getpid(), signal.SIGKILL)

    class Alone(ParquetSink):
        supports_concurrent_execution_attempts = not alone

    steps(pipelined, texts, words, dying).write_to(Alone(tmp_path / "out"))
    result = pipelined.execute("survives")
    assert mark.exists()
    assert counted(tmp_path / "out") == expected()
    finished = states(result, "FINISHED")
    assert set(finished) == {0, 1, 2, 3}
    again = [pair for pair in finished[2] if pair[1] > 0]
    assert again and all(again == [pair for pair in finished[v] if pair[1] > 0] for v in range(4)), "all of a region"
    charged = [d for d in result.decision_records if d.what == "failover" and d.inputs["counted"]]
    assert len(charged) == 1


def test_a_cancelled_job_ends_and_leaves_nothing(pipelined, texts, tmp_path):
    mark = tmp_path / "running"

    def endless(batches):
        for batch in batches:
            mark.touch()
            while True:
                time.sleep(0.01)
                yield batch

    steps(pipelined, texts, words, endless).write_parquet(tmp_path / "out")
    client = pipelined.execute_async("endless")
    end = time.monotonic() + 600
    while not mark.exists():
        assert time.monotonic() < end, "it never ran"
        time.sleep(0.01)
    client.cancel()
    with pytest.raises(JobCancelledError):
        client.wait()
    assert not (tmp_path / "out").exists()
