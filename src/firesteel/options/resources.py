"""Options of slots and their resources: FLIP-169's, and who has how much."""

from __future__ import annotations

from firesteel.options.registry import MIB, Scope, at_least, number, seconds, size, switch

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
