"""Executions of a slot with external resources, handed by a Python worker to the process that holds these (``slots.holders``)."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firesteel.model.descriptors import ExecutionDescriptor
from firesteel.task.executor.place import Place
from firesteel.task.executor.slots.holders import HolderLostError, holders_here
from firesteel.task.executor.slots.slot import SlotInformation, addresses_of

LOST_EXIT_CODE = 78
"""Of a worker whose holder has ended: Spark runs the task again, as if the worker had died of it itself."""


@dataclass(frozen=True, slots=True)
class Handed:
    """Of a Spark task: what its holder runs and finds around it. ``function``: a BatchFunction without a channel."""

    function: Any
    descriptors: tuple[ExecutionDescriptor, ...]
    place: Place
    task: dict[str, Any]
    """The attributes of Spark's task context."""
    files: tuple[str | None, bool]
    """The folder of ``SparkFiles``, and True in a worker."""
    module_path: tuple[str, ...]

    def appear(self) -> None:
        """Functions that ask PySpark find what they would find in the worker."""
        from pyspark import SparkFiles, TaskContext

        if sys.path != [*self.module_path]:
            sys.path[:] = self.module_path
        context: Any = TaskContext._getOrCreate()
        vars(context).clear()
        vars(context).update(self.task)
        SparkFiles._root_directory, SparkFiles._is_running_on_worker = self.files


def hand_over(
    function: Any, descriptors: Sequence[ExecutionDescriptor], slot: SlotInformation, place: Place
) -> list[bytes] | None:
    """Returns the messages of the executions, run by a holder of their addresses; None: they must run here.

    Ends this process if the holder ends.
    """
    from pyspark import SparkFiles, TaskContext

    addresses = addresses_of(slot, descriptors[0].subtask)
    holders = holders_here() if any(addresses.values()) else None
    if holders is None:
        return None
    files: Any = SparkFiles._root_directory, SparkFiles._is_running_on_worker
    task = dict(vars(TaskContext.get()))
    handed = Handed(function, tuple(descriptors), place, task, files, tuple(sys.path))
    try:
        answer = holders.run(pickle.dumps(handed, protocol=5), slot, addresses)
    except HolderLostError:
        sys.stderr.flush()
        os._exit(LOST_EXIT_CODE)
    except OSError:  # none can be started
        return None
    messages: list[bytes] = pickle.loads(answer)
    return messages
