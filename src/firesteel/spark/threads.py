"""Threads beside the job's own. From Python 3.12 on none can be started any more when the process is about to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


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
    """This thread's Spark properties (pool, group, tags), to be set in another by calling what is returned.

    As ``pyspark.InheritableThread`` does, but what goes wrong is raised where the caller can tell of it.
    """
    from py4j.clientserver import ClientServer

    if not isinstance(context._gateway, ClientServer):  # all threads are one to the JVM
        return lambda: None
    properties = context._jsc.sc().getLocalProperties().clone()
    return lambda: context._jsc.sc().setLocalProperties(properties)
