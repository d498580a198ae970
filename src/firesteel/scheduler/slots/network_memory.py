"""Network memory of slot sharing groups: what our readers and writers hold beside the task's memory budget. Worked out once
all vertices of a group are initialised and a worker is known that can hold a slot, then part of its slots' profile (Flink:
SsgNetworkMemoryCalculationUtils).

Of one execution:

* each stored input: the chunks of stored bytes that are fetched (one; of a far store up to four objects are fetched ahead) and
  the buffer in which small slices are joined; never more than twice what there is to read, where that is known;
* the ends of the objects it reads, which its worker keeps: a tail per partition, up to a sixteenth of the budget;
* each stored output: three numbers per subpartition, and what is gathered for one write to a far store.

Rows that wait to be ordered and finished messages count against the budget, which is managed memory, and rows that pass from
one execution to the next in the same task are nowhere held. A slot needs as much as its largest task; a task is one
execution, or those of a pipelined region together.
"""

from __future__ import annotations

from collections.abc import Sequence

from firesteel.options import STORAGE_DIR, STORAGE_FILESYSTEM, Options
from firesteel.scheduler.job import Job
from firesteel.scheduler.kernel.decisions import NetworkNeed, NetworkShare
from firesteel.scheduler.policy import Policy
from firesteel.scheduler.slots.pool import SlotPool
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement
from firesteel.scheduler.slots.sharing import sharing
from firesteel.scheduler.topology.execution_graph import IntermediateResult
from firesteel.scheduler.topology.groups import EdgeGroups

CHUNK_BYTES = 4 << 20
GATHER_BYTES = 4 << 20
READ_AHEAD = 4
LOCAL_TAIL_BYTES = 4 << 10
REMOTE_TAIL_BYTES = 64 << 10
WORKER_BYTES = 64 << 20
WRITE_BYTES = 1 << 20
"""As in the room of the results."""
LEAST_ENDS_BYTES = 1 << 20
SUBPARTITION_BYTES = 24
"""Of an output: rows and plain bytes up to each subpartition of the open region, and the sum of its plain bytes."""
_MIB = 1 << 20


class NetworkMemory(Policy):
    def __init__(self, job: Job, pool: SlotPool) -> None:
        self._graph = job.graph
        self._pool = pool
        self._recorder = job.recorder
        self._is_far = is_far(job.options)
        self._open: dict[int, list[int]] = {}
        """Vertices of the groups of which it is not worked out yet."""
        for vertex, group in enumerate(pool.group_of):
            if pool.profiles[group].is_specified:
                self._open.setdefault(group, []).append(vertex)

    def initialized(self, vertices: Sequence[int]) -> None:
        self.consider()

    def consider(self) -> None:
        """Vertices were initialised, or workers came."""
        for group, vertices in list(self._open.items()):
            left = [vertex for vertex in vertices if not self._graph.vertices[vertex].is_absorbed]
            if all(self._graph.vertices[vertex].is_initialized for vertex in left) and self._are_known(group):
                del self._open[group]
                if left:
                    self._decide(group, left)

    def _are_known(self, group: int) -> bool:
        """Returns whether a worker is known that could hold a slot. One that comes may have just what was asked for, and no more."""
        made = self._pool.mode.enforcement is SlotEnforcement.EXECUTOR_PROFILES
        return made or self._pool.workers.spare(self._pool.profiles[group]) is not None

    def _decide(self, group: int, vertices: list[int]) -> None:
        profile = self._pool.profiles[group]
        tasks: dict[int, int] = {}
        for vertex, task in zip(vertices, sharing(vertices, self._graph.job_graph), strict=True):
            tasks[task] = tasks.get(task, 0) + self.of_vertex(vertex)
        needed = max(tasks.values()) + self._ends(vertices, profile)
        needed = -(-needed // _MIB) * _MIB
        given, share = self._given(group, profile, needed)
        if given:
            self._pool.set_profile(group, profile.with_network_memory(given))
        self._recorder.decision(
            "network memory",
            vertex=vertices[0],
            name=self._graph.vertices[vertices[0]].job.name,
            inputs=NetworkNeed(
                group=self._pool.groups[group], vertices=vertices, needed=needed, far=self._is_far, share=share
            ),
            rule="what readers and writers hold",
            result=given,
        )

    def of_vertex(self, vertex: int) -> int:
        """Bytes of one execution, but for the ends of objects."""
        initialized = self._graph.vertices[vertex]
        inputs = sum(map(self._input, initialized.inputs))
        if initialized.input_bytes is not None and len(initialized.input_bytes):
            inputs = min(inputs, 2 * int(initialized.input_bytes.max()))
        return inputs + sum(map(self._output, initialized.blocking_results))

    def _input(self, edge: EdgeGroups) -> int:
        if self._graph.result(edge.dataset).is_pipelined:
            return 0
        chunks = min(_partitions(edge), 1 + READ_AHEAD) if self._is_far else 1
        return chunks * CHUNK_BYTES + GATHER_BYTES

    def _output(self, result: IntermediateResult) -> int:
        return result.num_subpartitions * SUBPARTITION_BYTES + (WRITE_BYTES if self._is_far else 0)

    def _ends(self, vertices: list[int], profile: ResourceProfile) -> int:
        """Kept by the worker for all it reads; no more than a sixteenth of what its operators may hold."""
        edges = [edge for vertex in vertices for edge in self._graph.vertices[vertex].inputs]
        stored = [edge for edge in edges if not self._graph.result(edge.dataset).is_pipelined]
        tail = REMOTE_TAIL_BYTES if self._is_far else LOCAL_TAIL_BYTES
        budget = profile.managed_memory or profile.memory // 2
        return min(WORKER_BYTES, max(budget // 16, LEAST_ENDS_BYTES), tail * sum(map(_partitions, stored)))

    def _given(self, group: int, profile: ResourceProfile, needed: int) -> tuple[int, NetworkShare]:
        """Returns the bytes that enter the profile, and why. It must not cost a worker one of the slots that were reckoned with."""
        if not needed:
            return 0, NetworkShare.NOTHING_STORED
        if self._pool.mode.enforcement is SlotEnforcement.EXECUTOR_PROFILES and self._pool.was_cut(group):
            return 0, NetworkShare.SLOTS_STAY
        spare = self._pool.workers.spare(profile)
        if spare is None or spare >= needed:
            return needed, NetworkShare.WHOLE
        return spare // _MIB * _MIB, NetworkShare.AS_FITS


def is_far(options: Options) -> bool:
    """Returns whether results lie on a store that is asked over a network, as their readers see it."""
    url = options[STORAGE_DIR] or ""
    return bool(options[STORAGE_FILESYSTEM]) or ("://" in url and not url.startswith("file://"))


def _partitions(edge: EdgeGroups) -> int:
    """Most that one consumer reads."""
    return int((edge.partition_end - edge.partition_first).max(initial=0))
