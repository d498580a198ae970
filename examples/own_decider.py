"""A parallelism decider of one's own: steps that train get a subtask for every 8 MiB, and whole waves of subtasks.

    firesteel run job.py -O decider.function=own_decider:decide

It is called in the driver, so this file has to be where the driver's Python finds it (beside the script, or on PYTHONPATH).
"""

from firesteel import UndecidedStep

PER_TASK = 8 << 20


def decide(step: UndecidedStep) -> int:
    """As Firesteel would, except for steps whose name says that their bytes are costly."""
    if "train" not in step.name:
        return step.parallelism
    total = sum(result.total_bytes for result in step.inputs if not result.is_broadcast)
    waves = -(-total // (PER_TASK * step.slots))
    return max(step.minimum, min(step.maximum, waves * step.slots))
