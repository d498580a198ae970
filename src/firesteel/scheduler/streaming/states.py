"""States of a stream's scheduler and phases of its rescale manager: the tables that code, tests and the docs share.

States are those of Flink's AdaptiveScheduler; phases those of FLIP-461 as Flink has them today
(DefaultStateTransitionManager).
"""

from __future__ import annotations

from enum import Enum

from firesteel.scheduler.kernel.states import Transitions


class SchedulerState(Enum):
    CREATED = "Created"
    WAITING_FOR_RESOURCES = "WaitingForResources"
    CREATING_EXECUTION_GRAPH = "CreatingExecutionGraph"
    EXECUTING = "Executing"
    RESTARTING = "Restarting"
    STOP_WITH_SAVEPOINT = "StopWithSavepoint"
    FAILING = "Failing"
    CANCELING = "Canceling"
    FINISHED = "Finished"


class Phase(Enum):
    COOLDOWN = "Cooldown"
    IDLING = "Idling"
    STABILIZING = "Stabilizing"
    STABILIZED = "Stabilized"
    TRANSITIONING = "Transitioning"


S = SchedulerState
P = Phase


SCHEDULER_STATES = Transitions(
    S.CREATED,
    (
        (S.CREATED, S.WAITING_FOR_RESOURCES, "the stream is started"),
        (S.CREATED, S.FINISHED, "cancelled, or what it needs is not there, before it was started"),
        (S.WAITING_FOR_RESOURCES, S.CREATING_EXECUTION_GRAPH, "enough slots, or the wait is over"),
        (S.WAITING_FOR_RESOURCES, S.FINISHED, "stopped, cancelled, or no slot came"),
        (S.CREATING_EXECUTION_GRAPH, S.EXECUTING, "the query runs"),
        (S.CREATING_EXECUTION_GRAPH, S.RESTARTING, "it did not start, and may be tried again"),
        (S.CREATING_EXECUTION_GRAPH, S.FAILING, "it did not start"),
        (S.CREATING_EXECUTION_GRAPH, S.CANCELING, "cancelled or stopped before it ran"),
        (S.EXECUTING, S.RESTARTING, "a rescale, or a failure that may be followed by a restart"),
        (S.EXECUTING, S.STOP_WITH_SAVEPOINT, "stopped by its user: the running batch is finished first"),
        (S.EXECUTING, S.CANCELING, "cancelled"),
        (S.EXECUTING, S.FAILING, "a failure with no restart left"),
        (S.EXECUTING, S.FINISHED, "its source has ended"),
        (S.RESTARTING, S.WAITING_FOR_RESOURCES, "stopped; resources are looked at anew"),
        (S.RESTARTING, S.CREATING_EXECUTION_GRAPH, "stopped, and what runs next is known"),
        (S.RESTARTING, S.CANCELING, "cancelled or stopped meanwhile"),
        (S.RESTARTING, S.FAILING, "the state cannot be repaired"),
        (S.STOP_WITH_SAVEPOINT, S.FINISHED, "the last batch is committed and the query stopped"),
        (S.STOP_WITH_SAVEPOINT, S.CANCELING, "cancelled meanwhile"),
        (S.STOP_WITH_SAVEPOINT, S.RESTARTING, "it failed before its last batch was committed"),
        (S.STOP_WITH_SAVEPOINT, S.FAILING, "it failed before its last batch was committed, with no restart left"),
        (S.FAILING, S.FINISHED, "stopped"),
        (S.CANCELING, S.FINISHED, "stopped"),
    ),
)

RESCALE_PHASES = Transitions(
    P.COOLDOWN,
    (
        (P.COOLDOWN, P.IDLING, "cooldown over, nothing changed"),
        (P.COOLDOWN, P.STABILIZING, "cooldown over, something changed meanwhile"),
        (P.IDLING, P.STABILIZING, "a change with sufficient resources"),
        (P.IDLING, P.COOLDOWN, "a change in a direction that still cools down"),
        (P.STABILIZING, P.TRANSITIONING, "a trigger, and the desired resources are there"),
        (P.STABILIZING, P.STABILIZED, "stabilisation timeout after the first change"),
        (P.STABILIZING, P.IDLING, "what changed has changed back"),
        (P.STABILIZING, P.COOLDOWN, "the wanted direction changed to one that still cools down"),
        (P.STABILIZED, P.TRANSITIONING, "a trigger, and sufficient resources are there"),
        (P.STABILIZED, P.IDLING, "a trigger, but no sufficient resources"),
        (P.STABILIZED, P.COOLDOWN, "the wanted direction changed to one that still cools down"),
    ),
)
"""Transitioning is final: the next run of the query begins with a manager of its own."""
