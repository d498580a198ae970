"""The beginning of a job that keeps what an earlier one has finished."""

from __future__ import annotations

import json
import logging
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from firesteel.compile.compiled import CompiledJob
from firesteel.connectors.base import BEGUN
from firesteel.spark.recovery.beginning import FromNothing
from firesteel.spark.recovery.corrections.corrected import CorrectedJob
from firesteel.spark.recovery.corrections.kept_objects import KeptObjects
from firesteel.spark.recovery.corrections.reused import ReusedJobs
from firesteel.spark.recovery.deployments import Answered, Deployments, Port
from firesteel.spark.recovery.runs import PlaceInRun

_log = logging.getLogger("firesteel.recovery")


Earlier = CorrectedJob | ReusedJobs
"""Jobs whose results a new job uses. ``origins``: of the tokens of these (``FoundJob.origins``); ``bases``: of the tokens that were used; ``staged``: what its sinks take over, by
vertex and place; ``given``: all that its scheduler is made with, from what it would be otherwise; ``kept``: the objects, for the job in the directory; ``abandon``
removes what was staged and nobody takes over; ``check_held`` raises FiresteelError where the new job may not publish, for another goes on from the same;
``leave``: the new job is over. Never raises."""


@dataclass(frozen=True, slots=True)
class AloneInRun(PlaceInRun):
    """The new job as one of its script's, which publishes only while nobody else goes on from the same."""

    in_run: PlaceInRun
    earlier: Earlier

    def publishing(self) -> None:
        self.earlier.check_held()
        self.in_run.publishing()

    def over(self, out: str, journal: Path | None) -> None:
        self.in_run.over(out, journal)


@dataclass(eq=False, kw_only=True)
class FromEarlier(FromNothing):
    """``store``: the present job's."""

    earlier: Earlier
    kept: KeptObjects
    store: Any
    _abandoned: bool = field(default=False, init=False)

    def begin_sink(self, vertex: int, place: int, sink: Any) -> None:
        """Takes over what was staged for an equal sink; all others begin anew."""
        if not self._abandoned:
            self._abandoned = True
            self.earlier.abandon()
        staged = self.earlier.staged.get((vertex, place))
        if staged is None or self.log is None:
            super().begin_sink(vertex, place, sink)
            return
        try:
            winners = [pickle.loads(one.commits[place]) for one in staged.executions]
            found = sink.recover(self.job_id, winners, json.loads(staged.state), step=BEGUN)
        except Exception:  # the storage does not answer, say
            _log.debug("what was staged for '%s' is not taken over", sink.name, exc_info=True)
            self.kept.strike(staged.executions)
            super().begin_sink(vertex, place, sink)
            return
        self.kept.strike([staged.executions[k] for k in found.missing])
        self.log.begun(vertex, place, sink)

    def deployments(self, compiled: CompiledJob, port: Port) -> Deployments:
        assert self.log is not None
        return Answered(self.log.noted(compiled, port), compiled, self.kept, self.store, port)
