"""Loads, before it is needed, what Spark rewrites state with: its first use in a JVM costs a second or two of downtime.

Done once per Spark application, beside the running query, when a change makes a rescale likely: one row of the last committed
state is read with Spark's own reader. Nothing is written, and nothing depends on it.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from firesteel.spark.driver.threads import aside

_log = logging.getLogger("firesteel.spark")
_warmed: set[str] = set()
_lock = threading.Lock()


def warm_up(spark: Any, checkpoint: str) -> None:
    """Returns at once."""
    application = spark.sparkContext.applicationId
    with _lock:
        if application in _warmed:
            return
        _warmed.add(application)

    def read() -> None:
        try:
            spark.newSession().read.format("statestore").option("path", checkpoint).load().take(1)
        except Exception as error:  # several stores, no state yet, a query that has just ended
            _log.debug("the state's reader was not warmed up: %s", error)

    aside(read, "firesteel-warm-up", lambda: None)
