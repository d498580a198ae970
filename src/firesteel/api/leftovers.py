"""What killed jobs left behind: for the command line, which knows no Spark."""

from __future__ import annotations

from firesteel.spark.leftovers import LeftOver as LeftOver  # noqa: PLC0414 - the door to it
from firesteel.spark.leftovers import Leftovers as Leftovers  # noqa: PLC0414
