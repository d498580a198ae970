"""The Sparks whose plans are read."""

from __future__ import annotations

from typing import Any

from firesteel.sql.plans.nodes import Unsupported

KNOWN = ("4.3",)
"""The rules were held to these by their tests; in another one a field may mean something else."""


def check_version(session: Any) -> None:
    """Raises Unsupported for a Spark whose plans are not read."""
    name = ".".join(session.version.split(".")[:2])
    if name not in KNOWN:
        raise Unsupported(f"plans of Spark {name} are not read yet, only those of {', '.join(KNOWN)}")
