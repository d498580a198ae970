"""The executor's half: runs the executions of a Spark task, one or those of a pipelined region, and reports how they went.

What is common to a batch travels in the closure (job information, vertex information, gates, each as bytes with a digest,
decoded once per worker process; large gates by their digest only, see ``blobs``); what differs per execution is the
partition's data. Whatever goes wrong in an execution becomes a message, so that its Spark task ends well and its
siblings live on.
"""

from __future__ import annotations

import errno
import gc
import hashlib
import os
import pickle
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firesteel import sizes
from firesteel.descriptors import ExecutionDescriptor, GateColumns, decode_execution, decode_gate
from firesteel.errors import FiresteelError, PartitionException, UsageError
from firesteel.operators.program import Batches, Gate, PipelinedGate, TaskContext, TaskOutcome, VertexProgram
from firesteel.operators.user_code import UserFunctionError, error_words, shortened
from firesteel.results.lru import LruBytes
from firesteel.results.store import StorageError
from firesteel.spark.blobs import BlobCache
from firesteel.spark.blocklist import Blocklist
from firesteel.spark.messages import FailedMessage, FinishedMessage, Message, ReturnedMessage, Where, encode
from firesteel.spark.place import Place, here

if TYPE_CHECKING:
    from firesteel.operators.task import Part

CACHED_BYTES = 32 << 20
"""Bytes of decoded job and vertex informations and gates that a worker process remembers."""


@dataclass(frozen=True, slots=True)
class JobInformation:
    """The same for all executions of a job."""

    job_id: str
    store: Any
    codec: str
    memory_budget: int
    scratch: str | None = None
    """Directory for what tasks spill; None: the executor's own local directory."""
    module_paths: tuple[str, ...] = ()
    """Local masters: the driver's module search path, so that a script's own modules are found."""
    blob_cache_bytes: int = 256 << 20
    """What an executor keeps of blobs on its local disk."""
    node_variable: str | None = None
    """Environment variable of the executors that names their node."""


@dataclass(frozen=True, slots=True)
class VertexInformation:
    """The same for all executions of a vertex."""

    vertex: int
    name: str
    parallelism: int
    subpartitions: dict[int, int]
    program: bytes
    """The cloudpickled VertexProgram."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Pickled once on the driver, unpickled once per worker process."""

    digest: bytes
    data: bytes

    @classmethod
    def of(cls, value: Any) -> Blob:
        data = pickle.dumps(value, protocol=5)
        return cls(hashlib.blake2b(data, digest_size=16).digest(), data)

    def load(self) -> Any:
        value = _cache.get(self.digest)
        if value is None:
            value = pickle.loads(self.data)
            _cache.put(self.digest, value, len(self.data))
        return value


CarriedGate = tuple[bytes, bytes | None]
"""Digest and bytes of an encoded gate; without the bytes where they are a blob."""


@dataclass(frozen=True, slots=True)
class VertexPart:
    """What all executions of one vertex in a batch share. ``gates`` run parallel to the vertex' inputs."""

    vertex: Blob
    gates: tuple[CarriedGate, ...]


_cache: LruBytes[bytes, Any] = LruBytes(CACHED_BYTES)
_blobs: dict[str, BlobCache] = {}
_told_dropped: tuple[bytes, ...] = ()
_extended_by: set[tuple[str, ...]] = {()}
_scratch: dict[str, Path] = {}
_settled_modules = 0
_blocklist = Blocklist()


class BatchFunction:
    """What Spark runs on each partition of a batch: one execution of each of ``parts``, together.

    A partition holds their descriptors, in the order of ``parts``. Messages of part k carry ``batch + k``. ``dropped``:
    blobs that nobody needs any more. ``returns``: one that begins on a blocked node hands itself back.
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
        returns: bool = False,
    ) -> None:
        self.batch = batch
        self.job = job
        self.parts = parts
        self.dropped = dropped
        self.accumulator = accumulator
        self.returns = returns

    def __call__(self, descriptors: Iterator[bytes]) -> Iterator[bytes]:
        """Drains its input always: a worker whose task leaves something unread is thrown away by Spark."""
        yield from self.execute(list(map(decode_execution, descriptors)), None)

    def execute(self, descriptors: Sequence[ExecutionDescriptor], spark_batches: Batches | None) -> list[bytes]:
        """Runs one execution of each part; returns their messages, having sent them through the channel too."""
        messages = list(map(encode, _Task(self, descriptors).run(spark_batches)))
        self.accumulator.add(messages)
        settle_modules()
        return messages


class DataFrameFunction:
    """The same inside ``DataFrame.mapInArrow``: the partition's number is the subtask, Spark's rows are its input."""

    def __init__(self, function: BatchFunction, descriptors: dict[int, bytes]) -> None:
        self.function = function
        self.descriptors = descriptors

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext as SparkTask

        descriptor = decode_execution(self.descriptors[_spark_task(SparkTask).partitionId()])
        messages = self.function.execute([descriptor], batches)
        yield pa.RecordBatch.from_arrays([pa.array(messages, pa.binary())], names=["message"])


class RunAgainError(FiresteelError):
    """Spark lost a task, or killed it, and started it again by itself. Each attempt is the scheduler's: this one ends at once."""


class _Task:
    """One Spark task: the executions of one subtask that run together."""

    def __init__(self, function: BatchFunction, descriptors: Sequence[ExecutionDescriptor]) -> None:
        numbered = enumerate(zip(function.parts, descriptors, strict=True))
        self._executions = [_Execution(function, number, part, own) for number, (part, own) in numbered]
        self._function = function
        self._culprit = 0
        self._place = self._whereabouts()
        for execution in self._executions:
            execution.place = self._place

    def run(self, spark_batches: Batches | None) -> list[Message]:
        """What each execution has to say; if one failed, only what that one has: the others ended with it."""
        if self._executions[0].runs_again:
            return [
                self._executions[0].failed(RunAgainError("The executor or Python worker that ran the task is gone."))
            ]
        if self._function.returns and self._is_blocked():
            return [execution.returned() for execution in self._executions]
        try:
            outcomes = self._run(spark_batches)
        except BaseException as error:  # SystemExit, KeyboardInterrupt too: nothing may kill the siblings
            return [self._executions[self._culprit].failed(error)]
        return [execution.finished(outcome) for execution, outcome in zip(self._executions, outcomes, strict=True)]

    def _whereabouts(self) -> Place:
        try:
            job: JobInformation = self._function.job.load()
        except Exception:  # told when it is loaded to be run
            return here()
        return here(job.node_variable)

    def _is_blocked(self) -> bool:
        try:
            job: JobInformation = self._function.job.load()
            return _blocklist.has(self._place.signs, job.job_id, job.store)
        except Exception:  # what is wrong with the storage or the job shows when it runs
            return False

    def _run(self, spark_batches: Batches | None) -> list[TaskOutcome]:
        from firesteel.operators.task import TaskRun

        job: JobInformation = self._function.job.load()
        extend_module_path(job.module_paths)
        _evict(job, self._function.dropped)
        scratch = scratch_of(job)
        try:
            parts: list[Part] = []
            for number, execution in enumerate(self._executions):
                self._culprit = number
                parts.append(execution.prepare(job, scratch, job.memory_budget // len(self._executions), spark_batches))
            run = TaskRun(parts, job.store, job.codec)
            for execution in self._executions:
                execution.running_at = time.time()
            try:
                return run.run()
            finally:
                self._culprit = run.culprit or 0
        finally:
            empty(scratch)


class _Execution:
    """``number``: which part of the batch it belongs to."""

    def __init__(self, function: BatchFunction, number: int, part: VertexPart, descriptor: ExecutionDescriptor) -> None:
        from pyspark import TaskContext as SparkTask

        self.number = function.batch + number
        self.part = part
        self.descriptor = descriptor
        task = _spark_task(SparkTask)
        self.token: int = task.taskAttemptId()
        self.runs_again = task.attemptNumber() > 0
        self.deployed_at = self.running_at = time.time()
        self.context: TaskContext | None = None
        self.place = here()

    def prepare(self, job: JobInformation, scratch: Path, memory_budget: int, spark_batches: Batches | None) -> Part:
        from firesteel.operators.task import Part

        vertex: VertexInformation = self.part.vertex.load()
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
        )
        gates = self._gates(job)
        return Part(program, self.context, gates, self.descriptor.splits, vertex.subpartitions, spark_batches)

    def finished(self, outcome: TaskOutcome) -> FinishedMessage:
        parts = tuple(
            (p.dataset, int(p.bytes.sum()), self._packed(p.bytes), p.rows, p.stored_bytes) for p in outcome.partitions
        )
        return FinishedMessage(
            self._where(), parts, outcome.commits, outcome.rows_in, outcome.bytes_in, outcome.rows_out
        )

    def _packed(self, by_subpartition: NDArray[np.int64]) -> bytes | None:
        vertex: VertexInformation = self.part.vertex.load()
        return sizes.pack(by_subpartition) if sizes.is_measured(vertex.parallelism, len(by_subpartition)) else None

    def _gates(self, job: JobInformation) -> list[Gate | PipelinedGate]:
        columns = [_gate_columns(job, *carried) for carried in self.part.gates]
        return [
            PipelinedGate(gate.dataset)
            if gate.pipelined
            else Gate(
                gate.dataset, gate.num_subpartitions, gate.attempts, gate.tokens, rects, gate.partitions, gate.merged
            )
            for gate, rects in zip(columns, self.descriptor.rects, strict=True)
        ]

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

    def returned(self) -> ReturnedMessage:
        return ReturnedMessage(self._where())

    def failed(self, error: BaseException) -> FailedMessage:
        what = describe_failure(error)
        message = what.message
        place = "" if self.context is None else self.context.place
        if place and place not in message:
            message = f"{message.rstrip('.')} (while reading {place})."
        bad = (-1, -1, -1, -1)
        if isinstance(error, PartitionException):
            bad = (error.dataset, error.partition, error.attempt, error.token)
        return FailedMessage(self._where(), what.kind, message, what.hint, what.trace, bad)


@dataclass(frozen=True, slots=True)
class Described:
    """``kind``: name of the FailureKind; ``message``: a sentence; ``trace``: the user's frames."""

    kind: str
    message: str
    hint: str | None = None
    trace: str | None = None


def is_blocked_here(job: Blob) -> bool:
    """Whether the job keeps away from this worker's node."""
    known: JobInformation = job.load()
    return _blocklist.lists(here(known.node_variable).signs, known.job_id, known.store)


def describe_failure(error: BaseException) -> Described:
    """Whatever an execution raised, as something to tell."""
    trace: str | None = getattr(error, "trace", None) or None
    cause = error.__cause__ if isinstance(error, UserFunctionError) and error.__cause__ is not None else error
    match cause:
        case RunAgainError():
            described = Described("LOST", cause.message)
        case PartitionException():
            described = Described("PARTITION", str(cause))
        case MemoryError():
            described = Described(
                "USER",
                f"The task on {node_name()} ran out of memory: {error_words(cause)}.",
                "Give tasks less to do (data-volume-per-task) or executors more memory.",
                trace,
            )
        case StorageError():
            described = Described("STORAGE", cause.message, cause.hint)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            described = Described(
                "STORAGE",
                f"The disk of {node_name()} is full{f' at {cause.filename}' if cause.filename else ''}: {error_words(cause)}.",
                "Free some space, or set firesteel.storage.directory to a larger disk.",
            )
        case ModuleNotFoundError() if cause is error:
            described = Described(
                "FATAL",
                f"{node_name()} cannot load the step's code: {error_words(cause)}.",
                f"Install '{cause.name}' on every executor, or ship it with spark.sparkContext.addPyFile(...).",
            )
        case _ if isinstance(error, FiresteelError):
            described = Described(
                "FATAL" if isinstance(error, UsageError) else "USER", error.message, error.hint, trace
            )
        case OSError():
            described = Described("STORAGE", f"{error_words(error)} (on {node_name()}).", None, _frames(error))
        case _:
            described = Described("USER", f"{error_words(error)}.", None, _frames(error))
    return described


def settle_modules() -> None:
    """Takes newly imported modules out of the garbage collector's sight.

    PySpark's worker collects all garbage after every task; with pandas imported that is 6 ms, more than a small task.
    """
    global _settled_modules  # noqa: PLW0603
    if len(sys.modules) != _settled_modules:
        gc.collect()
        gc.freeze()
        _settled_modules = len(sys.modules)


def node_name() -> str:
    return here().host


def scratch_of(job: JobInformation) -> Path:
    """This worker's private directory for the job, empty. A worker runs one task at a time, so the task owns it.

    Made once per job, since making and removing a directory for each task costs more than a small task does.
    """
    known = _scratch.get(job.job_id)
    if known is None:
        _forget_scratch()
        root = job.scratch or f"{_local_directory()}/firesteel-scratch-{job.job_id}"
        known = Path(root) / str(os.getpid())
        empty(known)  # of an earlier process with this number
        _scratch[job.job_id] = known
    if job.scratch is None:
        known.mkdir(parents=True, exist_ok=True)
    else:
        _make_in_place(known)
    return known


def _local_directory() -> str:
    """The executor's own, which Spark removes with it."""
    return os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0] or tempfile.gettempdir()


def _make_in_place(directory: Path) -> None:
    """Not its parent too: the driver has made that, and a task that starts when its job is over must leave nothing."""
    try:
        directory.mkdir(exist_ok=True)
    except FileNotFoundError as error:
        raise StorageError(
            f"{directory.parent}, where tasks keep what they spill, is gone: the job is over, or somebody cleaned "
            f"{directory.parent.parent} while it ran.",
            hint="Set firesteel.storage.directory to a place that nobody cleans.",
        ) from error


def _gate_columns(job: JobInformation, digest: bytes, inline: bytes | None) -> GateColumns:
    """Decoded once per worker process, as long as it is remembered; fetched once per executor. Raises StorageError."""
    gate: GateColumns | None = _cache.get(digest)
    if gate is None:
        gate = decode_gate(inline if inline is not None else _blobs_of(job).get(digest))
        _cache.put(digest, gate, gate.nbytes)
    return gate


def _blobs_of(job: JobInformation) -> BlobCache:
    """The executor's blobs of this job. Raises StorageError when the job is over."""
    known = _blobs.get(job.job_id)
    if known is None:
        _blobs.clear()
        if job.scratch is not None:
            root = Path(job.scratch) / "blobs"
            _make_in_place(root)
        else:
            root = Path(_local_directory()) / "firesteel-blobs"
            with suppress(OSError):  # then each task fetches for itself
                root.mkdir(parents=True, exist_ok=True)
        known = _blobs[job.job_id] = BlobCache(root, job.job_id, job.store, job.blob_cache_bytes)
        known.forget_idle_jobs()
    return known


def _evict(job: JobInformation, dropped: tuple[bytes, ...]) -> None:
    """What the driver says nobody will ask for again."""
    global _told_dropped  # noqa: PLW0603
    if dropped == _told_dropped:
        return
    _told_dropped = dropped
    for digest in dropped:
        _cache.drop(digest)
    if dropped:
        _blobs_of(job).drop(dropped)


def empty(directory: Path) -> None:
    """Removes what a task left in its directory, if anything."""
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                Path(entry.path).unlink(missing_ok=True)


def _forget_scratch() -> None:
    """Removes what this worker has from an earlier job; Spark removes the executor's directory with the executor."""
    while _scratch:
        _, directory = _scratch.popitem()
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(
            directory.parent / "indexes", ignore_errors=True
        )  # shared by workers; whoever misses it reads anew


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


def _frames(error: BaseException) -> str:
    return "".join(map(shortened, traceback.format_exception(error)[-12:]))
