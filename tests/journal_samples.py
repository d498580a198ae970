"""A small job's records, as the scheduler writes them."""

from __future__ import annotations

from msgspec.structs import replace

from firesteel.options import SPECULATIVE_ENABLED
from firesteel.scheduler.kernel.records import (
    REJECTED,
    Decision,
    JobPlanned,
    JobStatusRecord,
    JournalRecord,
    MetricsSnapshot,
    StateChange,
)

MIB = 1 << 20


def planned(at: float = 100.0) -> JobPlanned:
    return JobPlanned(
        at=at,
        job_id="3f2a91c0",
        job_name="word count",
        vertices=[
            {"id": 0, "name": "text src/**/*.py -> tokenize", "inputs": []},
            {"id": 1, "name": "aggregate by word -> parquet out", "inputs": [0]},
        ],
        datasets=[{"id": 0, "producer": 0, "ship": "hash"}],
        options={"firesteel.results.codec": "zstd"},
    )


def measured(at: float, vertex: int, **numbers: int) -> MetricsSnapshot:
    return MetricsSnapshot(at=at, job={"numRestarts": 1}, vertices={vertex: dict(numbers)})


def word_count() -> list[JournalRecord]:
    return [
        planned(),
        JobStatusRecord(at=100.0, status="RUNNING"),
        Decision(
            at=100.1,
            what="source parallelism",
            vertex=0,
            rule="bytes over data-volume-per-task",
            result=2,
            reason="2 source subtasks: 100 MiB in 12 splits over 64 MiB each, bounded by nothing",
        ),
        StateChange(at=100.2, vertex=0, state="SCHEDULED", subtasks=[0, 1], attempts=[0, 0]),
        StateChange(at=100.3, vertex=0, state="RUNNING", subtasks=[0, 1], attempts=[0, 0]),
        StateChange(at=100.9, vertex=0, state="FAILED", subtasks=[1], attempts=[0], cause="worker lost\nexit code 137"),
        Decision(at=100.9, what="restart", vertex=0, result=[1], reason="subtask 1 again after 1 s, restart 1 of 3"),
        StateChange(at=101.9, vertex=0, state="RUNNING", subtasks=[1], attempts=[1]),
        StateChange(at=102.5, vertex=0, state="FINISHED", subtasks=[0, 1], attempts=[0, 1]),
        measured(
            102.5, 0, parallelism=2, numFinishedTasks=2, numRecordsIn=1000, numRecordsOut=5000, numBytesIn=100 * MIB,
            numBytesProduced=3 * MIB, numBytesStored=MIB,
        ),
        Decision(
            at=102.6,
            what="parallelism",
            vertex=1,
            rule="by-bytes",
            bounds=["the minimum of 1"],
            result={"parallelism": 1, "largest": 3 * MIB, "smallest": 3 * MIB},
            reason="1 subtask: 3 MiB over 64 MiB each, bounded by the minimum of 1",
        ),
        StateChange(at=102.7, vertex=1, state="RUNNING", subtasks=[0], attempts=[0]),
        StateChange(at=103.5, vertex=1, state="FINISHED", subtasks=[0], attempts=[0]),
        measured(103.5, 1, parallelism=1, numFinishedTasks=1, numRecordsIn=5000, numRecordsOut=200, numBytesIn=3 * MIB),
        JobStatusRecord(at=104.2, status="FINISHED"),
    ]  # fmt: skip


def mirrored() -> list[JournalRecord]:
    """Subtask 1 of three is slow; its first mirror is rejected by a blocked node, its second one wins."""
    slow = "attempt 1 of subtask 1 of 'text' has taken 12.3 s there, three took 1.1 s"
    blocked = {"node": "10.0.0.4", "cause": slow, "start": 112.5, "end": 172.5, "times": 1}
    hosts, nodes = ["10.0.0.3", "10.0.0.4"], [0, 1, 0]
    return [
        replace(planned(), options={SPECULATIVE_ENABLED.key: True}),
        JobStatusRecord(at=100.0, status="RUNNING"),
        Decision(at=100.0, what="source parallelism", vertex=0, result=3, reason="3 subtasks"),
        StateChange(at=100.1, vertex=0, state="SCHEDULED", subtasks=[0, 1, 2], attempts=[0, 0, 0]),
        StateChange(
            at=100.2, vertex=0, state="DEPLOYING", subtasks=[0, 1, 2], attempts=[0, 0, 0], hosts=hosts, nodes=nodes
        ),
        StateChange(at=100.3, vertex=0, state="RUNNING", subtasks=[0, 1, 2], attempts=[0, 0, 0]),
        StateChange(at=101.3, vertex=0, state="FINISHED", subtasks=[0, 2], attempts=[0, 0]),
        Decision(
            at=112.5, what="blocklist", inputs=blocked, rule="MARK_BLOCKED", result="blocked",
            reason=f"node 10.0.0.4 is blocked for 1 min: {slow}",
        ),
        StateChange(
            at=112.5, vertex=0, state="CREATED", subtasks=[1], attempts=[1], cause="slow", beside=True, mirrors=[True]
        ),
        Decision(
            at=112.5, what="speculation", vertex=0, name="text", rule="seed", result=[[1, 1]],
            inputs={"subtasks": [1], "attempts": [0], "nodes": ["10.0.0.4"], "elapsed": [12.3], "baseline": [1.7]},
            reason="attempt 1 of subtask 1 of 'text' has taken 12.3 s on 10.0.0.4, three took 1.1 s: attempt 2 is made",
        ),
        StateChange(at=112.5, vertex=0, state="SCHEDULED", subtasks=[1], attempts=[1]),
        StateChange(
            at=112.6, vertex=0, state="DEPLOYING", subtasks=[1], attempts=[1], hosts=["10.0.0.4"], nodes=[0]
        ),
        StateChange(at=112.7, vertex=0, state="CANCELED", subtasks=[1], attempts=[1], cause=REJECTED),
        StateChange(
            at=112.7, vertex=0, state="CREATED", subtasks=[1], attempts=[2], cause="again", beside=True, mirrors=[True]
        ),
        StateChange(at=112.7, vertex=0, state="SCHEDULED", subtasks=[1], attempts=[2]),
        StateChange(at=112.8, vertex=0, state="RUNNING", subtasks=[1], attempts=[2], hosts=["10.0.0.3"], nodes=[0]),
        StateChange(
            at=113.9, vertex=0, state="FINISHED", subtasks=[1], attempts=[2], hosts=["10.0.0.3"], nodes=[0],
            deployed=[112.8], running=[112.8], tokens=[7],
        ),
        Decision(
            at=113.9, what="winner", vertex=0, name="text", rule="first valid commit wins", result=2,
            inputs={"subtask": 1, "attempts": [2, 0], "nodes": ["10.0.0.3", "10.0.0.4"], "mirror": True},
            reason="attempt 3 (a mirror, on 10.0.0.3) of subtask 1 of 'text' finished first",
        ),
        StateChange(at=113.9, vertex=0, state="CANCELING", subtasks=[1], attempts=[0], cause="another attempt was faster"),
        measured(113.9, 0, parallelism=3, numFinishedTasks=3, numRecordsOut=30),
        StateChange(at=114.4, vertex=0, state="CANCELED", subtasks=[1], attempts=[0]),
    ]  # fmt: skip
