"""The one registry of options: key, type, default, doc, deprecated keys. ``docs/options.md`` is generated from it.

Keys of the seed designs are kept word for word; today's Flink keys are aliases; what only Firesteel has is under
``firesteel.``. A short name (the last part of a key) is understood wherever it is unambiguous.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from firesteel.option_registry import Options as Options  # noqa: PLC0414 - everybody finds it here
from firesteel.option_registry import all_options as all_options  # noqa: PLC0414 - everybody finds it here
from firesteel.option_registry import format_value as format_value  # noqa: PLC0414 - everybody finds it here
from firesteel.option_registry import lookup as lookup  # noqa: PLC0414 - everybody finds it here
from firesteel.option_registry import lookup_family as lookup_family  # noqa: PLC0414 - everybody finds it here
from firesteel.option_registry import register as _register
from firesteel.option_values import (
    GIB,
    KIB,
    MIB,
    Option,
    at_least,
    one_of,
    parse_bool,
    parse_int,
    parse_number,
    parse_seconds,
    parse_size,
)

T = TypeVar("T")

_AB = "jobmanager.adaptive-batch-scheduler."
_AUTO = "execution.batch.adaptive.auto-parallelism."

SCHEDULER = _register(
    Option(
        "jobmanager.scheduler",
        one_of("AdaptiveBatch", "Default", "Adaptive"),
        "AdaptiveBatch",
        "Which scheduler runs a job. AdaptiveBatch decides each step's parallelism from the bytes its inputs produced; Default uses parallelisms known beforehand; Adaptive is for streams.",
        "enum",
    )
)
BATCH_SHUFFLE_MODE = _register(
    Option(
        "execution.batch-shuffle-mode",
        one_of("ALL_EXCHANGES_BLOCKING", "ALL_EXCHANGES_PIPELINED"),
        "ALL_EXCHANGES_BLOCKING",
        "How results travel between steps. ALL_EXCHANGES_BLOCKING stores them, and parallelism is decided from what was stored. ALL_EXCHANGES_PIPELINED, with jobmanager.scheduler = Default only, runs both ends of a forward edge in the same tasks, one pulling the other's batches; any other exchange is refused, for Spark's tasks cannot stream to each other. A forward edge whose reader cannot stream is stored all the same, and explain says why.",
        "enum",
    )
)
MIN_PARALLELISM = _register(
    Option(
        _AB + "min-parallelism",
        parse_int,
        1,
        "Lower bound of a parallelism that is decided adaptively.",
        "int",
        aliases=(_AUTO + "min-parallelism",),
        check=at_least(1),
    )
)
MAX_PARALLELISM = _register(
    Option(
        _AB + "max-parallelism",
        parse_int,
        128,
        "Upper bound of a parallelism that is decided adaptively. Do not set it far above what the cluster can run: every producer writes max-parallelism times firesteel.subpartition-factor subpartitions.",
        "int",
        aliases=(_AUTO + "max-parallelism",),
        check=at_least(1),
    )
)
DATA_VOLUME_PER_TASK = _register(
    Option(
        _AB + "data-volume-per-task",
        parse_size,
        64 * MIB,
        "Bytes (plain, uncompressed) that a subtask is expected to process.",
        "size",
        aliases=(_AUTO + "avg-data-volume-per-task", _AB + "avg-data-volume-per-task"),
        check=at_least(1, "1 byte"),
    )
)
DEFAULT_SOURCE_PARALLELISM = _register(
    Option[int | None](
        _AB + "default-source-parallelism",
        parse_int,
        None,
        "Parallelism of a source that cannot infer its own, and the upper bound of what a source infers. Unset: max-parallelism.",
        "int",
        aliases=(_AUTO + "default-source-parallelism",),
        check=at_least(1),
    )
)
PARALLELISM_DEFAULT = _register(
    Option[int | None](
        "parallelism.default",
        parse_int,
        None,
        "Parallelism of every step that sets none, under the Default scheduler. Under AdaptiveBatch it caps the decided parallelism unless max-parallelism is set explicitly, as in Flink.",
        "int",
        check=at_least(1),
    )
)
CUT = _register(
    Option(
        "firesteel.decider.cut",
        one_of("by-bytes", "by-count"),
        "by-bytes",
        "How a step's input is cut into ranges. by-bytes: contiguous ranges whose largest is as small as can be; by-count: FLIP-187's formula, powers of two, equally many subpartitions each.",
        "enum",
    )
)
MAX_SLICES_PER_SUBTASK = _register(
    Option(
        "firesteel.decider.max-slices-per-subtask",
        parse_int,
        32768,
        "Upper bound of the (producer, subpartition) slices one subtask reads; more subtasks are made rather than exceed it.",
        "int",
        check=at_least(1),
    )
)
SUBPARTITION_FACTOR = _register(
    Option(
        "firesteel.subpartition-factor",
        parse_int,
        2,
        "Subpartitions of a result per possible consumer subtask. More give the balancer finer pieces, at a price: 2 was as even as 4 and about a tenth faster where it was measured.",
        "int",
        check=at_least(1),
    )
)
CODEC = _register(
    Option(
        "firesteel.results.codec", one_of("lz4", "zstd", "none"), "lz4", "Compression of results between steps.", "enum"
    )
)
STORAGE_DIR = _register(
    Option[str | None](
        "firesteel.storage.directory",
        str,
        None,
        "Where results between steps are stored: a path or a URL that pyarrow can open and every executor sees. Unset: a private directory under the machine's temporary directory, on local masters only.",
        "string",
    )
)
STORAGE_FILESYSTEM = _register(
    Option[str | None](
        "firesteel.storage.filesystem",
        str,
        None,
        "A function, as 'module:function', that opens the storage of results between steps instead of pyarrow: it is given the path in firesteel.storage.directory and returns a pyarrow FileSystem (or one of fsspec). Executors must be able to import it.",
        "string",
    )
)
MERGE_THRESHOLD = _register(
    Option(
        "firesteel.merge.threshold",
        parse_size,
        256 * KIB,
        "Small outputs of producers are merged before they are read where the mean slice that a consumer reads of a producer is smaller, if that saves at least twice what it costs. 0: never.",
        "size",
        check=at_least(0),
    )
)
MERGE_REQUEST_TIME = _register(
    Option[float | None](
        "firesteel.merge.request-time",
        parse_seconds,
        None,
        "What asking the storage for one slice takes, when it is decided whether merging saves time. Unset: measured when the job starts.",
        "duration",
        check=at_least(0),
    )
)
MEMORY_PER_TASK = _register(
    Option[int | None](
        "firesteel.memory.per-task",
        parse_size,
        None,
        "Bytes that the readers, operators and writers of one task hold before they spill. Unset: half the memory the machine or container leaves beside the JVM heap, divided by the task slots; never more than 1 GiB.",
        "size",
        check=at_least(1 * MIB, "1 MiB"),
    )
)
MAX_COLLECT_BYTES = _register(
    Option(
        "firesteel.max-collect-bytes",
        parse_size,
        1 * GIB,
        "Most plain bytes that collect, to_arrow, to_pandas bring to the driver.",
        "size",
        check=at_least(1),
    )
)
OFFLOAD_THRESHOLD = _register(
    Option(
        "firesteel.deployment.offload-threshold",
        parse_size,
        8 * MIB,
        "The descriptor of a consumed result travels as a blob, fetched once per executor, when its encoded bytes times its consumers reach this. Flink counts partitions times consumers (4,194,304); a partition takes one or two bytes here.",
        "size",
        check=at_least(1, "1 byte"),
    )
)
BLOB_CACHE_BYTES = _register(
    Option(
        "firesteel.executor.blob-cache-size",
        parse_size,
        256 * MIB,
        "Most bytes of blobs that an executor keeps on its local disk; the least recently used go first.",
        "size",
        check=at_least(0),
    )
)
_RESTART_NAMES = {
    "off": "none",
    "disable": "none",
    "fixeddelay": "fixed-delay",
    "failurerate": "failure-rate",
    "exponentialdelay": "exponential-delay",
}
"""What Flink understands beside the names it writes."""

RESTART_STRATEGY = _register(
    Option(
        "restart-strategy.type",
        one_of("none", "fixed-delay", "failure-rate", "exponential-delay", also=_RESTART_NAMES),
        "fixed-delay",
        "What happens when an execution fails. none (off, disable): the job fails. fixed-delay: so many restarts in the whole job, each after the same pause. failure-rate: so many within an interval. exponential-delay: without limit, after pauses that grow.",
        "enum",
        deprecated_keys=("restart-strategy",),
    )
)
RESTART_ATTEMPTS = _register(
    Option(
        "restart-strategy.fixed-delay.attempts",
        parse_int,
        3,
        "Restarts before the job fails.",
        "int",
        check=at_least(0),
    )
)
RESTART_DELAY = _register(
    Option(
        "restart-strategy.fixed-delay.delay",
        parse_seconds,
        1.0,
        "Pause before a restart.",
        "duration",
        check=at_least(0),
    )
)
MAX_FAILURES_PER_INTERVAL = _register(
    Option(
        "restart-strategy.failure-rate.max-failures-per-interval",
        parse_int,
        1,
        "Failures within failure-rate-interval that are followed by a restart; the next one fails the job.",
        "int",
        check=at_least(1),
    )
)
FAILURE_RATE_INTERVAL = _register(
    Option(
        "restart-strategy.failure-rate.failure-rate-interval",
        parse_seconds,
        60.0,
        "Over how long failures are counted.",
        "duration",
        check=at_least(0.001, "1 ms"),
    )
)
FAILURE_RATE_DELAY = _register(
    Option(
        "restart-strategy.failure-rate.delay",
        parse_seconds,
        1.0,
        "Pause before a restart.",
        "duration",
        check=at_least(0),
    )
)
_EXPONENTIAL = "restart-strategy.exponential-delay."

INITIAL_BACKOFF = _register(
    Option(
        _EXPONENTIAL + "initial-backoff",
        parse_seconds,
        1.0,
        "Pause before the first restart.",
        "duration",
        check=at_least(0.001, "1 ms"),
    )
)
MAX_BACKOFF = _register(
    Option(
        _EXPONENTIAL + "max-backoff",
        parse_seconds,
        60.0,
        "The longest pause before a restart.",
        "duration",
        check=at_least(0.001, "1 ms"),
    )
)
BACKOFF_MULTIPLIER = _register(
    Option(
        _EXPONENTIAL + "backoff-multiplier",
        parse_number,
        1.5,
        "Each pause is so many times as long as the one before.",
        "float",
        check=lambda multiplier: None if multiplier > 1 else "must be greater than 1",
    )
)
RESET_BACKOFF_THRESHOLD = _register(
    Option(
        _EXPONENTIAL + "reset-backoff-threshold",
        parse_seconds,
        3600.0,
        "After so long without a failure the next pause is initial-backoff again.",
        "duration",
        check=at_least(0.001, "1 ms"),
    )
)
JITTER_FACTOR = _register(
    Option(
        _EXPONENTIAL + "jitter-factor",
        parse_number,
        0.1,
        "A pause is longer or shorter by up to this part of it, so that jobs which failed together do not all come back in one moment. The same job has the same pauses.",
        "float",
        check=lambda factor: None if 0 <= factor <= 1 else "must be at least 0 and at most 1",
    )
)
ATTEMPTS_BEFORE_RESET_BACKOFF = _register(
    Option[int | None](
        _EXPONENTIAL + "attempts-before-reset-backoff",
        parse_int,
        None,
        "Restarts before the job fails, counted anew when the pause is initial-backoff again. Unset: without limit.",
        "int",
        check=at_least(1),
    )
)
_SPECULATIVE = _AB + "speculative."
_FLINK_SPECULATIVE = "execution.batch.speculative."

SPECULATIVE_ENABLED = _register(
    Option(
        _SPECULATIVE + "enabled",
        parse_bool,
        False,
        "Speculative execution (FLIP-168): executions that are slow get a mirror on another node; the first to finish wins. With jobmanager.scheduler = AdaptiveBatch only.",
        "bool",
        aliases=(_FLINK_SPECULATIVE + "enabled",),
    )
)
MAX_CONCURRENT_EXECUTIONS = _register(
    Option(
        _SPECULATIVE + "max-concurrent-executions",
        parse_int,
        2,
        "How many executions of a subtask, the original one among them, may run at the same time.",
        "int",
        aliases=(_FLINK_SPECULATIVE + "max-concurrent-executions",),
        check=at_least(1),
    )
)
BLOCK_SLOW_NODE_DURATION = _register(
    Option(
        _SPECULATIVE + "block-slow-node-duration",
        parse_seconds,
        60.0,
        "How long the node of a slow execution gets nothing new to do. 0: nodes are not blocked.",
        "duration",
        aliases=(_FLINK_SPECULATIVE + "block-slow-node-duration",),
        check=at_least(0),
    )
)
MAX_RETURNS = _register(
    Option(
        "firesteel.speculative.max-returns",
        parse_int,
        5,
        "How often in a row the executions of a subtask that Spark starts on a blocked node hand themselves back; the next one runs wherever it is.",
        "int",
        check=at_least(0),
    )
)
CHECK_INTERVAL = _register(
    Option(
        "slow-task-detector.check-interval",
        parse_seconds,
        1.0,
        "How often the detector looks for slow executions.",
        "duration",
        check=at_least(0.01, "10 ms"),
    )
)
BASELINE_LOWER_BOUND = _register(
    Option(
        "slow-task-detector.execution-time.baseline-lower-bound",
        parse_seconds,
        60.0,
        "No execution that has taken less is slow.",
        "duration",
        check=at_least(0),
    )
)
BASELINE_RATIO = _register(
    Option(
        "slow-task-detector.execution-time.baseline-ratio",
        parse_number,
        0.75,
        "Part of a step's subtasks that must have finished before any of the others is called slow.",
        "float",
        check=lambda ratio: None if 0 <= ratio < 1 else "must be at least 0 and less than 1",
    )
)
BASELINE_MULTIPLIER = _register(
    Option(
        "slow-task-detector.execution-time.baseline-multiplier",
        parse_number,
        1.5,
        "An execution is slow when it takes so many times as long as is usual in its step.",
        "float",
        check=lambda multiplier: None if multiplier > 0 else "must be greater than 0",
    )
)
SLOW_TASK_RULE = _register(
    Option(
        "firesteel.slow-task-detector.rule",
        one_of("input-weighted", "seed"),
        "input-weighted",
        "What is usual in a step. input-weighted: the median time per input byte, so that an execution which only has more to read is not slow; seed: FLIP-168's median time.",
        "enum",
    )
)
SLOW_TASK_EXPECTED = _register(
    Option(
        "firesteel.slow-task-detector.expected",
        parse_bool,
        True,
        "Where baseline-ratio cannot be reached (few subtasks, or a node that stands still holds many), an execution is slow too when it takes far longer than its bytes and the rate of others let expect.",
        "bool",
    )
)
SLOW_TASK_ABSOLUTE_TIME = _register(
    Option[float | None](
        "firesteel.slow-task-detector.absolute-time",
        parse_seconds,
        None,
        "An execution that has taken so long is slow, whatever others take. Unset: there is no such bound.",
        "duration",
        check=at_least(0.01, "10 ms"),
    )
)
NODE_VARIABLE = _register(
    Option[str | None](
        "firesteel.node.environment-variable",
        str,
        None,
        "Environment variable of the executors that names the machine they run on, for example one that Kubernetes fills in from spec.nodeName. Unset: the executor's host, or the executor where all share one host.",
        "string",
    )
)
RELEASE_DURING_JOB_EXECUTION = _register(
    Option(
        "jobmanager.partition.release-during-job-execution",
        parse_bool,
        True,
        "Delete what a step wrote as soon as the last subtask that reads it has finished. false keeps everything until the job has finished: a restart then repeats less, and the storage holds more.",
        "bool",
    )
)
FINE_GRAINED_ALL_BLOCKING = _register(
    Option(
        "fine-grained.shuffle-mode.all-blocking",
        parse_bool,
        False,
        "Make all exchanges of a job blocking where a slot sharing group has resources, whatever execution.batch-shuffle-mode says; such a job with pipelined exchanges is refused otherwise (FLIP-169). Of no effect on other jobs.",
        "bool",
    )
)


def _above_zero(number: float | None) -> str | None:
    return None if number is None or number > 0 else "must be greater than 0"


def _of_group(
    resource: str, parse: Callable[[Any], T], kind: str, check: Callable[[Any], str | None], doc: str
) -> Option[T | None]:
    return _register(Option[T | None]("slot-sharing-group.<name>." + resource, parse, None, doc, kind, check=check))


GROUP_CPU_CORES = _of_group(
    "cpu-cores", parse_number, "float", _above_zero,
    "CPU cores of a slot of this slot sharing group. The options of a group replace all resources that its steps say; env.register_slot_sharing_group(), called by the program, replaces these. A group that is given any resource needs cpu-cores and task-heap-memory.",
)  # fmt: skip
GROUP_TASK_HEAP_MEMORY = _of_group(
    "task-heap-memory", parse_size, "size", at_least(1, "1 byte"),
    "Memory of the functions of a task, in a slot of this group.",
)  # fmt: skip
GROUP_TASK_OFF_HEAP_MEMORY = _of_group(
    "task-off-heap-memory", parse_size, "size", at_least(0),
    "More memory of the functions of a task: what libraries take beside Python's own objects.",
)  # fmt: skip
GROUP_MANAGED_MEMORY = _of_group(
    "managed-memory", parse_size, "size", at_least(0),
    "What readers, operators and writers of a task hold before they spill, in a slot of this group. Unset: as firesteel.memory.per-task says, but at most half of the group's other memory.",
)  # fmt: skip
GROUP_EXTERNAL = _of_group(
    "external.<resource>", parse_number, "float", _above_zero,
    "How much of an external resource (gpu) a slot of this group needs: a whole number, or a fraction of one.",
)  # fmt: skip
EXECUTOR_MEMORY = _register(
    Option[int | None](
        "firesteel.executor.memory",
        parse_size,
        None,
        "Memory that the slots of one executor may take together, beside its JVM's heap, where slot sharing groups have resources. Unset: what the executor's environment variable FIRESTEEL_EXECUTOR_MEMORY says; else the overhead that was asked for (YARN, Kubernetes), or what its machine has beside the heaps, shared among its executors by their cores, less the framework memory of a worker per core.",
        "size",
        check=at_least(1, "1 byte"),
    )
)
FRAMEWORK_MEMORY = _register(
    Option(
        "firesteel.memory.framework",
        parse_size,
        256 * MIB,
        "Memory of a Python worker that no slot sharing group counts: the interpreter, pyarrow, pandas. A worker may hold so much beside what its slot was given (Flink: framework memory).",
        "size",
        check=at_least(0),
    )
)
BOUNDED_BY_SLOTS = _register(
    Option(
        "firesteel.decider.bounded-by-slots",
        parse_bool,
        False,
        "Decide no parallelism above the number of slots that the step's slot sharing group can get at once, from all workers that are there and not blocked.",
        "bool",
    )
)
SLOT_REQUEST_TIMEOUT = _register(
    Option(
        "slot.request.timeout",
        parse_seconds,
        300.0,
        "How long a job with fine-grained resources waits for a worker that could hold the slot it asks for. No time runs while one is there that could, however busy.",
        "duration",
        check=at_least(0),
    )
)
MEMORY_WATCH = _register(
    Option(
        "firesteel.memory.watch",
        parse_bool,
        True,
        "Stop a subtask whose Python worker holds more memory than its slot was given, and tell which step it was. Resident memory counts, that of child processes and of mapped files too, not address space. false: memory is only what slots are counted by, and peaks are still measured.",
        "bool",
    )
)
JOURNAL_DIR = _register(
    Option[str | None](
        "firesteel.journal.directory",
        str,
        None,
        "Where journals are kept, one file per job. Unset: .firesteel/journal under the working directory.",
        "string",
    )
)
PROGRESS = _register(
    Option(
        "firesteel.progress",
        parse_bool,
        True,
        "Show progress while a job runs (a live view on a terminal, plain lines elsewhere).",
        "bool",
    )
)
