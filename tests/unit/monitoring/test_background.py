"""The instrument beside a job: it never waits, drops and counts what is too much, and tells all else."""

from __future__ import annotations

import logging
import threading

from firesteel.monitoring import background as module
from firesteel.monitoring.background import Background
from firesteel.scheduler.kernel.records import JobStatusRecord, StateChange
from journal_samples import planned, word_count

PATIENCE = 30


class Collected:
    """``gate``: it waits for it before each record."""

    def __init__(self, gate: threading.Event | None = None) -> None:
        self.records, self.closed_with, self.busy = [], None, threading.Event()
        self._gate = gate

    def apply(self, record, arrived):
        self.busy.set()
        if self._gate is not None:
            assert self._gate.wait(PATIENCE)
        self.records.append(record)

    def close(self, dropped):
        self.closed_with = dropped


class Broken(Collected):
    def apply(self, record, arrived):
        raise RuntimeError("no receiver")


def change(at):
    return StateChange(at=at, vertex=0, state="RUNNING", subtasks=[0], attempts=[0])


def test_all_records_arrive_in_order_before_it_closes():
    seen = Collected()
    background = Background([seen])
    for record in word_count():
        background.record(record)
    background.close()
    assert background.join(PATIENCE)
    assert seen.records == word_count() and seen.closed_with == 0


def test_an_exporter_that_hangs_costs_records_and_no_time(caplog):
    """The frame of the job is told all the same."""
    gate = threading.Event()
    seen = Collected(gate)
    background = Background([seen], most=10)
    background.record(planned())
    assert seen.busy.wait(PATIENCE)
    for at in range(25):
        background.record(change(float(at)))
    background.record(JobStatusRecord(at=30.0, status="FINISHED"))
    background.close()  # returns, though nothing goes on
    assert not background.join(0.0)
    gate.set()
    assert background.join(PATIENCE)
    assert seen.records == [
        planned(),
        *(change(float(at)) for at in range(10)),
        JobStatusRecord(at=30.0, status="FINISHED"),
    ]
    assert seen.closed_with == background.dropped == 15
    assert "left out 15 of its records" in caplog.text


def test_an_exporter_that_fails_is_told_of_once_and_the_others_go_on(caplog):
    seen = Collected()
    background = Background([Broken(), seen])
    for record in word_count():
        background.record(record)
    background.close()
    assert background.join(PATIENCE)
    assert seen.records == word_count()
    (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert told.getMessage() == "Broken failed and takes no further part in this job."


def test_what_could_not_be_sent_at_the_end_is_told(caplog, monkeypatch):
    gate = threading.Event()
    monkeypatch.setattr(module, "_flushes", [])
    module.at_exit(lambda _seconds: None)
    module.finish(PATIENCE)
    assert not caplog.records
    module.at_exit(lambda _seconds: gate.wait())
    module.finish(0.01)
    gate.set()
    assert [record.getMessage() for record in caplog.records] == [
        "Not all metrics, traces and lineage could be sent within 0.01 s of the end, and the rest is dropped: a receiver is slow or gone."
    ]
