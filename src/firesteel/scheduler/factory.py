"""Makes the scheduler that ``jobmanager.scheduler`` names, or says why it cannot run this job."""

from __future__ import annotations

from firesteel.errors import UsageError
from firesteel.graph.job_graph import JobGraph, ResultPartitionType
from firesteel.graph.validate import check_speculation
from firesteel.options import SCHEDULER, SPECULATIVE_ENABLED, Options
from firesteel.scheduler.adaptive_batch import AdaptiveBatchScheduler
from firesteel.scheduler.default import DefaultScheduler
from firesteel.scheduler.execution_time_detector import slow_task_detector
from firesteel.scheduler.resource_profile import SlotMode
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.slot_pool import SlotPool
from firesteel.scheduler.slots import BoundedSlotAllocator
from firesteel.scheduler.slow_tasks import SlowTaskDetector


def create_scheduler(
    job_graph: JobGraph,
    options: Options,
    slots: int = 1,
    request_seconds: float | None = None,
    *,
    in_order: bool = False,
    detector: SlowTaskDetector | None = None,
    slot_mode: SlotMode | None = None,
) -> Scheduler:
    """``slots``: tasks that can run at once on the cluster, as far as known. ``request_seconds``: what asking the storage
    for one slice takes; None: as the option says, else not known yet (``scheduler.merging.request_seconds``).
    ``in_order``: the cluster serves what came first, so a mirror would wait for all that was deployed before it: nothing
    is deployed that has no slot. ``detector``: the one to use where speculation is on; None: as the options say.
    ``slot_mode``: who keeps slots of their own resources apart, where a slot sharing group has any; None: the pool alone.

    Raises UsageError for a scheduler that is for streams, speculation or a pipelined exchange that it cannot have, or
    parallelisms that conflict.
    """
    check_speculation(options)
    name = options[SCHEDULER]
    if name == "Adaptive":
        raise UsageError(
            f"{SCHEDULER.key}: Adaptive is for streams, and '{job_graph.name}' is a batch job.",
            hint="Use AdaptiveBatch or Default.",
        )
    pipelined = [d for d in job_graph.datasets if d.type is ResultPartitionType.PIPELINED]
    if pipelined and name == "AdaptiveBatch":
        producer = job_graph.vertices[pipelined[0].producer]
        raise UsageError(
            f"The exchange behind '{producer.name}' is pipelined, and {name} decides how parallel a step is from the "
            "finished results it reads: all its exchanges are blocking.",
            hint=f"Set {SCHEDULER.key} to Default, or leave execution.batch-shuffle-mode at ALL_EXCHANGES_BLOCKING.",
        )
    kind = AdaptiveBatchScheduler if name == "AdaptiveBatch" else DefaultScheduler
    speculative = options[SPECULATIVE_ENABLED]
    chosen = (detector or slow_task_detector(options)) if speculative else None
    if any(job_graph.group_of(vertex.id).has_resources for vertex in job_graph.vertices):
        pool = SlotPool(job_graph, slot_mode, in_turn=in_order and speculative)
        scheduler = kind(job_graph, options, pool, slots=slots, detector=chosen)
        pool.watch(scheduler.executions, lambda: scheduler.speculation.avoided)
        scheduler.use_resources_of(pool)
    else:
        allocator = BoundedSlotAllocator(slots) if in_order and speculative else None
        scheduler = kind(job_graph, options, allocator, slots=slots, detector=chosen)
        if allocator is not None:
            allocator.watch(scheduler.nodes, scheduler.executions, lambda: scheduler.speculation.avoided)
    if request_seconds is not None:
        scheduler.merging.request_seconds = request_seconds
    return scheduler
