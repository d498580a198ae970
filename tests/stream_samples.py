"""A small stream's records and status, as its scheduler writes them."""

from __future__ import annotations

from firesteel.scheduler.kernel.records import Decision, JournalRecord
from firesteel.scheduler.streaming.records import (
    RescaleRecord,
    StreamBatch,
    StreamEnded,
    StreamPlanned,
    StreamStateChange,
    StreamStatus,
)

MIB = 1 << 20
GROWN = RescaleRecord(
    at=112.5,
    rescale=1,
    cause="NEW_RESOURCE_AVAILABLE",
    what="slots went from 8 to 32: an executor came",
    action="repartition",
    before=2,
    requested=8,
    granted=8,
    sufficient=True,
    desired=True,
    trigger="checkpoint 17",
    trigger_kind="CHECKPOINT",
    checkpoint=17,
    first_change=106.0,
    triggered=110.0,
    steps={"wait": 4.0, "commit barrier": 0.01, "stop": 0.1, "repartition": 1.2, "start": 0.6, "first batch": 0.9},
    predicted_downtime=2.1,
    downtime=1.9,
    state_bytes=4 * MIB,
    end="completed",
)
REFUSED = RescaleRecord(
    at=130.0,
    rescale=2,
    cause="USER",
    what="a user asked for 500 partitions",
    action="repartition",
    before=8,
    requested=500,
    granted=8,
    sufficient=False,
    desired=False,
    end="ignored",
    reason="the sink takes at most 64 partitions.",
)


def batch(at: float, number: int, parallelism: int, rows: int = 1000) -> StreamBatch:
    return StreamBatch(
        at=at, run=1, batch=number, parallelism=parallelism, rows=rows, duration=0.5, state_rows=700, state_bytes=MIB
    )


def planned(at: float = 100.0) -> StreamPlanned:
    return StreamPlanned(
        at=at, stream_id="3f2a91c0", name="words", checkpoint="chk", lower=1, upper=64,
        options={"max-parallelism": "12"},
    )  # fmt: skip


def words() -> list[JournalRecord]:
    waits = Decision(at=111.0, what="wanted", inputs={"slots": 8}, result=8, reason="8 of 8 slots are used.")
    return [
        planned(),
        StreamStateChange(at=100.0, state="WaitingForResources"),
        StreamStateChange(at=101.0, state="Executing", phase="Cooldown", cause="the query runs"),
        batch(103.0, 16, 2),
        batch(106.0, 17, 2),
        Decision(
            at=106.0, what="wanted", inputs={"slots": 32}, result=8, reason="8 partitions: 32 slots, at most 8 allowed."
        ),
        StreamStateChange(at=110.0, state="Restarting", cause="rescale 1"),
        GROWN,
        waits,
        waits,
        waits,
        batch(114.0, 18, 8),
        REFUSED,
        StreamEnded(at=160.0, status="FINISHED"),
    ]


STATUS = StreamStatus(
    name="words",
    checkpoint="chk",
    state="Executing",
    phase="Stabilizing",
    parallelism=8,
    wanted=16,
    lower=1,
    upper=64,
    cores=4,
    executors=2,
    run=2,
    batches=3,
    batch=18,
    input_rate=1000.4,
    processed_rate=2.5,
    state_rows=700,
    state_bytes=MIB,
    backlog=12_000,
    rescales=1,
    last_rescale=GROWN,
    waits_for="the next completed checkpoint.",
)
