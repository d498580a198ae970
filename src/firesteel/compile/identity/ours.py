"""Objects of Firesteel in programs: what identifies them, where that is less than they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

from firesteel.compile.identity.named import note_library
from firesteel.connectors.files.reading.source import FileSource
from firesteel.connectors.files.writing.sinks import FileSink
from firesteel.connectors.stored import StoredSource
from firesteel.connectors.tables.sink import TableSink
from firesteel.task.functions.batch_functions import MapInPandas
from firesteel.task.functions.group_functions import ApplyInPandas
from firesteel.task.functions.instances import SetUp
from firesteel.task.functions.row_errors import OnError
from firesteel.task.functions.spark_functions import PickledFunction, SparkFunctions
from firesteel.task.operators.fragments import RowsOfRow, SqlFragment, SqlOfKeys
from firesteel.task.operators.join import BroadcastJoin, HashJoin
from firesteel.task.program import ResultOutput, SparkHead
from firesteel.task.services.map_async import MapAsync

if TYPE_CHECKING:
    from firesteel.compile.identity.walk import Walk

_OF_A_JOB = ("_staging", "_tag", "_id", "_job", "_held", "_published", "_gone", "_again", "_ignored", "_session")
"""Attributes of a sink that it gets when a job begins, or when it looks at what is there."""


def is_ours(kind: type) -> bool:
    return kind.__module__.startswith("firesteel.")


def is_connector(kind: type) -> bool:
    """Returns whether it is a source, a sink, or a part of one of ours. What these read from filesystems counts as a job's input."""
    has_role = hasattr(kind, "list_splits") or (hasattr(kind, "begin") and hasattr(kind, "commit"))
    return has_role or kind.__module__.startswith("firesteel.connectors.")


def stand_in(walk: Walk, value: Any) -> Any:
    """A plain value that identifies the object; None: all that it holds does."""
    kind = type(value)
    if not is_ours(kind):
        return None
    for one, library in _LIBRARIES.items():
        if issubclass(kind, one):
            note_library(walk, library)
    return next((stands(walk, value) for one, stands in _STAND_INS.items() if issubclass(kind, one)), None)


def fields_of(value: Any) -> tuple[Any, ...]:
    """The fields of a dataclass; whatever else hangs on it can be made of them."""
    return tuple(getattr(value, name) for name in _names(type(value)))


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def _without(*names: str) -> Callable[[Walk, Any], Any]:
    def of(walk: Walk, value: Any) -> Any:
        state = value.__getstate__()
        return tuple(sorted((name, held) for name, held in state.items() if name not in names))

    return of


def _by_place(walk: Walk, value: Any) -> Any:
    """Build sides are named after data sets, which have other numbers in the next job."""
    return tuple(
        walk.sides.get(one, one) if name == "side" and isinstance(one, str) else one
        for name, one in zip(_names(type(value)), fields_of(value), strict=True)
    )


def _asks(walk: Walk, value: MapAsync) -> Any:
    walk.mark(f"calls a service ({value.name})")
    return fields_of(value)


def _pickled(walk: Walk, value: PickledFunction) -> Any:
    walk.mark("calls a function that Spark pickled, whose modules nobody has looked into")
    return fields_of(value)


_LIBRARIES: dict[type, str] = {
    SqlFragment: "duckdb",
    RowsOfRow: "duckdb",
    SqlOfKeys: "duckdb",
    HashJoin: "duckdb",
    SparkFunctions: "pyspark",
    SparkHead: "pyspark",
    MapInPandas: "pandas",
    ApplyInPandas: "pandas",
}
"""Libraries that do the work of some steps."""
_STAND_INS: dict[type, Callable[[Walk, Any], Any]] = {
    SetUp: lambda walk, value: ("set up", value.given),
    OnError: lambda walk, value: (value.action, value.max_errors, walk.routes.get(value.output)),
    ResultOutput: lambda walk, value: (
        value.schema,
        value.keys,
        value.combiner,
        value.order,
        walk.routes.get(value.route),
    ),
    BroadcastJoin: _by_place,
    MapAsync: _asks,
    PickledFunction: _pickled,
    FileSource: _without("pruned"),
    FileSink: _without(*_OF_A_JOB),
    TableSink: _without(*_OF_A_JOB),
    StoredSource: lambda walk, value: (value.name, value.schema),
}
