"""The writer makes groups durable in order, says how far it is, and gives a log up once."""

from __future__ import annotations

import errno
import subprocess
import sys
from queue import SimpleQueue

import pytest

from firesteel.recovery import log as log_module
from firesteel.recovery.files import FileLog, file_name, read_log
from firesteel.recovery.frames import DamagedLogError
from firesteel.recovery.log import Durable, FencedError, LogLost, Writer
from firesteel.scheduler.recovery.records import Alive, DriverBegan, encode_records


def began(epoch, read_until=None):
    return DriverBegan(epoch, epoch << 40, "host", 1, None, "app", 0.0, 0.0, read_until or {})


def entry(k):
    return encode_records([Alive(float(k))])


def alive():
    return encode_records([Alive(-1.0)])


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "job").mkdir()
    return tmp_path / "job" / "log"


def ats(directory):
    return [records[0].at for records in read_log(directory).entries if isinstance(records[0], Alive)]


def test_entries_are_durable_in_order_when_it_is_said(directory):
    told: SimpleQueue = SimpleQueue()
    writer = Writer(FileLog(directory, 1), told.put, alive)
    writer.append(encode_records([began(1)]), awaited=False)
    for k in range(100):
        writer.append(entry(k), awaited=k % 7 == 0)
    writer.wait(50)
    assert ats(directory)[:49] == [float(k) for k in range(49)]
    writer.close()
    assert ats(directory) == [float(k) for k in range(100)]
    numbers = [told.get().entry for _ in range(told.qsize())]
    assert numbers == sorted(set(numbers)) and numbers[-1] == 101


def test_what_nobody_waits_for_is_written_all_the_same(directory):
    told: SimpleQueue = SimpleQueue()
    writer = Writer(FileLog(directory, 1), told.put, alive)
    writer.append(encode_records([began(1)]), awaited=False)
    assert told.get(timeout=60) == Durable(1)
    writer.append(entry(1), awaited=False)
    assert told.get(timeout=60) == Durable(2)
    writer.close()


def test_a_living_driver_writes_though_nothing_happens(directory, monkeypatch):
    monkeypatch.setattr(log_module, "ALIVE_SECONDS", 0.01)
    told: SimpleQueue = SimpleQueue()
    writer = Writer(FileLog(directory, 1), told.put, alive)
    assert told.get(timeout=60) == Durable(1)
    number = writer.append(encode_records([began(1)]), awaited=True)
    writer.wait(number)
    writer.close()


class Failing:
    """A log's place of which the second append fails."""

    is_dear = False

    def __init__(self, error, removed=True):
        self.error, self.removed, self.appended = error, removed, 0

    def verify(self):
        pass

    def put(self, name, data):
        raise self.error

    def append(self, data):
        self.appended += 1
        if self.appended > 1:
            raise self.error

    def close(self):
        pass

    def remove(self):
        if not self.removed:
            raise self.left


@pytest.mark.parametrize("removed", [True, False])
@pytest.mark.parametrize("failure", [OSError, ValueError])
def test_a_log_that_fails_is_given_up_once(failure, removed):
    """``failure``: clients of stores raise more than OSError."""
    told: SimpleQueue = SimpleQueue()
    file = Failing(failure(errno.ENOSPC, "No space left"), removed)
    file.left = failure(errno.EACCES, "no")
    writer = Writer(file, told.put, alive)
    first = writer.append(entry(0), awaited=True)
    writer.wait(first)
    second = writer.append(entry(1), awaited=True)
    with pytest.raises(OSError, match="No space left"):
        writer.wait(second)
    with pytest.raises(OSError, match="No space left"):
        writer.wait(writer.append(entry(2), awaited=True))
    writer.close()
    assert told.get() == Durable(1)
    lost = told.get()
    assert isinstance(lost, LogLost) and lost.is_void is removed and not lost.fenced
    assert told.empty()


def test_a_driver_whose_directory_was_renamed_is_fenced(directory):
    told: SimpleQueue = SimpleQueue()
    writer = Writer(FileLog(directory, 1), told.put, alive)
    writer.wait(writer.append(encode_records([began(1)]), awaited=True))
    directory.parent.rename(directory.parent.with_name("job.e2"))
    with pytest.raises(FencedError, match="another driver has taken the job over"):
        writer.wait(writer.append(entry(1), awaited=True))
    writer.close()
    assert told.get() == Durable(1) and told.get().fenced


def test_what_a_fenced_driver_wrote_after_it_was_read_is_void(directory):
    first = FileLog(directory, 1)
    writer = Writer(first, lambda item: None, alive)
    writer.wait(writer.append(encode_records([began(1)]), awaited=True))
    writer.wait(writer.append(entry(1), awaited=True))
    read = read_log(directory)
    second = Writer(FileLog(directory, 2), lambda item: None, alive)
    second.wait(second.append(encode_records([began(2, read.read)]), awaited=True))
    writer.wait(writer.append(entry(99), awaited=True))
    second.wait(second.append(entry(2), awaited=True))
    assert ats(directory) == [1, 2]
    assert read_log(directory).read.keys() == {file_name(1), file_name(2)}
    assert read_log(directory).epoch == 2
    (directory / file_name(3)).write_bytes(b"fire")  # the third died at once
    assert ats(directory) == [1, 2] and read_log(directory).epoch == 3
    writer.close()
    second.close()


def test_a_part_without_its_driver_is_damage(directory):
    writer = Writer(FileLog(directory, 1), lambda item: None, alive)
    writer.wait(writer.append(entry(1), awaited=True))
    writer.close()
    with pytest.raises(DamagedLogError, match="does not begin with its driver"):
        read_log(directory)


def test_no_directory_is_made_where_another_driver_has_it(tmp_path):
    with pytest.raises(FileNotFoundError):
        FileLog(tmp_path / "job" / "log", 2)
    assert list(tmp_path.iterdir()) == []


FULL = """
import resource, sys
from pathlib import Path
from firesteel.recovery.files import FileLog
from firesteel.recovery.log import Writer
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
told = []
writer = Writer(FileLog(Path(sys.argv[1]), 1), told.append, lambda: b"")
writer.append(b"\\x90" + bytes(0), awaited=True)
number = writer.append(b"\\xc4" * 5000, awaited=True)
try:
    writer.wait(number)
except OSError as error:
    print(error)
writer.close()
print(told[-1].is_void, Path(sys.argv[1]).exists())
"""


def test_a_full_disk(directory):
    run = subprocess.run([sys.executable, "-c", FULL, str(directory)], capture_output=True, text=True, check=True)
    assert "File too large" in run.stdout
    assert run.stdout.splitlines()[-1] == "True False"
