"""Firesteel: PySpark pipelines whose every step's parallelism is decided from the bytes its inputs really produced.

The public names are loaded when first used, so that an executor that imports ``firesteel.task.runner`` loads nothing else.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firesteel import arrow as arrow
    from firesteel import errors as errors
    from firesteel import functions as functions
    from firesteel.api.acceleration.handle import Acceleration, accelerate
    from firesteel.api.deciding import Decided, decide
    from firesteel.api.environment import ExecutionEnvironment
    from firesteel.api.job_client import JobClient, JobResult
    from firesteel.api.job_tables import History
    from firesteel.api.steps import window as window
    from firesteel.api.steps.aggregates import agg as agg
    from firesteel.api.streams.data_stream import BroadcastStream, DataStream
    from firesteel.api.streams.keyed_stream import KeyedStream
    from firesteel.connectors.base import Sink, SinkWriter, Source, Split
    from firesteel.functions import col, lit
    from firesteel.model.slot_sharing_group import SlotSharingGroup
    from firesteel.scheduler.parallelism.model import ConsumedResult
    from firesteel.scheduler.parallelism.vertex_decider import UndecidedStep, VertexParallelismDecider
    from firesteel.scheduler.speculation.strategy import SlowTaskBaseline, SlowTaskStrategy, StepTimes
    from firesteel.task.executor.slots.slot import TaskResources, task_resources
    from firesteel.task.functions.rows import Row
    from firesteel.task.sharing import shared

_DRIVER_NEEDS = ("msgspec", "numpy", "pyarrow")
"""A bundle (``firesteel bundle``) cannot carry them: they are compiled."""
_HOMES = {
    "BroadcastStream": "firesteel.api.streams.data_stream",
    "ConsumedResult": "firesteel.scheduler.parallelism.model",
    "DataStream": "firesteel.api.streams.data_stream",
    "Decided": "firesteel.api.deciding",
    "Acceleration": "firesteel.api.acceleration.handle",
    "accelerate": "firesteel.api.acceleration.handle",
    "ExecutionEnvironment": "firesteel.api.environment",
    "History": "firesteel.api.job_tables",
    "JobClient": "firesteel.api.job_client",
    "JobResult": "firesteel.api.job_client",
    "KeyedStream": "firesteel.api.streams.keyed_stream",
    "Row": "firesteel.task.functions.rows",
    "Sink": "firesteel.connectors.base",
    "SinkWriter": "firesteel.connectors.base",
    "SlotSharingGroup": "firesteel.model.slot_sharing_group",
    "SlowTaskBaseline": "firesteel.scheduler.speculation.strategy",
    "SlowTaskStrategy": "firesteel.scheduler.speculation.strategy",
    "Source": "firesteel.connectors.base",
    "Split": "firesteel.connectors.base",
    "StepTimes": "firesteel.scheduler.speculation.strategy",
    "TaskResources": "firesteel.task.executor.slots.slot",
    "UndecidedStep": "firesteel.scheduler.parallelism.vertex_decider",
    "VertexParallelismDecider": "firesteel.scheduler.parallelism.vertex_decider",
    "col": "firesteel.functions",
    "decide": "firesteel.api.deciding",
    "lit": "firesteel.functions",
    "shared": "firesteel.task.sharing",
    "task_resources": "firesteel.task.executor.slots.slot",
}

_MODULES = {
    "agg": "firesteel.api.steps.aggregates.agg",
    "arrow": "firesteel.arrow",
    "errors": "firesteel.errors",
    "functions": "firesteel.functions",
    "window": "firesteel.api.steps.window",
}

__all__ = [
    "Acceleration",
    "BroadcastStream",
    "ConsumedResult",
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
    "SlowTaskBaseline",
    "SlowTaskStrategy",
    "Source",
    "Split",
    "StepTimes",
    "TaskResources",
    "UndecidedStep",
    "VertexParallelismDecider",
    "accelerate",
    "agg",
    "arrow",
    "col",
    "decide",
    "errors",
    "functions",
    "lit",
    "shared",
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
