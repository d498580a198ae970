"""Records of an accelerated script: what it asked of Spark, and who computed that."""

from __future__ import annotations

from firesteel.scheduler.kernel.records import JournalRecord


class ScriptPlanned(JournalRecord, frozen=True):
    """First line of a script's journal."""

    script_id: str
    name: str
    dry_run: bool = False
    """Spark computed everything; the rest says what would have been taken over."""


class QueryRecord(JournalRecord, frozen=True):
    """One query; written when it has ended, or was left to Spark."""

    number: int
    """From 1."""
    action: str
    """``collect``, ``write.parquet``, ``insert``, ..."""
    place: str = ""
    """File and line of the script."""
    left: list[str] = []  # noqa: RUF012 - msgspec copies it
    """The reasons why Spark computed it; none: our tasks did."""
    job: str = ""
    """The id of the job that computed it, which has a journal of its own."""
    bytes: int = 0
    """That it reads, by Spark's estimate; 0: not known."""
    seconds: float = 0.0
    """Planned and computed by us, without what Spark did then."""
    check: str = ""
    """Of a query that ``firesteel.sql.verify`` has drawn: ``same``, ``differs`` or ``skipped``."""
    unchecked: str = ""
    """The reason why its check was skipped."""


class ScriptEnded(JournalRecord, frozen=True):
    status: str
    """FINISHED, FAILED or CANCELED."""


AnyScriptRecord = ScriptPlanned | QueryRecord | ScriptEnded
