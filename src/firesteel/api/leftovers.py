"""Files that killed jobs left behind, results that are kept, and jobs that did not finish: for the command line, which does not import Spark."""

from __future__ import annotations

from firesteel.connectors.files.writing.staging import Leftover as Leftover  # noqa: PLC0414 - the door to it
from firesteel.connectors.files.writing.staging import unpublished as unpublished  # noqa: PLC0414
from firesteel.results.storage.owner import Owner as Owner  # noqa: PLC0414
from firesteel.spark.recovery.runs import left_by as left_by  # noqa: PLC0414 - the door to it
from firesteel.spark.recovery.runs import script_failed as script_failed  # noqa: PLC0414
from firesteel.spark.storage.leftovers import KeptJob as KeptJob  # noqa: PLC0414
from firesteel.spark.storage.leftovers import KeptResults as KeptResults  # noqa: PLC0414
from firesteel.spark.storage.leftovers import KeptRun as KeptRun  # noqa: PLC0414
from firesteel.spark.storage.leftovers import LeftOver as LeftOver  # noqa: PLC0414 - the door to it
from firesteel.spark.storage.leftovers import Leftovers as Leftovers  # noqa: PLC0414
from firesteel.spark.storage.leftovers import bytes_of as bytes_of  # noqa: PLC0414
