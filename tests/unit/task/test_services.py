"""map_async: how many calls are in flight, repetitions, limits of time, what is left behind when nobody wants more."""

from __future__ import annotations

import asyncio
import threading
import time

import pyarrow as pa
import pytest

from firesteel.errors import FiresteelError
from firesteel.model.reports import CALLS, RETRIES
from firesteel.task.functions.row_errors import OnError
from firesteel.task.functions.user_code import UserFunctionError
from firesteel.task.services import calls as calls_module
from firesteel.task.services.calls import CallPolicy, worker_loop
from firesteel.task.services.map_async import MapAsync
from operators_support import collect, context

OUT = pa.schema({"m": pa.int64()})


def numbers(count, size=100):
    for first in range(0, count, size):
        yield pa.record_batch({"n": pa.array(range(first, min(first + size, count)), pa.int64())})


def run(fn, ctx, source, concurrency=8, ordered=False, rate=None, **policy):
    step = MapAsync("step", fn, OUT, calls=CallPolicy(concurrency, **policy), ordered=ordered, rate=rate)
    return step.apply(source, ctx)


@pytest.fixture
def ctx(tmp_path):
    (tmp_path / "scratch").mkdir()
    return context(tmp_path / "scratch")


@pytest.fixture
def quick_pauses(monkeypatch):
    monkeypatch.setattr(calls_module, "FIRST_PAUSE", 0.001)


@pytest.mark.parametrize("ordered", [False, True])
def test_no_more_calls_than_allowed_are_in_flight_and_no_more_rows_are_read(ctx, ordered):
    state = {"now": 0, "most": 0, "read": 0, "done": 0, "ahead": 0}

    def source():
        for batch in numbers(400, 1):
            state["read"] += 1
            state["ahead"] = max(state["ahead"], state["read"] - state["done"])
            yield batch

    async def slow(row):
        state["now"] += 1
        state["most"] = max(state["most"], state["now"])
        await asyncio.sleep(0.001 * (row.n % 3))
        state["now"] -= 1
        state["done"] += 1
        return row.n

    found = collect(run(slow, ctx, source(), concurrency=8, ordered=ordered), OUT)["m"].to_pylist()
    assert found == list(range(400)) if ordered else sorted(found) == list(range(400))
    assert state["most"] == 8
    assert state["ahead"] <= 2 * 8 + 1
    assert ctx.reports["step"].counts[CALLS] == 400


def test_one_slow_row_holds_no_others_up_unless_the_order_is_kept(ctx):
    async def first_is_last(row):
        await asyncio.sleep(0.1 if row.n == 0 else 0)
        return row.n

    assert collect(run(first_is_last, ctx, numbers(50)), OUT)["m"].to_pylist()[-1] == 0


def test_an_order_that_waits_does_not_read_everything(ctx, monkeypatch):
    monkeypatch.setattr("firesteel.task.services.map_async.MOST_ROWS", 10)
    released = threading.Event()
    read = []

    def source():
        for batch in numbers(1000, 1):
            read.append(batch)
            yield batch

    async def first_waits(row):
        while row.n == 0 and not released.is_set():
            if len(read) >= 26:
                seen = len(read)
                await asyncio.sleep(0.05)
                assert len(read) == seen
                released.set()
            await asyncio.sleep(0.001)
        return row.n

    found = collect(run(first_waits, ctx, source(), ordered=True), OUT)["m"].to_pylist()
    assert found == list(range(1000))


@pytest.mark.usefixtures("quick_pauses")
def test_what_fails_is_tried_again(ctx):
    tries = {}

    async def flaky(row):
        tries[row.n] = tries.get(row.n, 0) + 1
        if tries[row.n] <= row.n % 3:
            raise ConnectionError("try later")
        return row.n

    assert sorted(collect(run(flaky, ctx, numbers(30), retries=2), OUT)["m"].to_pylist()) == list(range(30))
    assert ctx.reports["step"].counts[RETRIES] == 30
    assert ctx.reports["step"].counts[CALLS] == 60


@pytest.mark.usefixtures("quick_pauses")
def test_an_error_names_row_and_tries_and_shows_the_users_frames(ctx):
    async def broken(row):
        raise KeyError("no such user")

    with pytest.raises(
        UserFunctionError, match=r"'step' raised KeyError: 'no such user' for Row\(n=\d\) in each of 3 tries"
    ) as error:
        collect(run(broken, ctx, numbers(5), retries=2), OUT)
    assert "in broken" in error.value.trace
    assert "calls.py" not in error.value.trace


def test_a_call_that_takes_too_long(ctx):
    async def hangs(row):
        await asyncio.sleep(60 if row.n == 3 else 0)
        return row.n

    with pytest.raises(UserFunctionError, match=r"TimeoutError: no answer within 0\.02 s for Row\(n=3\)"):
        collect(run(hangs, ctx, numbers(5), timeout=0.02), OUT)

    async def raises_its_own(row):
        raise TimeoutError("of the client")

    with pytest.raises(UserFunctionError, match="of the client"):
        collect(run(raises_its_own, ctx, numbers(5), timeout=30), OUT)


@pytest.mark.parametrize("raised", [asyncio.CancelledError, SystemExit, KeyboardInterrupt])
def test_what_would_end_a_loop_is_an_error_like_others(ctx, raised):
    async def leaves(row):
        raise raised

    with pytest.raises(UserFunctionError, match="RuntimeError"):
        collect(run(leaves, ctx, numbers(5)), OUT)

    async def works(row):
        return row.n

    assert collect(run(works, ctx, numbers(5)), OUT).num_rows == 5


class Watched:
    """Coroutines that wait until they are cancelled, and are counted."""

    def __init__(self):
        self.begun = self.cancelled = 0

    async def __call__(self, row):
        if row.n < 3:
            return row.n
        self.begun += 1
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)  # closing its connection
            self.cancelled += 1
            raise


def test_calls_in_flight_are_cancelled_when_nobody_wants_more(ctx, monkeypatch):
    monkeypatch.setattr("firesteel.task.services.map_async.LONGEST_HELD", 0.01)
    function = Watched()
    made = run(function, ctx, numbers(100))
    next(made)
    made.close()
    assert function.begun == function.cancelled == 8
    assert {task.get_name() for task in asyncio.all_tasks(worker_loop())} == set()


def test_calls_in_flight_are_cancelled_when_one_fails_or_the_input_does(ctx):
    function = Watched()

    async def one_fails(row):
        if row.n == 9:
            raise ValueError
        return await function(row)

    with pytest.raises(UserFunctionError):
        collect(run(one_fails, ctx, numbers(100)), OUT)
    assert 0 < function.begun == function.cancelled

    def broken():
        yield from numbers(20)
        raise OSError("the disk is gone")

    function = Watched()
    with pytest.raises(OSError, match="the disk is gone"):
        collect(run(function, ctx, broken(), concurrency=30), OUT)
    assert function.begun == function.cancelled


def test_a_coroutine_that_does_not_end_keeps_nobody(ctx, monkeypatch):
    monkeypatch.setattr(calls_module, "CLOSE_SECONDS", 0.05)
    go_on = threading.Event()

    async def blocks(row):
        if row.n == 1:
            go_on.wait()  # no await: the loop stands still
        raise ValueError

    before = worker_loop()
    with pytest.raises(UserFunctionError):
        collect(run(blocks, ctx, numbers(2), concurrency=1), OUT)
    assert worker_loop() is not before

    async def works(row):
        return row.n

    assert collect(run(works, ctx, numbers(5)), OUT).num_rows == 5
    go_on.set()


def test_the_loop_stays_for_the_next_task(ctx):
    async def loop(row):
        return id(asyncio.get_running_loop()) % 1_000_003

    one = collect(run(loop, ctx, numbers(3)), OUT)
    assert one == collect(run(loop, ctx, numbers(3)), OUT)
    assert sum(thread.name == "firesteel-event-loop" for thread in threading.enumerate()) >= 1


def test_rows_go_on_while_others_are_waited_for(ctx, monkeypatch):
    monkeypatch.setattr("firesteel.task.services.map_async.LONGEST_HELD", 0.02)
    go_on = threading.Event()

    async def last_waits(row):
        while row.n == 9 and not go_on.is_set():
            await asyncio.sleep(0.001)
        return row.n

    made = run(last_waits, ctx, numbers(10))
    first = next(made)
    assert 0 < first.num_rows < 10
    go_on.set()
    assert first.num_rows + sum(batch.num_rows for batch in made) == 10


def test_no_rows_and_no_calls(ctx):
    async def never(row):
        raise AssertionError

    assert collect(run(never, ctx, iter(())), OUT).num_rows == 0
    assert ctx.reports["step"].counts.get(CALLS, 0) == 0


def test_our_own_errors_pass(ctx):
    async def asks(row):
        raise FiresteelError("The storage is full.")

    step = MapAsync("step", asks, OUT, (), OnError("skip"), CallPolicy(3))
    with pytest.raises(FiresteelError, match="storage is full"):
        collect(step.apply(numbers(3), ctx), OUT)


def test_calls_are_spaced_by_the_rate(ctx):
    times = []

    async def notes(row):
        times.append(time.monotonic())
        return row.n

    collect(run(notes, ctx, numbers(60), concurrency=50, rate=200.0), OUT)
    assert len(times) == 60
    assert times[-1] - times[0] >= 59 / 200 * 0.9
