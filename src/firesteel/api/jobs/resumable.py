"""Jobs that did not finish, for the command line, which does not import Spark."""

from __future__ import annotations

from firesteel.spark.recovery.corrections.left_jobs import left_by as left_by  # noqa: PLC0414 - the door to it
