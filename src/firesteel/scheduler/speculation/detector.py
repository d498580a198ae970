"""The detector of slow tasks, which goes by execution times (FLIP-168: ExecutionTimeBasedSlowTaskDetector)."""

from __future__ import annotations

import numpy as np

from firesteel.options import (
    CHECK_INTERVAL,
    SLOW_TASK_ABSOLUTE_TIME,
    SLOW_TASK_EXPECTED,
    SLOW_TASK_RULE,
    Options,
)
from firesteel.scheduler.inputs import DirectInputs
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.speculation.execution_times import SlowTasks, running_times
from firesteel.scheduler.speculation.rules import (
    MedianTimeRule,
    SlowTaskRule,
    Thresholds,
    TimePerByteRule,
    fallback_rules,
)
from firesteel.scheduler.speculation.strategy import strategy_rule
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex


class SlowTaskDetector:
    """Looks at all running executions of unfinished vertices; asked every ``slow-task-detector.check-interval``.

    ``firesteel.slow-task-detector.rule`` is asked first, then the rules for vertices that it can say nothing of; an
    execution is told of under the first rule that calls it slow. A strategy of the user's takes the place of all of them.
    """

    def __init__(self, options: Options, graph: DefaultExecutionGraph, side_inputs: DirectInputs) -> None:
        """Raises UsageError or OptionFunctionError for a strategy that cannot be had."""
        self.interval = options[CHECK_INTERVAL]
        self._graph = graph
        self._table = graph.executions
        own = strategy_rule(options, side_inputs)
        self._rules = _rules(options, graph) if own is None else [own]
        self._least = min(rule.least_seconds for rule in self._rules)

    def slow_tasks(self, at: float) -> list[SlowTasks]:
        """All executions that are slow now, also those told of before. Raises FiresteelError for what a strategy of the user's did."""
        counts = self._table.counts
        if not counts[ExecutionState.DEPLOYING] + counts[ExecutionState.RUNNING]:
            return []
        # Of a vertex that is not initialised the parallelism is below any count.
        unfinished = [v for v in self._graph.vertices if v.num_finished < v.parallelism and not v.job.waits]
        return [slow for vertex in unfinished for slow in self._of(vertex, at)]

    def _of(self, vertex: ExecutionJobVertex, at: float) -> list[SlowTasks]:
        running = running_times(self._table, vertex, at)
        found: list[SlowTasks] = []
        running = running.select(running.elapsed >= self._least)
        for rule in self._rules:
            if not len(running.rows):
                break
            slow = rule.find(self._table, vertex, running, at)
            if slow is not None:
                found.append(slow)
                running = running.select(~np.isin(running.rows, slow.rows))
        return found


def _rules(options: Options, graph: DefaultExecutionGraph) -> list[SlowTaskRule]:
    thresholds = Thresholds.of(options)
    by_the_seed, expected = options[SLOW_TASK_RULE] == "seed", options[SLOW_TASK_EXPECTED]
    first = MedianTimeRule(thresholds) if by_the_seed else TimePerByteRule(thresholds)
    # FLIP-168: no task is slow before N*R have finished. So expectations are the user's word beside its rule.
    expected = not by_the_seed if expected is None else expected
    return [first, *fallback_rules(thresholds, graph, expected, options[SLOW_TASK_ABSOLUTE_TIME])]
