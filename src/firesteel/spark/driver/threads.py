"""Threads beside the job's own, and its clock. From Python 3.12 on none can be started any more when the process is about to end."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from firesteel.model.arrays import Floats

CANCEL_REPEAT_SECONDS = 0.2
"""A job that is cancelled while Spark is still accepting it escapes the first call."""
CANCEL_INLINE_SECONDS = 2.0
"""Seconds that the caller's own thread does so, when no other can be started."""


def aside(action: Callable[[], Any], name: str, instead: Callable[[], Any] | None = None) -> threading.Thread | None:
    """Runs ``action`` in a thread of its own; where none can be started, ``instead`` (or it) on this one, then None."""
    thread = threading.Thread(target=action, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        (instead or action)()
        return None
    return thread


def local_properties(context: Any) -> Callable[[], None]:
    """This thread's Spark properties (pool, group, tags), to be set in others by calling what is returned: each gets its own.

    As ``pyspark.InheritableThread`` does, but what goes wrong is raised where the caller can tell of it.
    """
    from py4j.clientserver import ClientServer

    if not isinstance(context._gateway, ClientServer):  # see pins_threads
        return lambda: None
    properties = context._jsc.sc().getLocalProperties().clone()
    return lambda: context._jsc.sc().setLocalProperties(properties.clone())


def pins_threads(context: Any) -> bool:
    """False where all threads are one to the JVM, or each call is made by any of its threads: what one sets for itself another one has."""
    from py4j.clientserver import ClientServer
    from py4j.java_gateway import JavaGateway

    return isinstance(context._gateway, ClientServer) or not isinstance(context._gateway, JavaGateway)


def cancel_jobs(context: Any, tag: str, ended: threading.Event) -> None:
    """Asks Spark to cancel the jobs with this tag until ``ended`` is set; returns at once."""
    short = partial(_cancel, context, tag, ended, CANCEL_INLINE_SECONDS)
    aside(partial(_cancel, context, tag, ended), f"{tag}-cancel", short)


def _cancel(context: Any, tag: str, ended: threading.Event, seconds: float = math.inf) -> None:
    until = time.monotonic() + seconds
    while not ended.is_set() and time.monotonic() < until:
        try:
            context.cancelJobsWithTag(tag)
        except Exception:  # Spark is gone, and the job with it
            return
        ended.wait(CANCEL_REPEAT_SECONDS)


class Clock:
    """Seconds since the job began, without those in which it had no driver, monotonic; ``of_wall`` places an executor's time of day on it."""

    def __init__(self, at: float = 0.0) -> None:
        """``at``: what it shows now."""
        self._monotonic = time.monotonic() - at
        self._wall = time.time() - at

    def now(self) -> float:
        return time.monotonic() - self._monotonic

    def of_wall(self, seconds: float) -> float:
        return max(0.0, seconds - self._wall)

    def of_walls(self, seconds: Floats) -> Floats:
        return np.maximum(seconds - self._wall, 0.0)
