"""The public protocols of sources and sinks: what a connector must offer, and when each part is called.

Both know attempts from the start. The splits of a source are assigned to a *subtask*: every attempt of that subtask
reads the same splits again. A sink writes per *(subtask, attempt)*; the driver admits one attempt of each subtask and
publishes exactly those, once, at the end, all or nothing (FLIP-168 says why two attempts may be alive at a time).

A connector runs in two places. On the driver: ``schema``, ``list_splits``, ``check``, ``begin``, ``commit``, ``abort``.
On the executors, after having been pickled: ``read`` and ``write``. It may use stdlib, numpy and pyarrow there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.errors import UsageError
from firesteel.task.program import SinkWriter, TaskContext

__all__ = ["Recovered", "Sink", "SinkWriter", "Source", "Split", "infer_parallelism", "push_down"]


@dataclass(frozen=True, slots=True)
class Split:
    """A piece of a source's input that one subtask reads alone.

    ``payload``: any picklable object; it alone travels to the executor and comes back as ``Source.read``'s argument.
    ``bytes``: plain (uncompressed) bytes, estimated; the scheduler balances subtasks and infers parallelism by it.
    ``description``: the split in words for messages, e.g. ``"logs/a.txt, bytes 0-67108864"``.
    """

    payload: Any
    bytes: int
    description: str


@runtime_checkable
class Source(Protocol):
    """Something to read. Picklable; ``read`` must give the same rows whenever it is called with the same split.

    Optional methods:

    * ``infer_parallelism(upper_bound: int, data_volume: int) -> int | None``: how many subtasks should read it.
      ``upper_bound`` is the most there may be, ``data_volume`` the plain bytes one subtask should process.
      None: let Firesteel decide from the splits.
    * ``fingerprint() -> bytes | None``: other bytes whenever its splits would give other rows, also in another process; asked on the driver
      after ``list_splits``. None, or no such method: nobody takes its rows of another run for those of this one.
    * ``datasets() -> Sequence[tuple[str, str]]``: the namespaces and names under which lineage (OpenLineage) knows what it reads, asked on the
      driver: ``[("postgres://host:5432", "db.schema.table")]``.
    * ``push_down(columns: list[str] | None, filter: pc.Expression | None) -> Source``: a source of the same rows with
      only these columns, in this order (None: all), and only the rows for which ``filter`` is true. The filter is
      applied before the columns are chosen, so it may name others, and must be applied *exactly*.
    """

    name: str
    schema: pa.Schema
    supports_concurrent_execution_attempts: bool
    """True if two attempts of one subtask may read at the same time."""

    def list_splits(self, data_volume: int) -> Sequence[Split]:
        """The splits, on the driver, before any Spark job. ``data_volume``: plain bytes a subtask should process.

        Make no split much larger than ``data_volume`` where the format allows, and pack small pieces together.
        No splits at all means no rows. Raises UsageError for what is missing, unreadable or inconsistent.
        """
        ...

    def read(self, split: Any, ctx: TaskContext) -> Iterator[pa.RecordBatch]:
        """Streams the rows of one split (its ``payload``), on an executor, in batches of exactly ``schema``.

        May set ``ctx.place`` to what is being read just now. Raises FiresteelError, naming the place.
        """
        ...


@runtime_checkable
class Sink(Protocol):
    """Something to write to. Picklable after ``begin``.

    In the life of one job, ``check``, ``begin`` and then either ``commit`` or ``abort([])`` are called once each, on the
    driver; ``write`` on executors in between; ``abort(messages)`` for single attempts whenever they lose. Seconds after a
    job failed, when no killed worker can write any more, ``abort([])`` is called once more, on a copy pickled after
    ``begin``: it must touch nothing but what belongs to that ``begin``.

    Optional, for jobs with several sinks, which are published together: ``hold()`` before ``commit``, and after it either
    ``rollback()``, which takes back what was published, or ``release()``. A sink without them is published last.

    Optional: ``datasets()`` after ``check``, as a source has it: what it writes. ``writes_all_rows``: False where not every row that it is given is
    written, so that lineage tells no number of rows.

    Optional, for jobs that outlive their driver, on the driver, both or none:

    * ``state() -> dict[str, str]``: after ``begin`` or ``recover``; what ``recover`` needs to know in another process, without secrets.
    * ``recover(job_id: str, winners: Sequence[Any], state: Mapping[str, str], *, step: str) -> Recovered``: in the place of ``begin``, in
      another process, after ``check``: takes over what the attempts with the commit messages ``winners`` have staged. ``step`` is how far the driver
      that died had come with this sink: :data:`BEGUN`, :data:`PUBLISHING` (``commit`` was called: all of it, a part or nothing may be done, or taken
      back) or :data:`PUBLISHED`. ``commit`` is called after it, with the same winners if it had been called before, unless it is published; it must
      finish what was begun, and repeat nothing. ``state`` is empty where the driver died in ``begin``. Raises UsageError where nobody can tell what
      was published.

    Without them such a job makes this sink's output again, and cannot go on where it was being published.
    """

    name: str
    supports_concurrent_execution_attempts: bool
    """True if two attempts of one subtask may write at the same time.

    False: one is started only when the one before has ended or its worker has been killed, and what Spark starts again by
    itself is turned away. Nobody can rule out an executor that lost touch with the driver and lives on.
    """

    def check(self, schema: pa.Schema) -> None:
        """Before the job: can rows of this schema be written there? Raises UsageError, having changed nothing."""
        ...

    def begin(self, job_id: str) -> None:
        """The job starts; the sink is pickled for the executors after this. ``job_id`` is unique."""
        ...

    def write(self, subtask: int, attempt: int) -> SinkWriter:
        """A writer for one attempt, on an executor. Nothing it writes may be visible to readers yet.

        ``SinkWriter.finish`` returns the attempt's commit message, any picklable object.
        """
        ...

    def commit(self, winners: Sequence[Any]) -> None:
        """Publishes the attempts with these commit messages (in subtask order), all or nothing; forgets all others."""
        ...

    def abort(self, attempts: Sequence[Any]) -> None:
        """Removes what the attempts with these commit messages wrote; an empty sequence: all the job ever wrote."""
        ...


BEGUN, PUBLISHING, PUBLISHED = "begun", "publishing", "published"
"""The steps of a sink in a job that outlives its driver. Each is written down before what follows from it is done."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """The findings of ``Sink.recover``. ``published``: all is out, ``commit`` is not to be called; ``missing``: places in the winners whose staged output
    is not there: their subtasks run again."""

    published: bool = False
    missing: tuple[int, ...] = ()


def infer_parallelism(source: Source, upper_bound: int, data_volume: int) -> int | None:
    """The source's own wish, kept within 1 and ``upper_bound``; None where it has none.

    Raises UsageError when the source answers with something that is not a number of subtasks.
    """
    infer = getattr(source, "infer_parallelism", None)
    answer = None if infer is None else infer(upper_bound, data_volume)
    if answer is None:
        return None
    if isinstance(answer, bool) or not isinstance(answer, int) or answer < 1:
        raise UsageError(
            f"infer_parallelism of source '{source.name}' answered {answer!r}, which is not a number of subtasks.",
            hint="Let it return a whole number of at least 1, or None.",
        )
    return min(answer, upper_bound)


def push_down(source: Source, columns: list[str] | None, filter: pc.Expression | None) -> Source | None:
    """A source that reads only these columns and rows (see :class:`Source`); None when it cannot be told to."""
    push = getattr(source, "push_down", None)
    return None if push is None else cast(Source, push(columns, filter))
