"""Makes the scheduler that ``jobmanager.scheduler`` names, or says why it cannot run this job."""

from __future__ import annotations

from firesteel.errors import UsageError
from firesteel.graph.job_graph import JobGraph, ResultPartitionType
from firesteel.options import SCHEDULER, Options
from firesteel.scheduler.adaptive_batch import AdaptiveBatchScheduler
from firesteel.scheduler.default import DefaultScheduler
from firesteel.scheduler.scheduler import Scheduler


def create_scheduler(job_graph: JobGraph, options: Options, slots: int = 1) -> Scheduler:
    """``slots``: tasks that can run at once on the cluster, as far as known.

    Raises UsageError for a scheduler that is for streams, a pipelined exchange, or parallelisms that conflict."""
    name = options[SCHEDULER]
    if name == "Adaptive":
        raise UsageError(
            f"{SCHEDULER.key}: Adaptive is for streams, and '{job_graph.name}' is a batch job.",
            hint="Use AdaptiveBatch or Default.",
        )
    for dataset in job_graph.datasets:
        if dataset.type is ResultPartitionType.PIPELINED:
            producer = job_graph.vertices[dataset.producer]
            raise UsageError(
                f"The exchange behind '{producer.name}' is pipelined, and {name} runs jobs whose exchanges are all "
                "blocking: with too few slots, tasks that must run together would never start.",
                hint="Leave execution.batch-shuffle-mode at ALL_EXCHANGES_BLOCKING.",
            )
    scheduler = AdaptiveBatchScheduler if name == "AdaptiveBatch" else DefaultScheduler
    return scheduler(job_graph, options, slots=slots)
