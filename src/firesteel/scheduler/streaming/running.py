"""The state of the query that runs."""

from __future__ import annotations

from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.streaming.events import BatchCommitted, StreamPlan
from firesteel.scheduler.streaming.records import StreamBatch

_RECORDS_APART, _MOST_APART, _SHARE = 1.0, 10.0, 1 / 600
"""Seconds between lines of the journal about batches, and of the stream's age: there may be a hundred batches a second, for
months."""


class RunningQuery:
    """Numbers of the run and of its last batch; ``parallelism`` 0: not known yet."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self.run = 0
        """Newest that the data plane was asked for."""
        self.plan = StreamPlan()
        self.parallelism = 0
        self.batch = -1
        """Last committed."""
        self.begun = -1
        """Last that began."""
        self.batches = 0
        self.last: BatchCommitted | None = None
        self.idle = False
        """Nothing came since the last batch."""
        self._first: float | None = None
        self._told_at = float("-inf")
        self._untold: list[BatchCommitted] = []

    @property
    def pinned(self) -> bool:
        """A batch has begun: the number of state partitions is in the checkpoint."""
        return self.plan.parallelism > 0 or max(self.batch, self.begun) >= 0

    @property
    def state_bytes(self) -> int | None:
        """None: not known before the first commit since this stream was started, for the checkpoint is older."""
        if self.last is not None:
            return self.last.state_bytes
        return None if self.plan.stateful and self.pinned and self.batch >= 0 else 0

    def next_run(self) -> int:
        """The data plane is asked for one more run; returns its number."""
        self.run += 1
        return self.run

    def repartitioned(self, parallelism: int) -> None:
        """Its state has so many partitions now."""
        self.parallelism = parallelism

    def began(self, batch: int) -> None:
        self.begun = batch

    def idled(self) -> None:
        """Nothing came since the last batch."""
        self.idle = True
        self.tell()

    def started(self, plan: StreamPlan, batch: int, asked: int) -> None:
        self.tell()  # what the query before did, with the parallelism it had
        self.plan, self.batch, self.begun = plan, batch, batch
        self.parallelism = plan.parallelism or asked

    def committed(self, event: BatchCommitted) -> None:
        self.batch, self.begun = event.batch, max(event.batch, self.begun)
        self.batches += 1
        self.idle = False
        self.last = event
        self._untold.append(event)
        self._first = self._recorder.at if self._first is None else self._first
        apart = min(_MOST_APART, max(_RECORDS_APART, (self._recorder.at - self._first) * _SHARE))
        if self._recorder.at - self._told_at >= apart:
            self.tell()

    def tell(self) -> None:
        """Batches since the last line."""
        if not self._untold:
            return
        last, batches, self._untold = self._untold[-1], self._untold, []
        self._told_at = self._recorder.at
        self._recorder.record(
            StreamBatch(
                at=self._recorder.at,
                event=self._recorder.event,
                run=last.run,
                batch=last.batch,
                parallelism=self.parallelism,
                rows=sum(batch.rows for batch in batches),
                duration=sum(batch.duration for batch in batches),
                state_rows=last.state_rows,
                state_bytes=last.state_bytes,
                backlog=last.backlog,
                input_rate=last.input_rate,
                batches=len(batches),
            )
        )
