"""The asks of accelerated sessions, in order: in memory, and in a journal of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from firesteel.errors import UsageError
from firesteel.journal.file import Instruments, Journal
from firesteel.journal.scripts import AnyScriptRecord, QueryRecord, ScriptEnded, ScriptPlanned
from firesteel.monitoring.exporters import script_metrics
from firesteel.options import Options

_log = logging.getLogger("firesteel.acceleration")


class Record:
    """``queries``: so far. Threads may add to it at once. A journal that cannot be written is logged once, and done without."""

    def __init__(self, name: str, *, dry_run: bool) -> None:
        self.queries: list[QueryRecord] = []
        self._name, self._dry_run = name, dry_run
        self._journal: Journal | None = None
        self._metrics = Instruments()
        self._began = time.monotonic()
        self._began_at = time.time()
        """Seconds since 1970, for the journal: it is made only as the first query comes."""
        self.mark = f"{name}:{self._began_at:.0f}"
        """The same as long as the script runs."""
        self._lock = threading.Lock()
        self._closed = False

    def add(
        self,
        options: Options,
        action: str,
        place: str,
        left: Sequence[str],
        *,
        job: str = "",
        bytes: int = 0,
        seconds: float = 0.0,
        check: str = "",
        unchecked: str = "",
    ) -> None:
        """``options``: say where journals are."""
        with self._lock:
            number = len(self.queries) + 1
            query = QueryRecord(
                at=self._now(),
                number=number,
                action=action,
                place=place,
                left=list(left),
                job=job,
                bytes=bytes,
                seconds=seconds,
                check=check,
                unchecked=unchecked,
            )
            self.queries.append(query)
            if number == 1 and not self._closed:
                self._begin(options)
            self._write(query)

    def close(self, status: str) -> None:
        with self._lock:
            self._closed = True
            self._write(ScriptEnded(at=self._now(), status=status))
            if self._journal is not None:
                self._journal.close()
            self._metrics.close()

    def _begin(self, options: Options) -> None:
        from firesteel.spark.storage.directories import new_job_id

        script_id = new_job_id()
        try:
            self._metrics = Instruments(script_metrics(options))
            self._journal = Journal.create(options, self._name, script_id, began=self._began_at)
        except UsageError as error:
            _log.warning("%s", error)
        self._write(ScriptPlanned(at=0.0, script_id=script_id, name=self._name, dry_run=self._dry_run))

    def _write(self, record: AnyScriptRecord) -> None:
        self._metrics.record(record)
        if self._journal is not None:
            try:
                self._journal.record(record)
                self._journal.flush()
            except OSError:
                _log.exception("The journal of the script ends here.")
                self._journal = None

    def _now(self) -> float:
        return round(time.monotonic() - self._began, 4)


def script_name(place: str) -> str:
    """``report.py`` of ``report.py:12``."""
    return Path(place.rpartition(":")[0]).name or "accelerated"
