"""A running job as JSON lines for machines: one object per line, ``v`` is the version of the format (docs/command-line.md)."""

from __future__ import annotations

import json
import threading
import time
from functools import cache
from typing import Any, TextIO

from firesteel.masking import Masker
from firesteel.report.history import VertexHistory, is_parallelism
from firesteel.scheduler.kernel.records import (
    Decision,
    JobPlanned,
    JobStatusRecord,
    JournalRecord,
    MetricsSnapshot,
    StateChange,
)
from firesteel.view.news import says_what_is_kept
from firesteel.view.watched import Watched, state_of

VERSION = 1
_NOTES = ("speculation", "winner", "blocklist", "placement", "slot request", "restart", "failover", "warning")
_write_lock = threading.Lock()


@cache
def _masker() -> Masker:
    """Of this process. Paths stay as they are: machines read them."""
    return Masker(home="")


def write_event(file: TextIO, kind: str, /, **fields: Any) -> None:
    """One line, whole, also where several jobs write at once, without what looks secret. Raises OSError, ValueError."""
    with _write_lock:
        told = _masker().value(fields)
        line = json.dumps({"v": VERSION, "event": kind, "time": round(time.time(), 3), **told}, default=str)
        file.write(f"{line}\n")
        file.flush()


class JsonView:
    """Tells of one job. Attempts are counted from 1."""

    def __init__(self, stream: TextIO, _lock: threading.RLock | None = None) -> None:
        self._stream = stream
        self._finished: set[int] = set()

    def update(self, watched: Watched, record: JournalRecord) -> None:
        match record:
            case JobPlanned():
                vertices = [
                    {"id": v.id, "name": v.name, "inputs": v.inputs, "bound": watched.bound(v)}
                    for v in watched.history.vertices.values()
                ]
                self._say(watched, "job", name=record.job_name, vertices=vertices)
            case JobStatusRecord():
                self._say(watched, "status", status=record.status, cause=record.cause)
            case Decision():
                self._decided(watched, record)
            case StateChange() if record.state == "FAILED":
                self._failed(watched, record)
            case MetricsSnapshot():
                self._measured(watched, record)
            case _:
                pass
        self._tell_finished(watched)

    def close(self, watched: Watched) -> None:
        history = watched.history
        vertices = list(history.vertices.values())
        self._tell_finished(watched)
        self._say(
            watched,
            "result",
            status=history.status,
            seconds=round(history.seconds, 3),
            vertices=len(vertices),
            subtasks=sum(v.parallelism or 0 for v in vertices),
            failures=sum(len(f.subtasks) for v in vertices for f in v.failures),
            restarts=int(history.metrics.get("numRestarts", 0)),
            cause=history.cause if history.status != "FINISHED" else "",
        )

    def _decided(self, watched: Watched, record: Decision) -> None:
        if record.vertex is not None and is_parallelism(record):
            vertex = watched.history.vertex(record.vertex)
            told = {"rule": record.rule, "bounds": record.bounds, "reason": record.reason}
            self._say(watched, "decided", vertex=vertex.id, name=vertex.name, parallelism=vertex.parallelism, **told)
        elif record.what in _NOTES or says_what_is_kept(record):
            self._say(watched, "note", vertex=record.vertex, what=record.what, reason=record.reason)

    def _failed(self, watched: Watched, record: StateChange) -> None:
        subtasks, attempts = list(record.subtasks), [attempt + 1 for attempt in record.attempts]
        self._say(watched, "failed", vertex=record.vertex, subtasks=subtasks, attempts=attempts, cause=record.cause)

    def _measured(self, watched: Watched, record: MetricsSnapshot) -> None:
        for number in record.vertices:
            vertex = watched.history.vertex(number)
            if not vertex.is_done:
                left = watched.seconds_left(vertex)
                self._vertex(watched, "progress", vertex, seconds_left=None if left is None else round(left, 1))

    def _tell_finished(self, watched: Watched) -> None:
        for vertex in watched.history.vertices.values():
            if not vertex.is_done:
                self._finished.discard(vertex.id)
            elif (
                vertex.absorbed_by is None
                and vertex.id not in self._finished
                and vertex.number("numFinishedTasks") >= (vertex.parallelism or 0)
            ):
                self._finished.add(vertex.id)
                self._vertex(watched, "finished", vertex, seconds=round(vertex.seconds or 0.0, 3))

    def _vertex(self, watched: Watched, event: str, vertex: VertexHistory, **more: Any) -> None:
        waiting, running, done = vertex.counts()
        self._say(
            watched,
            event,
            vertex=vertex.id,
            name=vertex.name,
            state=state_of(watched.history, vertex),
            parallelism=vertex.parallelism,
            waiting=waiting,
            running=running,
            done=done,
            rows=vertex.number("numRecordsOut"),
            bytes=vertex.number("numBytesProduced"),
            **more,
        )

    def _say(self, watched: Watched, event: str, **fields: Any) -> None:
        write_event(self._stream, event, job=watched.job_id, at=round(watched.history.last_at or 0.0, 3), **fields)
