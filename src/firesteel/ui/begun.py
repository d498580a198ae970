"""A job or stream as its page is told of it when it begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firesteel.control.server import StreamHandler


@dataclass(frozen=True, slots=True)
class Begun:
    id: str
    name: str
    journal: Path
    cancel: Callable[[], None]
    """Returns at once."""
    spark_url: Callable[[], str | None]
    """The address of Spark's own page; None: it has none, or none any more."""
    stage_url: Callable[[int], str | None] = lambda vertex: None
    """Asks Spark for that of the stage in which this vertex ran last; None: there is none."""
    stream: StreamHandler | None = None
    """None: it is a job."""
