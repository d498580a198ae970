"""Firesteel: PySpark pipelines whose every step's parallelism is decided from the bytes its inputs really produced.

The public names are loaded when first used, so that an executor that imports ``firesteel.operators.task`` loads nothing else.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firesteel import errors as errors
    from firesteel.api import window as window
    from firesteel.api.data_stream import BroadcastStream, DataStream
    from firesteel.api.deciding import Decided, decide
    from firesteel.api.environment import ExecutionEnvironment
    from firesteel.api.history import History
    from firesteel.api.job_client import JobClient, JobResult
    from firesteel.api.keyed_stream import KeyedStream
    from firesteel.connectors.base import Sink, SinkWriter, Source, Split
    from firesteel.expressions import col, lit
    from firesteel.graph.slot_sharing_group import SlotSharingGroup
    from firesteel.operators.rows import Row
    from firesteel.spark.resources import TaskResources, task_resources

_DRIVER_NEEDS = ("msgspec", "numpy", "pyarrow")
"""A bundle (``firesteel bundle``) cannot carry them: they are compiled."""
_HOMES = {
    "BroadcastStream": "firesteel.api.data_stream",
    "DataStream": "firesteel.api.data_stream",
    "Decided": "firesteel.api.deciding",
    "ExecutionEnvironment": "firesteel.api.environment",
    "History": "firesteel.api.history",
    "JobClient": "firesteel.api.job_client",
    "JobResult": "firesteel.api.job_client",
    "KeyedStream": "firesteel.api.keyed_stream",
    "Row": "firesteel.operators.rows",
    "Sink": "firesteel.connectors.base",
    "SinkWriter": "firesteel.connectors.base",
    "SlotSharingGroup": "firesteel.graph.slot_sharing_group",
    "Source": "firesteel.connectors.base",
    "Split": "firesteel.connectors.base",
    "TaskResources": "firesteel.spark.resources",
    "col": "firesteel.expressions",
    "decide": "firesteel.api.deciding",
    "lit": "firesteel.expressions",
    "task_resources": "firesteel.spark.resources",
}

_MODULES = {"errors": "firesteel.errors", "window": "firesteel.api.window"}

__all__ = [
    "BroadcastStream",
    "DataStream",
    "Decided",
    "ExecutionEnvironment",
    "History",
    "JobClient",
    "JobResult",
    "KeyedStream",
    "Row",
    "Sink",
    "SinkWriter",
    "SlotSharingGroup",
    "Source",
    "Split",
    "TaskResources",
    "col",
    "decide",
    "errors",
    "lit",
    "task_resources",
    "window",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'firesteel' has no attribute '{name}'")
    if home.startswith("firesteel.api."):
        _check_driver()
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def _check_driver() -> None:
    for need in _DRIVER_NEEDS:
        if importlib.util.find_spec(need) is None:
            raise ImportError(f"Firesteel is here, but the driver's Python needs {need} too: pip install {need}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
