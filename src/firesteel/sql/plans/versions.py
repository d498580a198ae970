"""The Sparks whose plans are read, each with what it does differently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from firesteel.sql.plans.nodes import Unsupported


@dataclass(frozen=True, slots=True)
class Version:
    """``calls_python``: its Python functions are called by our tasks; other Sparks tell their workers otherwise."""

    calls_python: bool


KNOWN = {"4.2": Version(calls_python=False), "4.3": Version(calls_python=True)}
"""The rules were held to these by the same tests; in another one a field may mean something else."""


def version_of(session: Any) -> Version:
    """Raises Unsupported for a Spark whose plans are not read."""
    name = ".".join(session.version.split(".")[:2])
    if name not in KNOWN:
        raise Unsupported(f"plans of Spark {name} are not read yet, only those of {', '.join(KNOWN)}")
    return KNOWN[name]
