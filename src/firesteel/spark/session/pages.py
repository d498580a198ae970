"""Addresses of Spark's own pages: of an application, of the stage in which a vertex ran last, of its streaming queries."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any


def vertex_tag(job_id: str, vertex: int) -> str:
    """Carried by the Spark jobs that run executions of this vertex."""
    return f"firesteel-{job_id}-vertex-{vertex}"


class SparkPages:
    """Of one session. May be asked from any thread; an answer may raise where Spark is stopping."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._root: str | None = None
        with suppress(Exception):  # it is stopped just now: whoever runs something on it will say so
            self._root = context.uiWebUrl

    def root(self) -> str | None:
        """None: there is none, or Spark has been stopped."""
        return self._root if getattr(self._context, "_jsc", None) is not None else None

    def streams(self) -> str | None:
        root = self.root()
        return None if root is None else f"{root}/StreamingQuery/"

    def stage(self, job_id: str, standing: Mapping[int, str], vertex: int) -> str | None:
        """``standing``: vertex to the tag of the Spark job whose standing task was given an execution of it last. None: no Spark job has run
        the vertex yet, or Spark has forgotten it."""
        root = self.root()
        if root is None:
            return None
        tracker = self._context._jsc.sc().statusTracker()
        found = [tracker.getJobIdsForTag(tag) for tag in (vertex_tag(job_id, vertex), standing.get(vertex)) if tag]
        if not any(map(len, found)):
            return None
        newest = max(self._context._jvm.java.util.Arrays.stream(jobs).max().getAsInt() for jobs in found if len(jobs))
        latest = tracker.getJobInfo(newest)
        stage = max(latest.get().stageIds(), default=None) if latest.isDefined() else None
        info = None if stage is None else tracker.getStageInfo(stage)
        if info is None or not info.isDefined():
            return None
        return f"{root}/stages/stage/?id={stage}&attempt={info.get().currentAttemptId()}"
