"""Hears of a stream's batches from Spark's listener bus; each word is handed over as it comes, late and in Spark's own time."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from firesteel.spark.streams.progress import Progress


@dataclass(frozen=True, slots=True)
class Heard:
    """Spark's listener told of a batch."""

    run: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class HeardIdle:
    """Spark's listener says that a trigger found nothing to do."""

    run: int


class ProgressListener:
    """Of one run: to be opened before the query starts, for the session it starts in."""

    def __init__(self, session: Any, run: int, report: Callable[[Heard | HeardIdle], None]) -> None:
        from pyspark.sql.streaming.listener import StreamingQueryListener

        class Listener(StreamingQueryListener):
            """Spark calls it one event after the other; it only hands over, and never raises."""

            def onQueryStarted(self, event: Any) -> None:  # noqa: N802
                pass

            def onQueryProgress(self, event: Any) -> None:  # noqa: N802
                with suppress(Exception):
                    report(Heard(run, Progress.of(json.loads(event.progress.json))))

            def onQueryIdle(self, event: Any) -> None:  # noqa: N802
                report(HeardIdle(run))

            def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
                """Does nothing; that it is there lets those who wait for the query's end hear of it sooner, and surely."""

        self._streams = session.streams
        self._listener = Listener()
        self._streams.addListener(self._listener)

    def close(self) -> None:
        with suppress(Exception):  # Spark is gone
            self._streams.removeListener(self._listener)
