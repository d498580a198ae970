"""States of an execution, and the table of transitions that code, tests and the documentation share.

Vocabulary and priority are FLIP-168's. INITIALIZING is left out: nothing Spark reports tells it from DEPLOYING.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


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


@dataclass(frozen=True, slots=True)
class Transition:
    source: ExecutionState
    target: ExecutionState
    when: str


TRANSITIONS: tuple[Transition, ...] = (
    Transition(S.CREATED, S.SCHEDULED, "its inputs are there and a slot was asked for"),
    Transition(S.CREATED, S.CANCELED, "the job ends before it was scheduled"),
    Transition(S.SCHEDULED, S.DEPLOYING, "Spark launched its task"),
    Transition(S.SCHEDULED, S.CANCELING, "cancelled while queued"),
    Transition(S.SCHEDULED, S.CANCELED, "a blocked node handed it back"),
    Transition(S.SCHEDULED, S.FAILED, "lost while queued"),
    Transition(S.DEPLOYING, S.RUNNING, "its program began"),
    Transition(S.DEPLOYING, S.CANCELING, "cancelled"),
    Transition(S.DEPLOYING, S.CANCELED, "a blocked node handed it back"),
    Transition(S.DEPLOYING, S.FAILED, "failed before its program began"),
    Transition(S.RUNNING, S.FINISHED, "its result was admitted"),
    Transition(S.RUNNING, S.CANCELING, "cancelled"),
    Transition(S.RUNNING, S.FAILED, "failed"),
    Transition(S.CANCELING, S.CANCELED, "Spark confirmed that it is gone"),
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
"""Which of several current executions stands for its subtask: the one nearest to FINISHED (FLIP-168)."""


def _matrix() -> NDArray[np.bool_]:
    legal = np.zeros((len(S), len(S)), dtype=np.bool_)
    for transition in TRANSITIONS:
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


def diagram() -> str:
    """The table as a mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2", f"    [*] --> {S.CREATED.name}"]
    lines += [f"    {t.source.name} --> {t.target.name}: {t.when}" for t in TRANSITIONS]
    lines += [f"    {S(s).name} --> [*]" for s in np.flatnonzero(IS_TERMINAL)]
    return "\n".join(lines) + "\n"
