"""Processes that hold external resources: real ones, which run a function of this test in the place of a batch's."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from firesteel.task.executor.handed import Handed
from firesteel.task.executor.place import Place
from firesteel.task.executor.slots import holders as holders_module
from firesteel.task.executor.slots import retiring
from firesteel.task.executor.slots.holders import HolderLostError, Holders, _Holder
from firesteel.task.executor.slots.slot import SlotInformation
from holders_kit import Function
from slots_kit import is_gone, is_there

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="holders need Linux")


def slot(amount, idle_seconds=30.0):
    return SlotInformation("g", 1.0, 0, 0, 0, 1, {"gpu": amount}, {}, idle_seconds)


def run(holders, addresses, amount=1.0, idle_seconds=30.0, **function):
    """(process, executions that it has run)."""
    handed = Handed(Function(**function), (), Place("driver", "here"), {}, (None, True), tuple(sys.path))
    answer = holders.run(pickle.dumps(handed), slot(amount, idle_seconds), {"gpu": tuple(addresses)})
    return pickle.loads(answer)[0]


@pytest.fixture
def holders(tmp_path):
    found = Holders(tmp_path / "holders")
    yield found
    for path in (tmp_path / "holders").glob("*.json"):
        if (holder := _Holder.known(path)) is not None and holder.lock():
            holder.end()


@pytest.mark.full
def test_a_process_is_kept_for_its_addresses_until_another_takes_one(holders):
    first, _ = run(holders, ["0"])
    assert run(holders, ["0"]) == (first, 2)
    other, _ = run(holders, ["1"])
    assert other != first and is_there(first), "nobody has taken its address"
    assert run(holders, ["0"]) == (first, 3)
    both, count = run(holders, ["0", "1"])
    assert count == 1 and not is_there(first) and not is_there(other) and is_there(both)


def test_shares_of_one_address_have_as_many_processes_as_were_promised(holders, tmp_path):
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    with ThreadPoolExecutor(4) as pool:
        quarters = {p for p, _ in pool.map(lambda _: run(holders, ["0"], 0.25, folder=str(meeting), meets=4), range(4))}
    assert len(quarters) == 4 and all(map(is_there, quarters))
    assert run(holders, ["0"], 0.25)[0] in quarters
    half, _ = run(holders, ["0"], 0.5)
    assert half in quarters and len(list(filter(is_there, quarters))) == 2
    whole, _ = run(holders, ["0"])
    assert list(filter(is_there, quarters)) == [whole]


@pytest.mark.full
def test_one_that_runs_an_execution_is_never_ended(holders, tmp_path):
    """Though another takes its address, which no slot pool would allow."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    with ThreadPoolExecutor(1) as pool:
        busy = pool.submit(run, holders, ["0"], folder=str(meeting), meets=2)
        while not list(meeting.iterdir()):
            time.sleep(0.01)
        other, _ = run(holders, ["0"])
        (meeting / "done").touch()
        assert busy.result()[0] != other and busy.result()[1] == 1


@pytest.mark.full
def test_one_that_is_idle_for_a_while_ends_and_so_does_one_that_a_task_has_spoilt_or_killed(holders):
    idle, _ = run(holders, ["0"], idle_seconds=0.1)
    assert is_gone(idle)
    spoilt, count = run(holders, ["0"], is_last=True)
    assert not is_there(spoilt) and count == 1
    with pytest.raises(HolderLostError):
        run(holders, ["0"], fails=True)
    assert run(holders, ["0"])[1] == 1


@pytest.fixture(params=["python", "c"])
def forks(request, tmp_path):
    yield {"forks": request.param, "folder": str(tmp_path)}
    with suppress(ProcessLookupError):
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


def test_a_process_that_a_function_forked_and_left_does_no_harm(holders, forks):
    holder, _ = run(holders, ["0"], takes=0.2, **forks)
    assert [run(holders, ["0"], takes=0.2) for _ in range(3)] == [(holder, 2), (holder, 3), (holder, 4)]


@pytest.mark.full
def test_the_end_of_a_holder_is_seen_though_a_process_that_it_forked_has_its_connection(holders, forks, tmp_path):
    with pytest.raises(HolderLostError):
        run(holders, ["0"], fails=True, **forks)
    assert is_there(int((tmp_path / "child").read_text()))
    assert run(holders, ["0"])[1] == 1, "not what is left of the other one"


@pytest.mark.full
def test_one_that_takes_too_long_to_end_or_to_answer_is_killed_before_another_begins(holders, monkeypatch):
    monkeypatch.setattr(holders_module, "ENDING_SECONDS", 0.5)
    slow, _ = run(holders, ["0"], exits=600.0)
    both, _ = run(holders, ["0", "1"])
    assert not is_there(slow)
    os.kill(both, signal.SIGSTOP)
    assert run(holders, ["0", "1"])[0] != both and not is_there(both)
    spoilt, _ = run(holders, ["0", "1"], is_last=True, exits=600.0)
    assert not is_there(spoilt)


@pytest.mark.full
def test_one_that_nobody_waits_for_ends_in_time_too(holders):
    idle, _ = run(holders, ["0"], idle_seconds=0.1, exits=600.0)
    assert is_gone(idle, 30.0)


def test_one_finds_nothing_of_what_its_worker_was_given_before(holders, monkeypatch):
    monkeypatch.setattr(os, "environ", {**os.environ, "OMP_NUM_THREADS": "5"})
    os.environ.pop(retiring.VISIBLE_DEVICES, None)
    for name in ("_began", "_environment"):
        monkeypatch.setattr(retiring, name, None)
    assert not retiring.take(slot(1.0), {"gpu": ("7",)}, None)
    assert os.environ[retiring.VISIBLE_DEVICES] == "7" and os.environ["OMP_NUM_THREADS"] == "1"
    holder, devices = run(holders, ["0"], tells=retiring.VISIBLE_DEVICES)
    assert devices is None
    assert run(holders, ["0"], tells="OMP_NUM_THREADS") == (holder, "5")


WORKER = """
import os, sys
from pathlib import Path
from tests.unit.slots.test_holders import Holders, run
if os.fork():
    os.wait() if sys.argv[2] == "waits" else os._exit(0)
    os._exit(0)
print(run(Holders(Path(sys.argv[1])), ["0"], folder=sys.argv[3], meets=int(sys.argv[4]))[0], flush=True)
os.execvp("sleep", ["sleep", "600"])
"""


@pytest.fixture
def worker(tmp_path):
    """A daemon with a worker that has handed over an execution."""
    (tmp_path / "meeting").mkdir()
    root = Path(__file__).parents[3]
    path = os.pathsep.join([str(root), str(root / "tests"), str(root / "src"), *sys.path])
    started = []

    def start(meets):
        command = [
            sys.executable,
            "-c",
            WORKER,
            str(tmp_path / "holders"),
            "waits",
            str(tmp_path / "meeting"),
            str(meets),
        ]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path})
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def child_of(process):
    (child,) = map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
    return child


@pytest.mark.full
def test_a_holder_ends_with_the_worker_that_was_killed_while_it_waited(worker, tmp_path):
    daemon = worker(meets=2)
    while not (found := list((tmp_path / "meeting").iterdir())):
        assert daemon.poll() is None, "it has ended"
        time.sleep(0.01)
    holder = int(found[0].name)
    os.kill(child_of(daemon.pid), signal.SIGKILL)
    assert is_gone(holder, 20.0)


@pytest.mark.full
def test_an_idle_holder_ends_with_the_daemon_of_the_workers(worker):
    daemon = worker(meets=0)
    holder = int(daemon.stdout.readline())
    assert is_there(holder)
    idle_worker = child_of(daemon.pid)
    daemon.kill()
    daemon.wait()
    assert is_gone(holder, 20.0)
    os.kill(idle_worker, signal.SIGKILL)
