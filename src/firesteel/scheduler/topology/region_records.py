"""Records of pipelined regions, as they are made: how many there are, and why."""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.humanize import plural
from firesteel.model.job_graph import DistributionPattern, JobGraph
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.topology.regions import RegionBlock


def record_regions(graph: DefaultExecutionGraph, vertices: Sequence[int], recorder: Recorder) -> None:
    """``vertices``: just initialised. Of one alone in its region there is nothing to say."""
    blocks = {block.number: block for block in map(graph.regions.block, vertices) if len(block.vertices) > 1}
    for _, block in sorted(blocks.items()):
        tasks = int(block.sizes().sum())
        rule = "an all-to-all edge inside" if _has_all_to_all(graph.job_graph, block) else "pointwise edges inside"
        each = "all at once" if block.count == 1 else "each all at once"
        recorder.decision(
            "pipelined regions",
            vertex=block.vertices[0],
            name=graph.vertices[block.vertices[0]].job.name,
            inputs={"vertices": list(block.vertices), "subtasks": tasks},
            rule=rule,
            result=block.count,
            reason=f"{plural(tasks, 'subtask')} of vertices {', '.join(map(str, block.vertices))} run in "
            f"{plural(block.count, 'region')}, {each}: {rule}",
        )


def _has_all_to_all(job_graph: JobGraph, block: RegionBlock) -> bool:
    inputs = [edge for vertex in block.vertices for edge in job_graph.vertices[vertex].inputs]
    inside = [d for d in (job_graph.datasets[e.dataset] for e in inputs) if d.producer in block.vertices]
    return any(dataset.ship.pattern is DistributionPattern.ALL_TO_ALL for dataset in inside)
