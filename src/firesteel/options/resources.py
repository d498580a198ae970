"""Options of slots and their resources: FLIP-169's, and who has how much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from firesteel.options.registry import register as _register
from firesteel.options.values import MIB, Option, Scope, at_least, parse_bool, parse_number, parse_seconds, parse_size

T = TypeVar("T")

FINE_GRAINED_ALL_BLOCKING = _register(
    Option(
        "fine-grained.shuffle-mode.all-blocking",
        parse_bool,
        False,
        "Make all exchanges of a job blocking where a slot sharing group has resources, whatever execution.batch-shuffle-mode says; such a job with pipelined exchanges is refused otherwise (FLIP-169). Of no effect on other jobs.",
    )
)


def _above_zero(number: float | None) -> str | None:
    return None if number is None or number > 0 else "must be greater than 0"


def _of_group(
    resource: str, parse: Callable[[Any], T], check: Callable[[Any], str | None], doc: str
) -> Option[T | None]:
    key = "slot-sharing-group.<name>." + resource
    return _register(Option[T | None](key, parse, None, doc, check=check, scope=Scope.BOTH))


GROUP_CPU_CORES = _of_group(
    "cpu-cores", parse_number, _above_zero,
    "CPU cores of a slot of this slot sharing group. The options of a group replace all resources that its steps say; env.register_slot_sharing_group(), called by the program, replaces these. A group that is given any resource needs cpu-cores and task-heap-memory.",
)  # fmt: skip
GROUP_TASK_HEAP_MEMORY = _of_group(
    "task-heap-memory", parse_size, at_least(1, "1 byte"),
    "Memory of the functions of a task, in a slot of this group.",
)  # fmt: skip
GROUP_TASK_OFF_HEAP_MEMORY = _of_group(
    "task-off-heap-memory", parse_size, at_least(0),
    "More memory of the functions of a task: what libraries take beside Python's own objects.",
)  # fmt: skip
GROUP_MANAGED_MEMORY = _of_group(
    "managed-memory", parse_size, at_least(0),
    "The memory that readers, operators and writers of a task use before they spill, in a slot of this group. Unset: as firesteel.memory.per-task says, but at most half of the group's other memory.",
)  # fmt: skip
GROUP_EXTERNAL = _of_group(
    "external.<resource>", parse_number, _above_zero,
    "The amount of an external resource (gpu) that a slot of this group needs: a whole number, or a fraction of one.",
)  # fmt: skip
EXECUTOR_MEMORY = _register(
    Option[int | None](
        "firesteel.executor.memory",
        parse_size,
        None,
        "Memory that the slots of one executor may take together, beside its JVM's heap, where slot sharing groups have resources. Unset: what the executor's environment variable FIRESTEEL_EXECUTOR_MEMORY says; else what YARN or Kubernetes was asked for besides the heap (the memory overhead, and spark.executor.pyspark.memory), of which each slot takes firesteel.memory.framework more than its group declares; or what its machine has besides the heaps, shared among its executors by their cores, less the framework memory of a worker per core.",
        check=at_least(1, "1 byte"),
        scope=Scope.BOTH,
    )
)
FRAMEWORK_MEMORY = _register(
    Option(
        "firesteel.memory.framework",
        parse_size,
        256 * MIB,
        "Memory of a Python worker that no slot sharing group counts: the interpreter, pyarrow, pandas. A worker may hold so much beside what its slot was given (Flink: framework memory).",
        check=at_least(0),
    )
)
SLOT_REQUEST_TIMEOUT = _register(
    Option(
        "slot.request.timeout",
        parse_seconds,
        300.0,
        "The time that a job with fine-grained resources waits for a worker that could hold the slot it asks for. No time runs while one is there that could, however busy, and on a blocked node, too.",
        check=at_least(0),
        streams_have="jobmanager.adaptive-scheduler.submission.resource-wait-timeout",
    )
)
MEMORY_WATCH = _register(
    Option(
        "firesteel.memory.watch",
        parse_bool,
        True,
        "Stop a subtask whose Python worker holds more memory than its slot was given, and tell which step it was. Resident memory counts, that of child processes and of mapped files too, not address space. false: memory is only what slots are counted by, and peaks are still measured.",
    )
)
EXTERNAL_IDLE_TIMEOUT = _register(
    Option(
        "firesteel.external-resources.idle-timeout",
        parse_seconds,
        60.0,
        "Time that the process which ran a subtask with external resources (a GPU) is kept for the next one with the same addresses, with all that it has loaded. It ends sooner where another one takes the address. 0: it ends at once.",
        check=at_least(0),
    )
)
