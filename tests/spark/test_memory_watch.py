"""Steps that pass the memory of their slots, on a real Spark: a sentence, no stack trace, nothing left, siblings untouched."""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment, SlotSharingGroup
from firesteel.errors import JobExecutionError
from firesteel.task.executor.messages import FailedMessage, FinishedMessage
from slots_kit import MIB, Slots, is_gone, slot

pytestmark = pytest.mark.spark
GROUP = SlotSharingGroup("small", cpu_cores=1, task_heap_memory="200 MiB")


@pytest.fixture
def env(spark, tmp_path):
    options = {
        "firesteel.progress": False,
        "firesteel.journal.directory": str(tmp_path / "journal"),
        "firesteel.storage.directory": str(tmp_path / "storage"),
        "firesteel.memory.framework": "150 MiB",
        "restart-strategy.fixed-delay.attempts": 1,
        "restart-strategy.fixed-delay.delay": "10 ms",
    }
    yield ExecutionEnvironment(spark=spark, options=options)
    assert [p for p in (tmp_path / "storage").rglob("*") if p.is_file()] == []


def hold(size, seconds):
    held = np.ones(size * MIB, dtype=np.uint8)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.005)
    return len(held)


def too_much(batches):
    for batch in batches:
        yield batch
        hold(400, 5.0)


def swallowing(batches):
    held = []
    while len(held) < 3000:
        try:
            held.append(np.ones(MIB, dtype=np.uint8))
            time.sleep(0.002)
        except BaseException:  # whatever it is, on with it
            continue
    yield from batches


def in_c_code(batches):
    numbers = [0] * (80 << 20)  # 640 MiB in one call that never lets another thread run
    until = time.monotonic() + 5.0
    while time.monotonic() < until:
        numbers[0] += 1
    yield from batches


@pytest.mark.full
@pytest.mark.parametrize("step", [too_much, swallowing, in_c_code])
def test_a_step_that_passes_its_limit_fails_with_a_sentence(env, step):
    numbers = env.from_arrow(pa.table({"v": [1, 2, 3]})).map_in_arrow(step, "v bigint").slot_sharing_group(GROUP)
    with pytest.raises(JobExecutionError) as raised:
        numbers.collect()
    said = str(raised.value)
    assert f"map_in_arrow({step.__name__})" in said
    assert "was stopped at its limit of memory on" in said and "at test_memory_watch.py:" in said
    assert re.search(r"the limit is (3[5-9]|4[0-4])\d MiB \(slot sharing group 'small'\)", said), said
    assert "Give its slot sharing group more memory" in said


def once_too_much(batches, folder):
    """Of eight subtasks one, the first time."""
    for batch in batches:
        if batch.column("v")[0].as_py() == 3:
            path = Path(folder, "been here")
            if not path.exists():
                path.touch()
                hold(400, 5.0)
        yield batch


@pytest.mark.full
def test_what_passes_its_limit_once_runs_again_and_its_siblings_go_on(env, tmp_path):
    table = pa.table({"v": list(range(8))})
    rows = env.from_arrow(table).set_parallelism(8)
    folder = str(tmp_path)
    done = (
        rows.map_in_arrow(lambda b: once_too_much(b, folder), "v bigint").slot_sharing_group(GROUP).set_parallelism(8)
    )
    result = done.collect()
    assert sorted(row["v"] for row in result) == list(range(8))


@pytest.mark.full
@pytest.mark.parametrize("kind", ["rdd", "dataframe"])
def test_a_worker_that_was_stopped_goes_though_it_has_read_its_input(spark, tmp_path, kind):
    own = Slots(spark, tmp_path, {})
    run = getattr(own, kind)
    message = run(0, slot(limit=300 * MIB), lambda: hold(400, 5.0))
    assert isinstance(message, FailedMessage) and message.kind == "USER"
    assert "'train' was stopped at its limit of memory" in message.message
    assert is_gone(own.said(0)["process"])
    message = run(1, slot(limit=300 * MIB), lambda: hold(50, 0.0))
    assert isinstance(message, FinishedMessage)
    assert own.said(1)["process"] != own.said(0)["process"]
    assert 100 * MIB < message.peak_memory < 300 * MIB


@pytest.mark.full
def test_unwatched_steps_hold_what_they_want_and_their_peaks_are_measured(spark, env, tmp_path):
    own = Slots(spark, tmp_path, {})
    message = own.rdd(0, slot(limit=0), lambda: hold(400, 0.2))
    assert isinstance(message, FinishedMessage) and message.peak_memory > 400 * MIB
    assert own.rdd(1, None).peak_memory == -1
