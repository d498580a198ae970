"""Slow task detecting strategies of the user's own (FLIP-168: "customizable, to support different strategies")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from firesteel.model.arrays import Floats, Ints
from firesteel.option_functions import OptionFunction, load_function
from firesteel.options import SLOW_TASK_FUNCTION, Options
from firesteel.scheduler.inputs import DirectInputs
from firesteel.scheduler.speculation.execution_times import RunningTimes, SlowTasks, finished_times
from firesteel.scheduler.speculation.rules import slow_ones
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex
from firesteel.scheduler.topology.executions import ExecutionTable


@dataclass(frozen=True, slots=True, eq=False)
class StepTimes:
    """The times that a :class:`SlowTaskStrategy` is told of a step that runs: of its running and its finished executions. Immutable.

    Times are in seconds. ``vertex``: the step's number in the job graph; ``name``: of the step; ``parallelism``: how many subtasks it
    has; ``at``: now, since the job began. Columns (numpy arrays) of the executions that Spark has launched and that have not
    ended, mirrors among them: ``subtasks``; ``attempts``, from 0; ``elapsed``, since the launch (less
    the longest set-up of a function that is known of the step); ``nodes``, "" where nobody
    knows; ``input_bytes``, None where bytes are not known. Columns of subtasks that have finished, in their order:
    ``finished_times`` (less set-ups) and ``finished_input_bytes``.
    """

    vertex: int
    name: str
    parallelism: int
    at: float
    subtasks: Ints
    attempts: Ints
    elapsed: Floats
    nodes: tuple[str, ...]
    input_bytes: Floats | None
    finished_times: Floats
    finished_input_bytes: Floats | None


@dataclass(frozen=True, slots=True, eq=False)
class SlowTaskBaseline:
    """An execution that has taken ``seconds`` or longer is slow: one number for all that run, or an array of one for each
    (infinity: never). ``reason``: half a sentence on what was usual, for the record ("others take 2 s")."""

    seconds: float | Floats
    reason: str


@runtime_checkable
class SlowTaskStrategy(Protocol):
    """Says which executions of a step are slow, in the place of ``firesteel.slow-task-detector.rule`` and the fallback rules.

    ``firesteel.slow-task-detector.function`` = 'module:function' names what makes one: it is called on the driver once for
    each job, with the job's options (a mapping by key). What a method raises fails the job, told with the frames of its code.
    """

    def baseline(self, step: StepTimes) -> SlowTaskBaseline | None:
        """From when on executions of this step are slow; None: none is. Asked at every
        ``slow-task-detector.check-interval``, of each step that has not finished and of which something runs. It reads no
        clock: ``step.at`` is the time, and the same steps are to get the same answer."""
        ...


class StrategyRule:
    """Asks a strategy of the user's as the detector asks its own rules."""

    least_seconds = 0.0

    def __init__(self, function: OptionFunction, options: Mapping[str, Any], side_inputs: DirectInputs) -> None:
        """Raises OptionFunctionError."""
        self._function = function
        self._side_inputs = side_inputs
        self._strategy: SlowTaskStrategy = function(options)
        if not isinstance(self._strategy, SlowTaskStrategy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise function.complaint(
                f"returned {self._strategy!r}, which is not a slow task strategy",
                hint="It must return an object with the method baseline(step).",
            )

    def find(
        self, table: ExecutionTable, vertex: ExecutionJobVertex, running: RunningTimes, at: float
    ) -> SlowTasks | None:
        """Raises OptionFunctionError."""
        found = self._side_inputs.ask(lambda: self._answer(table, vertex, running, at))
        if found is None:
            return None
        seconds, reason = found
        return slow_ones(vertex, running, np.array(seconds, np.float64), self._function.named, reason)

    def _answer(
        self, table: ExecutionTable, vertex: ExecutionJobVertex, running: RunningTimes, at: float
    ) -> tuple[list[float], str] | None:
        """The strategy's baseline of each execution, and its reason."""
        found = self._function.call(self._strategy.baseline, _step(table, vertex, running, at))
        if found is None:
            return None
        if not isinstance(found, SlowTaskBaseline):
            raise self._wrong(vertex, f"{found!r}", "Return a SlowTaskBaseline, or None.")
        return self._seconds(vertex, running, found).tolist(), f"{found.reason}"

    def _seconds(self, vertex: ExecutionJobVertex, running: RunningTimes, found: SlowTaskBaseline) -> Floats:
        try:
            seconds = np.broadcast_to(np.asarray(found.seconds, np.float64), running.elapsed.shape)
        except (TypeError, ValueError):
            many = len(running.rows)
            hint = f"Return one number, or an array of {many}: one for each execution that runs."
            raise self._wrong(vertex, f"the seconds {found.seconds!r}", hint) from None
        if np.isnan(seconds).any():
            raise self._wrong(vertex, "seconds that are not numbers (nan)", "Infinity means never.")
        return seconds

    def _wrong(self, vertex: ExecutionJobVertex, what: str, hint: str) -> Exception:
        return self._function.complaint(f"gave {what} for step '{vertex.job.name}'", hint)


def strategy_rule(options: Options, side_inputs: DirectInputs) -> StrategyRule | None:
    """The rule of ``firesteel.slow-task-detector.function``, where that is set, which is asked through ``side_inputs``. Raises UsageError, OptionFunctionError."""
    named = options[SLOW_TASK_FUNCTION]
    return None if named is None else StrategyRule(load_function(SLOW_TASK_FUNCTION.key, named), options, side_inputs)


def _step(table: ExecutionTable, vertex: ExecutionJobVertex, running: RunningTimes, at: float) -> StepTimes:
    rows, finished = running.rows, finished_times(table, (vertex,))
    step = StepTimes(
        vertex=vertex.id,
        name=vertex.job.name,
        parallelism=vertex.parallelism,
        at=at,
        subtasks=table.index[rows].astype(np.int64),
        attempts=table.attempt[rows].astype(np.int64),
        elapsed=running.elapsed,
        nodes=tuple(table.node_name(row) for row in rows.tolist()),
        input_bytes=running.input_bytes,
        finished_times=finished.seconds,
        finished_input_bytes=finished.input_bytes,
    )
    for column in (step.subtasks, step.attempts, step.elapsed, step.finished_times):
        column.setflags(write=False)  # not for the user to change
    for column in (step.input_bytes, step.finished_input_bytes):
        if column is not None:
            column.setflags(write=False)
    return step
