"""What must hold after every event. Slow and independent of the counters it checks: for tests and for soaking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from firesteel.scheduler.execution_graph import ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.executions import NO_ROW
from firesteel.scheduler.states import IS_PENDING, ExecutionState

if TYPE_CHECKING:
    from firesteel.scheduler.scheduler import Scheduler

S = ExecutionState


def validate(scheduler: Scheduler) -> None:
    """Raises AssertionError naming the first broken invariant."""
    table = scheduler.executions
    states = table.state[: table.size]
    assert (np.bincount(states, minlength=len(S)) == table.counts).all(), "executions per state are miscounted"
    if scheduler.status.is_terminal and scheduler.status.value != "FINISHED":
        assert not table.counts[IS_PENDING].any(), f"the job is {scheduler.status.value} while executions run"
    for vertex in scheduler.graph.vertices:
        if vertex.is_initialized:
            _vertex(scheduler, vertex)
    for result in scheduler.graph.results:
        if result is not None:
            _result(scheduler, result)


def _vertex(scheduler: Scheduler, vertex: ExecutionJobVertex) -> None:
    table, newest = scheduler.executions, vertex.newest
    where = f"vertex {vertex.id}"
    assert (table.vertex[newest] == vertex.id).all(), f"{where}: a row of another vertex"
    assert (table.index[newest] == np.arange(vertex.parallelism)).all(), f"{where}: a row of another subtask"
    winners = vertex.winner[vertex.winner != NO_ROW]
    assert (table.state[winners] == S.FINISHED).all(), f"{where}: a winner that did not finish"
    assert (vertex.states == S.FINISHED).sum() == len(winners) == vertex.num_finished, (
        f"{where}: finished subtasks are miscounted"
    )
    assert not vertex.io[:, vertex.winner == NO_ROW].any(), f"{where}: counts of executions that were not admitted"
    rows = np.flatnonzero(table.vertex[: table.size] == vertex.id)
    older = np.setdiff1d(rows, table.round_of(newest))
    alive = ~np.isin(table.state[older], (S.FINISHED, S.CANCELING, S.CANCELED, S.FAILED))
    assert not alive.any(), f"{where}: a superseded execution may still finish"
    if scheduler.job.is_active and vertex.ranges is not None:
        ready = (vertex.states == S.CREATED) & ~vertex.held & ~scheduler.strategy.candidates(vertex.id)
        for edge in vertex.inputs:
            ready &= edge.ready(np.arange(vertex.parallelism))
        if not vertex.job.supports_concurrent_attempts:
            ready &= ~vertex.has_pending_prior(np.arange(vertex.parallelism))
        assert not ready.any(), f"{where}: subtasks {np.flatnonzero(ready)} could run and nobody scheduled them"
    if not vertex.job.supports_concurrent_attempts:
        pending = table.index[rows[IS_PENDING[table.state[rows]]]]
        assert len(np.unique(pending)) == len(pending), f"{where}: two attempts of a subtask at once"
    names = table.index[rows].astype(np.int64) << 32 | table.attempt[rows]
    assert len(np.unique(names)) == len(names), f"{where}: an attempt number was given twice"


def _result(scheduler: Scheduler, result: IntermediateResult) -> None:
    where = f"data set {result.dataset.id}"
    producer = scheduler.graph.vertices[result.dataset.producer]
    available = np.flatnonzero(result.available)
    assert len(available) == result.num_available, f"{where}: available partitions are miscounted"
    assert (producer.states[available] == S.FINISHED).all(), f"{where}: available, but its producer has not finished"
    rows = producer.winner[available]
    assert (scheduler.executions.attempt[rows] == result.attempts[available]).all(), (
        f"{where}: not the winner's attempt"
    )
    assert (scheduler.executions.token[rows] == result.tokens[available]).all(), f"{where}: not the winner's token"
    for edge in result.consumers:
        for group in (edge[k] for k in range(len(edge))):
            missing = int((~result.available[group.first : group.end]).sum())
            assert missing == group.unavailable, f"{where}: group {group} counts {group.unavailable} of {missing}"
    consumers = [scheduler.graph.vertices[v] for v in scheduler.graph.consumers[result.dataset.id]]
    if not result.dataset.persistent and producer.is_finished and all(v.is_finished for v in consumers):
        assert not len(available), f"{where}: kept although its last consumer has finished"
    info = result.info
    if len(available) == info.recorded.sum() == result.num_partitions and producer.is_finished:
        undecided = any(v.ranges is None for v in consumers)
        same = info.subpartition_bytes.sum() == info.partition_bytes.sum()
        assert same or not undecided, f"{where}: folded sums do not add up to what was produced"
