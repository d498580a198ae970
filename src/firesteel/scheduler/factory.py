"""Makes the scheduler that ``jobmanager.scheduler`` names, or says why it cannot run this job."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from firesteel.errors import UsageError
from firesteel.model.job_graph import JobGraph, ResultPartitionType
from firesteel.model.steps.costs import NO_COSTS, StepCosts
from firesteel.options import SCHEDULER, SPECULATIVE_ENABLED, Options
from firesteel.options.checks import check_speculation
from firesteel.scheduler.adaptive_batch import AdaptiveBatchScheduler
from firesteel.scheduler.default import DefaultScheduler
from firesteel.scheduler.exchange.size_rows import BUFFER_BYTES
from firesteel.scheduler.kernel.profiler import NO_PROFILER, Profiler
from firesteel.scheduler.parallelism.planning import NOTHING_PINNED
from firesteel.scheduler.recovery.side_inputs import DIRECT, DirectInputs
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.slots.allocators import (
    AllocatorContext,
    BoundedSlotAllocator,
    ExecutionSlotAllocator,
    grant_all,
)
from firesteel.scheduler.slots.manager import JoinSession
from firesteel.scheduler.slots.pool import SlotPool
from firesteel.scheduler.slots.resource_profile import SlotMode
from firesteel.scheduler.slots.usage import SlotUsageRecorder
from firesteel.scheduler.speculation.detector import SlowTaskDetector
from firesteel.scheduler.speculation.execution_time_detector import slow_task_detector


def create_scheduler(
    job_graph: JobGraph,
    options: Options,
    slots: int = 1,
    request_seconds: Callable[[], float | None] = lambda: None,
    *,
    in_order: bool = False,
    detector: SlowTaskDetector | None = None,
    slot_mode: SlotMode | None = None,
    join: JoinSession | None = None,
    task_memory: Callable[[], float | None] = lambda: None,
    profiler: Profiler = NO_PROFILER,
    costs: StepCosts = NO_COSTS,
    cold_start: float = 0.0,
    size_buffer_bytes: int = BUFFER_BYTES,
    side_inputs: DirectInputs = DIRECT,
    pinned: Mapping[int, int] = NOTHING_PINNED,
) -> Scheduler:
    """``slots``: tasks that can run at once on the cluster, as far as known. ``request_seconds``: gives
    what asking the storage for one slice takes, where the options do not say; None: not known yet, and nothing is merged.
    ``in_order``: the cluster serves what came first, so a mirror would wait for all that was deployed before it: nothing
    is deployed that has no slot. ``detector``: the one to use where speculation is on; None: as the options say.
    ``slot_mode``: who keeps slots of their own resources apart, where a slot sharing group has any; None: the pool alone.
    ``task_memory``: gives the bytes that a task may use for its data; None: not known yet.
    ``join``: registers the job with the slot manager of its session, whose schedulers are used one at a time; None: it shares the
    workers with nobody. ``profiler``: told of the phases the scheduler goes through. ``costs``: of steps, as earlier
    runs measured them. ``cold_start``: seconds that the cluster's first workers may take to start. ``size_buffer_bytes``: of each
    result's packed rows of sizes, what is kept in memory. ``side_inputs``: through which the user's functions are asked, and numbers that
    are known late. ``pinned``: vertex to the parallelism it had before the job was resumed with another program.

    Raises UsageError for a scheduler that is for streams, speculation or a pipelined exchange that it cannot have, or
    parallelisms that conflict.
    """
    pipelined = [d for d in job_graph.datasets if d.type is ResultPartitionType.PIPELINED]
    check_speculation(options, bool(pipelined))
    name = options[SCHEDULER]
    if name == "Adaptive":
        raise UsageError(
            f"{SCHEDULER.key}: Adaptive is for streams, and '{job_graph.name}' is a batch job.",
            hint="Use AdaptiveBatch or Default.",
        )
    if pipelined and name == "AdaptiveBatch":
        producer = job_graph.vertices[pipelined[0].producer]
        raise UsageError(
            f"The exchange behind '{producer.name}' is pipelined, and {name} decides how parallel a step is from the "
            "finished results it reads: all its exchanges are blocking.",
            hint=f"Set {SCHEDULER.key} to Default, or leave execution.batch-shuffle-mode at ALL_EXCHANGES_BLOCKING.",
        )
    speculative = options[SPECULATIVE_ENABLED]
    chosen = (detector or slow_task_detector(options, side_inputs)) if speculative else None
    in_turn = in_order and speculative

    def pool(given: AllocatorContext) -> ExecutionSlotAllocator:
        return SlotPool(
            job_graph,
            slot_mode,
            given.table,
            avoided=given.avoided,
            usage=lambda made: SlotUsageRecorder(made, given.table, given.recorder),
            in_turn=in_turn,
            join=join,
        )

    def bounded(given: AllocatorContext) -> ExecutionSlotAllocator:
        return BoundedSlotAllocator(slots, given.nodes, given.table, given.avoided)

    has_resources = any(job_graph.group_of(vertex.id).has_resources for vertex in job_graph.vertices)
    allocator = pool if has_resources else bounded if in_turn else grant_all
    if name == "AdaptiveBatch":
        return AdaptiveBatchScheduler(
            job_graph,
            options,
            allocator,
            slots,
            chosen,
            request_seconds=request_seconds,
            task_memory=task_memory,
            profiler=profiler,
            costs=costs,
            cold_start=cold_start,
            size_buffer_bytes=size_buffer_bytes,
            side_inputs=side_inputs,
            pinned=pinned,
        )
    return DefaultScheduler(
        job_graph,
        options,
        allocator,
        slots,
        chosen,
        request_seconds=request_seconds,
        task_memory=task_memory,
        profiler=profiler,
        costs=costs,
        size_buffer_bytes=size_buffer_bytes,
        side_inputs=side_inputs,
        pinned=pinned,
    )
