"""Parallelism deciders (FLIP-187): pure functions from sizes and bounds to parallelism and input ranges."""

from firesteel.scheduler.parallelism.bounds import bounds_for, bounds_within, global_maximum
from firesteel.scheduler.parallelism.decider import decide_vertex
from firesteel.scheduler.parallelism.model import Bounds, ConsumedResult, VertexPlan
from firesteel.scheduler.parallelism.source import SourcePlan, decide_source

__all__ = [
    "Bounds",
    "ConsumedResult",
    "SourcePlan",
    "VertexPlan",
    "bounds_for",
    "bounds_within",
    "decide_source",
    "decide_vertex",
    "global_maximum",
]
