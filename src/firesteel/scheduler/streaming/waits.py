"""What a stream waits for, as facts. ``report.waits`` has the words."""

from __future__ import annotations

from enum import Enum

import msgspec


class Awaited(Enum):
    START = "start of the query"
    LAST_BATCH = "last batch"
    STOP = "stop of the query"
    RESTART = "restart"
    SLOTS = "slots"
    RESCALE = "rescale under way"
    NOTHING = "nothing"
    NOTHING_POSSIBLE = "nothing, since the rescale is refused"
    CONFIRMATION = "confirmation"
    SUFFICIENT_SLOTS = "sufficient slots"
    DESIRED_SLOTS = "desired slots, then a checkpoint"
    CHECKPOINT = "checkpoint"
    COOLDOWN = "cooldown"
    COOLDOWN_CHECKPOINT = "cooldown, then a checkpoint"
    COOLDOWN_SLOTS = "cooldown, then desired slots and a checkpoint"


class StreamWait(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    awaited: Awaited
    seconds: float | None = None
    """That it takes yet, or at most takes; None: not known, or no limit."""
    partitions: int = 0
    """Of a rescale, wanted or under way, from ``before``."""
    before: int = 0
    slots: int = 0
    needed: int = 0
    reason: str = ""
    """Of what is not done; of the restart; of the last rescale that failed."""
    step: str = ""
    """Of the rescale that is under way."""
    stops: bool = False
    """Then the stream stops."""
