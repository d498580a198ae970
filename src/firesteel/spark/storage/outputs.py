"""Outputs of executions, on the storage and in the users' sinks: released, discarded, looked for, published.

Called in the job's thread; the work itself is done in others, which report what came of it.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from firesteel.compile.compiled import CompiledJob
from firesteel.connectors.base import BEGUN, PUBLISHED, PUBLISHING
from firesteel.errors import FiresteelError
from firesteel.model.job_graph import ResultPartitionType
from firesteel.results.storage.store import object_name
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import (
    CommitSinks,
    DiscardExecutions,
    ReleaseMerged,
    ReleasePartitions,
    VerifyPartitions,
)
from firesteel.scheduler.recovery.records import AnyLogRecord, SinkStep
from firesteel.spark.driver.threads import aside
from firesteel.spark.storage.cleaning import Cleaner, quietly
from firesteel.spark.storage.merge import names_of
from firesteel.task.program import ResultOutput


class Outputs:
    def __init__(
        self,
        compiled: CompiledJob,
        store: Any,
        job_id: str,
        report: Callable[[ev.Event], None],
        now: Callable[[], float],
        *,
        steps: Steps | None = None,
        publishing: Callable[[], None] = lambda: None,
    ) -> None:
        """``publishing``: called before anything is published; raises FiresteelError where it may not be."""
        self._steps, self._about_to_publish = steps or Steps(), publishing
        self._compiled = compiled
        self._store = store
        self._report = report
        self._now = now
        self._cleaner = Cleaner(store, job_id)
        self.commits: dict[tuple[int, int, int, int], tuple[bytes, ...]] = {}
        """(vertex, subtask, attempt, token) to the commit message of each sink."""
        self.published: list[Any] = []
        """Sinks whose output is out, although the job failed when it published another."""
        self.publishing = False
        """Outputs are being published: it is too late to cancel."""

    def close(self) -> None:
        """Waits for deletions that were asked for, but not for ever."""
        self._cleaner.close()

    def release_merged(self, command: ReleaseMerged) -> None:
        self._cleaner.delete(names_of(command))

    def release(self, command: ReleasePartitions) -> None:
        columns = (command.partitions.tolist(), command.attempts.tolist(), command.tokens.tolist())
        self._cleaner.delete([object_name(command.dataset, p, a, t) for p, a, t in zip(*columns, strict=True)])

    def discard(self, discard: DiscardExecutions) -> None:
        vertex = self._compiled.job_graph.vertices[discard.vertex]
        graph, outputs = self._compiled.job_graph, vertex.program.outputs
        written = [o.dataset for o in outputs if isinstance(o, ResultOutput)]
        datasets = [d for d in written if graph.datasets[d].type is ResultPartitionType.BLOCKING]
        columns = (discard.subtasks.tolist(), discard.attempts.tolist(), discard.tokens.tolist())
        names = list(zip(*columns, strict=True))
        self._cleaner.delete([object_name(dataset, *name) for dataset in datasets for name in names])
        sinks = self._compiled.sinks.get(discard.vertex, ())
        for name in names if sinks else ():
            for sink, commit in zip(sinks, self.commits.pop((discard.vertex, *name), ()), strict=False):
                self._cleaner.call(lambda sink=sink, commit=commit: sink.abort([pickle.loads(commit)]))

    def delete(self, names: Sequence[str]) -> None:
        """Objects of which nobody will ask."""
        self._cleaner.delete(names)

    def verify(self, command: VerifyPartitions) -> None:
        self._cleaner.call(partial(self._verify, command))

    def publish(self, command: CommitSinks) -> None:
        self.publishing = True
        aside(partial(self._commit, command), "firesteel-commit")

    def _verify(self, asked: VerifyPartitions) -> None:
        """In the cleaner's thread: which of these objects are not stored any more."""
        stored = set(self._store.list())
        columns = (asked.partitions.tolist(), asked.attempts.tolist(), asked.tokens.tolist())
        names = [object_name(asked.dataset, p, a, t) for p, a, t in zip(*columns, strict=True)]
        gone = np.array([name not in stored for name in names], dtype=np.bool_)
        if gone.any():
            self._report(
                ev.PartitionsLost(
                    at=self._now(),
                    dataset=asked.dataset,
                    partitions=asked.partitions[gone],
                    attempts=asked.attempts[gone],
                    tokens=asked.tokens[gone],
                )
            )

    def _commit(self, command: CommitSinks) -> None:
        """In its own thread: publishes each sink's winners, in subtask order."""
        event: ev.Event
        try:
            self._about_to_publish()
            publish(
                [
                    (sink, [pickle.loads(commits[i]) for _attempt, commits in winners])
                    for vertex, winners in command.winners.items()
                    for i, sink in enumerate(self._compiled.sinks.get(vertex, ()))
                ],
                self._steps,
            )
            event = ev.SinksCommitted(at=self._now())
        except BaseException as error:
            storage = isinstance(error, NotPublishedError) and error.storage
            kind = ev.FailureKind.STORAGE if storage else ev.FailureKind.FATAL
            said = error.message if isinstance(error, FiresteelError) else f"{type(error).__name__}: {error}"
            self.published = error.published if isinstance(error, NotPublishedError) else []
            event = ev.SinksFailed(at=self._now(), cause=ev.FailureCause(kind, said))
        self._report(event)


TAKEN_BACK = "taken back"
"""The step of a sink that was published before another one could not be: nothing of it is out any more."""
_log = logging.getLogger("firesteel.spark")


class NotPublishedError(FiresteelError):
    """``published``: the sinks whose output is out nevertheless; ``storage``: trying again may help."""

    def __init__(self, message: str, published: list[Any], storage: bool) -> None:
        super().__init__(message)
        self.published = published
        self.storage = storage


class Steps:
    """The step that each sink has come to, of a job that ends with its driver."""

    lasts = False
    """They outlive this process: nothing may be removed that another one would need."""

    def is_published(self, sink: Any) -> bool:
        """An earlier driver has."""
        return False

    def told(self, sink: Any, step: str) -> None:
        """Returns when it is durable (``connectors.base``: PUBLISHING, PUBLISHED), before what follows from it is done; raises FiresteelError where
        that cannot be."""


class SinkSteps(Steps):
    """``step``: makes durable how far the sink of a vertex at a place has come (``Gate.step``). ``published``: by an earlier driver."""

    lasts = True

    def __init__(self, compiled: CompiledJob, step: Callable[[int, int, str], None], published: Sequence[Any]) -> None:
        self._places = {
            id(sink): (vertex, place) for vertex, sinks in compiled.sinks.items() for place, sink in enumerate(sinks)
        }
        self._step = step
        self._published = published

    def is_published(self, sink: Any) -> bool:
        return _is_in(self._published, sink)

    def told(self, sink: Any, step: str) -> None:
        self._step(*self._places[id(sink)], step)


def publish(outputs: Sequence[tuple[Any, Sequence[Any]]], steps: Steps | None = None) -> None:
    """``outputs``: each sink with the commit messages of its winners, in subtask order. Raises NotPublishedError."""
    steps = steps or Steps()
    left = [sink for sink, _ in outputs if not steps.is_published(sink)]
    held = [sink for sink in left if (steps.lasts or len(outputs) > 1) and _can_hold(sink)]
    in_order = sorted(outputs, key=lambda output: not _is_in(held, output[0]))
    done = [sink for sink, _ in outputs if not _is_in(left, sink)]
    for sink, messages in in_order:
        if not _is_in(left, sink):
            continue
        try:
            if _is_in(held, sink):
                sink.hold()
            steps.told(sink, PUBLISHING)
            sink.commit(messages)
            done.append(sink)
            steps.told(sink, PUBLISHED)
        except BaseException as error:
            stay = [one for one in reversed(done) if not _taken_back(one, held, steps)][::-1]
            raise NotPublishedError(_words(sink, error, stay), stay, isinstance(error, OSError)) from error
    for sink in done:
        if not _is_in(left, sink) or _is_in(held, sink) or not _can_hold(sink):
            quietly(getattr(sink, "release", lambda: None))


def _is_in(sinks: Sequence[Any], sink: Any) -> bool:
    return any(sink is one for one in sinks)


def _can_hold(sink: Any) -> bool:
    return all(callable(getattr(sink, name, None)) for name in ("hold", "rollback", "release"))


def _taken_back(sink: Any, held: list[Any], steps: Steps) -> bool:
    if not _is_in(held, sink):
        return False
    try:
        steps.told(sink, PUBLISHING)  # of which another driver knows that it may be out or not
        sink.rollback()
    except Exception:
        _log.debug("'%s' could not be taken back", sink.name, exc_info=True)
        return False
    quietly(lambda: steps.told(sink, TAKEN_BACK))
    return True


def _words(sink: Any, error: BaseException, stay: list[Any]) -> str:
    said = str(error) if isinstance(error, FiresteelError) else f"{type(error).__name__}: {error}"
    message = f"The output '{sink.name}' could not be published: {said}"
    if not stay:
        return message
    names = ", ".join(f"'{one.name}'" for one in stay)
    return f"{message.rstrip('.')}. Published before that, and left as it is: {names}."


def sink_steps(entries: Iterable[Sequence[AnyLogRecord]]) -> dict[tuple[int, int], list[tuple[str, bytes]]]:
    """By vertex and place of the sink: its steps in order, each with what was told with it."""
    found: dict[tuple[int, int], list[tuple[str, bytes]]] = {}
    for record in (record for entry in entries for record in entry if isinstance(record, SinkStep)):
        found.setdefault((record.vertex, record.sink), []).append((record.step, record.state))
    return found


def last_step(steps: Iterable[str]) -> str:
    """Returns how far a sink had come; ``steps``: those that the log has, the last one last. Each driver begins with it anew."""
    return next((step for step in reversed(list(steps)) if step not in (BEGUN, TAKEN_BACK)), BEGUN)


def stays_out(steps: Sequence[str]) -> bool:
    """Returns whether what a job that has ended by itself had published of the sink may be out still. One whose ``commit`` failed is not."""
    return PUBLISHED in steps and steps[-1] not in (BEGUN, TAKEN_BACK)
