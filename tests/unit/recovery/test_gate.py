"""Commands wait until their events are durable, in order; a log that fails holds nothing up but a publication that could be repeated."""

from __future__ import annotations

import errno
from functools import partial
from queue import SimpleQueue

import numpy as np
import pytest

from firesteel.errors import FiresteelError
from firesteel.recovery.log import FencedError
from firesteel.scheduler.inputs import SideInputs
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import CommitSinks, JobStatus, Record, ReleasePartitions, SetTimer
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.recovery.codec import decode
from firesteel.scheduler.recovery.records import Alive, SinkStep, Told, decode_records
from firesteel.spark.recovery.gate import Gate, LogGate


class Place:
    """A log's place that fails when it is told to. ``entries``: the records that are durable."""

    is_dear = False

    def __init__(self):
        self.entries, self.error, self.removable = [], None, True

    def verify(self):
        pass

    def put(self, name, data):
        pass

    def append(self, data):
        if self.error is not None:
            raise self.error
        import msgspec

        payload = msgspec.msgpack.decode(data[8:], type=list[msgspec.Raw])
        self.entries += [decode_records(bytes(entry)) for entry in payload]

    def close(self):
        pass

    def remove(self):
        if not self.removable:
            raise PermissionError(errno.EACCES, "no")


class Driver:
    """Plays the job's loop: what the gate puts on its queue comes back when :meth:`wait` says so."""

    def __init__(self, place, recovery=None):
        self.done, self.queue = [], SimpleQueue()
        made = recovery or partial(LogGate, file=place, first=[Alive(0.0)], side_inputs=SideInputs())
        self.gate = made(self.queue.put, lambda: 1.0, self.done.append)

    def wait(self):
        """Takes what comes next from the gate."""
        item = self.queue.get(timeout=60)
        if isinstance(item, ev.Event):
            return item
        self.gate.take(item)
        return item

    def names(self):
        return [type(command).__name__ for command in self.done]


def event(k=0.0):
    return ev.TimerFired(at=k, timer="t")


def release():
    none = np.zeros(0, np.int64)
    return ReleasePartitions(0, none, none, none)


RECORD = Record(Decision(at=0.0, what="x"))
TIMER = SetTimer("t", 1.0)


def until(driver, names):
    while driver.names() != names:
        driver.wait()


def test_what_changes_something_outside_waits_and_what_follows_waits_behind_it():
    place = Place()
    driver = Driver(place)
    driver.gate.heard(event(1.0), [RECORD, TIMER])
    assert driver.names() == ["Record", "SetTimer"]
    driver.gate.heard(event(2.0), [RECORD, release(), TIMER])
    driver.gate.heard(event(3.0), [RECORD])
    assert driver.names() == ["Record", "SetTimer", "Record"]
    until(driver, ["Record", "SetTimer", "Record", "ReleasePartitions", "SetTimer", "Record"])
    driver.gate.close(JobStatus.FINISHED)
    told = [entry[0] for entry in place.entries]
    assert isinstance(told[0], Alive)
    assert [decode(one.event).at for one in told[1:]] == [1.0, 2.0, 3.0]
    assert all(isinstance(one, Told) for one in told[1:])


def test_a_sinks_step_is_durable_when_it_returns():
    place = Place()
    driver = Driver(place)
    driver.gate.step(3, 0, "publishing")
    assert SinkStep(3, 0, "publishing") in [entry[0] for entry in place.entries]
    driver.gate.close(None)


def test_a_log_that_fails_lets_everything_through_and_says_so():
    place = Place()
    place.error = OSError(errno.ENOSPC, "No space left on device")
    driver = Driver(place)
    driver.gate.heard(event(), [release()])
    until(driver, ["Record", "ReleasePartitions"])
    assert "No space left" in driver.done[0].record.reason
    assert driver.done[0].record.result == "given up"
    driver.gate.heard(event(), [CommitSinks({}), release()])
    assert driver.names() == ["Record", "ReleasePartitions", "CommitSinks", "ReleasePartitions"]
    driver.gate.step(1, 0, "publishing")
    driver.gate.close(JobStatus.FINISHED)


def test_an_answer_that_cannot_be_written_is_as_a_log_that_fails():
    inputs = SideInputs()
    driver = Driver(None, partial(LogGate, file=Place(), first=[Alive(0.0)], side_inputs=inputs))
    inputs.ask(object)
    driver.gate.heard(event(), [release()])
    until(driver, ["Record", "ReleasePartitions"])
    assert "object" in driver.done[0].record.reason
    driver.gate.close(JobStatus.FINISHED)


def test_nothing_is_published_while_a_log_that_failed_lies_there():
    place = Place()
    place.error, place.removable = OSError(errno.ENOSPC, "No space left on device"), False
    driver = Driver(place)
    driver.gate.heard(event(), [CommitSinks({})])
    until(driver, ["Record"])
    failed = driver.wait()
    assert isinstance(failed, ev.SinksFailed) and failed.cause.kind is ev.FailureKind.FATAL
    assert "so its outputs are not published" in failed.cause.message
    with pytest.raises(FiresteelError, match="nor removed"):
        driver.gate.step(1, 0, "publishing")
    place.removable = True
    driver.gate.heard(event(), [CommitSinks({})])
    assert driver.names() == ["Record", "CommitSinks"]
    driver.gate.close(JobStatus.FINISHED)


def test_a_fenced_driver_carries_nothing_out():
    place = Place()
    place.error = FencedError("Another driver has it.")
    driver = Driver(place)
    driver.gate.heard(event(), [release()])
    with pytest.raises(FencedError, match="Another driver"):
        driver.wait()
    assert driver.done == []
    with pytest.raises(FencedError):
        driver.gate.step(1, 0, "publishing")
    driver.gate.close(None)


def test_without_a_log_everything_is_done_at_once():
    for recovery, said in ((Gate, []), (partial(Gate, lost="no space"), ["Record"])):
        driver = Driver(None, recovery)
        driver.gate.heard(event(), [release(), RECORD])
        driver.gate.step(1, 0, "publishing")
        assert driver.names() == ["ReleasePartitions", "Record"]
        until(driver, ["ReleasePartitions", "Record", *said])
        driver.gate.close(JobStatus.FINISHED)
