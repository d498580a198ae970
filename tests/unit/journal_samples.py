"""A small job's records, as the scheduler writes them."""

from __future__ import annotations

from firesteel.scheduler.records import (
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
