"""Functions with a set-up in one worker: what is kept, for how long, and who is closed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from pyspark import cloudpickle

from firesteel.errors import UsageError
from firesteel.model.reports import SET_UP_BYTES, SET_UPS
from firesteel.task.functions import instances
from firesteel.task.functions.group_functions import takes_key
from firesteel.task.functions.instances import SetUp, make_room, put_back, ready, with_set_up
from firesteel.task.functions.user_code import UserFunctionError
from firesteel.task.program import TaskContext

closed: list[str] = []


class Model:
    nbytes = 100

    def __init__(self, name: str, **kept: object) -> None:
        self.name, self.kept = name, kept
        self.calls = 0

    def setup(self) -> None:
        self.calls = 1000

    def __call__(self) -> int:
        self.calls += 1
        return self.calls

    def close(self) -> None:
        closed.append(self.name)


@pytest.fixture(autouse=True)
def nothing_kept():
    instances.let_go()
    closed.clear()
    yield
    instances.let_go()


def context() -> TaskContext:
    return TaskContext("job", 0, "step", 0, 0, 1, 0, 1 << 20, Path())


def arrived(given: object) -> SetUp:
    """As an executor gets it."""
    return pickle.loads(cloudpickle.dumps(SetUp(given)))


def task(*given: object, sound: bool = True) -> list[int]:
    ctx = context()
    told = [ready("step", function, ctx)() for function in given]
    put_back(ctx, sound=sound)
    return told


def test_equal_ones_are_one_and_keep_what_they_did():
    assert task(arrived(Model("a"))) == [1001]
    assert task(arrived(Model("a"))) == [1002]
    assert task(arrived(Model("b"))) == [1001]
    assert task(arrived(Model("a"))) == [1003]


def test_a_task_asks_twice_for_the_same_and_gets_it_once():
    ctx, function = context(), arrived(Model("a"))
    assert ready("step", function, ctx) is ready("step", function, ctx)
    assert ready("step", arrived(Model("a")), ctx) is not ready("step", function, ctx)
    assert (ctx.reports["step"].counts[SET_UPS], len(ctx.instances)) == (2, 2)
    put_back(ctx, sound=True)


def test_one_object_given_to_two_steps_is_two_in_the_task():
    one = Model("a")
    functions = pickle.loads(cloudpickle.dumps((SetUp(one), SetUp(one))))
    assert functions[0].given is functions[1].given
    assert task(*functions) == [1001, 1001]


def test_what_was_given_is_not_touched_where_it_was_made():
    given = Model("a")
    function = SetUp(given)
    before = function.digest
    assert task(function) == [1001]
    assert task(function) == [1002]
    assert given.calls == 0
    given.name = "b"
    assert function.digest != before


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_what_close_raises_fails_nothing_and_is_told_once(kind, caplog):
    class Stuck(Model):
        def close(self) -> None:
            raise kind("busy")

    assert task(arrived(Stuck("a")), sound=False) == [1001]
    assert f"close() of the function of step 'step' raised {kind.__name__}: busy" in caplog.text
    ctx = context()
    instances.tell_close_errors(ctx)
    assert ctx.reports["step"].counts == {"numCloseErrors": 1}
    assert ctx.reports["step"].samples == [("close()", f"{kind.__name__}: busy")]
    instances.tell_close_errors(after := context())
    assert not after.reports


def test_not_sound_ones_are_closed():
    assert task(arrived(Model("a")), sound=False) == [1001]
    assert closed == ["a"]
    assert task(arrived(Model("a"))) == [1001]


def test_the_least_recently_used_go_beyond_the_bound_but_never_those_in_need():
    for name in "abcb":
        task(arrived(Model(name)))
    make_room([], 300)
    assert closed == []
    make_room([arrived(Model("a"))], 100)
    assert closed == ["c"]
    make_room([(arrived(Model("a")),)], 0)
    assert closed == ["c", "b"]
    assert task(arrived(Model("a"))) == [1002]


def test_a_class_that_was_defined_anew_is_not_taken_for_the_old_one(monkeypatch):
    task(arrived(Model("a")))
    again = type("Model", (Model,), {"__module__": __name__, "__qualname__": "Model"})
    monkeypatch.setattr(sys.modules[__name__], "Model", again)
    function = arrived(again("a"))
    assert function.digest == arrived(again("a")).digest
    assert task(function) == [1001]
    assert closed == ["a"]


def test_a_set_up_that_raises_keeps_nothing():
    class Bad(Model):
        def setup(self) -> None:
            raise KeyError("weights")

    ctx = context()
    with pytest.raises(UserFunctionError, match="The set-up of step 'step' raised KeyError: 'weights'"):
        ready("step", arrived(Bad("a")), ctx)
    assert not ctx.instances
    assert ctx.reports["step"].counts[SET_UPS] == 1
    assert closed == []


@pytest.mark.parametrize(("told", "wanted"), [(7, 7), (np.int64(7), 7), (None, 80 << 20)])
def test_bytes_are_as_told_or_as_measured(told, wanted):
    class Large(Model):
        def setup(self) -> None:
            self.nbytes = told
            self.weights = np.ones(10 << 20)

    ctx = context()
    ready("step", arrived(Large("a")), ctx)
    ((instance,),) = [ctx.instances.values()]
    assert wanted <= instance.nbytes <= 1.2 * wanted
    assert ctx.reports["step"].counts[SET_UP_BYTES] == instance.nbytes
    put_back(ctx, sound=True)


def test_a_close_that_raises_harms_nobody(caplog):
    class Bad(Model):
        def close(self) -> None:
            raise KeyError("connection")

    task(arrived(Bad("a")))
    instances.let_go()
    assert "KeyError" in caplog.text


def test_the_arguments_of_a_class_are_those_of_its_instances():
    class WithKey:
        def __call__(self, key, table) -> None: ...

    class Inherits(WithKey):
        pass

    assert [takes_key("step", with_set_up(kind), 1) for kind in (WithKey, Inherits)] == [True, True]


def test_which_functions_have_a_set_up():
    class Callable:
        def __call__(self) -> None: ...

    plain = [len, str, lambda: 0, Callable(), Callable().__call__]
    assert [with_set_up(function) for function in plain] == plain
    assert isinstance(with_set_up(Callable), SetUp)
    assert isinstance(with_set_up(Model("a")), SetUp)
    with pytest.raises(UsageError, match="fails: missing a required argument: 'name'"):
        with_set_up(Model)


_WORKER = """
    import os, sys
    from pathlib import Path
    from firesteel.task.functions.instances import SetUp, put_back, ready
    from firesteel.task.program import TaskContext

    class Model:
        def __call__(self): ...
        def close(self): os.write(1, b"closed ")

    ctx = TaskContext("job", 0, "step", 0, 0, 1, 0, 1, Path())
    ready("step", SetUp(Model), ctx)
    put_back(ctx, sound=True)
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    {leave}
"""


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit()"])
def test_closed_once_as_the_worker_ends_and_not_by_its_children(leave):
    code = textwrap.dedent(_WORKER).format(leave=leave)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "closed "
