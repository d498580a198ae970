"""Journals of all kinds in a folder, for pages to be made of; and one that grows while somebody looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace
from tests import journal_samples
from tests.simulation.streams.random_streams import random_stream, run_random_stream

from firesteel.cli.simulate import simulate_text
from firesteel.journal.file import Journal, read
from firesteel.journal.scripts import QueryRecord, ScriptEnded, ScriptPlanned
from firesteel.scheduler.kernel.records import Decision, JobPlanned, JournalRecord
from firesteel.scheduler.streaming.records import StreamPlanned

SIMULATION = {
    "vertices": 4, "parallelism": 40, "edge": "all-to-all", "nodes": 5, "slots": 4, "adaptive": None, "pipelined": False, "slow_nodes": 1,
    "slow_factor": 0.1, "frozen_nodes": 0, "fail_rate": 0.05, "seed": 7, "as_json": False,
    "options": {
        "execution.batch.speculative.enabled": "true", "slow-task-detector.check-interval": "100 ms",
        "slow-task-detector.execution-time.baseline-lower-bound": "300 ms",
    },
}  # fmt: skip
NAMES = (
    "read_parquet(orders) -> filter -> select", "join(customers) -> select(name, total)", "aggregate(total) -> filter",
    "sort(total desc) -> write_parquet(report)",
)  # fmt: skip


def simulated(path: Path, **how: object) -> list[JournalRecord]:
    """The records of a job on a simulated cluster: a chain of steps, one slow node, some failures, mirrors."""
    simulate_text(**{**SIMULATION, **how}, journal=str(path))
    return list(read(path))


def renamed(records: Iterable[JournalRecord], name: str, steps: Iterable[str] = NAMES) -> list[JournalRecord]:
    """As a job of a user: the simulation calls its steps by numbers."""
    steps = list(steps)

    def one(record: JournalRecord) -> JournalRecord:
        if isinstance(record, JobPlanned):
            vertices = [{**each, "name": steps[each["id"]]} for each in record.vertices]
            return replace(record, job_name=name, vertices=vertices)
        if isinstance(record, Decision) and record.vertex is not None:
            reason = (
                record.reason.replace(f"'{record.name}'", f"'{steps[record.vertex]}'") if record.name else record.reason
            )
            return replace(record, name=steps[record.vertex], reason=reason)
        return record

    return list(map(one, records))


def write(folder: Path, id: str, records: Iterable[JournalRecord]) -> None:
    """As a journal of the job, stream or script ``id``."""
    journal = Journal(folder / f"{id}.jsonl")
    for record in records:
        journal.record(called(record, id))
    journal.close()


def called(record: JournalRecord, id: str) -> JournalRecord:
    match record:
        case JobPlanned():
            return replace(record, job_id=id)
        case StreamPlanned():
            return replace(record, stream_id=id)
        case ScriptPlanned():
            return replace(record, script_id=id)
        case _:
            return record


@dataclass
class Growing:
    """A journal whose job still runs: its first records are written, the others come when somebody says so."""

    journal: Journal
    left: list[JournalRecord] = field(default_factory=list)

    def go_on(self, count: int | None = None) -> None:
        """``count``: None: to its end."""
        now, self.left = self.left[:count], self.left[len(self.left) if count is None else count :]
        for record in now:
            self.journal.record(record)
        self.journal.flush()

    def close(self) -> None:
        self.journal.close()


def growing(folder: Path, id: str, records: list[JournalRecord], written: int) -> Growing:
    made = Growing(Journal(folder / f"{id}.jsonl"), [called(record, id) for record in records])
    made.go_on(written)
    return made


def script() -> list[JournalRecord]:
    return [
        ScriptPlanned(at=0.0, script_id="", name="nightly_etl.py"),
        QueryRecord(at=1.2, number=1, action="count", place="nightly_etl.py:14", job="sim", seconds=1.1),
        QueryRecord(
            at=2.0, number=2, action="collect", place="nightly_etl.py:29", left=["a UDF in Scala"], seconds=0.1
        ),
        ScriptEnded(at=3.0, status="FINISHED"),
    ]


def fill(folder: Path) -> None:
    """Journals ``sim``, ``other``, ``large``, ``groups``, ``wc``, ``mirrors``, ``stream`` and ``script``."""
    aside = folder / "aside"
    aside.mkdir()
    sim = simulated(aside / "1.jsonl")
    write(folder, "sim", renamed(sim, "daily revenue"))
    write(folder, "other", renamed(simulated(aside / "2.jsonl", seed=8, slow_nodes=0, fail_rate=0.0), "daily revenue"))
    large = simulated(aside / "3.jsonl", parallelism=10_000, vertices=2, nodes=100, slots=20, slow_nodes=3)
    write(folder, "large", renamed(large, "clicks of a year", NAMES[:2]))
    heavy = {"slot-sharing-group.heavy.cpu-cores": "2", "slot-sharing-group.heavy.task-heap-memory": "2g"}
    groups = simulated(
        aside / "4.jsonl",
        memory="64 GiB",
        groups=("light", "heavy"),
        options={**heavy, **{key.replace("heavy", "light"): "1" if key.endswith("cores") else "1g" for key in heavy}},
    )
    write(folder, "groups", renamed(groups, "features"))
    write(folder, "wc", journal_samples.word_count())
    write(folder, "mirrors", journal_samples.mirrored())
    write(folder, "stream", stream())
    write(folder, "script", script())


class _Written:
    """Sees what a simulated stream's scheduler writes down."""

    def __init__(self) -> None:
        self.records: list[JournalRecord] = []

    def seen(self, now: float, event: object, commands: object) -> None:
        """Nothing is to be done."""

    def written(self, record: JournalRecord) -> None:
        self.records.append(record)


def stream(seed: int = 24) -> list[JournalRecord]:
    """A simulated stream whose cluster and user change: rescales, and some that came to nothing."""
    seen = _Written()
    run_random_stream(random_stream(seed, faults=False, hours=0.5), [seen])
    return [
        replace(record, name="clicks per minute", checkpoint="/data/checkpoints/clicks")
        if isinstance(record, StreamPlanned)
        else record
        for record in seen.records
    ]
