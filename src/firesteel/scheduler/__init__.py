"""The control plane: pure Python, no I/O, no pyspark. ``create_scheduler(job_graph, options).handle(event)``."""

from firesteel.scheduler.factory import create_scheduler
from firesteel.scheduler.scheduler import Scheduler

__all__ = ["Scheduler", "create_scheduler"]
