"""States of a stream's scheduler and phases of its rescale manager: the tables that code, tests and the docs share.

States are those of Flink's AdaptiveScheduler; phases those of FLIP-461 as Flink has them today
(DefaultStateTransitionManager).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar


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


T = TypeVar("T")
S = SchedulerState
P = Phase


@dataclass(frozen=True, slots=True)
class Move(Generic[T]):
    source: T
    target: T
    when: str


STATE_MOVES: tuple[Move[SchedulerState], ...] = (
    Move(S.CREATED, S.WAITING_FOR_RESOURCES, "the stream is started"),
    Move(S.CREATED, S.FINISHED, "cancelled, or what it needs is not there, before it was started"),
    Move(S.WAITING_FOR_RESOURCES, S.CREATING_EXECUTION_GRAPH, "enough slots, or the wait is over"),
    Move(S.WAITING_FOR_RESOURCES, S.FINISHED, "stopped, cancelled, or no slot came"),
    Move(S.CREATING_EXECUTION_GRAPH, S.EXECUTING, "the query runs"),
    Move(S.CREATING_EXECUTION_GRAPH, S.RESTARTING, "it did not start, and may be tried again"),
    Move(S.CREATING_EXECUTION_GRAPH, S.FAILING, "it did not start"),
    Move(S.CREATING_EXECUTION_GRAPH, S.CANCELING, "cancelled or stopped before it ran"),
    Move(S.EXECUTING, S.RESTARTING, "a rescale, or a failure that may be followed by a restart"),
    Move(S.EXECUTING, S.STOP_WITH_SAVEPOINT, "stopped by its user: the running batch is finished first"),
    Move(S.EXECUTING, S.CANCELING, "cancelled"),
    Move(S.EXECUTING, S.FAILING, "a failure with no restart left"),
    Move(S.EXECUTING, S.FINISHED, "its source has ended"),
    Move(S.RESTARTING, S.WAITING_FOR_RESOURCES, "stopped; resources are looked at anew"),
    Move(S.RESTARTING, S.CREATING_EXECUTION_GRAPH, "stopped, and what runs next is known"),
    Move(S.RESTARTING, S.CANCELING, "cancelled or stopped meanwhile"),
    Move(S.RESTARTING, S.FAILING, "the state cannot be brought into order"),
    Move(S.STOP_WITH_SAVEPOINT, S.FINISHED, "the last batch is committed and the query stopped"),
    Move(S.STOP_WITH_SAVEPOINT, S.CANCELING, "cancelled meanwhile"),
    Move(S.STOP_WITH_SAVEPOINT, S.RESTARTING, "it failed before its last batch was committed"),
    Move(S.STOP_WITH_SAVEPOINT, S.FAILING, "it failed before its last batch was committed, with no restart left"),
    Move(S.FAILING, S.FINISHED, "stopped"),
    Move(S.CANCELING, S.FINISHED, "stopped"),
)

PHASE_MOVES: tuple[Move[Phase], ...] = (
    Move(P.COOLDOWN, P.IDLING, "cooldown over, nothing changed"),
    Move(P.COOLDOWN, P.STABILIZING, "cooldown over, something changed meanwhile"),
    Move(P.IDLING, P.STABILIZING, "a change with sufficient resources"),
    Move(P.IDLING, P.COOLDOWN, "a change in a direction that still cools down"),
    Move(P.STABILIZING, P.TRANSITIONING, "a trigger, and the desired resources are there"),
    Move(P.STABILIZING, P.STABILIZED, "stabilisation timeout after the first change"),
    Move(P.STABILIZING, P.IDLING, "what changed has changed back"),
    Move(P.STABILIZING, P.COOLDOWN, "the wanted direction changed to one that still cools down"),
    Move(P.STABILIZED, P.TRANSITIONING, "a trigger, and sufficient resources are there"),
    Move(P.STABILIZED, P.IDLING, "a trigger, but no sufficient resources"),
    Move(P.STABILIZED, P.COOLDOWN, "the wanted direction changed to one that still cools down"),
)
"""Transitioning is final: the next run of the query begins with a manager of its own."""


def diagram(moves: tuple[Move[T], ...], start: T) -> str:
    """A table as a mermaid state diagram, for the documentation. Its first state is ``start``; ends have no way out."""
    name = {state: str(getattr(state, "value", state)) for move in moves for state in (move.source, move.target)}
    ends = [state for state in name if all(move.source != state for move in moves)]
    lines = ["stateDiagram-v2", f"    [*] --> {name[start]}"]
    lines += [f"    {name[move.source]} --> {name[move.target]}: {move.when}" for move in moves]
    lines += [f"    {name[state]} --> [*]" for state in ends]
    return "\n".join(lines) + "\n"
