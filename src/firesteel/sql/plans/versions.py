"""The Sparks whose plans are read, and what each calls or has otherwise than the newest: the rules know that one's names alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firesteel.sql.plans.nodes import Unsupported

_RELATION = ("isStreaming", "stream", "session", "originStats", "originConstraints")


@dataclass(frozen=True, slots=True)
class Version:
    """A Spark. A rule that asks for a field that it does not have leaves the operator or expression to Spark.

    ``classes``: what it calls otherwise, with the newest one's name. ``relation``: the last parameters of ``LogicalRDD``.
    """

    name: str
    classes: Mapping[str, str] = field(default_factory=dict[str, str])
    relation: tuple[str, ...] = _RELATION
    python_functions: bool = False
    """Its code for Python workers is one that our tasks can call."""

    def class_of(self, name: str) -> str:
        return self.classes.get(name, name)


VERSIONS = {
    version.name: version
    for version in (
        Version("4.3", relation=(*_RELATION, "fromCheckpoint"), python_functions=True),
        Version("4.2"),
        Version("4.1"),
    )
}
"""The rules were held to these by their tests; in another one a field may mean something else."""


def checked_version(session: Any) -> Version:
    """Raises Unsupported for a Spark whose plans are not read."""
    name = ".".join(session.version.split(".")[:2])
    if name not in VERSIONS:
        raise Unsupported(f"plans of Spark {name} are not read yet, only those of {', '.join(VERSIONS)}")
    return VERSIONS[name]
