"""Files that killed jobs left behind: for the command line, which does not import Spark."""

from __future__ import annotations

from firesteel.spark.storage.leftovers import LeftOver as LeftOver  # noqa: PLC0414 - the door to it
from firesteel.spark.storage.leftovers import Leftovers as Leftovers  # noqa: PLC0414
