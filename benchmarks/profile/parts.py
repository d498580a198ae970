"""The parts of a job, and which of them a sampled stack or a thread of the JVM belongs to.

A stack belongs to the part of its innermost frame that a rule knows: what a rule leaves out (pyarrow, numpy, the standard library, small
helpers) counts for its caller. A rule may look at the text of the sampled line, where one function does several things: the text is read from
the source, so that rules keep to what the code does, and not to line numbers.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib.util import find_spec

from benchmarks.profile.sampler import PROFILER

Frame = tuple[str, str, int]
"""Module, function within it, line."""

READING, USER, OPERATORS, ENGINE = "reading sources", "user code", "operators", "embedded engine"
HASHING, SIZES, ORDERING = "hashing", "sizes of rows", "ordering"
GATHERING, ENCODING, COMPRESSING = "gathering rows in order", "encoding", "compressing"
CHECKSUMS, WRITING, HEAVY = "checksums", "writing", "heavy keys"
REQUESTS, READ_BACK, DECODING, DECOMPRESSING = "requests", "reading back", "decoding", "decompressing"
JOINING, BETWEEN, SINKS = "joining slices read", "Python between batches", "sinks"
TASK, SPARK_TASK = "our task's start and end", "Spark's task start and end"
GARBAGE, IMPORTS = "garbage collections", "imports"
DAEMON, OTHER = "daemon of Python workers", "other Python"
SCHEDULER, JOURNAL, MESSAGES = "driver: scheduler", "driver: journal and progress", "driver: messages"
CALLS, SUBMITTING, STORAGE = "driver: calls to the JVM", "driver: submitting batches", "driver: storage, cleaning"
LOOP, COMPILING, DRIVER = "driver: loop", "driver: compiling", "driver: other"
JVM_TASKS, JVM_SCHEDULING, JVM_CALLS = "JVM: task threads", "JVM: Spark's scheduling", "JVM: calls from the driver"
JVM_GARBAGE, JVM_COMPILING, JVM_OTHER = "JVM: garbage collection", "JVM: compiling", "JVM: other threads"
JVM_ENDED = "JVM: threads that ended, rounding"
SAMPLING, PROCESSES = "the profiler itself", "other processes"

ROWS = (
    READING, USER, OPERATORS, ENGINE,
    SIZES, HASHING, ORDERING, GATHERING, HEAVY, ENCODING, COMPRESSING, CHECKSUMS, WRITING,
    REQUESTS, READ_BACK, DECODING, DECOMPRESSING, JOINING, SINKS, BETWEEN,
    TASK, SPARK_TASK, GARBAGE, IMPORTS, OTHER, DAEMON,
    SCHEDULER, JOURNAL, MESSAGES, SUBMITTING, CALLS, STORAGE, LOOP, COMPILING, DRIVER,
    JVM_TASKS, JVM_SCHEDULING, JVM_CALLS, JVM_GARBAGE, JVM_COMPILING, JVM_OTHER, JVM_ENDED,
    PROCESSES, SAMPLING,
)  # fmt: skip
"""All parts, as tables show them: data from source to sink, tasks, driver, JVM."""


@dataclass(frozen=True, slots=True)
class Rule:
    """``where``: ``module:function``, with ``*`` for anything, of modules of Firesteel without its name, and of functions with all that is
    defined within them. ``line``: words of which the sampled line has one; empty: any line."""

    part: str
    where: str
    line: tuple[str, ...] = ()

    def matches(self, frame: Frame) -> bool:
        module, function, number = frame
        outer = function.partition(".<locals>")[0]
        if not fnmatchcase(f"{module.removeprefix('firesteel.')}:{outer}", self.where):
            return False
        return not self.line or any(word in _text(module, number) for word in self.line)


CALLERS = ""
"""The part of what counts for its caller, though a later rule would take it."""
_COMMON = (
    Rule(CALLERS, "pyspark.cloudpickle.*:*"),
    Rule(IMPORTS, "importlib.*:*"),
    Rule(IMPORTS, "[!_]*:<module>"),
    Rule(GARBAGE, "task.*:*", ("gc.collect(", "gc.freeze(", "gc.unfreeze(")),
    Rule(GARBAGE, "pyspark.daemon:*", ("gc.collect(",)),
)
_RESULTS = (
    Rule(HASHING, "results.hashing:*"),
    Rule(HASHING, "results.writer:ResultWriter._subpartition_ids"),
    Rule(SIZES, "results.plain:*row_bytes"),
    Rule(SIZES, "results.plain:_*_bytes"),
    Rule(SIZES, "results.plain:_differences"),
    Rule(SIZES, "results.plain:decoded_bytes"),
    Rule(CHECKSUMS, "results.*:*", ("crc32(",)),
    Rule(CHECKSUMS, "results.layout:checksum"),
    Rule(COMPRESSING, "results.layout:Packer.*"),
    Rule(DECOMPRESSING, "results.layout:unpack"),
    Rule(GATHERING, "results.messages:put_in_order"),
    Rule(GATHERING, "results.writer:_Pending.take_columns"),
    Rule(HEAVY, "results.writer:KeySampler.*"),
    Rule(HEAVY, "results.writer:_spread"),
    Rule(HEAVY, "results.writer:_encoded"),
    Rule(HEAVY, "results.writer:_is_short"),
    Rule(HEAVY, "results.writer:_text"),
    Rule(WRITING, "results.storage.store:*Output.*"),
    Rule(WRITING, "results.messages:MessageStream.drain"),
    Rule(WRITING, "results.messages:MessageStream.finish"),
    Rule(WRITING, "results.layout:*encode*"),
    Rule(DECODING, "results.plain:from_stored"),
    Rule(ENCODING, "results.messages:MessageStream.*"),
    Rule(ENCODING, "results.writer:ResultWriter._append"),
    Rule(ENCODING, "results.writer:ResultWriter._stored_columns"),
    Rule(ENCODING, "results.plain:*"),
    Rule(ORDERING, "results.writer:ResultWriter._flush"),
    Rule(ORDERING, "results.writer:ResultWriter._deal"),
    Rule(ORDERING, "results.writer:ResultWriter.finish"),
    Rule(ORDERING, "results.messages:*"),
    Rule(READ_BACK, "results.storage.objects:StoredObject.read"),
    Rule(READ_BACK, "results.reader:chunks_of"),
    Rule(DECODING, "results.reader:decode_message"),
    Rule(DECODING, "results.reader:GateReader._declared"),
    Rule(JOINING, "results.reader:_joined"),
    Rule(JOINING, "results.reader:compact"),
    Rule(REQUESTS, "results.storage.objects:*"),
    Rule(REQUESTS, "results.storage.store:ResultStore.*"),
    Rule(REQUESTS, "results.layout:*"),
    Rule(REQUESTS, "results.reader:GateReader._index"),
    Rule(REQUESTS, "results.reader:GateReader._begin"),
    Rule(REQUESTS, "results.reader:GateReader._opened"),
    Rule(REQUESTS, "results.reader:GateReader._read_slices"),
    Rule(READ_BACK, "results.order.range_reader:*"),
    Rule(ORDERING, "results.order.*:*"),
)
WORKER = (
    *_COMMON,
    *_RESULTS,
    Rule(SINKS, "connectors.*writing.*:*"),
    Rule(SINKS, "connectors.*:*Sink.*"),
    Rule(SINKS, "connectors.formats.*:*Part.*"),
    Rule(SINKS, "benchmarks.*:_*Writer.*"),
    Rule(READING, "connectors.*:*"),
    Rule(ENGINE, "engine.*:*"),
    Rule(ENGINE, "task.operators.fragments:*"),
    Rule(OPERATORS, "task.operators.units:run_keyed"),
    Rule(OPERATORS, "task.operators.*:*"),
    Rule(OPERATORS, "task.expressions:*"),
    Rule(BETWEEN, "task.runner:_Outputs.*write"),
    Rule(BETWEEN, "task.runner:_Reading._counted"),
    Rule(BETWEEN, "task.runner:_Reading._read_splits"),
    Rule(BETWEEN, "task.runner:_PartRun.batches"),
    Rule(BETWEEN, "task.runner:_PartRun.drain"),
    Rule(BETWEEN, "task.runner:Stream.*"),
    Rule(BETWEEN, "task.runner:conformed"),
    Rule(TASK, "task.runner:*"),
    Rule(TASK, "results.writer:*.__init__"),
    Rule(TASK, "results.reader:*.__init__"),
    Rule(BETWEEN, "task.functions.*:*"),
    Rule(BETWEEN, "task.batches:*"),
    Rule(BETWEEN, "task.passing:*"),
    Rule(BETWEEN, "task.overlap:*"),
    Rule(BETWEEN, "results.writer:*"),
    Rule(BETWEEN, "results.reader:*"),
    Rule(OPERATORS, "results.merging:*"),
    Rule(TASK, "task.*:*"),
    Rule(TASK, "model.*:*"),
    Rule(SPARK_TASK, "pyspark.*:*"),
    Rule(USER, "benchmarks.*:*"),
)
DRIVER_RULES = (
    *_COMMON,
    Rule(JOURNAL, "journal.*:*"),
    Rule(JOURNAL, "report.*:*"),
    Rule(JOURNAL, "view.*:*"),
    Rule(SCHEDULER, "scheduler.*:*"),
    Rule(MESSAGES, "task.executor.messages:*"),
    Rule(MESSAGES, "spark.driver.messages:*"),
    Rule(MESSAGES, "spark.driver.channel:*"),
    Rule(MESSAGES, "pyspark.accumulators:*"),
    Rule(MESSAGES, "model.sizes:*"),
    Rule(CALLS, "py4j.*:*"),
    Rule(STORAGE, "spark.storage.*:*"),
    Rule(STORAGE, "results.*:*"),
    Rule(SUBMITTING, "spark.driver.batch:*"),
    Rule(SUBMITTING, "spark.driver.serialise:*"),
    Rule(SUBMITTING, "spark.slots.*:*"),
    Rule(SUBMITTING, "spark.placement.*:*"),
    Rule(SUBMITTING, "spark.standing.*:*"),
    Rule(SUBMITTING, "model.descriptors:*"),
    Rule(LOOP, "spark.driver.*:*"),
    Rule(COMPILING, "api.*:*"),
    Rule(COMPILING, "compile.*:*"),
    Rule(COMPILING, "connectors.*:*"),
    Rule(COMPILING, "sql.*:*"),
    Rule(COMPILING, "options.*:*"),
    Rule(SUBMITTING, "pyspark.*:*"),
)
_JVM_THREADS = (
    (JVM_GARBAGE, ("GC Thread", "G1 ", "VM Thread", "Reference Handl", "Finalizer", "Common-Cleaner")),
    (JVM_COMPILING, ("C1 Compiler", "C2 Compiler", "Sweeper")),
    (JVM_TASKS, ("Executor task", "Worker Monitor", "Idle Worker", "Task reaper", "stdout writer")),
    (JVM_CALLS, ("Thread-",)),
    (
        JVM_SCHEDULING,
        ("dag-sched", "dispatcher", "task-", "spark-", "map-output", "context-c", "netty", "rpc-", "block-"),
    ),
)
"""By what the names of threads begin with (Linux keeps 15 letters of them)."""


_WAITING = (
    ".acquire(",
    "_handle.join(",
    ".get(timeout=",
    ".poll(",
    ".select(",
    "_accept(",
    ".recv_into(",
    "read(handle",
    "sleep(",
)


def part_of_stack(stack: Sequence[Frame], rules: Iterable[Rule], otherwise: str) -> str:
    """``stack``: root first."""
    return _part(tuple(stack), tuple(rules), otherwise)


@cache
def _part(stack: tuple[Frame, ...], rules: tuple[Rule, ...], otherwise: str) -> str:
    if [frame_text(frame) for frame in stack] == [PROFILER]:
        return SAMPLING
    found = (next((rule.part for rule in rules if rule.matches(frame)), CALLERS) for frame in reversed(stack))
    return next((part for part in found if part), otherwise)


def waits(stack: Sequence[Frame]) -> bool:
    """Whether a thread seems to wait there, for a lock, a queue or a socket."""
    module, _, line = stack[-1]
    return any(word in _text(module, line) for word in _WAITING)


def part_of_thread(name: str) -> str:
    """``name``: of a thread of the JVM."""
    return next((part for part, names in _JVM_THREADS if name.startswith(names)), JVM_OTHER)


def frame_of(text: str) -> Frame:
    module, function, line = text.split(":")
    return module, function, int(line)


def frame_text(frame: Frame) -> str:
    return ":".join(map(str, frame))


@cache
def _text(module: str, line: int) -> str:
    """A line of a module's source; empty where it has none."""
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):
        return ""
    return "" if spec is None or spec.origin is None else linecache.getline(spec.origin, line)
