"""Streams that rescale right after a checkpoint (FLIP-461), on Spark's Structured Streaming: the public names."""

from __future__ import annotations

from firesteel.api.adaptive_stream import AdaptiveStream
from firesteel.errors import FiresteelError, JobCancelledError, JobExecutionError, UsageError
from firesteel.scheduler.streaming.records import EndState, RescaleRecord, StreamStatus, TriggerCause
from firesteel.scheduler.streaming.wish import ResourceRequirements

__all__ = [
    "AdaptiveStream",
    "EndState",
    "FiresteelError",
    "JobCancelledError",
    "JobExecutionError",
    "RescaleRecord",
    "ResourceRequirements",
    "StreamStatus",
    "TriggerCause",
    "UsageError",
]
