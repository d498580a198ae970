"""The watch on a worker's resident memory, with real memory in a forked process."""

from __future__ import annotations

import mmap
import os
import pickle
import select
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from firesteel.engine import connection
from firesteel.engine.connection import EngineSettings
from firesteel.results.storage.store import ResultStore
from firesteel.task.executor import notes
from firesteel.task.executor.slots import memory_watch
from firesteel.task.executor.slots.memory_watch import (
    NO_WATCH,
    MemoryLimitError,
    MemoryStop,
    MemoryWatch,
    Resident,
    Watched,
    own_memory,
)

MIB = 1 << 20
PATIENCE_SECONDS = 600.0
pytestmark = pytest.mark.skipif(own_memory() is None, reason="the system does not tell of resident memory")


def forked(body):
    """What ``body`` returns in a process of its own, or that process' exit code."""
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        code = 1
        try:
            os.write(write, pickle.dumps(body()))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        ended = select.select([pipe], [], [], PATIENCE_SECONDS)[0]
        if not ended:
            os.kill(process, signal.SIGKILL)
        told = pipe.read()
    _, status = os.waitpid(process, 0)
    assert ended, f"the process had not ended after {PATIENCE_SECONDS:.0f} s"
    return pickle.loads(told) if told else os.waitstatus_to_exitcode(status)


def watched_by(more, leave=lambda message, hint: None):
    """A watch with a limit of ``more`` MiB above what the process holds."""
    resident = Resident()
    return MemoryWatch(Watched("Step 'train'", "gpu", "host-1", resident.look() + more * MIB, leave), resident)


def held(size):
    """So many MiB of pages that nobody had before: what was freed earlier in this process may be resident still."""
    if not size:
        return b""
    pages = np.frombuffer(mmap.mmap(-1, size * MIB), dtype=np.uint8)
    pages[:] = 1
    return pages


def run(watch, work):
    """As a task does it: what it made, or (error, what to tell)."""
    try:
        with watch:
            made = work()
        watch.check()
    except BaseException as error:
        watch.stop()
        told = watch.cause(error)
        return type(error).__name__, told.message, told.hint, watch.stopped, watch.peak
    return made, watch.peak


def stubborn(step):
    """Does it for ever, and swallows what is raised in it."""
    while True:
        try:
            while True:
                step()
        except MemoryStop:
            continue


def growing(most=4000):
    """Holds ever more, 1 MiB at a time."""
    return [held(1) for _ in range(most) if time.sleep(0.001) is None]


def test_a_task_that_passes_its_limit_is_stopped_with_a_sentence():
    kind, message, hint, stopped, peak = forked(lambda: run(watched_by(60), growing))
    assert (kind, stopped) == ("MemoryStop", True)
    assert message.startswith("Step 'train' was stopped at its limit of memory on host-1, at test_memory_watch.py:")
    assert "in growing" in message or "in <listcomp>" in message or "in held" in message
    assert "its Python worker held" in message and "(slot sharing group 'gpu')" in message
    assert "data-volume-per-task" in hint and peak > 60 * MIB


def test_a_statement_of_the_engine_is_interrupted(monkeypatch, tmp_path):
    """It runs in C code, which does not look at exceptions, and would take days."""
    monkeypatch.setattr(memory_watch, "GRACE_SECONDS", 60.0)
    monkeypatch.setattr(connection, "_engines", [])
    numbers, kept = pa.schema({"n": pa.int64()}), []

    def rows():
        yield pa.record_batch({"n": [1]})
        kept.append(held(100))

    def work():
        settings = EngineSettings(tmp_path / "engine", 64 * MIB)
        text = "SELECT count(*) AS n FROM input, range(1000000) a, range(1000000000) b"
        return list(connection.run(text, {"input": (numbers, rows())}, {}, numbers, settings))

    kind, message, *_ = forked(lambda: run(watched_by(60), work))
    assert kind in ("MemoryStop", "EngineStop")
    assert "was stopped at its limit of memory" in message


def test_what_stays_below_is_left_alone_and_its_peak_is_exact():
    def work():
        before = Resident().look()
        held(50)  # gone before anybody looks
        return before

    before, peak = forked(lambda: run(watched_by(90), work))
    assert 48 * MIB <= peak - before <= 60 * MIB


def test_each_execution_has_a_peak_of_its_own():
    def both():
        watch = MemoryWatch(None, own_memory())
        return run(watch, lambda: len(held(80)))[1], run(MemoryWatch(None, own_memory()), lambda: 1)[1]

    first, second = forked(both)
    assert first - second > 70 * MIB
    assert NO_WATCH.peak == -1


def test_an_excess_that_is_over_before_anybody_looks_is_an_excess():
    """C code that holds the interpreter's lock hides it from the watching thread."""

    def work():
        b"x" * (150 * MIB)
        return list(iter(lambda: time.sleep(0.005) or time.monotonic() > end, True))

    end = time.monotonic() + 5
    kind, message, *_ = forked(lambda: run(watched_by(60), work))
    assert kind == "MemoryStop" and "was stopped at its limit" in message


def test_a_function_that_swallows_every_exception_does_not_get_away(monkeypatch):
    monkeypatch.setattr(memory_watch, "AGAIN_SECONDS", 0.3)
    monkeypatch.setattr(memory_watch, "GRACE_SECONDS", PATIENCE_SECONDS)

    def work():
        kept, swallowed = [], 0
        while swallowed < 2:
            try:
                while True:
                    kept.append(held(10 if len(kept) < 20 else 0))
                    time.sleep(0.005)
            except BaseException:
                swallowed += 1
        return len(kept)

    kind, message, _, stopped, _ = forked(lambda: run(watched_by(60), work))
    # On a busy machine a third one may come while it frees what it held, and that it cannot swallow.
    assert kind in ("MemoryLimitError", "MemoryStop") and stopped
    assert "was stopped at its limit" in message


def test_what_finished_in_spite_of_the_exception_is_stopped():
    """It may lack rows. Raised by hand, so that no other comes."""

    def body():
        watch = watched_by(4000)

        def work():
            while (
                watch.peak < 0
            ):  # a thread that does not run yet has its maker's number, and the exception would go there
                time.sleep(0.001)
            with suppress(BaseException):
                watch.demand()
                time.sleep(PATIENCE_SECONDS)
            return "rows"

        return run(watch, work)

    kind, message, _, stopped, _ = forked(body)
    assert (kind, stopped) == ("MemoryLimitError", True)
    assert "was stopped at its limit" in message


def test_an_exception_of_its_own_does_not_hide_the_reason():
    def work():
        try:
            growing()
        except BaseException as error:
            raise ValueError("out of luck") from error

    kind, message, _, stopped, _ = forked(lambda: run(watched_by(60), work))
    assert (kind, stopped) == ("ValueError", True)
    assert "was stopped at its limit of memory" in message


@pytest.mark.parametrize("waits", [lambda thread: thread.join(), lambda thread: time.sleep(PATIENCE_SECONDS)])
def test_a_task_that_waits_for_its_own_threads_is_stopped_too(waits):
    def work():
        thread = threading.Thread(target=lambda: (growing(200), time.sleep(PATIENCE_SECONDS)), daemon=True)
        thread.start()
        waits(thread)

    began = time.monotonic()
    kind, message, *_ = forked(lambda: run(watched_by(60), work))
    assert kind == "MemoryStop" and "was stopped at its limit" in message
    assert time.monotonic() - began < PATIENCE_SECONDS


@pytest.mark.parametrize("grows", [True, False])
def test_what_cannot_be_stopped_ends_with_its_process_and_leaves_a_sentence(tmp_path, monkeypatch, grows):
    monkeypatch.setattr(memory_watch, "GRACE_SECONDS", 30.0 if grows else 0.2)
    monkeypatch.setattr(memory_watch, "MOST_OVER_BYTES", 20 * MIB)
    store = ResultStore(str(tmp_path))

    def work():
        kept = []

        def step():
            time.sleep(0.002)
            kept.append(held(1 if grows or len(kept) < 200 else 0))

        stubborn(step)

    code = forked(lambda: run(watched_by(60, lambda *words: notes.leave(store, (3, 7, 1), *words)), work))
    assert code == memory_watch.EXIT_CODE
    message, hint = notes.find(store, (3, 7, 1))
    assert message.startswith("Step 'train' was stopped at its limit of memory") and hint
    assert notes.find(store, (3, 7, 2)) is None


def test_a_store_that_does_not_answer_keeps_nobody_alive(monkeypatch):
    monkeypatch.setattr(memory_watch, "GRACE_SECONDS", 0.05)
    monkeypatch.setattr(memory_watch, "LEAVING_SECONDS", 0.1)

    def work():
        kept = []
        stubborn(lambda: kept.append(held(200)) if not kept else time.sleep(0.01))

    began = time.monotonic()
    code = forked(lambda: run(watched_by(60, lambda *words: time.sleep(PATIENCE_SECONDS)), work))
    assert code == memory_watch.EXIT_CODE and time.monotonic() - began < PATIENCE_SECONDS


def test_nothing_is_raised_in_a_task_that_clears_away(monkeypatch):
    monkeypatch.setattr(memory_watch, "AGAIN_SECONDS", 0.02)

    def body():
        watch = watched_by(60)
        with watch:
            watch.ending()
            kept = held(100)
            for _ in range(40):
                time.sleep(0.005)
        return len(kept), watch.stopped, watch.peak > 100 * MIB

    assert forked(body) == (100 * MIB, False, True)


def test_what_was_raised_late_is_taken_back(monkeypatch):
    """Again and again the limit is passed just when the task ends: the exception must never come afterwards."""
    monkeypatch.setattr(memory_watch, "SHORTEST", 0.0)
    monkeypatch.setattr(memory_watch, "AGAIN_SECONDS", 0.0)

    def body():
        sys.setswitchinterval(1e-5)
        outcomes = set()
        kept = held(70)
        until, turn = time.monotonic() + 0.25, 0
        while time.monotonic() < until:
            turn += 1
            watch = watched_by(-30)  # it is over the limit at once
            try:
                with watch:
                    ends = time.perf_counter() + turn % 40 * 50e-6
                    while time.perf_counter() < ends:
                        pass
                watch.check()
                outcomes.add("made")
            except (MemoryStop, MemoryLimitError) as error:
                watch.stop()
                outcomes.add(type(error).__name__)
            for _ in range(200):  # here it would hit
                pass
        return outcomes, len(kept)

    outcomes, _ = forked(body)
    assert "MemoryStop" in outcomes


@pytest.mark.parametrize("ends_by_itself", [True, False])
def test_child_processes_of_a_task_that_was_stopped_end_with_it(monkeypatch, ends_by_itself):
    monkeypatch.setattr(memory_watch, "GRACE_SECONDS", 0.1)
    lives, held_open = os.pipe()

    def work():
        if os.fork() == 0:
            for other in set(range(3, 256)) - {held_open}:  # so that nobody waits for it by those
                with suppress(OSError):
                    os.close(other)
            kept = mmap.mmap(-1, 80 * MIB)
            kept.write(b"x" * len(kept))
            time.sleep(30)
            os._exit(len(kept) % 2)
        if ends_by_itself:
            time.sleep(30)
        stubborn(lambda: time.sleep(0.01))

    told = forked(lambda: run(watched_by(60), work))
    os.close(held_open)
    assert told == memory_watch.EXIT_CODE or (ends_by_itself and told[0] == "MemoryStop")
    with os.fdopen(lives, "rb") as pipe:
        assert select.select([pipe], [], [], 5.0)[0], "a child lives on, with the memory it holds"
        assert pipe.read() == b""


def test_the_hint_names_the_framework_where_the_worker_alone_holds_more_than_that():
    def hint_with(framework):
        def body():
            watch = watched_by(60)
            return run(MemoryWatch(replace(watch._watched, framework=framework), Resident()), growing)

        return forked(body)[2]

    assert "raise firesteel.memory.framework" not in hint_with(4 << 30)
    said = hint_with(10 * MIB)
    assert "were held before the step began" in said and "only 10 MiB are set aside" in said
    assert "raise firesteel.memory.framework" in said and "data-volume-per-task" in said


def test_child_processes_count_with_what_is_theirs_alone():
    def body():
        resident = Resident()
        before = resident.look()
        ready, go = os.pipe(), os.pipe()
        shared = held(100)
        child = os.fork()
        if child == 0:
            kept = mmap.mmap(-1, 80 * MIB)
            kept.write(b"x" * len(kept))
            os.write(ready[1], b"!")
            os.read(go[0], 1)
            os._exit(len(kept) and 0)
        os.read(ready[0], 1)
        resident.look()
        own = resident.now - before
        resident.look_at_children()
        both = resident.now - before
        os.write(go[1], b"!")
        os.waitpid(child, 0)
        resident.look()
        resident.look_at_children()
        return len(shared), own, both, resident.now - before, resident.peak - before

    _, own, both, after, peak = forked(body)
    assert 100 * MIB <= own < 115 * MIB
    assert own + 80 * MIB <= both < own + 100 * MIB  # what they share is not counted twice
    assert after < 115 * MIB and peak == both


def test_looking_survives_code_that_closes_all_files():
    def body():
        resident = Resident()
        os.closerange(resident._status, resident._status + 1)
        return [resident.look(), resident.look()]

    first, second = forked(body)
    assert second > MIB, (first, second)


def test_words_that_cannot_be_read_are_none(tmp_path):
    store = ResultStore(str(tmp_path))
    (tmp_path / notes.name_of(1, 2, 3)).write_bytes(b"{half")
    assert notes.find(store, (1, 2, 3)) is None
