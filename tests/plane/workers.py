"""Python workers: processes that run one task at a time, forked from a server that has imported what tasks need."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firesteel.task.executor.daemon import PRELOADED

DRIVERS = ("firesteel.api.environment", "firesteel.spark.driver.runtime")
"""What scripts and modules of tests import, which workers do as well."""
_context: Any = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [*PRELOADED, *DRIVERS, "duckdb", "pandas", "pyspark.taskcontext", *sys.modules.keys() & {"pytest"}]
)


@dataclass(frozen=True)
class Order:
    """One attempt at a task. ``function``: pickled; it takes an iterator over ``rows`` and returns another."""

    function: bytes
    rows: list[Any]
    stage: int
    partition: int
    task: int
    attempt: int
    properties: Mapping[str, str]
    """Spark's local ones."""


@dataclass(frozen=True)
class Answer:
    """``updates``: of accumulators, by their ids. ``error``: the traceback of what was raised; empty: nothing was."""

    rows: list[Any]
    updates: dict[int, Any]
    error: str = ""


class Worker:
    """One process. Used by one thread; only :meth:`kill` may be called from others."""

    def __init__(self) -> None:
        self._connection, its = _context.Pipe()
        self._process = _context.Process(target=_work, args=(its,), name="plane worker", daemon=True)
        self._process.start()
        its.close()

    def run(self, order: Order) -> Answer | None:
        """None: the process died of it."""
        try:
            self._connection.send(order)
            return self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            return None

    def kill(self) -> None:
        """As Spark does in the end: by a signal that nothing can hold."""
        self._process.kill()


def _work(connection: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver
    os.environ["SPARK_EXECUTOR_ID"] = "driver"
    while True:
        try:
            order = connection.recv()
        except EOFError:
            return
        connection.send(_answer(order))


def _answer(order: Order) -> Answer:
    """As ``pyspark.worker`` does it."""
    import pickle

    from pyspark.accumulators import _accumulatorRegistry
    from pyspark.taskcontext import TaskContext

    _accumulatorRegistry.clear()
    task: Any = TaskContext._getOrCreate()
    task._stageId, task._partitionId = order.stage, order.partition
    task._taskAttemptId, task._attemptNumber = order.task, order.attempt
    task._localProperties = dict(order.properties)
    try:
        rows = list(pickle.loads(order.function)(iter(order.rows)))
    except Exception:
        return Answer([], {}, traceback.format_exc())
    return Answer(rows, {aid: accumulator._value for aid, accumulator in _accumulatorRegistry.items()})
