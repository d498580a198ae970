"""Submits a compiled job to Spark: checks first, then one thread that runs it to its end and leaves nothing behind. An ordinary run has a journal beside it, and progress on the
console or in the notebook (``launch``)."""

from __future__ import annotations

import atexit
import logging
import math
import pickle
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec.structs

from firesteel.compile.caching import FIRST_HANDLE
from firesteel.compile.compiled import CompiledJob
from firesteel.errors import EngineStop, FiresteelError, JobCancelledError, JobExecutionError, interruption
from firesteel.journal.costs import earlier_costs
from firesteel.journal.file import Instrument, Instruments, Journal
from firesteel.model.costs import NO_COSTS, StepCosts
from firesteel.model.job_graph import JobGraph, ResultPartitionType
from firesteel.monitoring.exporters import monitoring
from firesteel.options import (
    BLOB_CACHE_BYTES,
    CHECK_INTERVAL,
    CODEC,
    DATA_VOLUME_PER_TASK,
    FAILED_ROWS,
    HEAVY_KEYS,
    KEPT_FUNCTIONS,
    MEMORY_PER_TASK,
    MERGE_REQUEST_TIME,
    NODE_VARIABLE,
    PROGRESS,
    RETAIN_AT_MOST,
    SPECULATIVE_ENABLED,
    Options,
    retaining,
)
from firesteel.recovery.log import FencedError
from firesteel.recovery.takeover import NO_BASE
from firesteel.run.choose import decision_of, decisions_of
from firesteel.scheduler.inputs import DirectInputs, Inputs
from firesteel.scheduler.kernel.commands import JobStatus, JobStatusChanged
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.scheduler.topology.planned import planned
from firesteel.spark.driver.loop import DriverInput, JobDriver, JobEnd
from firesteel.spark.driver.outcome import JobOutcome, object_names
from firesteel.spark.driver.serialise import dumps, serialise_program, serialise_programs
from firesteel.spark.driver.threads import local_properties
from firesteel.spark.placement.node_names import NodeNames
from firesteel.spark.placement.pools import BOUNDED, queue_of
from firesteel.spark.placement.status_store import SparkPages
from firesteel.spark.placement.watch import LOOK_SECONDS
from firesteel.spark.recovery.beginning import DriverIdentity, may_change_jobs
from firesteel.spark.recovery.resuming import BEGINS_ANEW, HAD_FINISHED, WITHOUT_LOG, Opened, Resume, open_job
from firesteel.spark.recovery.runs import ALL, NONE, SOME, PastJob
from firesteel.spark.session.own_workers import own_workers
from firesteel.spark.session.preflight import executors, modules_of, preflight, runs_our_interpreter
from firesteel.spark.session.sessions import begins_cold, check_session, is_local, local_slots, own_interrupts, setting
from firesteel.spark.session.shipping import engine_of, modules_beside, ship
from firesteel.spark.session.task_memory import budget_per_task, machine_memory, spark_bytes
from firesteel.spark.slots.provisioning import shares_slots, slot_provisioning_of
from firesteel.spark.slots.session_account import SessionJob
from firesteel.spark.slots.workers import beside_heap, counts_overhead
from firesteel.spark.standing.small import standing_tasks
from firesteel.spark.storage.cleaning import ZOMBIE_SECONDS, late, quietly
from firesteel.spark.storage.directories import JobStorage, new_job_id, reached_storage, storage_root
from firesteel.task.executor.information import Blob, JobInformation, new_token_base
from firesteel.ui.begun import Begun
from firesteel.ui.process import ui_of
from firesteel.users_line import caller_level
from firesteel.view import progress
from firesteel.view.notebook.progress import notebook_view
from firesteel.view.notebook.shell import show_tables

EXIT_SECONDS = 8.0
"""Seconds that the process waits at its end for jobs that are still being cancelled."""
POLL_SECONDS = 0.05
COLD_START_SECONDS = 10.0
"""The first Python workers of a session may take so long to start."""
HEARING_SECONDS = 0.5
"""A Ctrl-C is heard within this time, wherever it finds the thread that waits for a job."""
_log = logging.getLogger("firesteel.spark")
_live: weakref.WeakSet[JobRun] = weakref.WeakSet()
_starting = threading.Lock()


def submit(
    compiled: CompiledJob,
    session: Any,
    options: Options,
    instruments: Sequence[Instrument] = (),
    *,
    job_id: str | None = None,
    costs: StepCosts = NO_COSTS,
    opened: Opened = WITHOUT_LOG,
) -> JobRun:
    """Starts the job and returns at once. ``job_id``: as given to the journal; one is made if None. ``costs``: of steps, from
    earlier runs. ``opened``: the job that goes on, if any does.

    Raises UsageError, before any step has run, for a session, storage, function or module that cannot work.
    """
    watchers = Instruments(instruments)
    run: JobRun | None = None
    try:
        check_session(session)
        with own_interrupts():
            context = session.sparkContext
            run = _prepared(compiled, context, options, job_id or new_job_id(), watchers, costs=costs, opened=opened)
            run.start()
    except BaseException:  # Ctrl-C too: nobody holds the job now
        if run is None:
            watchers.close()
        else:
            run.cancel("interrupted by the user")
        raise
    return run


def _prepared(
    compiled: CompiledJob,
    context: Any,
    options: Options,
    job_id: str,
    watchers: Instruments,
    *,
    costs: StepCosts,
    opened: Opened,
) -> JobRun:
    """Leaves nothing behind where it raises, but what it had found."""
    with ExitStack() as undo:
        same = opened.same
        queue = queue_of(context) if options[SPECULATIVE_ENABLED] else None
        in_order = queue is not None and queue.result == BOUNDED
        slot_provisioning = slot_provisioning_of(context, compiled.job_graph, options, compiled.dataframes)
        session = SessionJob(
            context.applicationId, compiled.job_graph.name, shares_slots=shares_slots(slot_provisioning.mode)
        )
        undo.callback(session.close)
        join = session.join if shares_slots(slot_provisioning.mode) else None
        given = Inputs(
            slots=context.defaultParallelism,
            in_order=in_order,
            slot_mode=slot_provisioning.mode,
            cold_start=COLD_START_SECONDS if begins_cold(context) else 0.0,
            costs=costs,
        )
        given = opened.given(given)
        side_inputs = opened.side_inputs()
        asked = side_inputs or DirectInputs()
        if same is None:
            scheduler = create_scheduler(compiled.job_graph, options, given, asked, join=join)
        else:
            scheduler = same.replayed.scheduler
        programs = serialise_programs(compiled)
        local = is_local(context)
        ours = local and runs_our_interpreter(context)
        root, filesystem = reached_storage(options, shared=not local)
        if not ours:
            ship(context)
        opener = set() if filesystem is None else {filesystem.partition(":")[0]}
        beside = modules_beside(programs.values())
        needed = () if ours else opener.union(*(modules_of(p) for p in programs.values()))
        modules = tuple(sorted(set(needed) - {module.name for module in beside}))
        token_base = new_token_base((NO_BASE, *opened.origins))
        here: dict[str, Any] = {"filesystem": filesystem, "application": context.applicationId}
        storage = opened.storage(compiled, options, root, job_id, token_base=token_base, **here)
        there = preflight(context, modules, root, filesystem, options[NODE_VARIABLE])
        storage.sweep()
        if same is None:
            undo.callback(storage.remove)
            storage.create()
        else:
            storage.claim()
        if options[MERGE_REQUEST_TIME] is None and scheduler.merging.is_open:
            given = replace(given, request_seconds=storage.request_seconds())
        budget = _memory_budget(context, options, there.memory)
        given = replace(given, task_memory=budget)
        if same is None:
            asked.measured("request seconds", given.request_seconds)
            asked.measured("task memory", budget)
        information = JobInformation(
            job_id=job_id,
            store=storage.store,
            codec=options[CODEC],
            memory_budget=budget,
            scratch=storage.scratch if local else None,
            module_paths=tuple(p for p in sys.path if p) if local else (),
            blob_cache_bytes=options[BLOB_CACHE_BYTES],
            kept_functions=options[KEPT_FUNCTIONS],
            node_variable=options[NODE_VARIABLE],
            heavy_keys=options[HEAVY_KEYS],
            failed_rows=options[FAILED_ROWS],
            engine=None if ours else engine_of(context, programs.values(), there=there.engine),
            modules=beside,
            watch=opened.watch(options),
            token_base=token_base,
        )
        decisions = (
            *decisions_before(compiled),
            *(() if queue is None else (queue,)),
            *slot_provisioning.decisions(),
            *opened.decisions,
        )
        own = DriverIdentity(storage.epoch, token_base, context.applicationId)
        beginning = opened.beginning(compiled, options, storage, given=given, side_inputs=side_inputs, driver=own)
        driver = DriverInput(
            compiled=compiled.copy(),  # its graph may change while the job runs
            context=context,
            scheduler=scheduler,
            job_id=storage.job_id,
            store=storage.store,
            job=Blob.of(information),
            token_of=information.token_of,
            programs=programs,
            record=watchers.record,
            scratch=storage.scratch,
            nodes=NodeNames(context.applicationId, options[NODE_VARIABLE]),
            look_seconds=look_seconds(options),
            slot_provisioning=slot_provisioning,
            memory_budget=budget,
            data_volume=options[DATA_VOLUME_PER_TASK],
            session=session,
            beginning=beginning,
            finishing=storage.hold,
        )
        undo.pop_all()
        return JobRun(options, watchers, driver, storage, opened, decisions)


class JobRun:
    """A job that was submitted."""

    def __init__(  # noqa: PLR0917
        self,
        options: Options,
        instruments: Instruments,
        given: DriverInput,
        storage: JobStorage,
        opened: Opened,
        decisions: Sequence[Decision],
    ) -> None:
        """``decisions``: on how the job will run, taken before it does."""
        self.job_id = given.job_id
        self.job_name = given.compiled.job_graph.name
        self.ran_standing: dict[int, str] = {}
        """Vertex to the tag of the Spark job whose standing task was given an execution of it last."""
        self._given = given
        self._compiled = given.compiled
        self._options = options
        self._instruments = instruments
        self._storage = storage
        self._decisions = decisions
        self._earlier = opened.earlier
        self._before = opened.before
        self._begun: list[Any] = []
        self._copies: dict[tuple[int, int], tuple[Any, bytes]] = {}
        """By vertex and place: each sink and a copy of it, pickled as it was after ``begin``."""
        self._wait_for: list[tuple[threading.Event, str]] = []
        """Ends of earlier jobs, and what this one waits for, as a sentence."""
        self._driver: JobDriver | None = None
        self._cancel_reason: str | None = None
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._outcome: JobOutcome | None = None
        self._started = time.monotonic()
        self._thread: threading.Thread | None = None
        self._inherit: Callable[[], None] = lambda: None

    # --- for the user's threads ------------------------------------------------------------------------------

    def start(self) -> None:
        self._inherit = local_properties(self._given.context)
        self._wait_for = _queue_behind_others(self)
        self._thread = threading.Thread(target=self._run, name=f"firesteel-job-{self.job_id}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._given.session.close()
            self._storage.remove()
            self._instruments.close()
            self._done.set()
            raise JobExecutionError(f"The job '{self.job_name}' could not be started: {error}.") from error

    def status(self) -> JobStatus:
        if self._outcome is not None:
            return self._outcome.status
        return JobStatus.CREATED if self._driver is None else self._driver.status

    def wait(self, timeout: float | None = None) -> bool:
        """True when the job has ended, False when ``timeout`` (seconds) is over.

        Ctrl-C while waiting cancels this job, and no other, and raises KeyboardInterrupt at once.
        """
        with own_interrupts():
            try:
                return self._wait(timeout)
            except KeyboardInterrupt:
                self.cancel("interrupted by the user")
                publishing = self._driver is not None and self._driver.outputs.publishing
                now = (
                    "while its outputs are published, which is finished first"
                    if publishing
                    else "and is being cancelled"
                )
                raise interruption(f"The job '{self.job_name}' was interrupted {now}.") from None

    def _wait(self, timeout: float | None) -> bool:
        """Waits in slices: Python does not hear a Ctrl-C that comes between its last look for signals and a wait's begin."""
        end = math.inf if timeout is None else time.monotonic() + timeout
        while not self._done.wait(max(0.0, min(HEARING_SECONDS, end - time.monotonic()))):
            if time.monotonic() >= end:
                return False
        return True

    @property
    def has_ended(self) -> bool:
        return self._done.is_set()

    def waiting_for(self) -> list[str]:
        """Returns the reasons for which the job waits just now, in sentences; empty when it has ended."""
        if self._done.is_set():
            return []
        if self._driver is None:
            return list(dict.fromkeys(why for end, why in self._wait_for if not end.is_set()))
        return self._driver.waiting_for()

    def cancel(self, reason: str = "cancelled by the user") -> None:
        """Asks for cancellation and returns at once; :meth:`wait` tells when it is done."""
        with self._lock:
            self._cancel_reason = reason
            driver = self._driver
        if driver is not None:
            driver.cancel(reason)

    @property
    def journal(self) -> Path | None:
        """The journal to which its records are written."""
        return self._instruments.journal_path()

    def sinks(self) -> list[Any]:
        return [sink for sinks in self._compiled.sinks.values() for sink in sinks]

    def result(self) -> JobOutcome:
        """Waits for the end. The outcome's ``error`` is set if the job failed or was cancelled; nothing is raised for it."""
        self.wait()
        assert self._outcome is not None
        return self._outcome

    # --- in the job's thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        end: JobEnd | None = None
        error: FiresteelError | None = None
        try:
            self._inherit()
            self._begin_sinks()
            end = self._drive()
            error = self._error_of(end.status)
        except FiresteelError as raised:
            error = raised
        except BaseException as raised:
            _log.debug("job %s", self.job_id, exc_info=raised)
            error = JobExecutionError(
                f"The job '{self.job_name}' was stopped by a fault in Firesteel: {type(raised).__name__}: {raised}"
            )
            error.__cause__ = raised
        try:
            self._outcome = self._finish(end, error)
        finally:
            self._done.set()

    def _begin_sinks(self) -> None:
        """Sinks learn the job's id before they are serialised for the executors."""
        for earlier, _ in self._wait_for:
            while not earlier.wait(POLL_SECONDS):
                if self._cancel_reason is not None:
                    raise JobCancelledError(f"The job '{self.job_name}' was cancelled: {self._cancel_reason}.")
        for vertex, sinks in self._compiled.sinks.items():
            for place, sink in enumerate(sinks):
                self._given.beginning.begin_sink(vertex, place, sink)
                self._begun.append(sink)
            self._given.programs[vertex] = serialise_program(self._compiled, self._compiled.job_graph.vertices[vertex])
            self._copies.update(((vertex, place), (sink, dumps(sink))) for place, sink in enumerate(sinks))

    def _drive(self) -> JobEnd:
        graph, before = self._compiled.job_graph, self._before
        earlier: dict[str, Any] = {"at": before.at, "after": before.after, "uses": before.uses}
        self._instruments.record(planned(graph, self.job_id, self._options, self._compiled.external, **earlier))
        for decision in self._decisions:
            self._instruments.record(msgspec.structs.replace(decision, at=before.at))
        given, ran = self._given, self.ran_standing
        driver = JobDriver(
            replace(
                given,
                own_workers=own_workers(given.context),
                recovery=given.beginning.recovery({where: copy for where, (_, copy) in self._copies.items()}),
                standing=standing_tasks(given.context, self._options, given.job, self.job_id, self.job_name, ran=ran),
            )
        )
        with self._lock:
            self._driver = driver
            if self._cancel_reason is not None:
                driver.cancel(self._cancel_reason)
        return driver.run()

    def _finish(self, end: JobEnd | None, error: FiresteelError | None) -> JobOutcome:
        """Removes all but the persistent results, and what a resume may use of a job that did not finish."""
        self._given.session.close()
        if isinstance(error, FencedError):
            return self._left_to_another(error)
        finished = error is None and end is not None
        persistent = {gate.dataset: gate for gate in end.status.persistent} if finished and end else {}
        use = self._storage.hold(finished=finished)
        bases = () if self._earlier is None else self._earlier.bases
        kept = (not finished or use is not None) and self._storage.keep(finished=finished, bases=bases)
        if not finished:
            self._abort_sinks(kept)
        self._forget_earlier(finished)
        status = JobStatus.CANCELED if isinstance(error, JobCancelledError) else JobStatus.FAILED
        if end is not None:
            status = end.status.status
        outcome = self._outcome_of(status, error, persistent, () if end is None else end.decisions)
        out = ALL if finished else SOME if self._driver is not None and self._driver.outputs.published else NONE
        in_run = self._given.beginning.in_run
        quietly(lambda: in_run.over(out, outcome.journal))  # before the storage, which holds the same facts, is removed
        if use is not None and kept:
            outcome.remove_with(use.end, stays=True) if persistent else use.end()
            self._storage.leave_room(self._options[RETAIN_AT_MOST])
        elif persistent:
            quietly(lambda: self._storage.store.delete(self._superfluous(persistent)))
            outcome.remove_with(self._storage.remove)
        elif not kept:
            self._storage.remove()
        self._storage.remove_scratch()
        if end is None or end.had_zombies:
            late.add(lambda: self._after_zombies(finished, kept, bool(persistent)), ZOMBIE_SECONDS)
        quietly(self._instruments.close)
        return outcome

    def _left_to_another(self, error: FencedError) -> JobOutcome:
        """Another driver goes on with the job: all that is on storage, staged outputs too, is that one's."""
        if self._earlier is not None:
            self._earlier.leave(finished=False)
        self._storage.remove_scratch()
        self._storage.remove_late()
        outcome = self._outcome_of(JobStatus.FAILED, error, {}, ())
        quietly(self._instruments.close)
        return outcome

    def _outcome_of(
        self, status: JobStatus, error: FiresteelError | None, persistent: dict[int, Any], decisions: Iterable[Decision]
    ) -> JobOutcome:
        """``persistent``: gates by data set; ``decisions``: those taken while the job ran."""
        return JobOutcome(
            job_id=self.job_id,
            job_name=self.job_name,
            status=status,
            duration=time.monotonic() - self._started,
            decisions=[*self._decisions, *decisions],
            journal=self._instruments.journal_path(),
            store=self._storage.store,
            persistent=persistent,
            kept=set(persistent).intersection(self._compiled.kept),
            open=set(persistent).intersection(d for h, d in self._compiled.collects.items() if h < FIRST_HANDLE),
            error=error,
        )

    def _superfluous(self, persistent: dict[int, Any]) -> list[str]:
        keep = {name for gate in persistent.values() for name in object_names(gate)}
        return [name for name in self._storage.store.list() if name not in keep]

    def _forget_earlier(self, finished: bool) -> None:
        """Removes what earlier jobs have left that this one has superseded."""
        if self._earlier is not None:
            self._earlier.leave(finished=finished)
        self._storage.supersede(finished=finished)

    def _abort_sinks(self, kept: bool) -> None:
        for sink in self._begun:
            if not self._is_published(sink) and not (kept and may_change_jobs(sink)):
                quietly(lambda sink=sink: sink.abort([]))

    def _is_published(self, sink: Any) -> bool:
        return self._driver is not None and any(sink is one for one in self._driver.outputs.published)

    def _after_zombies(self, finished: bool, kept: bool, persistent: bool) -> None:
        """Once more, for what a killed Python worker wrote in its last seconds.

        The user's sink may have begun another job by now, so this one's clean-up is told to a copy that knows only it.
        """
        for sink, copy in self._copies.values():
            if not finished and not self._is_published(sink) and not (kept and may_change_jobs(sink)):
                quietly(lambda copy=copy: pickle.loads(copy).abort([]))
        if not persistent and not kept:
            self._storage.remove()
        self._storage.remove_scratch()

    def _error_of(self, end: JobStatusChanged) -> FiresteelError | None:
        if end.status is JobStatus.FINISHED:
            return None
        cause = end.cause
        if end.status is JobStatus.CANCELED:
            said = f": {cause.message}" if cause is not None and cause.message else ""
            return JobCancelledError(f"The job '{self.job_name}' was cancelled{said}.".replace("..", "."))
        where = self._where(end.vertex, end.subtask)
        message = cause.message if cause is not None else "no cause is known"
        hint = cause.hint if cause is not None else None
        trace = cause.trace if cause is not None else None
        error = JobExecutionError(f"The job '{self.job_name}' failed{where}: {message}", hint=hint, cause_trace=trace)
        if cause is not None and cause.stop is not None:
            error.stop = EngineStop(cause.stop, message)
        return error

    def _where(self, vertex: int | None, subtask: int | None) -> str:
        if vertex is None:
            return ""
        name = self._compiled.job_graph.vertices[vertex].name
        place = self._compiled.places.get(vertex)
        at = f" ({place})" if place else ""
        return f" in '{name}'{at}" + ("" if subtask is None else f", subtask {subtask}")


def _queue_behind_others(run: JobRun) -> list[tuple[threading.Event, str]]:
    """One job at a time may use a sink object. From now on the run counts as living; the ends it has to wait for, and why."""
    with _starting:
        found: list[tuple[threading.Event, str]] = []
        for other in _live:
            if any(a is b for a in run.sinks() for b in other.sinks()):
                found.append((other._done, "It waits for an earlier job that writes to the same sink object."))
        _live.add(run)
    return found


def _memory_budget(context: Any, options: Options, executor_memory: int) -> int:
    given = options[MEMORY_PER_TASK]
    if given is not None:
        return given
    local = is_local(context)
    heap = spark_bytes(setting(context, "spark.driver.memory" if local else "spark.executor.memory", "1g"), "m")
    memory = executor_memory or machine_memory()
    if counts_overhead(context):  # a container of YARN has no limit that a process could read
        memory = min(memory, heap + beside_heap(context._conf))
    return budget_per_task(memory, heap, slots_per_machine(context))


def slots_per_machine(context: Any) -> int:
    """Tasks that run at once on one machine, as far as Spark's settings tell."""
    if is_local(context):
        return local_slots(context)
    cores = setting(context, "spark.executor.cores")
    if cores is not None:
        return int(cores)
    return -(-context.defaultParallelism // max(1, len(executors(context))))


def look_seconds(options: Options) -> float:
    """Returns the seconds between looks at Spark's status store: as often as the slow-task detector wants to know, if it is on."""
    return min(LOOK_SECONDS, options[CHECK_INTERVAL]) if options[SPECULATIVE_ENABLED] else LOOK_SECONDS


def _at_exit() -> None:
    """A process that ends with jobs running (an interrupted script) cancels them and lets them tidy up."""
    runs = [run for run in _live if not run._done.is_set()]
    for run in runs:
        run.cancel("the driver's process ends")
    until = time.monotonic() + EXIT_SECONDS
    with suppress(KeyboardInterrupt):  # Ctrl-C again: nobody wants to wait; what stays is found by the next job
        for run in runs:
            run._done.wait(max(0.0, until - time.monotonic()))


atexit.register(_at_exit)


def decisions_before(compiled: CompiledJob) -> list[Decision]:
    """Why it runs in stages, and the rules that changed its plans. Of a pipelined job: which forward edges are pipelined, and why others are not. Of any: which edges go
    forward so that ranges of keys stay whole."""
    graph = compiled.job_graph
    return [
        *([] if compiled.runner is None else [decision_of(compiled.runner)]),
        *decisions_of(compiled.rules),
        *(
            _exchange(
                graph,
                dataset.id,
                "pipelined",
                f"Streams to {_readers(graph, dataset.id)} in the same tasks: stores nothing.",
            )
            for dataset in graph.datasets
            if dataset.type is ResultPartitionType.PIPELINED
        ),
        *(
            _exchange(graph, dataset, "blocking", f"What it makes is stored before it is read, not streamed: {why}.")
            for dataset, why in compiled.stored.items()
        ),
        *(
            _exchange(
                graph,
                dataset,
                "forward",
                f"Goes forward to {_readers(graph, dataset)}, which is as parallel as this, whatever its volume: the rows lie in "
                "ranges of keys, perhaps in order, which any other cut would part. rescale() before it gives that up.",
                rule="ranges of keys",
            )
            for dataset in sorted(compiled.in_ranges)
        ),
    ]


def _exchange(
    graph: JobGraph, dataset: int, result: str, reason: str, rule: str = "execution.batch-shuffle-mode"
) -> Decision:
    producer = graph.vertices[graph.datasets[dataset].producer]
    return Decision(
        at=0.0,
        what="exchange",
        vertex=producer.id,
        name=producer.name,
        inputs={"dataset": dataset, "readers": graph.consumers(dataset)},
        rule=rule,
        result=result,
        reason=reason,
    )


def _readers(graph: JobGraph, dataset: int) -> str:
    return ", ".join(f"'{graph.vertices[vertex].name}'" for vertex in graph.consumers(dataset))


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
        taps = [] if ui is None else [ui.instrument()]
        instruments: list[Instrument] = [journal, *taps]
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
    if ui is not None:
        pages = SparkPages(session.sparkContext)
        stage = partial(pages.stage, job_id, run.ran_standing)
        begun = Begun(job_id, run.job_name, journal.path, run.cancel, pages.root, stage)
        ui.began(taps[0], begun)
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


SubmittedJob = JobRun | AnsweredJob
