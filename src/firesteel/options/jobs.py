"""Options of batch jobs: the scheduler, parallelism, exchanges, storage, recovery, resources, journal."""

from __future__ import annotations

from typing import Any

from firesteel.options.registry import (
    GIB,
    KIB,
    MIB,
    Layer,
    Option,
    Options,
    Origin,
    Scope,
    at_least,
    is_share,
    names,
    number,
    one_of,
    seconds,
    size,
    switch,
    text,
    whole,
)
from firesteel.options.registry import remove as _remove

_AB = "jobmanager.adaptive-batch-scheduler."
_AUTO = "execution.batch.adaptive.auto-parallelism."

SCHEDULER = one_of("AdaptiveBatch", "Default", "Adaptive")(
    "jobmanager.scheduler",
    "AdaptiveBatch",
    "The scheduler of a job. AdaptiveBatch decides each step's parallelism from the bytes its inputs produced; Default uses parallelisms known beforehand; Adaptive is for streams.",
)
BATCH_SHUFFLE_MODE = one_of("ALL_EXCHANGES_BLOCKING", "ALL_EXCHANGES_PIPELINED")(
    "execution.batch-shuffle-mode",
    "ALL_EXCHANGES_BLOCKING",
    "The exchange mode of results between steps. ALL_EXCHANGES_BLOCKING stores them, and parallelism is decided from what was stored. ALL_EXCHANGES_PIPELINED, with jobmanager.scheduler = Default only, runs both ends of a forward edge in the same tasks, one pulling the other's batches; any other exchange is refused, for Spark's tasks cannot stream to each other. A forward edge whose reader cannot stream is stored all the same, and explain says why.",
)
MIN_PARALLELISM = whole(
    _AB + "min-parallelism",
    1,
    "Lower bound of a parallelism that is decided adaptively.",
    aliases=(_AUTO + "min-parallelism",),
    check=at_least(1),
    streams_have="the lower bound of its requirements",
)
MAX_PARALLELISM = whole(
    _AB + "max-parallelism",
    128,
    "Upper bound of a parallelism that is decided adaptively. Do not set it far above what the cluster can run: every producer writes max-parallelism times firesteel.subpartition-factor subpartitions.",
    aliases=(_AUTO + "max-parallelism", "max-parallelism"),
    check=at_least(1),
    streams_have="the upper bound of its requirements, or pipeline.max-parallelism",
)
DATA_VOLUME_PER_TASK = size(
    _AB + "data-volume-per-task",
    64 * MIB,
    "Bytes (plain, uncompressed) that a subtask is expected to process.",
    aliases=(_AUTO + "avg-data-volume-per-task", _AB + "avg-data-volume-per-task"),
    check=at_least(1, "1 byte"),
)
DEFAULT_SOURCE_PARALLELISM = whole(
    _AB + "default-source-parallelism",
    None,
    "Parallelism of a source that cannot infer its own, and the upper bound of what a source infers. Unset: max-parallelism.",
    aliases=(_AUTO + "default-source-parallelism",),
    check=at_least(1),
)
PARALLELISM_DEFAULT = whole(
    "parallelism.default",
    None,
    "Parallelism of every step that sets none, under the Default scheduler. Under AdaptiveBatch it caps the decided parallelism unless max-parallelism is set explicitly, as in Flink.",
    check=at_least(1),
    streams_have="its requirements",
)
CUT = one_of("by-bytes", "by-count")(
    "firesteel.decider.cut",
    "by-bytes",
    "The way to cut a step's input into ranges. by-bytes: contiguous ranges whose largest is as small as can be; by-count: FLIP-187's formula, powers of two, equally many subpartitions each.",
)
MAX_SLICES_PER_SUBTASK = whole(
    "firesteel.decider.max-slices-per-subtask",
    32768,
    "Upper bound of the (producer, subpartition) slices one subtask reads; more subtasks are made rather than exceed it.",
    check=at_least(1),
)
LEAST_VOLUME_PER_SLOT = size(
    "firesteel.decider.least-volume-per-slot",
    4 * MIB,
    "Where the volume per task asks for fewer subtasks than the cluster has slots, or leaves a last wave that does not fill them, a step cut by-bytes, or a source, gets more, as long as each has this many bytes to read, 16 KiB more for each producer of an exchange by key, and no fewer than the broadcasts that it reads once more; of several waves the later ones get smaller subtasks where that ends sooner. 0: never.",
    check=at_least(0),
)
JOIN_SKEW = one_of("auto", "none")(
    "firesteel.join.skew",
    "auto",
    "What becomes of a subpartition that is much larger than what a subtask of a join should get, as where one key has very many rows. auto: its rows are dealt out to several subtasks on one side, each with all of the other side's same subpartition, or on both sides, where the kind of join and the sizes allow it and it pays; likewise values that an aggregation counts by count_distinct are dealt out by their hash, and the counts added up in another step; none: one subtask reads it. Steps cut by-count never divide one.",
)
TARGET_TASK_DURATION = seconds(
    "firesteel.decider.target-task-duration",
    0.25,
    "The time that a subtask should take, of a step cut by-bytes (or a source) whose seconds per byte earlier runs of the job have measured. A step that takes long gets subtasks for slots that would stand idle, as long as each takes this long; one whose subtasks take less than twice this time gets fewer waves of them, each with up to four times data-volume-per-task. 0: never, and no journals of earlier runs are read, so that joins do not know what came out of their steps either.",
    check=at_least(0),
)
ADAPTIVE_JOINS = switch(
    "firesteel.join.adaptive",
    True,
    "Whether AdaptiveBatch waits for the likely smaller side of a join and, by the bytes that it really has, gives it whole to the tasks of the other side (a broadcast join), which then needs no exchange. false: every join exchanges both sides by the hash of their keys.",
)
RUNTIME_FILTER = switch(
    "firesteel.join.runtime-filter.enabled",
    True,
    "Whether AdaptiveBatch lets a source of files read only what can match the other side of its joins, where that side is small, is finished before the source begins, and was made by steps that drop rows (a runtime filter): partitions, row groups and rows without any of its keys are left out.",
)
RUNTIME_FILTER_MAX_BUILD = size(
    "firesteel.join.runtime-filter.max-build-data-size",
    64 * MIB,
    "No runtime filter is made of more than this many plain bytes: the driver reads them.",
    check=at_least(0),
)
RUNTIME_FILTER_MIN_PROBE = size(
    "firesteel.join.runtime-filter.min-probe-data-size",
    16 * MIB,
    "A source of fewer plain bytes gets no runtime filter: to read it all costs less.",
    check=at_least(0),
)
DECIDER_FUNCTION = text(
    "firesteel.decider.function",
    None,
    "A function, as 'module:function', that decides parallelisms in the place of Firesteel: it is given a firesteel.UndecidedStep and returns how many subtasks it gets. Steps without inputs, and those whose parallelism is set or is their forward group's, are not asked about. It is called in the driver.",
)
BOUNDED_BY_SLOTS = switch(
    "firesteel.decider.bounded-by-slots",
    False,
    "Decide no parallelism above the number of slots that the step's slot sharing group can get at once, from all workers that are there and not blocked.",
)
SUBPARTITION_FACTOR = whole(
    "firesteel.subpartition-factor",
    2,
    "Subpartitions of a result per possible consumer subtask. More give the balancer finer pieces, at a price: 2 was as even as 4 and about a tenth faster where it was measured.",
    check=at_least(1),
)
CODEC = one_of("lz4", "zstd", "none")(
    "firesteel.results.codec",
    "lz4",
    "Compression of results between steps.",
)
STORAGE_DIR = text(
    "firesteel.storage.directory",
    None,
    "Where results between steps are stored: a path or a URL that pyarrow can open and every executor sees. Unset: a private directory under the machine's temporary directory, on local masters only.",
)
STORAGE_FILESYSTEM = text(
    "firesteel.storage.filesystem",
    None,
    "A function, as 'module:function', that opens the storage of results between steps instead of pyarrow: it is given the path in firesteel.storage.directory and returns a pyarrow FileSystem (or one of fsspec). Executors must be able to import it.",
)
MERGE_THRESHOLD = size(
    "firesteel.merge.threshold",
    256 * KIB,
    "Small outputs of producers are merged before they are read where the mean slice that a consumer reads of a producer is smaller, if that saves at least twice what it costs. 0: never.",
    check=at_least(0),
)
MERGE_REQUEST_TIME = seconds(
    "firesteel.merge.request-time",
    None,
    "The time of one request to the storage, by which it is decided whether merging saves time. Unset: measured when the job starts.",
    check=at_least(0),
)
MEMORY_PER_TASK = size(
    "firesteel.memory.per-task",
    None,
    "Bytes that the readers, operators and writers of one task hold before they spill. Unset: half the memory the machine or container leaves beside the JVM heap (on YARN and Kubernetes at most the memory overhead), divided by the task slots; never more than 1 GiB.",
    check=at_least(1 * MIB, "1 MiB"),
)
KEPT_FUNCTIONS = size(
    "firesteel.memory.kept-functions",
    1 * GIB,
    "Most bytes that a Python worker keeps of functions with a set-up (loaded models) that its task does not need, for later tasks; the least recently used go first. 0 keeps only those of the task at hand.",
    check=at_least(0),
)
MAX_COLLECT_BYTES = size(
    "firesteel.max-collect-bytes",
    1 * GIB,
    "Most plain bytes that collect, to_arrow, to_pandas bring to the driver.",
    check=at_least(1),
)
OFFLOAD_THRESHOLD = size(
    "firesteel.deployment.offload-threshold",
    8 * MIB,
    "The descriptor of a consumed result travels as a blob, fetched once per executor, when its encoded bytes times its consumers reach this. Flink counts partitions times consumers (4,194,304); a partition takes one or two bytes here.",
    check=at_least(1, "1 byte"),
)
STANDING_TASKS = switch(
    "firesteel.standing-tasks",
    True,
    "Run small subtasks one after another in Spark tasks that stay for a moment (standing tasks), in the place of a Spark job for each step and a Spark task for each subtask. Not in jobs with speculative execution, nor in slot sharing groups with resources, nor on clusters that encrypt; with dynamic allocation only as many as there are slots.",
)
STANDING_TASKS_MAX_INPUT = size(
    "firesteel.standing-tasks.max-input",
    4 * MIB,
    "A step runs in standing tasks if none of its subtasks reads more plain bytes than this.",
    check=at_least(0),
)
BLOB_CACHE_BYTES = size(
    "firesteel.executor.blob-cache-size",
    256 * MIB,
    "Most bytes of blobs that an executor keeps on its local disk; the least recently used go first.",
    check=at_least(0),
)
RELEASE_DURING_JOB_EXECUTION = switch(
    "jobmanager.partition.release-during-job-execution",
    True,
    "Delete what a step wrote as soon as the last subtask that reads it has finished. false keeps everything until the job has finished: a restart then repeats less, and the storage holds more.",
)
JOURNAL_DIR = text.of(Scope.BOTH)(
    "firesteel.journal.directory",
    None,
    "Where journals are kept, one file per job. Unset: .firesteel/journal under the working directory.",
)
HEAVY_KEYS = switch(
    "firesteel.journal.heavy-keys",
    True,
    "Name the keys that have most of the bytes of an exchange by key (at least 1 %, and twice what each other subpartition has on average), with their shares, in the journal and in explain. The names are the values of the key's columns, the only ones that get there. false: no task reports a key.",
)
FAILED_ROWS = switch(
    "firesteel.journal.failed-rows",
    True,
    "Write down rows that a function could not do and their errors in the journal, where on_error lets the job go on: at most 20 of a step, of each at most 200 characters. false: they are counted only.",
)
PROGRESS = switch.of(Scope.BOTH)(
    "firesteel.progress",
    True,
    "Show progress while a job runs (a live view on a terminal, plain lines elsewhere).",
)

DECIDER_OPTIONS: tuple[Option[Any], ...] = (
    MIN_PARALLELISM,
    MAX_PARALLELISM,
    DATA_VOLUME_PER_TASK,
    CUT,
    MAX_SLICES_PER_SUBTASK,
    LEAST_VOLUME_PER_SLOT,
    JOIN_SKEW,
    TARGET_TASK_DURATION,
    PARALLELISM_DEFAULT,
)
"""The options that bound a decision about inputs of known sizes."""
SQL_DATAFRAMES = one_of("auto", "spark")(
    "firesteel.sql.dataframes",
    "auto",
    "What computes the DataFrames that from_dataframe takes. auto: Firesteel's own tasks, with DuckDB, as far as they give Spark's very answers, and Spark the rest; spark: Spark alone.",
)
SQL_NEAR = switch(
    "firesteel.sql.near",
    False,
    "Take over angles (sin, atan2, tanh and their kind) and cbrt in queries, too. The last digit of their values may differ from Spark's.",
)
_remove(
    "firesteel.sql.min-input-bytes",
    "Small queries run in the driver's process; firesteel.run.in-process says which.",
)
IN_PROCESS = one_of("queries", "all", "never")(
    "firesteel.run.in-process",
    "queries",
    "The queries of accelerated sessions that run as one statement in the driver's process, with all its cores, in the place of stages on Spark. queries: small ones; all: of any size; never: none.",
)
IN_PROCESS_MAX_BYTES = size(
    "firesteel.run.in-process.max-bytes",
    None,
    "Most plain bytes that a query may read to run in the driver's process: of the columns that it reads, without the row groups that are left out. Unset: 16 GiB where the master is local, else 1 GiB.",
    check=at_least(0),
)
IN_PROCESS_THREADS = whole(
    "firesteel.run.in-process.threads",
    0,
    "Threads of the engine in the driver's process, for all its queries together. 0: as many as the process has cores.",
    check=at_least(0),
)
ENGINE_MEMORY = size(
    "firesteel.run.in-process.memory",
    None,
    "Most bytes that the engine in the driver's process may hold; what does not fit is spilled to the machine's temporary directory. Unset: a quarter of the memory that the JVM's heap leaves on the machine or in the container.",
    check=at_least(32 * MIB, "32 MiB"),
)
SQL_VERIFY = number(
    "firesteel.sql.verify",
    0.0,
    "The share of the queries that accelerate takes over which Spark computes, too, to compare the answers: 0 for none, 1 for all, 0.01 for one in a hundred. An answer that differs is an error.",
    check=is_share,
)
SQL_VERIFY_MAX_BYTES = size(
    "firesteel.sql.verify-max-bytes",
    GIB,
    "Most bytes that a query may read, by Spark's estimate, and that its answer may have, for firesteel.sql.verify to check it.",
    check=at_least(0),
)


_number, _size = number.of(Scope.BOTH), size.of(Scope.BOTH)
_GROUP = "slot-sharing-group.<name>."

FINE_GRAINED_ALL_BLOCKING = switch(
    "fine-grained.shuffle-mode.all-blocking",
    False,
    "Make all exchanges of a job blocking where a slot sharing group has resources, whatever execution.batch-shuffle-mode says; such a job with pipelined exchanges is refused otherwise (FLIP-169). Of no effect on other jobs.",
)


def _above_zero(number: float | None) -> str | None:
    return None if number is None or number > 0 else "must be greater than 0"


GROUP_CPU_CORES = _number(
    _GROUP + "cpu-cores",
    None,
    "CPU cores of a slot of this slot sharing group. The options of a group replace all resources that its steps say; env.register_slot_sharing_group(), called by the program, replaces these. A group that is given any resource needs cpu-cores and task-heap-memory.",
    check=_above_zero,
)
GROUP_TASK_HEAP_MEMORY = _size(
    _GROUP + "task-heap-memory",
    None,
    "Memory of the functions of a task, in a slot of this group.",
    check=at_least(1, "1 byte"),
)
GROUP_TASK_OFF_HEAP_MEMORY = _size(
    _GROUP + "task-off-heap-memory",
    None,
    "More memory of the functions of a task: what libraries take beside Python's own objects.",
    check=at_least(0),
)
GROUP_MANAGED_MEMORY = _size(
    _GROUP + "managed-memory",
    None,
    "The memory that readers, operators and writers of a task use before they spill, in a slot of this group. Unset: as firesteel.memory.per-task says, but at most half of the group's other memory.",
    check=at_least(0),
)
GROUP_EXTERNAL = _number(
    _GROUP + "external.<resource>",
    None,
    "The amount of an external resource (gpu) that a slot of this group needs: a whole number, or a fraction of one.",
    check=_above_zero,
)
EXECUTOR_MEMORY = _size(
    "firesteel.executor.memory",
    None,
    "Memory that the slots of one executor may take together, beside its JVM's heap, where slot sharing groups have resources. Unset: what the executor's environment variable FIRESTEEL_EXECUTOR_MEMORY says; else what YARN or Kubernetes was asked for besides the heap (the memory overhead, and spark.executor.pyspark.memory), of which each slot takes firesteel.memory.framework more than its group declares; or what its machine has besides the heaps, shared among its executors by their cores, less the framework memory of a worker per core.",
    check=at_least(1, "1 byte"),
)
FRAMEWORK_MEMORY = size(
    "firesteel.memory.framework",
    256 * MIB,
    "Memory of a Python worker that no slot sharing group counts: the interpreter, pyarrow, pandas. A worker may hold so much beside what its slot was given (Flink: framework memory).",
    check=at_least(0),
)
SLOT_REQUEST_TIMEOUT = seconds(
    "slot.request.timeout",
    300.0,
    "The time that a job with fine-grained resources waits for a worker that could hold the slot it asks for. No time runs while one is there that could, however busy, and on a blocked node, too.",
    check=at_least(0),
    streams_have="jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
)
MEMORY_WATCH = switch(
    "firesteel.memory.watch",
    True,
    "Stop a subtask whose Python worker holds more memory than its slot was given, and tell which step it was. Resident memory counts, that of child processes and of mapped files too, not address space. false: memory is only what slots are counted by, and peaks are still measured.",
)
EXTERNAL_IDLE_TIMEOUT = seconds(
    "firesteel.external-resources.idle-timeout",
    60.0,
    "Time that the process which ran a subtask with external resources (a GPU) is kept for the next one with the same addresses, with all that it has loaded. It ends sooner where another one takes the address. 0: it ends at once.",
    check=at_least(0),
)


RECOVERY_MODE = one_of("off", "on-request", "auto")(
    "firesteel.recovery.mode",
    None,
    "Whether a job that did not finish can go on where it was. off: it cannot. on-request: its events are written to a log beside its results, and firesteel run --resume, or execute(resume=True), goes on with it. auto: the next run of the same script does so by itself. Unset: on-request where firesteel.storage.directory is a directory of this machine's file systems, else off. On S3 it must be set, unless firesteel.results.reuse is true, and needs boto3.",
)
RECOVERY_RESUME = text(
    "firesteel.recovery.resume",
    None,
    "The job to go on with, as firesteel run --resume says it: last, for the last one at the same place of the same script, or a job's id. Unset: none, unless firesteel.recovery.mode is auto.",
)
RECOVERY_DRY_RUN = switch(
    "firesteel.recovery.dry-run",
    False,
    "Say what of the job to go on with would be kept, what would run again, and why, and end the script there, as firesteel resume --dry-run does. Nothing is run or changed.",
)
RETAIN_ON_FAILURE = seconds(
    "firesteel.results.retain-on-failure",
    86400.0,
    "How long the results of a job that failed, was cancelled, or whose driver died are kept for a resume, since the last change of its log. Later jobs and firesteel clean leave them alone until then. 0: not at all.",
    check=at_least(0),
)
RESULTS_REUSE = switch(
    "firesteel.results.reuse",
    False,
    "Keep what the steps of a job have written when it has ended, and take what earlier jobs of the same storage directory have kept in the place of steps that would do just the same to the same, as in a script or a notebook's cell that is run again after a change of its last step. What writes outputs runs in every job. Needs a directory of a file system or a place on S3, and a log (firesteel.recovery.mode), which is then written unless that option says off.",
)
RESULTS_PURE = names(
    "firesteel.results.pure",
    None,
    "Names of modules and functions of libraries that give the same answer to the same arguments, in every process and at any time, as in mylib,otherlib.parse. A step that uses a library which neither this option nor Firesteel knows to be pure runs in every job, whatever firesteel.results.reuse says. Unset: none.",
)
RETAIN_ON_SUCCESS = seconds(
    "firesteel.results.retain-on-success",
    604800.0,
    "How long the results of a job that has finished are kept for later jobs, since they were last of use, where firesteel.results.reuse is true. 0: not at all.",
    check=at_least(0),
)
RETAIN_AT_MOST = size(
    "firesteel.results.retain-at-most",
    10 * GIB,
    "Most bytes of results of one user's finished jobs that are kept in a storage directory for firesteel.results.reuse; on S3 those of all users count together. Beyond that those that were not of use for the longest time are removed when a job ends; never those that a running job uses.",
    check=at_least(0),
)


def retaining(options: Options) -> Options:
    """Returns the options of a job; where its results are for other jobs nothing of them is released before its end, whatever they say."""
    if not options[RESULTS_REUSE]:
        return options
    return options.merged(
        Options({RELEASE_DURING_JOB_EXECUTION.key: False}, Origin(Layer.PROGRAM, f"{RESULTS_REUSE.key} = true"))
    )


def asks_to_resume(options: Options, resume: bool | str | None = None) -> bool:
    """Returns whether a job is to go on where another one was, if it can. ``resume``: as ``execute`` takes it."""
    if resume is not None:
        return resume is not False
    return options[RECOVERY_RESUME] is not None or options[RECOVERY_MODE] == "auto"
