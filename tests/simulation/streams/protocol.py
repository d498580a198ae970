"""The steps of a simulated rescale: each takes its time, each may fail, and the checkpoint is brought into order then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from msgspec import structs
from tests.simulation.streams.query import Host, SimulatedCheckpoint, SimulatedQuery

from firesteel.scheduler.streaming.commands import Action, Rescale
from firesteel.scheduler.streaming.events import QueryFailed, RescaleFailed, RescaleStep, RescaleStepped


class RescalingHost(Host, Protocol):
    """Host of a rescale: it has the checkpoint, and starts the next run."""

    checkpoint: SimulatedCheckpoint
    query: SimulatedQuery | None
    rescale: SimulatedRescale | None
    parallelism: int
    """Of the query that runs, or ran last."""

    def start_query(self, run: int, replayed_rows: int = 0) -> None: ...

    def rescale_over(self, begun: bool) -> None: ...


@dataclass(slots=True, eq=False)
class SimulatedRescale:
    host: RescalingHost
    command: Rescale
    step: RescaleStep = RescaleStep.COMMIT_BARRIER
    given_up: Callable[[], None] | None = None
    """The stream is to stop: called when the step that runs is over, and no other begins."""
    replayed_rows: int = 0
    final: bool = False
    """It has failed for good: nothing can be started any more."""

    def begin(self) -> None:
        query = self.host.query
        if query is None:
            self._after_stop()
            return
        if self.command.replay:
            self._stop()
            return
        self._told(RescaleStep.COMMIT_BARRIER)
        query.come_to_rest(lambda fine: self._rested(query, fine))
        if self.command.within is not None:
            self.host.clock.after(self.command.within, self._waited)

    def _waited(self) -> None:
        """Long enough for the running batch."""
        if self.host.rescale is self and self.step is RescaleStep.COMMIT_BARRIER and self.given_up is None:
            self._stop()

    def _rested(self, query: SimulatedQuery, fine: bool) -> None:
        if fine:
            self._stop()
            return
        self.host.query = None
        assert query.failure is not None
        self._query_failed(query.failure)

    def _query_failed(self, failure: QueryFailed) -> None:
        """The query, not the rescale: the scheduler says whether and when it is started again."""
        if self.given_up is not None:
            self.given_up()
            return
        host = self.host
        host.rescale_over(False)
        host.tell(structs.replace(failure, at=host.clock.now, run=self.command.run))

    def _stop(self) -> None:
        self._told(RescaleStep.STOP)
        query = self.host.query
        if query is not None:
            query.kill()
            self.host.query = None
        self._then(self.host.world.stopping, self._after_stop)

    def _after_stop(self) -> None:
        if self.host.checkpoint.pending is None:
            self._repartition()
            return
        self._told(RescaleStep.REPLAY)
        self._then(self.host.world.overhead, self._replayed)

    def _replayed(self) -> None:
        checkpoint = self.host.checkpoint
        assert checkpoint.pending is not None
        self.replayed_rows = checkpoint.pending
        checkpoint.read += checkpoint.pending
        checkpoint.commit()
        self._repartition()

    def _repartition(self) -> None:
        if self.command.action is Action.RESTART:
            self._start()
            return
        self._told(RescaleStep.REPARTITION)
        self._then(self.host.world.repartitioning, self._start)

    def _start(self) -> None:
        checkpoint = self.host.checkpoint
        if self.command.action is Action.REPARTITION:
            checkpoint.batch += 1  # the rewritten state is a batch of its own
            checkpoint.parallelism = self.command.parallelism
        self.host.parallelism = checkpoint.parallelism or self.command.parallelism
        self._told(RescaleStep.START)
        self._then(0.0, self._end)

    def _end(self) -> None:
        self.host.rescale_over(True)
        self.host.start_query(self.command.run, self.replayed_rows)

    def _told(self, step: RescaleStep) -> None:
        self.step = step
        host = self.host
        host.tell(
            RescaleStepped(at=host.clock.now, rescale=self.command.rescale, step=step, batch=host.checkpoint.batch)
        )

    def _then(self, seconds: float, action: Callable[[], None]) -> None:
        """``action`` when the step is over, unless it fails or the stream is to stop."""
        host, step = self.host, self.step

        def over() -> None:
            if self.given_up is not None:
                self.given_up()
            elif host.dice.hits(host.world.faults.step) and step is RescaleStep.REPLAY:
                self._query_failed(QueryFailed(at=0.0, run=0, cause="bad row", batch=host.checkpoint.batch + 1))
            elif host.dice.hits(host.world.faults.step):
                self._failed(f"{step.value}: no space left on device", host.dice.hits(host.world.faults.unfinishable))
            else:
                action()

        host.clock.after(host.dice.about(seconds), over)

    def _failed(self, cause: str, final: bool) -> None:
        """Rolled back: the old number, or the new one where the state had been rewritten already."""
        if self.given_up is not None:
            self.given_up()
            return
        host = self.host
        event = RescaleFailed(
            at=host.clock.now,
            rescale=self.command.rescale,
            cause=cause,
            parallelism=host.parallelism,
            final=final,
        )
        self.final = final
        host.rescale_over(not final)
        host.tell(event)
        if not final:
            host.start_query(self.command.run, self.replayed_rows)
