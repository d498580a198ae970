"""A running job as JSON lines for machines: one object per line, ``v`` is the version of the format (docs/command-line.md)."""

from __future__ import annotations

import json
import threading
import time
from functools import cache
from typing import Any, TextIO

from firesteel.masking import Masker
from firesteel.report.fold import JobHistory, VertexHistory, is_parallelism
from firesteel.scheduler.kernel.records import (
    Decision,
    JobPlanned,
    JobStatusRecord,
    JournalRecord,
    MetricsSnapshot,
    StateChange,
)
from firesteel.view.news import Finished, says_what_is_kept

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
        self._finished = Finished()

    def update(self, history: JobHistory, record: JournalRecord) -> None:
        match record:
            case JobPlanned():
                vertices = [
                    {"id": v.id, "name": v.name, "inputs": v.inputs, "bound": history.bound(v)}
                    for v in history.vertices.values()
                ]
                self._say(history, "job", name=record.job_name, vertices=vertices)
            case JobStatusRecord():
                self._say(history, "status", status=record.status, cause=record.cause)
            case Decision():
                self._decided(history, record)
            case StateChange() if record.state == "FAILED":
                self._failed(history, record)
            case MetricsSnapshot():
                self._measured(history, record)
            case _:
                pass
        self._tell_finished(history)

    def close(self, history: JobHistory) -> None:
        vertices = list(history.vertices.values())
        self._tell_finished(history)
        self._say(
            history,
            "result",
            status=history.status,
            seconds=round(history.seconds, 3),
            vertices=len(vertices),
            subtasks=sum(v.parallelism or 0 for v in vertices),
            failures=sum(len(f.subtasks) for v in vertices for f in v.failures),
            restarts=int(history.metrics.get("numRestarts", 0)),
            cause=history.cause if history.status != "FINISHED" else "",
        )

    def _decided(self, history: JobHistory, record: Decision) -> None:
        if record.vertex is not None and is_parallelism(record):
            vertex = history.vertex(record.vertex)
            told = {"rule": record.rule, "bounds": record.bounds, "reason": record.reason}
            self._say(history, "decided", vertex=vertex.id, name=vertex.name, parallelism=vertex.parallelism, **told)
        elif record.what in _NOTES or says_what_is_kept(record):
            self._say(history, "note", vertex=record.vertex, what=record.what, reason=record.reason)

    def _failed(self, history: JobHistory, record: StateChange) -> None:
        subtasks, attempts = list(record.subtasks), [attempt + 1 for attempt in record.attempts]
        self._say(history, "failed", vertex=record.vertex, subtasks=subtasks, attempts=attempts, cause=record.cause)

    def _measured(self, history: JobHistory, record: MetricsSnapshot) -> None:
        for number in record.vertices:
            vertex = history.vertex(number)
            if not vertex.is_done:
                left = history.seconds_left(vertex)
                self._vertex(history, "progress", vertex, seconds_left=None if left is None else round(left, 1))

    def _tell_finished(self, history: JobHistory) -> None:
        for vertex in self._finished.news(history):
            self._vertex(history, "finished", vertex, seconds=round(vertex.seconds or 0.0, 3))

    def _vertex(self, history: JobHistory, event: str, vertex: VertexHistory, **more: Any) -> None:
        waiting, running, done = vertex.counts()
        self._say(
            history,
            event,
            vertex=vertex.id,
            name=vertex.name,
            state=history.state_of(vertex),
            parallelism=vertex.parallelism,
            waiting=waiting,
            running=running,
            done=done,
            rows=vertex.number("numRecordsOut"),
            bytes=vertex.number("numBytesProduced"),
            **more,
        )

    def _say(self, history: JobHistory, event: str, **fields: Any) -> None:
        write_event(self._stream, event, job=history.id, at=round(history.last_at or 0.0, 3), **fields)
