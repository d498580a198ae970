"""The executor's half: runs the executions of a Spark task, one or those of a pipelined region, and reports how they went.

What is common to a batch travels in the closure (job information, vertex information, gates, each as bytes with a digest,
decoded once per worker process; large gates by their digest only, see ``blobs``); what differs per execution is the
partition's data. Whatever goes wrong in an execution becomes a message, so that its Spark task ends well and its
siblings live on.
"""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel.engine.connection import SPILLED
from firesteel.errors import PartitionException
from firesteel.model import reports as step_reports
from firesteel.model import sizes
from firesteel.model.descriptors import ExecutionDescriptor, GateColumns, decode_execution, decode_gate
from firesteel.results.storage.store import StorageError
from firesteel.task import sharing
from firesteel.task.executor import notes
from firesteel.task.executor.blobs import BlobCache
from firesteel.task.executor.failures import RunAgainError, describe_failure
from firesteel.task.executor.handed import hand_over
from firesteel.task.executor.information import (
    TASK_BITS,
    Blob,
    JobInformation,
    VertexInformation,
    VertexPart,
    cache,
    take_in,
)
from firesteel.task.executor.messages import (
    FailedMessage,
    FinishedMessage,
    Message,
    RejectedMessage,
    Where,
    Written,
    encode,
)
from firesteel.task.executor.notes import Blocklist
from firesteel.task.executor.openings import watched
from firesteel.task.executor.place import Place, here
from firesteel.task.executor.slots import retiring
from firesteel.task.executor.slots.memory_watch import (
    NO_WATCH,
    MemoryLimitError,
    MemoryWatch,
    NoWatch,
    Watched,
    own_memory,
)
from firesteel.task.executor.slots.slot import SlotInformation, addresses_of, begin_slot, end_slot
from firesteel.task.functions import instances
from firesteel.task.mapped import MappedObjects
from firesteel.task.program import (
    Batches,
    Gate,
    PartitionOutcome,
    PipelinedGate,
    TaskContext,
    TaskOutcome,
    VertexProgram,
)

if TYPE_CHECKING:
    from firesteel.task.runner import Part


_extended_by: set[tuple[str, ...]] = {()}
_settled = (0, 0)
_blocklist = Blocklist()


class BatchFunction:
    """The function that Spark runs on each partition of a batch: one execution of each of ``parts``, together.

    A partition holds their descriptors, in the order of ``parts``. Messages of part k carry ``batch + k``. ``dropped``:
    blobs that nobody needs any more. ``may_reject``: one that begins on a blocked node is rejected. ``slot``: what each of
    its tasks was given; None: one of Spark's own slots. ``accumulator``: the channel's; None: whoever calls hands the messages over.
    Picklable by name (this module), carries only bytes and the channel's accumulator.
    """

    def __init__(
        self,
        batch: int,
        job: Blob,
        parts: tuple[VertexPart, ...],
        dropped: tuple[bytes, ...],
        accumulator: Any,
        *,
        may_reject: bool = False,
        slot: SlotInformation | None = None,
    ) -> None:
        self.batch = batch
        self.job = job
        self.parts = parts
        self.dropped = dropped
        self.accumulator = accumulator
        self.may_reject = may_reject
        self.slot = slot

    def __call__(self, descriptors: Iterator[bytes]) -> Iterator[bytes]:
        """Drains its input: a worker whose task leaves something unread is thrown away by Spark."""
        self.take_in_modules()
        yield from self.execute(list(map(decode_execution, descriptors)), None)

    def take_in_modules(self) -> None:
        """Before anything is unpickled that may need them."""
        with suppress(Exception):  # told when the job is loaded to be run
            job: JobInformation = self.job.load()
            take_in(job.modules)

    def execute(self, descriptors: Sequence[ExecutionDescriptor], spark_batches: Batches | None) -> list[bytes]:
        """Runs one execution of each part; returns their messages, having sent them through the channel too, if there is one."""
        messages, is_last = self._handed_over(descriptors) if spark_batches is None else None, False
        if messages is None:
            messages, is_last = self.run_here(descriptors, spark_batches, None)
        if self.accumulator is not None:
            self.accumulator.add(messages)
        if is_last:
            retiring.retire()
        return messages

    def run_here(
        self, descriptors: Sequence[ExecutionDescriptor], spark_batches: Batches | None, place: Place | None
    ) -> tuple[list[bytes], bool]:
        """The same in this very process, nothing sent: its messages, and True if the process must take no others. ``place``: None: its own."""
        task = _Task(self, descriptors, place)
        with standard_files():
            messages = list(map(encode, task.run(spark_batches)))
        if not task.is_last:
            settle()
        return messages, task.is_last

    def _handed_over(self, descriptors: Sequence[ExecutionDescriptor]) -> list[bytes] | None:
        """None: there is nothing to hold, or nobody who would."""
        if self.slot is None or not self.slot.external:
            return None
        silent = BatchFunction(
            self.batch, self.job, self.parts, self.dropped, None, may_reject=self.may_reject, slot=self.slot
        )
        return hand_over(silent, descriptors, self.slot, _whereabouts(self.job))


class DataFrameFunction:
    """The same inside ``DataFrame.mapInArrow``: the partition's number is the subtask, Spark's rows are its input."""

    def __init__(self, function: BatchFunction, descriptors: dict[int, bytes]) -> None:
        self.function = function
        self.descriptors = descriptors

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext as SparkTask

        self.function.take_in_modules()
        descriptor = decode_execution(self.descriptors[_spark_task(SparkTask).partitionId()])
        messages = self.function.execute([descriptor], batches)
        yield pa.RecordBatch.from_arrays([pa.array(messages, pa.binary())], names=["message"])


class _Task:
    """One Spark task: the executions of one subtask that run together."""

    def __init__(
        self, function: BatchFunction, descriptors: Sequence[ExecutionDescriptor], place: Place | None
    ) -> None:
        numbered = enumerate(zip(function.parts, descriptors, strict=True))
        self._executions = [_Execution(function, number, part, own) for number, (part, own) in numbered]
        self._function = function
        self._slot = function.slot
        self._resident = None if self._slot is None else own_memory()
        self._culprit = 0
        self.is_last = False
        """The worker goes when it is over."""
        self._place = _whereabouts(function.job) if place is None else place
        for execution in self._executions:
            execution.place = self._place

    def run(self, spark_batches: Batches | None) -> list[Message]:
        """Runs the executions and returns a message for each; if one failed, only its own: the others ended with it."""
        if self._executions[0].runs_again:
            return [self._executions[0].failed(self._what_ended_it())]
        if self._function.may_reject and self._is_blocked():
            return [execution.rejected() for execution in self._executions]
        if self._slot is not None and retiring.take(self._slot, self._addresses(self._slot), self._resident):
            self.is_last = True
            return [execution.rejected(retired=True) for execution in self._executions]
        return self._watched(spark_batches)

    def _watched(self, spark_batches: Batches | None) -> list[Message]:
        watch = self._watch()
        try:
            with watch:
                outcomes = self._run(spark_batches, watch)
            watch.check()  # what finished in spite of all may have swallowed its rows with the exception
        except BaseException as error:  # SystemExit, KeyboardInterrupt too: nothing may kill the siblings
            watch.stop()
            self.is_last = watch.stopped
            return [self._executions[self._culprit].failed(watch.cause(error))]
        if self._resident is not None:
            retiring.has_ended(watch.peak, self._resident)
        pairs = zip(self._executions, outcomes, strict=True)
        return [execution.finished(outcome, watch.peak) for execution, outcome in pairs]

    def _watch(self) -> MemoryWatch | NoWatch:
        if self._slot is None or self._resident is None:
            return NO_WATCH
        watched = None
        slot = self._slot
        if slot.limit:
            what = f"Step '{self._executions[0].name}'"
            own = slot.limit - slot.memory
            watched = Watched(what, slot.group, self._place.host, slot.limit, self._leave_crash_note, own)
        return MemoryWatch(watched, self._resident)

    def _leave_crash_note(self, message: str, hint: str) -> None:
        notes.leave(self._job().store, self._executions[0].identity, message, hint)

    def _what_ended_it(self) -> Exception:
        """Spark runs it again, so its worker ended before it had reported."""
        try:
            words = notes.find(self._job().store, self._executions[0].identity)
        except Exception:
            words = None
        if words is not None:
            return MemoryLimitError(words[0], hint=words[1])
        return RunAgainError("The executor or Python worker that ran the task is gone.")

    def _addresses(self, slot: SlotInformation) -> dict[str, tuple[str, ...]]:
        return addresses_of(slot, self._executions[0].descriptor.subtask)

    def _job(self) -> JobInformation:
        return self._function.job.load()

    def _is_blocked(self) -> bool:
        try:
            job = self._job()
            return _blocklist.has(self._place.signs, job.job_id, job.store)
        except Exception:  # what is wrong with the storage or the job shows when it runs
            return False

    def _run(self, spark_batches: Batches | None, watch: MemoryWatch | NoWatch) -> list[TaskOutcome]:
        from firesteel.task.runner import TaskRun

        job, slot = self._job(), self._slot
        extend_module_path(job.module_paths)
        evict(job, self._function.dropped)
        size_to(None if slot is None else slot.threads)
        scratch = scratch_of(job)
        sharing.begin(MappedObjects(users_shared_of(scratch), sharing.IDLE_SECONDS))
        budget = (job.memory_budget if slot is None else slot.managed_memory or job.memory_budget) // len(
            self._executions
        )
        try:
            parts: list[Part] = []
            for number, execution in enumerate(self._executions):
                self._culprit = number
                parts.append(execution.prepare(job, scratch, budget, slot, spark_batches))
            run = TaskRun(parts, job.store, job.codec, watch.ending)
            for execution in self._executions:
                execution.running_at = time.time()
            try:
                with watched(job.watch, [execution.part.vertex.load() for execution in self._executions]) as opened:
                    self._executions[0].opened = opened
                    return run.run()
            finally:
                self._culprit = run.culprit or 0
        finally:
            sharing.end()
            end_slot()
            empty(scratch, but=SPILLED)


class _Execution:
    """``number``: which part of the batch it belongs to."""

    def __init__(self, function: BatchFunction, number: int, part: VertexPart, descriptor: ExecutionDescriptor) -> None:
        from pyspark import TaskContext as SparkTask

        self.number = function.batch + number
        self.part = part
        self.descriptor = descriptor
        task = _spark_task(SparkTask)
        self.token = self._token(function.job, task.taskAttemptId())
        self.runs_again = task.attemptNumber() > 0
        self.deployed_at = self.running_at = time.time()
        self.context: TaskContext | None = None
        self.place = here()
        self.opened: list[step_reports.Opening] = []

    @staticmethod
    def _token(job: Blob, task: int) -> int:
        try:
            information: JobInformation = job.load()
        except Exception:  # told when it is loaded to be run; nothing will be written under this token
            return task
        return information.token_of(task % (1 << TASK_BITS))

    @property
    def identity(self) -> tuple[int, int, int]:
        """Vertex, subtask, attempt."""
        vertex: VertexInformation = self.part.vertex.load()
        return vertex.vertex, self.descriptor.subtask, self.descriptor.attempt

    @property
    def name(self) -> str:
        vertex: VertexInformation = self.part.vertex.load()
        return vertex.name

    def prepare(
        self,
        job: JobInformation,
        scratch: Path,
        memory_budget: int,
        slot: SlotInformation | None,
        spark_batches: Batches | None,
    ) -> Part:
        from firesteel.task.runner import Part

        vertex: VertexInformation = self.part.vertex.load()
        begin_slot(vertex.slot_sharing_group, self.descriptor.subtask, slot)
        program = _program(vertex)
        self.context = TaskContext(
            job_id=job.job_id,
            vertex=vertex.vertex,
            vertex_name=vertex.name,
            subtask=self.descriptor.subtask,
            attempt=self.descriptor.attempt,
            parallelism=vertex.parallelism,
            token=self.token,
            memory_budget=memory_budget,
            scratch=scratch,
            heavy_keys=job.heavy_keys,
            failed_rows=job.failed_rows,
            engine=job.engine,
            shared=MappedObjects(shared_of(scratch)),
            peers=job.store if job.scratch is None else None,
            kept_functions=job.kept_functions,
            input_bytes=self.descriptor.input_bytes,
            ran={} if slot is not None and slot.external else None,
        )
        gates = self._gates(job)
        return Part(program, self.context, gates, self.descriptor.splits, vertex.subpartitions, spark_batches)

    def finished(self, outcome: TaskOutcome, peak_memory: int) -> FinishedMessage:
        parts = tuple(map(self._written, outcome.partitions))
        counts = outcome.rows_in, outcome.bytes_in, outcome.rows_out
        opened = [step_reports.StepReport(self.name, opened=one) for one in self.opened]
        reports = step_reports.encode([*outcome.reports, *self._held(), *opened])
        return FinishedMessage(self._where(), parts, outcome.commits, *counts, peak_memory, reports)

    def _held(self) -> Iterator[step_reports.StepReport]:
        """Yields the time of each function that ran while this execution held external resources."""
        ran = None if self.context is None else self.context.ran
        held = round(1e3 * (time.time() - self.deployed_at))
        for step, seconds in (ran or {}).items():
            counts = {step_reports.FUNCTION_MS: round(1e3 * seconds), step_reports.HELD_MS: held}
            yield step_reports.StepReport(step, counts)

    def _written(self, part: PartitionOutcome) -> Written:
        total = int(part.bytes.sum())
        if part.sketch is not None:
            return Written(part.dataset, total, part.sketch, part.rows, part.stored_bytes, sketched=True)
        counts = part.rows, part.stored_bytes
        return Written(part.dataset, total, self._packed(part.bytes), *counts, heavy_keys=part.heavy_keys)

    def _packed(self, by_subpartition: NDArray[np.int64]) -> bytes | None:
        vertex: VertexInformation = self.part.vertex.load()
        return sizes.pack(by_subpartition) if sizes.is_measured(vertex.parallelism, len(by_subpartition)) else None

    def _gates(self, job: JobInformation) -> list[Gate | PipelinedGate]:
        columns = [gate_columns(job, *carried) for carried in self.part.gates]
        reads = zip(columns, self.descriptor.rects, self.descriptor.shares, strict=True)
        return [_gate(gate, rects, shares) for gate, rects, shares in reads]

    def _where(self) -> Where:
        d = self.descriptor
        return Where(
            self.number,
            d.subtask,
            d.attempt,
            self.token,
            self.place.encoded,
            self.deployed_at,
            self.running_at,
            time.time(),
        )

    def rejected(self, *, retired: bool = False) -> RejectedMessage:
        return RejectedMessage(self._where(), retired)

    def failed(self, error: BaseException) -> FailedMessage:
        what = describe_failure(error)
        message = what.message
        place = "" if self.context is None else self.context.place
        if place and place not in message:
            message = f"{message.rstrip('.')} (while reading {place})."
        bad = (-1, -1, -1, -1)
        if isinstance(error, PartitionException):
            bad = (error.dataset, error.partition, error.attempt, error.token)
        return FailedMessage(self._where(), what.kind, message, what.hint, what.trace, bad, what.stop)


def _gate(gate: GateColumns, rects: NDArray[np.int32], shares: NDArray[np.int32] | None) -> Gate | PipelinedGate:
    if gate.pipelined:
        return PipelinedGate(gate.dataset)
    where = gate.attempts, gate.tokens, rects, gate.partitions, gate.merged
    return Gate(gate.dataset, gate.num_subpartitions, *where, boundaries=gate.boundaries, shares=shares)


def _whereabouts(job: Blob) -> Place:
    try:
        information: JobInformation = job.load()
    except Exception:  # told when it is loaded to be run
        return here()
    return here(information.node_variable)


def is_blocked_here(job: Blob) -> bool:
    """Returns True if this worker's node is blocked for the job."""
    known: JobInformation = job.load()
    return _blocklist.lists(here(known.node_variable).signs, known.job_id, known.store)


def settle() -> None:
    """Takes newly imported modules, and what functions have set up, out of the garbage collector's sight.

    PySpark's worker collects all garbage after every task; with pandas imported that is 6 ms, more than a small task.
    """
    global _settled  # noqa: PLW0603
    if (now := (len(sys.modules), instances.num_set_up())) != _settled:
        gc.collect()
        gc.freeze()
        _settled = now


def _spark_task(task_class: Any) -> Any:
    task = task_class.get()
    if task is None:
        raise RuntimeError("an execution runs only inside a Spark task")
    return task


def _program(vertex: VertexInformation) -> VertexProgram:
    """Unpickled anew for each execution, as PySpark does: what a user's closure keeps must not reach the next subtask."""
    program: VertexProgram = pickle.loads(vertex.program)
    return program


def extend_module_path(paths: tuple[str, ...]) -> None:
    if paths not in _extended_by:
        _extended_by.add(paths)
        sys.path.extend(p for p in paths if p not in sys.path)


_blobs: dict[str, BlobCache] = {}
_told_dropped: tuple[bytes, ...] = ()


def gate_columns(job: JobInformation, digest: bytes, inline: bytes | None) -> GateColumns:
    """Decoded once per worker process, as long as it is remembered; fetched once per executor. Raises StorageError."""
    gate: GateColumns | None = cache.get(digest)
    if gate is None:
        gate = decode_gate(inline if inline is not None else _blobs_of(job).get(digest))
        cache.put(digest, gate, gate.nbytes)
    return gate


def _blobs_of(job: JobInformation) -> BlobCache:
    """The executor's blobs of this job. Raises StorageError when the job is over."""
    known = _blobs.get(job.job_id)
    if known is None:
        _blobs.clear()
        if job.scratch is not None:
            root = Path(job.scratch) / "blobs"
            make_in_place(root)
        else:
            root = Path(local_directory()) / "firesteel-blobs"
            with suppress(OSError):  # then each task fetches for itself
                root.mkdir(parents=True, exist_ok=True)
        known = _blobs[job.job_id] = BlobCache(root, job.job_id, job.store, job.blob_cache_bytes)
        known.forget_idle_jobs()
    return known


def evict(job: JobInformation, dropped: tuple[bytes, ...]) -> None:
    """Drops the decoded gates that the driver says nobody will read again."""
    global _told_dropped  # noqa: PLW0603
    if dropped == _told_dropped:
        return
    _told_dropped = dropped
    for digest in dropped:
        cache.drop(digest)
    if dropped:
        _blobs_of(job).drop(dropped)


_scratch: dict[str, Path] = {}


def scratch_of(job: JobInformation) -> Path:
    """This worker's private directory for the job, empty. A worker runs one task at a time, so the task owns it.

    Made once per job, since making and removing a directory for each task costs more than a small task does.
    """
    known = _scratch.get(job.job_id)
    if known is None:
        _forget_scratch()
        root = job.scratch or f"{local_directory()}/firesteel-scratch-{job.job_id}"
        known = Path(root) / str(os.getpid())
        empty(known)  # of an earlier process with this number
        _scratch[job.job_id] = known
    if job.scratch is None:
        known.mkdir(parents=True, exist_ok=True)
    else:
        make_in_place(known)
    return known


def shared_of(scratch: Path) -> Path:
    """The directory of what the workers of an executor share of the job, beside their own."""
    return scratch.parent / "shared"


def users_shared_of(scratch: Path) -> Path:
    """The directory of what functions of users share (``task.sharing``): Spark's, for the session; without one, the job's."""
    return Path(local_directory()) / "firesteel-shared" if "SPARK_LOCAL_DIRS" in os.environ else shared_of(scratch)


def local_directory() -> str:
    """The executor's own, which Spark removes with it."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()


def make_in_place(directory: Path) -> None:
    """Not its parent too: the driver has made that, and a task that starts when its job is over must leave nothing."""
    try:
        directory.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        raise StorageError(
            f"{directory.parent}, where tasks keep what they spill, is gone: the job is over, or another program removed "
            f"{directory.parent.parent} while it ran.",
            hint="Set firesteel.storage.directory to a place that is not cleaned up automatically.",
        ) from error


def empty(directory: Path, but: str = "") -> None:
    """Removes what a task left in its directory, if anything. ``but``: the name of what stays."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name == but:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)


def _forget_scratch() -> None:
    """Removes what this worker has from an earlier job; Spark removes the executor's directory with the executor."""
    while _scratch:
        _, directory = _scratch.popitem()
        shutil.rmtree(directory, ignore_errors=True)
        for shared in (directory.parent / "indexes", shared_of(directory)):  # whoever misses it reads anew
            shutil.rmtree(shared, ignore_errors=True)


_ALL = (0, 1, 2)
_OBJECTS = ((0, "stdin"), (1, "stdout"), (2, "stderr"))


@contextmanager
def standard_files() -> Generator[None]:
    """Restore descriptors 0 to 2 at the end and close whatever else has got their numbers by then.

    A descriptor of which no copy is left becomes an empty file. ``sys.stdout`` and its siblings are opened again if they were closed. No
    OSError of this bookkeeping is raised.
    """
    before = {number: _which(number) for number in _ALL}
    if None in before.values():
        _fill()
        before = {number: _which(number) for number in _ALL}
    copies: dict[int, int] = {}
    try:
        for number in _ALL:
            with suppress(OSError):  # no more files may be opened
                copies[number] = os.dup(number)
        yield
    finally:
        for number in _ALL:
            _restore(number, copies.get(number), before[number])
        if None in map(_which, _ALL):
            _fill()
        _open_objects()


def _restore(number: int, copy: int | None, before: tuple[int, int] | None) -> None:
    if copy is not None and (before is None or _which(copy) != before):
        copy = None  # the function has closed it, and another file may have its number
    if _which(number) != before:
        with suppress(OSError):
            if copy is None:
                os.close(number)
            else:
                os.dup2(copy, number)
    if copy is not None:
        with suppress(OSError):
            os.close(copy)


def _open_objects() -> None:
    """Python's objects do not own their descriptors and stay closed when a function has closed them."""
    for number, plain in _OBJECTS:
        for name in (f"__{plain}__", plain):
            old = getattr(sys, name, None)
            if getattr(old, "closed", False):
                with suppress(OSError):
                    opened = open(  # noqa: SIM115
                        number,
                        "w" if number else "r",
                        encoding=getattr(old, "encoding", None),
                        errors=getattr(old, "errors", None),
                        closefd=False,
                    )
                    setattr(sys, name, opened)


def _which(number: int) -> tuple[int, int] | None:
    """None: it is closed."""
    with suppress(OSError):
        found = os.fstat(number)
        return found.st_dev, found.st_ino
    return None


def _fill() -> None:
    """Opens the closed ones as an empty file: the lowest free number comes first."""
    with suppress(OSError):  # no more files may be opened
        while (made := os.open(os.devnull, os.O_RDWR)) in _ALL:
            os.set_inheritable(made, True)
        os.close(made)


LEAST_IO_THREADS = 2
"""They mostly wait; and one that waits for another must not be the only one."""
_io_threads = pa.io_thread_count()
"""As the process was started."""


def size_to(threads: int | None) -> None:
    """``threads``: of a slot; None: as Spark's own slots have it, one core, and pyarrow's own number for waiting on storage."""
    for wanted, count, change in (
        (threads or 1, pa.cpu_count, pa.set_cpu_count),
        (max(threads, LEAST_IO_THREADS) if threads else _io_threads, pa.io_thread_count, pa.set_io_thread_count),
    ):
        if count() != wanted:
            change(wanted)
