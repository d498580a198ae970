"""Files that killed jobs left behind: for the command line, which does not import Spark."""

from __future__ import annotations

from firesteel.connectors.files.writing.leftovers import Leftover as Leftover  # noqa: PLC0414 - the door to it
from firesteel.connectors.files.writing.leftovers import unpublished as unpublished  # noqa: PLC0414
from firesteel.results.storage.owner import Owner as Owner  # noqa: PLC0414
from firesteel.spark.storage.leftovers import LeftOver as LeftOver  # noqa: PLC0414 - the door to it
from firesteel.spark.storage.leftovers import Leftovers as Leftovers  # noqa: PLC0414
