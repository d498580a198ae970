"""Reading ahead and writing behind: bounded, in order, and every thread ends with its task."""

from __future__ import annotations

import threading

import pytest
from tests.connectors_kit import context

from firesteel.task.overlap import Behind, ahead


@pytest.fixture(autouse=True)
def no_thread_is_left():
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


def test_in_order_and_not_further_than_asked_for():
    made, room = [], threading.Semaphore(0)

    def source():
        for n in range(10):
            made.append(n)
            room.release()
            yield n

    found = ahead(source(), 2, context())
    assert next(found) == 0
    for _ in range(4):  # one is in hand, two wait, one waits for room
        room.acquire()
    assert made == [0, 1, 2, 3]
    assert list(found) == list(range(1, 10))
    assert ahead(items := iter([1]), 0, context()) is items


def test_it_reads_while_the_other_computes():
    """Each waits for the other: without a thread this would never end."""
    read, computed = threading.Event(), threading.Event()

    def source():
        yield 0
        read.set()
        assert computed.wait(60)
        yield 1

    found = ahead(source(), 1, context())
    next(found)
    assert read.wait(60)
    computed.set()
    assert list(found) == [1]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_comes_behind_what_was_read_before_it_and_with_its_place(error):
    ctx = context()

    def source():
        for n in range(3):
            ctx.place = f"part {n}"
            yield n
        ctx.place = "part 3"
        raise error("damaged")

    found, places = ahead(source(), 5, ctx), []
    with pytest.raises(error, match="damaged"):
        for n in found:
            places.append((n, ctx.place))
    assert places == [(0, "part 0"), (1, "part 1"), (2, "part 2")]
    assert ctx.place == "part 3"


def test_who_leaves_early_ends_the_reader():
    ended = []

    def source():
        try:
            yield from range(1000)
        finally:
            ended.append(True)

    found = ahead(source(), 3, context())
    next(found)
    found.close()
    assert ended == [True]


def test_all_is_written_in_order():
    written = []
    behind = Behind(written.append, 2)
    for n in range(100):
        behind.put(n)
    behind.end()
    assert written == list(range(100))


def test_what_writing_raises_comes_out():
    def write(n):
        raise OSError(f"disk full at {n}")

    behind = Behind(write, 1)
    with pytest.raises(OSError, match="disk full at 0"):
        for n in range(100):
            behind.put(n)
    with pytest.raises(OSError, match="disk full at 0"):
        behind.end()
    behind.stop()


def test_stopped_it_writes_no_more():
    begun, go, written = threading.Event(), threading.Event(), []

    def write(n):
        begun.set()
        assert go.wait(60)
        written.append(n)

    behind = Behind(write, 5)
    for n in range(5):
        behind.put(n)
    assert begun.wait(60)
    stopping = threading.Thread(target=behind.stop)
    stopping.start()
    go.set()
    stopping.join()
