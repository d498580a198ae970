"""Functions with a set-up (a model to load, a connection to open): made once in a Python worker, and kept for the subtasks that follow.

Such a function is an object with ``setup()`` or ``close()``, or a class whose instances can be called, which is then called without
arguments. A task takes one for each of its steps and puts it back when it is over: nobody else has it meanwhile. Two steps of a task that were
given equal ones get one each.

Kept ones are found by a digest of what was given, as the driver pickled it. Those that the task at hand does not need are bounded by
bytes: the least recently used go first. One whose own call has raised goes, for nobody knows what state it is in: another attempt sets
up anew. The rest go with their worker. What their ``close()`` raises fails no task: it is logged, and told with the next execution that
finishes in the process.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import hashlib
import inspect
import logging
import os
import pickle
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from firesteel.errors import FiresteelError, UsageError, error_words
from firesteel.model.reports import CLOSE_ERRORS, CLOSED, MOST_SAMPLES, SET_UP_BYTES, SET_UP_MS, SET_UPS
from firesteel.task.functions.user_code import set_up_error, user_frames
from firesteel.task.program import TaskContext, within

_log = logging.getLogger("firesteel.task")


class SetUp:
    """A function with a set-up, as it was ``given``: an object, or a class. ``digest``: told where it was pickled; equal ones have the same."""

    def __init__(self, given: Any, digest: bytes | None = None) -> None:
        self.given = given
        self._digest = digest

    @property
    def digest(self) -> bytes:
        """Taken anew where it was given, for the object may change between two jobs."""
        return hashlib.blake2b(self._pickled(), digest_size=16).digest() if self._digest is None else self._digest

    def made(self, others: Iterable[Any]) -> Any:
        """An object that is none of ``others``, not set up yet. Raises what the user's class raises."""
        if isinstance(self.given, type):
            return self.given()
        is_own = self._digest is not None and not any(other is self.given for other in others)
        return self.given if is_own else pickle.loads(self._pickled())

    @property
    def kind(self) -> type:
        """The class of the object."""
        return self.given if isinstance(self.given, type) else type(self.given)

    def _pickled(self) -> bytes:
        from pyspark import cloudpickle

        return cloudpickle.dumps(self.given)

    def __reduce__(self) -> tuple[Any, ...]:
        return SetUp, (self.given, self.digest)


def with_set_up(function: Any) -> Any:
    """The function, as a :class:`SetUp` if it has one. Raises UsageError for a class that cannot be called without arguments."""
    if isinstance(function, type):
        if not _has_method(function, "__call__"):  # its instances are rows, or batches: str, a named tuple
            return function
        _check_arguments(function)
        return SetUp(function)
    return SetUp(function) if has_set_up(function) else function


def has_set_up(given: Any) -> bool:
    """An object with ``setup()`` or ``close()``."""
    return any(_has_method(type(given), name) for name in ("setup", "close"))


def called(function: Any) -> Any:
    """Returns the callable whose signature counts."""
    if not isinstance(function, SetUp):
        return function
    given = function.given
    return functools.partial(inspect.getattr_static(given, "__call__"), given) if isinstance(given, type) else given


def _has_method(kind: type, name: str) -> bool:
    return any(name in vars(one) for one in kind.__mro__)


def _check_arguments(kind: type) -> None:
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        raise UsageError(
            f"{kind.__name__} is a class, which each worker calls without arguments, and that fails: {error}.",
            hint=f"Give an object, {kind.__name__}(...), and do in its method setup() what is dear; or give the arguments defaults.",
        ) from None
    except ValueError:  # it has no signature
        return


def ready(name: str, function: Any, ctx: TaskContext) -> Callable[..., Any]:
    """The function of step ``name``, to be called until the task is over: itself, or its instance, set up if this worker has no idle one.

    Raises UserFunctionError where the set-up raises.
    """
    if not isinstance(function, SetUp):
        return function
    if id(function) not in ctx.instances:
        instance = ctx.instances[id(function)] = _kept.take(function) or _set_up(name, function, ctx)
        ctx.report(name).add(SET_UP_BYTES, instance.nbytes)
    return ctx.instances[id(function)].function


def put_back(ctx: TaskContext, *, sound: bool) -> None:
    """Makes idle again what the task has taken, or (not ``sound``) closes it. Nothing of it runs any more."""
    while ctx.instances:
        _, instance = ctx.instances.popitem()
        if sound:
            _kept.put(instance)
        else:
            instance.close()


def tell_close_errors(ctx: TaskContext) -> None:
    """Has what ``close()`` raised in this process, since it was last told, in the task's reports."""
    while _close_errors:
        step, words = _close_errors.pop()
        report = ctx.report(step)
        report.add(CLOSE_ERRORS)
        if len(report.samples) < MOST_SAMPLES:
            report.samples.append((CLOSED, words))


def make_room(parts: Any, limit: int) -> None:
    """Closes idle instances until those that ``parts`` (of programs) have no function for are at most ``limit`` bytes."""
    if _kept and _kept.let_go(limit, {held.digest for held in within(parts) if isinstance(held, SetUp)}):
        _give_back_memory()


def num_set_up() -> int:
    """Returns the number of set-ups that this process has made so far."""
    return _kept.num_set_up


def let_go() -> None:
    """Closes all instances that nobody uses just now."""
    _kept.let_go(-1)


@dataclass(eq=False, slots=True)
class _Instance:
    step: str
    """Name of the one that it was set up for."""
    function: Any
    kind: type
    digest: bytes
    nbytes: int
    """As the object tells, or by which the process grew."""

    def close(self) -> None:
        """Has the function close itself; what it raises fails no task."""
        if _has_method(type(self.function), "close"):
            try:
                self.function.close()
            except (Exception, SystemExit) as error:
                words = error_words(error)
                _log.warning(
                    "close() of the function of step '%s' raised %s. This fails no job.\n%s",
                    *(self.step, words, user_frames(error).rstrip()),
                )
                _close_errors.append((self.step, words[:_MOST_TOLD]))


_MOST_TOLD = 300
"""Characters of an error in the journal."""
_close_errors: deque[tuple[str, str]] = deque(maxlen=100)
"""Steps, and what ``close()`` of their functions raised, until they are told."""


class _Kept:
    """The idle instances of this process, the least recently used first."""

    def __init__(self) -> None:
        self._idle: list[_Instance] = []
        self._lock = threading.Lock()
        self.num_set_up = 0

    def __len__(self) -> int:
        return len(self._idle)

    def take(self, function: SetUp) -> _Instance | None:
        """One that was made of an equal object; not of a class that has been defined anew since."""
        found: _Instance | None = None
        digest = function.digest
        with self._lock:
            for instance in reversed(self._idle):
                if instance.digest == digest:
                    found = instance
                    self._idle.remove(instance)
                    break
        if found is not None and found.kind is not function.kind:
            found.close()
            return self.take(function)
        return found

    def put(self, instance: _Instance) -> None:
        with self._lock:
            self._idle.append(instance)

    def let_go(self, limit: int, wanted: Collection[bytes] = ()) -> int:
        """Closes instances, but of no ``wanted`` digest, until the others have at most ``limit`` bytes. Returns how many it were."""
        gone: list[_Instance] = []
        with self._lock:
            others = [instance for instance in self._idle if instance.digest not in wanted]
            held = sum(instance.nbytes for instance in others)
            for instance in others:
                if held > limit:
                    held -= instance.nbytes
                    self._idle.remove(instance)
                    gone.append(instance)
        for instance in gone:
            instance.close()
        return len(gone)


_kept = _Kept()


def _set_up(name: str, function: SetUp, ctx: TaskContext) -> _Instance:
    before, began = _private_bytes(), time.monotonic()
    try:
        made = function.made(instance.function for instance in ctx.instances.values())
        if _has_method(type(made), "setup"):
            made.setup()
        told: Any = getattr(made, "nbytes", None)
    except FiresteelError:
        raise
    except BaseException as error:  # sys.exit() too
        raise set_up_error(name, error, ctx) from error
    finally:
        _kept.num_set_up += 1
        ctx.report(name).add(SET_UPS)
        ctx.report(name).add(SET_UP_MS, round(1e3 * (time.monotonic() - began)))
    nbytes = int(told) if isinstance(told, Integral) else max(0, _private_bytes() - before)
    if _has_method(type(made), "close"):
        _close_at_exit()
    return _Instance(name, made, function.kind, function.digest, nbytes)


# --- the process ----------------------------------------------------------------------------------------------------

_ANONYMOUS = re.compile(r"RssAnon:\s*(\d+)")


def _private_bytes() -> int:
    """Resident bytes that are this process' own: what it maps of files it may share with others. 0 where there is no /proc."""
    with suppress(OSError):
        found = _ANONYMOUS.search(Path("/proc/self/status").read_text())
        return int(found[1]) << 10 if found else 0
    return 0


def _give_back_memory() -> None:
    """To the system, what is left in the heap of instances that are gone: it would hide how much the next one takes."""
    gc.unfreeze()
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(OSError, AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)


@functools.cache
def _close_at_exit() -> None:
    """Instances are closed when this process ends by itself. PySpark's workers leave by ``os._exit``, which calls nothing that was
    registered for the end."""
    process, leave = os.getpid(), os._exit

    def close() -> None:
        if os.getpid() == process and threading.current_thread() is threading.main_thread():
            let_go()  # else it is a child of it, or a watch ends it at once

    def close_and_leave(code: int) -> NoReturn:
        with suppress(BaseException):
            close()
        leave(code)

    atexit.register(close)
    os._exit = close_and_leave
