"""The Sparks whose plans are read, and what each calls or has otherwise than the newest: the rules know that one's names alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from firesteel.humanize import minor_version
from firesteel.plan.expr import Unsupported
from firesteel.sql.plans.java import FIELD_NAME, FIELD_NAME_OF_COPY

_RELATION = ("isStreaming", "stream", "session", "originStats", "originConstraints")

_OLD = {"TimeAdd": "TimestampAddInterval", "Percentile": "WeighedPercentile"}
_UNKNOWN = {"Percentile": "PercentileInOneOfTwoWays"}


@dataclass(frozen=True, slots=True)
class Version:
    """A Spark. A rule that asks for a field that it does not have leaves the operator or expression to Spark.

    ``classes``: what it calls otherwise, with the newest one's name. ``relation``: the last parameters of ``LogicalRDD``.
    ``field_name``: Java that gives the names of fields. ``widens``: Parquet files may have columns in narrower types than the table.
    """

    name: str
    classes: Mapping[str, str] = field(default_factory=dict[str, str])
    relation: tuple[str, ...] = _RELATION
    field_name: str = FIELD_NAME
    widens: bool = True
    python_functions: bool = False
    """Its code for Python workers is one that our tasks can call."""

    def class_of(self, name: str) -> str:
        return self.classes.get(name, name)


VERSIONS = {
    version.name: version
    for version in (
        Version("4.3", relation=(*_RELATION, "fromCheckpoint"), python_functions=True),
        Version("4.2", classes=_UNKNOWN),
        Version("4.1", classes=_UNKNOWN),
        Version("4.0", classes=_OLD),
        Version("3.5", _OLD, ("isStreaming", *_RELATION[2:]), FIELD_NAME_OF_COPY, widens=False),
    )
}
"""The rules were held to these by their tests; in another one a field may mean something else."""


_known: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
"""By JVM gateway, the version of the Spark in it."""


def checked_version(session: Any) -> Version:
    """Raises Unsupported for a Spark whose plans are not read."""
    gateway = session.sparkContext._gateway
    if gateway not in _known:
        _known[gateway] = minor_version(session.version)
    name = _known[gateway]
    if name not in VERSIONS:
        raise Unsupported(f"plans of Spark {name} are not read yet, only those of {', '.join(VERSIONS)}")
    return VERSIONS[name]
