"""Outputs of executions, on the storage and in the users' sinks: released, discarded, looked for, published.

Called in the job's thread; the work itself is done in others, which report what came of it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from firesteel.compile.compiled import CompiledJob
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
from firesteel.spark.driver.threads import aside
from firesteel.spark.storage.cleaning import Cleaner
from firesteel.spark.storage.merge import names_of
from firesteel.spark.storage.publish import NotPublishedError, Steps, publish
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
