"""Results that are kept so that jobs can go on: for the command line, which does not import Spark."""

from __future__ import annotations

from firesteel.results.storage.owner import Owner as Owner  # noqa: PLC0414 - the door to it
from firesteel.spark.recovery.runs import script_failed as script_failed  # noqa: PLC0414
from firesteel.spark.storage.kept import KeptJob as KeptJob  # noqa: PLC0414
from firesteel.spark.storage.kept import KeptResults as KeptResults  # noqa: PLC0414
from firesteel.spark.storage.kept import KeptRun as KeptRun  # noqa: PLC0414
from firesteel.spark.storage.kept import bytes_of as bytes_of  # noqa: PLC0414
