"""What a task in a slot is given, in real Python workers: addresses, threads, memory of operators; and when a worker goes."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pytest

import firesteel
from firesteel import ExecutionEnvironment, SlotSharingGroup, TaskResources
from firesteel.errors import UsageError
from firesteel.task.executor.messages import FailedMessage, FinishedMessage, RejectedMessage
from slots_kit import MIB, Slots, is_gone, slot

pytestmark = pytest.mark.spark


@pytest.fixture
def slots(spark, tmp_path):
    return lambda **variables: Slots(spark, tmp_path, variables)


@pytest.mark.full
def test_a_worker_that_began_with_another_address_hands_back_and_goes(slots):
    """A step that reads a DataFrame runs in the worker itself. The program does not begin there; the next task finds a new worker."""
    run = (own := slots()).dataframe
    assert isinstance(run(0, slot(gpu=("0",))), FinishedMessage)
    assert isinstance(run(1, slot(gpu=("0",))), FinishedMessage)
    first, again = own.said(0), own.said(1)
    assert first["process"] == again["process"]
    assert (first["gpu"], first["addresses"]) == ("0", {"gpu": ["0"]})
    message = run(2, slot(gpu=("1", "3")))
    assert isinstance(message, RejectedMessage) and message.retired
    assert own.said(2) is None
    assert is_gone(first["process"])
    assert isinstance(run(3, slot(gpu=("1", "3"))), FinishedMessage)
    assert own.said(3)["gpu"] == "1,3" and own.said(3)["process"] != first["process"]


@pytest.mark.full
def test_addresses_are_held_by_a_process_that_serves_them_until_another_takes_one(slots):
    """Whichever worker asks: those of Spark hold nothing, and take other tasks."""
    run = (own := slots()).rdd
    for attempt, gpu in enumerate([("0",), ("0",), ("1", "3"), (), ("0", "1")]):
        assert isinstance(run(attempt, slot(gpu=gpu)), FinishedMessage)
    first, again, other, worker, both = map(own.said, range(5))
    assert first["process"] == again["process"] and (first["gpu"], first["addresses"]) == ("0", {"gpu": ["0"]})
    assert other["process"] != first["process"] and other["gpu"] == "1,3"
    assert worker["gpu"] is None and worker["process"] not in (first["process"], other["process"])
    assert both["gpu"] == "0,1" and is_gone(first["process"]) and is_gone(other["process"])


@pytest.mark.full
def test_a_holder_that_passes_its_limit_of_memory_is_told_like_a_worker(slots):
    own, limit = slots(), slot(limit=300 * MIB, gpu=("0",))
    message = own.rdd(0, limit, passing_all)
    assert isinstance(message, FailedMessage) and "was stopped at its limit of memory" in message.message, message
    assert isinstance(own.rdd(1, limit), FinishedMessage)
    assert own.said(1)["process"] != own.said(0)["process"]


@pytest.mark.full
def test_devices_that_the_user_made_visible_stay_so(slots):
    own = slots(CUDA_VISIBLE_DEVICES="7")
    own.rdd(0, slot(gpu=("0",)))
    assert own.said(0)["gpu"] == "7" and own.said(0)["addresses"] == {"gpu": ["0"]}


@pytest.mark.full
def test_thread_pools_have_the_size_of_the_slot_and_workers_of_other_sizes_go(slots):
    """Where the environment does not keep them apart, as the profiles of a job do."""
    own = slots()
    own.rdd(0, slot(threads=3, managed=24 * MIB))
    said = own.said(0)
    assert (said["cpu"], said["io"], said["omp"], said["cpu_cores"]) == (3, 3, "3", 3.0)
    assert said["budget"] == 24 * MIB
    assert own.rdd(1, slot(threads=1)).retired
    own.rdd(2, slot(threads=1))
    assert (own.said(2)["cpu"], own.said(2)["omp"], own.said(2)["budget"]) == (1, "1", 64 * MIB)
    own.rdd(3, None)
    assert own.said(3)["process"] == own.said(2)["process"]
    assert (own.said(3)["cpu"], own.said(3)["io"], own.said(3)["cpu_cores"]) == (1, pa.io_thread_count(), 1.0)
    assert (own.said(3)["group"], own.said(3)["memory"], own.said(3)["addresses"]) == ("trainers", 0, {})


kept = []
"""Of a worker process."""


def passing():
    return np.ones(250 * MIB, dtype=np.uint8).sum()


def passing_all():
    return [np.ones(50 * MIB, dtype=np.uint8) for _ in range(40)]


def keeping():
    kept.append(np.ones(120 * MIB, dtype=np.uint8))


@pytest.mark.full
def test_a_worker_that_holds_too_much_for_a_task_like_those_before_goes(slots):
    """The limit is 450 MiB: beside some 110 of the worker itself there is room for what stays, or for what comes and goes."""
    own, limit = slots(), slot(limit=450 * MIB)
    assert own.rdd(0, limit, passing).peak_memory > 250 * MIB
    assert own.rdd(1, limit, keeping).peak_memory > 200 * MIB
    assert own.said(1)["process"] == own.said(0)["process"]
    message = own.rdd(2, limit)
    assert isinstance(message, RejectedMessage) and message.retired
    assert is_gone(own.said(0)["process"])
    assert isinstance(own.rdd(3, limit, passing), FinishedMessage)


@pytest.mark.full
def test_a_worker_that_every_task_leaves_fuller_goes_before_one_is_stopped_for_it(slots):
    """Nothing comes and goes, all stays: the limit is 400 MiB, and each task keeps 120 MiB more, beside some 110."""
    own, limit = slots(), slot(limit=400 * MIB)
    said = [own.rdd(attempt, limit, keeping) for attempt in range(3)]
    assert isinstance(said[0], FinishedMessage) and isinstance(said[1], FinishedMessage)
    assert isinstance(said[2], RejectedMessage) and said[2].retired, said[2]
    assert isinstance(own.rdd(3, limit, keeping), FinishedMessage)


def given(batches):
    yield from batches
    told = firesteel.task_resources()
    yield pa.record_batch({"v": [told.memory, told.memory_limit]})


def in_pandas(frame):
    told = firesteel.task_resources()
    frame["v"] = int(told.cpu_cores * 1000) if told.group == "fine" else -1
    return frame


def test_functions_of_all_kinds_learn_what_they_were_given(spark, tmp_path):
    options = {"firesteel.progress": False, "firesteel.journal.directory": str(tmp_path / "journal")}
    env = ExecutionEnvironment(spark=spark, options={**options, "firesteel.memory.framework": "200 MiB"})
    fine = SlotSharingGroup("fine", cpu_cores=1.5, task_heap_memory="300 MiB")
    numbers = env.from_arrow(pa.table({"v": [1]})).map_in_arrow(given, "v bigint").slot_sharing_group(fine)
    row, memory, limit = sorted(row["v"] for row in numbers.collect())
    assert row == 1 and memory == 300 * MIB, "what the group asked for"
    assert 500 * MIB <= limit < 600 * MIB  # and network memory
    keyed = env.from_arrow(pa.table({"k": [1, 2], "v": [0, 0]})).key_by("k")
    by_key = keyed.apply_in_pandas(in_pandas, "k bigint, v bigint").slot_sharing_group(fine)
    assert sorted(row["v"] for row in by_key.collect()) == [1500, 1500]


def test_outside_of_a_task_there_is_nothing_to_tell():
    with pytest.raises(UsageError, match=r"task_resources\(\) was called outside of a task"):
        firesteel.task_resources()


def test_task_resources_cannot_be_changed_and_can_be_pickled():
    told = TaskResources("g", 2.0, external={"gpu": 1.0}, addresses={"gpu": ("0",)})
    with pytest.raises(TypeError):
        told.addresses["gpu"] = ("1",)
    with pytest.raises(AttributeError):
        told.memory = 1
    assert pickle.loads(pickle.dumps(told)) == told
    assert repr(told) == (
        "TaskResources(group='g', cpu_cores=2.0, memory=0, managed_memory=0, memory_limit=0, external={'gpu': 1.0}, addresses={'gpu': ('0',)})"
    )
