"""Small objects in the job's store: the nodes that it keeps away from, as its tasks learn of them, and the last words of a worker.

There is none as long as nothing was ever blocked. The driver replaces it whenever the blocklist changes; a task looks at it
before it begins. On a local disk that is some microseconds and is done by each task; where it takes longer, a worker looks
again when a hundredth of its time allows it, or after LOOK_SECONDS.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

NAME = "blocked-nodes.json"
LOOK_SHARE = 0.01
"""Of a worker's time, for looking, but see LOOK_SECONDS."""
LOOK_SECONDS = 1.5
"""No look is older, whatever looking costs: the scheduler reckons with it (``firesteel.scheduler.speculation.rejected_deployments.TOLD_SECONDS``)."""
FIRST_PAUSE = 0.025
LONGEST_PAUSE = 1.0
_NONE: frozenset[str] = frozenset()


def publish(store: Any, signs: Sequence[str]) -> None:
    """From now on tasks find these: what places on blocked nodes are known by (``Place.signs``). Raises StorageError."""
    store.replace(NAME, json.dumps(sorted(signs)).encode())


@dataclass(slots=True)
class _Look:
    job_id: str
    signs: frozenset[str]
    until: float


class Blocklist:
    """A worker process' view."""

    def __init__(self) -> None:
        self._look: _Look | None = None
        self._returned = 0

    def signs(self, job_id: str, store: Any) -> frozenset[str]:
        """Returns the signs of blocked places, at most some time old: see the module."""
        now, last = time.monotonic(), self._look
        if last is not None and last.job_id == job_id and now < last.until:
            return last.signs
        signs = _read(store)
        took = time.monotonic() - now
        self._look = _Look(job_id, signs, now + min(LOOK_SECONDS, took / LOOK_SHARE))
        return signs

    def lists(self, own: Collection[str], job_id: str, store: Any) -> bool:
        """Returns True if the place with these signs is blocked."""
        return not self.signs(job_id, store).isdisjoint(own)

    def has(self, own: Collection[str], job_id: str, store: Any) -> bool:
        """Returns True if a task in the place with these signs must reject its deployment, a little later each time.

        Else a blocked node with a free slot would take all that is queued, one by one, as fast as it can.
        """
        if not self.lists(own, job_id, store):
            self._returned = 0
            return False
        if self._returned:
            time.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2**self._returned))
        self._returned += 1
        return True


def _read(store: Any) -> frozenset[str]:
    """None of them where it cannot be read: then tasks run where they are."""
    try:
        source = store.open_input(NAME)
    except OSError:
        return _NONE
    try:
        return frozenset(json.loads(bytes(source.read_at(0, source.size))))
    except (OSError, ValueError):  # just being replaced, where that takes two steps
        return _NONE
    finally:
        source.close()


def name_of(vertex: int, subtask: int, attempt: int) -> str:
    return f"stopped-v{vertex}-s{subtask}-a{attempt}.json"


def leave(store: Any, execution: tuple[int, int, int], message: str, hint: str | None) -> None:
    """``execution``: vertex, subtask, attempt. Raises StorageError."""
    store.replace(name_of(*execution), json.dumps([message, hint]).encode())


def find(store: Any, execution: tuple[int, int, int]) -> tuple[str, str | None] | None:
    """Message and hint; None: it left nothing, or that cannot be read."""
    try:
        source = store.open_input(name_of(*execution))
        try:
            message, hint = json.loads(bytes(source.read_at(0, source.size)))
        finally:
            source.close()
    except (OSError, ValueError):
        return None
    return message, hint
