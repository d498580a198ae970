"""Invariants that must hold after every event. Slow and independent of the counters it checks: for tests and for soaking."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from firesteel.options import MAX_CONCURRENT_EXECUTIONS, RELEASE_DURING_JOB_EXECUTION, SPECULATIVE_ENABLED
from firesteel.scheduler.kernel.states import IS_DEPLOYED, IS_PENDING, ExecutionState
from firesteel.scheduler.topology.execution_graph import ExecutionJobVertex, IntermediateResult
from firesteel.scheduler.topology.executions import NO_ROW

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
    if scheduler.status.value == "FINISHED":
        assert not table.counts[IS_DEPLOYED].any() and not table.counts[S.CREATED], "an execution was left running"
    for vertex in scheduler.graph.vertices:
        if vertex.is_initialized:
            _vertex(scheduler, vertex)
            _rounds(scheduler, vertex)
    for result in scheduler.graph.results:
        if result is not None:
            _result(scheduler, result)
    _regions(scheduler)
    for check in scheduler.job.hooks.validate:
        check()


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
    counts = [*vertex.io, *vertex.step_counts.columns.values()]
    open_ = vertex.winner == NO_ROW
    assert not any(column[open_].any() for column in counts), f"{where}: counts of executions not admitted"
    rows = np.flatnonzero(table.vertex[: table.size] == vertex.id)
    older = np.setdiff1d(rows, table.round_of(newest))
    alive = ~np.isin(table.state[older], (S.FINISHED, S.CANCELING, S.CANCELED, S.FAILED))
    assert not alive.any(), f"{where}: a superseded execution may still finish"
    if not vertex.job.supports_concurrent_attempts:
        pending = table.index[rows[IS_PENDING[table.state[rows]]]]
        assert len(np.unique(pending)) == len(pending), f"{where}: two attempts of a subtask at once"
    names = table.index[rows].astype(np.int64) << 32 | table.attempt[rows]
    assert len(np.unique(names)) == len(names), f"{where}: an attempt number was given twice"


def _rounds(scheduler: Scheduler, vertex: ExecutionJobVertex) -> None:
    """Executions that are current together."""
    table, where = scheduler.executions, f"vertex {vertex.id}"
    rows = table.round_of(vertex.newest)
    index, states = table.index[rows], table.state[rows]
    finished = np.bincount(index[states == S.FINISHED], minlength=vertex.parallelism)
    assert ((finished == 1) == (vertex.winner != NO_ROW)).all() and (finished <= 1).all(), f"{where}: not one winner"
    beside = index[IS_DEPLOYED[states] | (states == S.CREATED)]
    assert not finished[beside].any(), f"{where}: an execution may still finish beside a winner"
    limit = scheduler.options[MAX_CONCURRENT_EXECUTIONS] if scheduler.options[SPECULATIVE_ENABLED] else 1
    assert (np.bincount(beside) <= limit).all(), f"{where}: more than {limit} current executions"
    mirrors = rows[table.mirror[rows]]
    assert not len(mirrors) or (vertex.job.speculative and vertex.job.supports_concurrent_attempts), (
        f"{where}: mirrors, which it forbids"
    )
    assert (table.opens[rows] | (table.prior[rows] != NO_ROW)).all(), f"{where}: a round without a first execution"
    joined = rows[(states == S.CREATED) & ~table.opens[rows]]
    waiting = [row for rows in scheduler.job.joined.values() for row in rows.tolist()]
    assert np.isin(joined, waiting).all(), f"{where}: an execution that will never be deployed"


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
    if result.is_pipelined:
        assert not result.stored.any() and not len(available), f"{where}: a pipelined result was stored"
        return
    if scheduler.options[RELEASE_DURING_JOB_EXECUTION] and not result.dataset.persistent:
        kept = available[~_needed(scheduler, result)[available]]
        assert not len(kept), f"{where}: partitions {kept} are kept although their last consuming regions have finished"
    consumers = [scheduler.graph.vertices[v] for v in scheduler.graph.consumers[result.dataset.id]]
    info = result.info
    if len(available) == info.recorded.sum() == result.num_partitions and producer.is_finished:
        undecided = any(v.ranges is None for v in consumers)
        same = info.subpartition_bytes.sum() == info.partition_bytes.sum()
        guessed = info.awaits_ranges or not (info.is_exact and info.is_settled and info.is_measured)
        assert same or guessed or not undecided, f"{where}: folded sums do not add up to what was produced"


def _needed(scheduler: Scheduler, result: IntermediateResult) -> NDArray[np.bool_]:
    """Returns a mask of the partitions that somebody is going to read, or whose producers the others of their vertex wait for."""
    graph = scheduler.graph
    needed = np.zeros(result.num_partitions, np.bool_)
    edges = graph.job_graph.consumers(result.dataset.id)
    if len(edges) > len(result.consumers) or (not edges and not graph.vertices[result.dataset.producer].is_finished):
        needed[:] = True
    for edge in result.consumers:
        block = graph.regions.block(edge.vertex)
        running = np.zeros(block.count, np.bool_)
        for vertex in block.vertices:
            running[block.of(vertex, np.flatnonzero(graph.vertices[vertex].states != S.FINISHED))] = True
        for group in (edge[k] for k in range(len(edge))):
            subtasks = np.arange(group.consumers.first, group.consumers.end)
            if running[block.of(edge.vertex, subtasks)].any():
                needed[group.first : group.end] = True
    return needed


def _regions(scheduler: Scheduler) -> None:
    """A region runs as a whole: none of its members waits while others run or have finished."""
    for block in scheduler.graph.regions.blocks.values():
        begun = np.zeros((2, block.count), np.bool_)
        for vertex in block.vertices:
            states = scheduler.graph.vertices[vertex].states
            regions = block.of(vertex, np.arange(len(states)))
            begun[0, regions[states == S.CREATED]] = True
            begun[1, regions[IS_DEPLOYED[states] | (states == S.FINISHED)]] = True
        apart = np.flatnonzero(begun.all(axis=0))
        assert not len(apart), f"regions {apart} of vertices {block.vertices} run in part"
