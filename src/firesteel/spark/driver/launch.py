"""Starts a compiled job with what an ordinary run has beside it: a journal, and progress on the console or in the notebook."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from firesteel.compile.compiled import CompiledJob
from firesteel.journal.costs import earlier_costs
from firesteel.journal.file import Instrument, Journal
from firesteel.monitoring.exporters import monitoring
from firesteel.options import PROGRESS, Options, retaining
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.kernel.records import Decision
from firesteel.spark.driver.outcome import JobOutcome, SubmittedJob
from firesteel.spark.driver.runtime import submit
from firesteel.spark.placement.status_store import SparkPages
from firesteel.spark.recovery.resuming import BEGINS_ANEW, HAD_FINISHED, Resume, open_job
from firesteel.spark.recovery.runs import PastJob
from firesteel.spark.session.sessions import check_session, is_local
from firesteel.spark.storage.directories import new_job_id, storage_root
from firesteel.ui.begun import Begun
from firesteel.ui.process import ui_of
from firesteel.users_line import caller_level
from firesteel.view import progress
from firesteel.view.notebook.progress import notebook_view
from firesteel.view.notebook.shell import show_tables


def launch(compiled: CompiledJob, session: Any, options: Options, resume: Resume = None) -> SubmittedJob:
    """``resume``: True: the last job of this place in the script goes on; text: the one with this id; None: as the options say.

    Raises UsageError, before any step has run, for a journal, session, storage or function that cannot work, and for a job that cannot
    go on.
    """
    show_tables()
    options = retaining(options)
    ui = ui_of(options)

    def root() -> str:  # asked for only where an earlier job is looked for, before ``submit`` has checked the session
        check_session(session)
        return storage_root(options, shared=not is_local(session.sparkContext))

    opened = open_job(compiled, options, resume, root)
    with ExitStack() as undo:
        if opened.earlier is not None:
            undo.callback(opened.earlier.leave, finished=False)
        for decision in opened.decisions:
            if decision.result in (BEGINS_ANEW, HAD_FINISHED):
                warnings.warn(decision.reason, UserWarning, stacklevel=caller_level())
        if opened.past is not None:
            return AnsweredJob(opened.past, opened.decisions)
        job_id = new_job_id() if opened.same is None else opened.same.found.job_id
        journal = Journal.create(options, compiled.job_graph.name, job_id)
        watcher = ui.instrument()
        instruments: list[Instrument] = [journal, watcher]
        try:
            instruments += (progress.create(options[PROGRESS], make=notebook_view()), *monitoring(options))
            costs = earlier_costs(compiled.job_graph, options, journal.path)
            run = submit(compiled, session, options, instruments, job_id=job_id, costs=costs, opened=opened)
        except BaseException:
            for instrument in instruments:
                instrument.close()
            journal.path.unlink(missing_ok=True)  # nothing ran
            raise
        undo.pop_all()
    if ui.url is not None:
        pages = SparkPages(session.sparkContext)
        stage = partial(pages.stage, job_id, run.ran_standing)
        begun = Begun(job_id, run.job_name, journal.path, run.cancel, pages.root, stage)
        ui.began(watcher, begun)
    return run


class AnsweredJob:
    """A job of a script that goes on whose outputs an earlier process has published: it has ended before it could begin. In the place of ``runtime.JobRun``."""

    has_ended = True

    def __init__(self, past: PastJob, decisions: Sequence[Decision]) -> None:
        journal = Path(past.journal) if past.journal and Path(past.journal).is_file() else None
        self.job_id, self.job_name, self.journal = past.job_id, past.header.job_name, journal
        self._outcome = JobOutcome(self.job_id, self.job_name, JobStatus.FINISHED, 0.0, list(decisions), journal, None)

    def status(self) -> JobStatus:
        return JobStatus.FINISHED

    def wait(self, timeout: float | None = None) -> bool:
        return True

    def waiting_for(self) -> list[str]:
        return []

    def cancel(self, reason: str = "") -> None:
        pass

    def result(self) -> JobOutcome:
        return self._outcome
