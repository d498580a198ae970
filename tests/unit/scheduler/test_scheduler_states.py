"""The transition table and the table of executions."""

import numpy as np
import pytest
from tests.scheduler_kit import ints

from firesteel.model.arrays import Names
from firesteel.scheduler.kernel import states
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.kernel.states import (
    EXECUTION_STATES,
    IS_DEPLOYED,
    IS_TERMINAL,
    JOB_STATUSES,
    PRIORITY,
    ExecutionState,
)
from firesteel.scheduler.topology.executions import ExecutionTable, ExecutionVertex, IllegalTransition

S = ExecutionState


def walk(table, rows, *targets):
    for number, target in enumerate(targets, 1):
        table.transition(rows, target, float(number))


def test_every_state_is_reached_from_created_and_can_end():
    reached, frontier = {S.CREATED}, {S.CREATED}
    while frontier:
        frontier = {t.target for t in EXECUTION_STATES.table if t.source in frontier} - reached
        reached |= frontier
    assert reached == set(S)
    assert {s for s in S if IS_TERMINAL[s]} == {S.FINISHED, S.CANCELED, S.FAILED}
    assert {s for s in S if IS_DEPLOYED[s]} == {S.SCHEDULED, S.DEPLOYING, S.RUNNING}


def test_the_diagram_has_every_transition():
    drawn = EXECUTION_STATES.diagram()
    assert drawn.startswith("stateDiagram-v2\n    [*] --> CREATED\n")
    for t in EXECUTION_STATES.table:
        assert f"    {t.source.name} --> {t.target.name}: {t.when}\n" in drawn


@pytest.mark.parametrize("source", list(S))
@pytest.mark.parametrize("target", list(S))
def test_only_what_the_table_says_is_legal(source, target):
    table = ExecutionTable()
    rows = table.create(0, ints(0), ints(0), -1, at=0.0)
    table.state[rows] = source
    table.counts[:] = 0
    table.counts[source] = 1
    if any((t.source, t.target) == (source, target) for t in EXECUTION_STATES.table):
        table.transition(rows, target, 1.0)
        assert table.state[0] == target and table.counts[target] == 1
    else:
        with pytest.raises(IllegalTransition):
            table.transition(rows, target, 1.0)


def test_an_illegal_transition_tells_the_story_and_changes_nothing():
    table = ExecutionTable(story=lambda vertex, subtask: [f"it all began with {vertex}/{subtask}"])
    rows = table.create(3, ints(0, 1, 2), ints(0, 0, 0), -1, at=0.0)
    walk(table, rows[1:2], S.SCHEDULED)
    with pytest.raises(IllegalTransition, match=r"subtask 0 of vertex 3 cannot go from CREATED to DEPLOYING") as caught:
        table.transition(rows, S.DEPLOYING, 1.0)
    assert "it all began with 3/0" in str(caught.value)
    assert table.state[:3].tolist() == [S.CREATED, S.SCHEDULED, S.CREATED]


def test_each_state_leaves_its_time():
    table = ExecutionTable()
    rows = table.create(0, ints(0), ints(0), -1, at=0.5)
    walk(table, rows, S.SCHEDULED, S.DEPLOYING, S.RUNNING, S.FINISHED)
    execution = ExecutionVertex(table, 0).current_execution
    assert [execution.entered(s) for s in (S.CREATED, S.SCHEDULED, S.FINISHED, S.FAILED)] == [0.5, 1.0, 4.0, None]


def test_times_are_kept_as_far_as_rows_have_come():
    table = ExecutionTable()
    table.create(0, np.arange(4), ints(0, 0, 0, 0), -1, at=0.0)
    table.create(1, np.arange(4), ints(0, 0, 0, 0), -1, at=0.5)
    walk(table, np.arange(6), S.SCHEDULED, S.DEPLOYING)
    table.transition(ints(5), S.FAILED, 9.0)
    table.create(1, ints(1), ints(1), 5, at=9.5)

    def told(state, *rows):
        return [None if np.isnan(time) else time for time in table.times(state, ints(*rows)).tolist()]

    assert told(S.CREATED, 0, 3, 4, 7, 8) == [0.0, 0.0, 0.5, 0.5, 9.5]
    assert told(S.SCHEDULED, 0, 5) == [1.0, 1.0] and told(S.DEPLOYING, 5, 6, 8) == [2.0, None, None]
    assert told(S.RUNNING, 0, 8) == [None, None] and told(S.FAILED, 5, 0) == [9.0, None]
    assert table.stamps[S.DEPLOYING].item(5) == 2.0 and np.isnan(table.stamps[S.DEPLOYING].item(8))
    table.transition(ints(8), S.SCHEDULED, 10.0)
    assert told(S.SCHEDULED, 5, 6, 7, 8) == [1.0, None, None, 10.0]


def test_rows_are_found_by_attempt_through_all_rounds():
    table = ExecutionTable()
    newest = table.create(0, ints(0, 1, 2), ints(0, 0, 0), -1, at=0.0)
    for attempt in (1, 2):
        newest[:2] = table.create(0, ints(0, 1), ints(attempt, attempt), newest[:2], at=1.0)
    found = table.find(newest[[0, 0, 0, 1, 2, 2]], ints(0, 1, 2, 1, 0, 5))
    assert table.attempt[found[:5]].tolist() == [0, 1, 2, 1, 0]
    assert table.index[found[:5]].tolist() == [0, 0, 0, 1, 2]
    assert found[5] == -1


def test_attempts_and_rows_before_are_kept_from_the_first_restart_on():
    table = ExecutionTable()
    for vertex in range(3):
        table.create(vertex, np.arange(1000), np.zeros(1000, np.int64), -1, at=0.0)
    assert table.attempt.strides == table.prior.strides == (0,), "columns of one value take no memory"
    table.create(1, ints(5), ints(1), ints(1005), at=1.0)
    assert table.attempt[[0, 1005, 3000]].tolist() == [0, 0, 1]
    assert table.prior[[0, 1005, 3000]].tolist() == [-1, -1, 1005]
    table.create(1, np.arange(1000), np.ones(1000, np.int64), -1, at=2.0)
    assert table.attempt[[2999, 3000, 3001, 4000]].tolist() == [0, 1, 1, 1]


def test_several_current_executions_and_the_seeds_priority():
    """FLIP-168: the current execution is the one nearest to FINISHED, the earliest created on a tie."""
    table = ExecutionTable()
    first = table.create(0, ints(0), ints(0), -1, at=0.0)
    second = table.create(0, ints(0), ints(1), first, at=1.0, opens=False)
    vertex = ExecutionVertex(table, int(second[0]))
    assert [x.attempt for x in vertex.current_executions] == [0, 1]
    assert vertex.current_execution.attempt == 0
    walk(table, second, S.SCHEDULED, S.DEPLOYING)
    assert vertex.current_execution.attempt == 1
    walk(table, first, S.SCHEDULED, S.DEPLOYING, S.RUNNING, S.FAILED)
    assert [x.row for x in vertex.current_executions] == [second[0]], "the other one has failed"
    third = table.create(0, ints(0), ints(2), second, at=2.0)
    assert [x.attempt for x in ExecutionVertex(table, int(third[0])).current_executions] == [2]


def test_the_priority_names_every_state_once():
    assert sorted(PRIORITY) == list(S)
    assert [int(states.RANK[s]) for s in PRIORITY] == list(range(len(S)))


def test_nodes_and_causes_are_kept():
    table = ExecutionTable()
    rows = table.create(0, np.arange(3), ints(0, 0, 0), -1, at=0.0)
    table.set_nodes(rows, Names.of(["a", "b", "a"]))
    table.set_nodes(rows[:2], Names.of(["", "c"]))
    table.set_cause(rows[1:], "out of luck")
    views = [ExecutionVertex(table, int(row)).current_execution for row in rows]
    assert [v.node for v in views] == ["a", "c", "a"]
    assert [v.cause for v in views] == ["", "out of luck", "out of luck"]


def test_a_job_reaches_every_status_and_ends_where_its_statuses_say():
    reached = {JOB_STATUSES.start}
    while more := {t.target for t in JOB_STATUSES.table if t.source in reached} - reached:
        reached |= more
    assert reached == set(JobStatus)
    assert set(JOB_STATUSES.ends()) == {status for status in JobStatus if status.is_terminal}
    assert JOB_STATUSES.diagram().startswith("stateDiagram-v2\n    [*] --> CREATED\n    CREATED --> RUNNING: ")


def test_a_transition_that_is_not_in_the_table_is_refused_with_the_story():
    with pytest.raises(ValueError, match=r"The job cannot go from FINISHED to RUNNING \(again\).\nline 1\nline 2"):
        JOB_STATUSES.check(JobStatus.FINISHED, JobStatus.RUNNING, "The job", "again", ["line 1", "line 2"])
