"""Parallelism deciders of one's own: steps that train get a subtask for every 8 MiB, in whole waves of subtasks.

    firesteel run job.py -O decider.function=own_decider:decide
    firesteel run job.py -O decider.function=own_decider:Decider

They are called in the driver, so this file has to be where the driver's Python finds it (beside the script, or on PYTHONPATH).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from firesteel import UndecidedStep

PER_TASK = 8 << 20


def decide(step: UndecidedStep) -> int:
    """As Firesteel would, except for steps whose name says that their bytes are costly."""
    return in_waves(step, step.slots) if "train" in step.name else step.parallelism


class Decider:
    """The same, with the job's options: with speculation on, each wave leaves a slot free for speculative attempts."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.spare = 1 if options["jobmanager.adaptive-batch-scheduler.speculative.enabled"] else 0

    def __call__(self, step: UndecidedStep) -> int:
        if "train" not in step.name or is_from_one_producer(step):
            return step.parallelism
        return in_waves(step, max(1, step.slots - self.spare))


def in_waves(step: UndecidedStep, slots: int) -> int:
    total = sum(result.total_bytes for result in step.inputs if not result.is_broadcast)
    waves = -(-total // (PER_TASK * slots))
    return max(step.minimum, min(step.maximum, waves * slots))


def is_from_one_producer(step: UndecidedStep) -> bool:
    """Whether a single subtask wrote all of each input, as after a ``limit``."""
    known = [result.partition_bytes for result in step.inputs if result.partition_bytes is not None]
    return bool(known) and all(np.count_nonzero(sizes) <= 1 for sizes in known)
