"""States of an execution and of the job, and the tables of their transitions.

Vocabulary and priority are FLIP-168's. INITIALIZING is left out: nothing Spark reports tells it from DEPLOYING.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from itertools import product
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.kernel.events import (
    Event,
    ExecutionsCancelled,
    ExecutionsDeploying,
    ExecutionsFailed,
    ExecutionsFinished,
    ExecutionsRejected,
)

E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class Transition(Generic[E]):
    source: E
    target: E
    when: str


class Transitions(Generic[E]):
    """The table of one machine, from its first state on."""

    def __init__(self, start: E, table: Iterable[tuple[E, E, str]]) -> None:
        """``table``: source, target, and when."""
        self.start = start
        self.table = tuple(Transition(*row) for row in table)
        self._legal = {(each.source, each.target) for each in self.table}

    def allows(self, source: E, target: E) -> bool:
        return (source, target) in self._legal

    def check(self, source: E, target: E, who: str, why: str, story: Iterable[str]) -> None:
        """Raises ValueError, with the story, for a transition that is not in the table."""
        if not self.allows(source, target):
            lines = "\n".join(story)
            raise ValueError(f"{who} cannot go from {_name(source)} to {_name(target)} ({why}).\n{lines}")

    def ends(self) -> list[E]:
        """States without a way out, in the order in which the table names them."""
        states = dict.fromkeys(state for each in self.table for state in (each.source, each.target))
        sources = {each.source for each in self.table}
        return [state for state in states if state not in sources]

    def diagram(self) -> str:
        """The table as a mermaid state diagram."""
        lines = ["stateDiagram-v2", f"    [*] --> {_name(self.start)}"]
        lines += [f"    {_name(each.source)} --> {_name(each.target)}: {each.when}" for each in self.table]
        lines += [f"    {_name(state)} --> [*]" for state in self.ends()]
        return "\n".join(lines) + "\n"


def _name(state: Enum) -> str:
    return state.value if isinstance(state.value, str) else state.name


class ExecutionState(IntEnum):
    CREATED = 0
    SCHEDULED = 1
    DEPLOYING = 2
    RUNNING = 3
    FINISHED = 4
    CANCELING = 5
    CANCELED = 6
    FAILED = 7


S = ExecutionState


class Row(NamedTuple):
    """What an event does to executions in these states."""

    events: tuple[type[Event], ...]
    """Empty: a policy does it."""
    states: tuple[ExecutionState, ...]
    does: str
    """The method of ``ExecutionEvents``, or of ``Job``."""
    leads_to: tuple[ExecutionState, ...]
    when: str


_DEPLOYED = (S.SCHEDULED, S.DEPLOYING, S.RUNNING)
_GONE = (ExecutionsFailed, ExecutionsCancelled, ExecutionsRejected)
EXECUTIONS = (
    Row((), (S.CREATED,), "deploy", (S.SCHEDULED,), "its inputs are there and a slot was asked for"),
    Row((), (S.CREATED,), "drop", (S.CANCELED,), "it is not needed any more"),
    Row((ExecutionsDeploying,), (S.SCHEDULED,), "launch", (S.DEPLOYING,), "Spark launched its task"),
    Row((ExecutionsDeploying,), (S.DEPLOYING,), "launch", (S.RUNNING,), "its program began"),
    Row((ExecutionsFinished,), (S.RUNNING,), "finish", (S.FINISHED,), "its result was admitted"),
    Row((ExecutionsFinished,), (S.SCHEDULED, S.DEPLOYING), "finish", (), "by way of the states that nobody reported"),
    Row((), _DEPLOYED, "cancel", (S.CANCELING,), "cancelled"),
    Row(_GONE, (S.CANCELING,), "gone", (S.CANCELED,), "Spark confirmed that it is gone"),
    Row((ExecutionsFinished,), (S.CANCELING,), "finish", (S.CANCELED,), "it finished all the same"),
    Row((ExecutionsFinished,), (S.CREATED, S.FINISHED, S.CANCELED, S.FAILED), "finish", (), "told twice"),
    Row((ExecutionsRejected,), (S.SCHEDULED, S.DEPLOYING), "reject", (S.CANCELED,), "rejected"),
    Row((ExecutionsFailed,), _DEPLOYED, "fail", (S.CANCELED,), "its Spark job was given up"),
    Row((ExecutionsFailed, ExecutionsCancelled), _DEPLOYED, "fail", (S.FAILED,), "failed, or lost"),
)
"""All that happens to executions. An event without a row for a state is stale there and changes nothing."""


def _transitions() -> Iterator[tuple[ExecutionState, ExecutionState, str]]:
    found: dict[tuple[ExecutionState, ExecutionState], list[str]] = {}
    for row in EXECUTIONS:
        for pair in product(row.states, row.leads_to):
            found.setdefault(pair, []).append(row.when)
    return ((*pair, "; ".join(why)) for pair, why in sorted(found.items()))


EXECUTION_STATES = Transitions(S.CREATED, _transitions())


def effects(event: type[Event]) -> dict[str, NDArray[np.bool_]]:
    """What the event does to executions, in the order of the rows: by method a mask by state."""
    found: dict[str, NDArray[np.bool_]] = {}
    for row in EXECUTIONS:
        if event in row.events:
            found.setdefault(row.does, np.zeros(len(S), np.bool_))[list(row.states)] = True
    return found


JOB_STATUSES = Transitions(
    JobStatus.CREATED,
    (
        (JobStatus.CREATED, JobStatus.RUNNING, "the job is started"),
        (JobStatus.CREATED, JobStatus.CANCELLING, "cancelled before it was started"),
        (JobStatus.RUNNING, JobStatus.RESTARTING, "a failure whose restart has a delay"),
        (JobStatus.RUNNING, JobStatus.FINISHED, "all vertices have finished, and the sinks are published"),
        (JobStatus.RUNNING, JobStatus.FAILING, "a failure with no restart left"),
        (JobStatus.RUNNING, JobStatus.CANCELLING, "cancelled"),
        (JobStatus.RESTARTING, JobStatus.RUNNING, "the delays of all restarts are over"),
        (JobStatus.RESTARTING, JobStatus.FAILING, "another failure, with no restart left"),
        (JobStatus.RESTARTING, JobStatus.CANCELLING, "cancelled"),
        (JobStatus.FAILING, JobStatus.FAILED, "nothing runs any more"),
        (JobStatus.CANCELLING, JobStatus.CANCELED, "nothing runs any more"),
    ),
)

PRIORITY: tuple[ExecutionState, ...] = (
    S.FINISHED,
    S.RUNNING,
    S.DEPLOYING,
    S.SCHEDULED,
    S.CREATED,
    S.CANCELING,
    S.FAILED,
    S.CANCELED,
)
"""The order in which one of several current executions stands for its subtask: the nearest to FINISHED first (FLIP-168)."""


def _matrix() -> NDArray[np.bool_]:
    legal = np.zeros((len(S), len(S)), dtype=np.bool_)
    for transition in EXECUTION_STATES.table:
        legal[transition.source, transition.target] = True
    return legal


LEGAL = _matrix()
"""``LEGAL[source, target]``."""

IS_TERMINAL: NDArray[np.bool_] = ~np.any(LEGAL, axis=1, keepdims=True)[:, 0]
IS_DEPLOYED = np.isin(np.arange(len(S)), (S.SCHEDULED, S.DEPLOYING, S.RUNNING))
"""Handed to Spark and still able to finish."""
IS_ABLE = IS_DEPLOYED | np.isin(np.arange(len(S)), (S.CREATED, S.FINISHED))
"""Has finished, or may still do so (FLIP-168: possible to finish)."""
IS_PENDING = IS_DEPLOYED | (np.arange(len(S)) == S.CANCELING)
"""Spark still owes us a word about it."""
SAME_SECONDS = 1e-4
"""Times that differ less are written down as one."""
RANK: NDArray[np.int8] = np.argsort(np.array(PRIORITY)).astype(np.int8)
"""Position of each state in :data:`PRIORITY`; smaller is nearer to FINISHED."""
