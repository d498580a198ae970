"""State shared by the jobs of one Spark application: an account of its workers' slots, and the nodes that any of them has blocked.

Each job's scheduler runs in a thread of its own. Those that share slots take turns: one lock per application is held while an
event is handled, and never while a command is carried out. What a job is to hear of others lies in its queue as an event.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from firesteel.scheduler.kernel.commands import ShareBlockedNode
from firesteel.scheduler.kernel.events import Event, NodeBlocked, SlotsFreed
from firesteel.scheduler.slots.manager import JobSlots, LeftToSpark, SlotManager
from firesteel.scheduler.slots.workers import Workers


@dataclass(eq=False)
class _Session:
    lock: Any = field(default_factory=threading.RLock)
    manager: SlotManager = field(default_factory=SlotManager)
    listeners: dict[SessionJob, SessionListener] = field(default_factory=dict)
    """Of the jobs that run."""
    blocked: dict[str, tuple[str, str, float]] = field(default_factory=dict)
    """By node: whose job blocked it, why, and until when (``time.monotonic``)."""
    num_open: int = 0
    """Jobs that have not closed; guarded by ``_registry``."""


_sessions: dict[str, _Session] = {}
"""By Spark application: those with a job, or with a node that is still blocked. Guarded by ``_registry``."""
_registry = threading.Lock()
"""Taken after a session's own lock, never before it."""


class SessionListener:
    """A job that runs: it hears of the others of its session, and they of it."""

    def __init__(self, session: _Session, job: str, put: Callable[[Event], None], now: Callable[[], float]) -> None:
        """``job``: its name. ``put``: takes what it hears. ``now``: seconds on its clock."""
        self._session = session
        self._job = job
        self._put = put
        self._now = now

    def block(self, command: ShareBlockedNode) -> None:
        """All other jobs hear of it, those to come as well."""
        with self._session.lock:
            blocked, now = self._session.blocked, time.monotonic()
            for node in [node for node, (_, _, end) in blocked.items() if end <= now]:
                del blocked[node]
            end = now + command.end - self._now()
            blocked[command.node] = (self._job, command.cause, max(end, blocked.get(command.node, ("", "", 0.0))[2]))
            for other in self._session.listeners.values():
                if other is not self:
                    other.node_blocked(command.node, self._job, command.cause, end)

    def slots_freed(self) -> None:
        """It may ask for slots again."""
        self._put(SlotsFreed(at=self._now()))

    def node_blocked(self, node: str, job: str, cause: str, end: float) -> None:
        """``end``: as ``time.monotonic`` tells it."""
        at = self._now()
        left = end - time.monotonic()
        if left > 0:
            self._put(NodeBlocked(at=at, node=node, cause=cause, end=at + left, job=job))


class SessionJob:
    """One job's side. ``application``: None for a job that shares with nobody. ``shares_slots``: the slot pools decide what runs."""

    def __init__(self, application: str | None, name: str, *, shares_slots: bool) -> None:
        self._application = application
        self._name = name
        self._is_open = True
        self._shares_slots = shares_slots
        self._slots: JobSlots | None = None
        with _registry:
            self._session = _Session() if application is None else _sessions.setdefault(application, _Session())
            self._session.num_open += 1

    def join(self, name: str, workers: Workers, left_to_spark: LeftToSpark) -> JobSlots:
        """The job's slot pool books its slots here from now on."""
        with self._session.lock:
            self._slots = self._session.manager.register(name, workers, self._tell_of_slots, left_to_spark)
            return self._slots

    def turn(self) -> AbstractContextManager[Any]:
        """While it lasts no other job that shares slots uses its scheduler."""
        return self._session.lock if self._shares_slots else nullcontext()

    def listen(self, put: Callable[[Event], None], now: Callable[[], float]) -> SessionListener:
        """From now on the job hears of others, first of the nodes that are blocked. ``now``: seconds on its clock."""
        with self._session.lock:
            listener = self._session.listeners[self] = SessionListener(self._session, self._name, put, now)
            for node, (job, cause, end) in self._session.blocked.items():
                listener.node_blocked(node, job, cause, end)
            return listener

    def slots_of_others(self) -> Mapping[str, int]:
        """Slots that other jobs hold, by executor."""
        with self._session.lock:
            return {} if self._slots is None else self._slots.slots_of_others()

    def close(self) -> None:
        """The job is over, however it ended. Twice is as good as once."""
        with self._session.lock:
            self._session.listeners.pop(self, None)
            if self._slots is not None:
                self._slots.close()
            if self._is_open:
                self._is_open = False
                with _registry:
                    self._session.num_open -= 1
                _let_go(self._application, self._session)

    def _tell_of_slots(self) -> None:
        listener = self._session.listeners.get(self)
        if listener is not None:
            listener.slots_freed()


def _let_go(application: str | None, session: _Session) -> None:
    """Drops the account of a session that has no job left and no blocked node. Called with the session's lock held."""
    now = time.monotonic()
    with _registry:
        if session.num_open or any(end > now for _, _, end in session.blocked.values()):
            return
        if application is not None and _sessions.get(application) is session:
            del _sessions[application]


def alone() -> SessionJob:
    """Of a job that shares with nobody."""
    return SessionJob(None, "", shares_slots=False)
