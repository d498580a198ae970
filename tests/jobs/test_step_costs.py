"""What a step cost in one run decides how parallel it is in the next."""

import json
import time

import numpy as np
import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment

ROWS, PRODUCERS = 24_000, 8
NUMBERS = pa.schema({"v": pa.int64()})


def waiting(seconds):
    """A function that takes so long for all rows of the job, and needs no core for it."""

    def work(batches):
        for batch in batches:
            time.sleep(seconds * batch.num_rows / (ROWS * PRODUCERS))
            yield batch

    return work


def made(batches):
    for batch in batches:
        for number in batch.column("v").to_pylist():
            yield pa.record_batch([np.arange(ROWS) + number * ROWS], schema=NUMBERS)


def run(env, folder, work, name="costly"):
    """1.5 MiB through the function, behind an exchange. Returns the decision on its parallelism."""
    numbers = env.from_arrow(pa.table({"v": np.arange(PRODUCERS)}))
    stream = numbers.map_in_arrow(made, NUMBERS).rebalance().map_in_arrow(work, NUMBERS)
    stream.write_parquet(str(folder), mode="overwrite")
    result = env.execute(name)
    (decision,) = [d for d in result.decision_records if d.what == "parallelism"]
    return decision


def test_a_costly_step_gets_all_slots_in_its_second_run(env, tmp_path):
    first = run(env, tmp_path / "out", waiting(0.8))
    assert first.result["parallelism"] == 1
    second = run(env, tmp_path / "out", waiting(0.8))
    assert (second.result["parallelism"], second.rule) == (2, "task duration")
    assert second.reason.startswith("2 subtasks: 1.46 MiB at ")
    assert "/s measured in 1 earlier run, " in second.reason
    third = run(env, tmp_path / "out", waiting(0.8))
    assert third.result["parallelism"] == 2
    assert "measured in 2 earlier runs" in third.reason
    assert run(env, tmp_path / "out", waiting(0.9)).result["parallelism"] == 1, "its parameter is another"
    assert run(env, tmp_path / "out", waiting(0.8), "another job").result["parallelism"] == 1


@pytest.mark.full
def test_nothing_is_looked_up_where_it_is_off(session, tmp_path):
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "firesteel.storage.directory": str(tmp_path / "storage"),
        "firesteel.decider.target-task-duration": "0",
    }
    env = ExecutionEnvironment(spark=session, options=options)
    for _ in range(2):
        assert run(env, tmp_path / "out", waiting(0.6)).result["parallelism"] == 1


@pytest.mark.full
def test_a_damaged_journal_is_no_error_and_tells_nothing(env, tmp_path):
    run(env, tmp_path / "out", waiting(0.6))
    (journal,) = (tmp_path / "journal").iterdir()
    kept = journal.read_bytes()
    for text in (b"", b"\x00\xff", kept[: len(kept) // 2], b'{"type":"JobPlanned"}\n', json.dumps([1]).encode()):
        for other in (tmp_path / "journal").iterdir():
            other.unlink()
        journal.write_bytes(text)
        assert run(env, tmp_path / "out", waiting(0.6)).result["parallelism"] == 1
