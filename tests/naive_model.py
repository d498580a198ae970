"""What groups, regions, scheduling, failover and release decide, once more: over single edges, with dicts and sets."""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Iterable

from tests.scheduler_kit import GraphBuilder

from firesteel.model.job_graph import DistributionPattern, JobGraph, ResultPartitionType, ShipStrategy
from firesteel.scheduler.kernel.states import IS_DEPLOYED, IS_PENDING, ExecutionState
from firesteel.scheduler.scheduler import Scheduler
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph
from firesteel.scheduler.topology.groups import EdgeGroups

Task = tuple[int, int]
"""(vertex, subtask)."""
FORWARD, RESCALE = ShipStrategy.FORWARD, ShipStrategy.RESCALE
BLOCKING, PIPELINED = ResultPartitionType.BLOCKING, ResultPartitionType.PIPELINED


def components(nodes: Iterable, edges: Iterable[tuple]) -> list[set]:
    """Tarjan's strongly connected components as in the textbook: recursive, edge by edge."""
    after, index, low, stack, found = defaultdict(list), {}, {}, [], []
    for a, b in edges:
        after[a].append(b)

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in after[node]:
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            found.append(set(stack[stack.index(node) :]))
            del stack[stack.index(node) :]

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(10_000)
    try:
        for node in nodes:
            if node not in index:
                visit(node)
    finally:
        sys.setrecursionlimit(limit)
    return found


class Naive:
    """Every edge of a graph as it is now: (producer, consumer, data set)."""

    def __init__(self, graph: DefaultExecutionGraph) -> None:
        self.graph = graph
        vertices = [v for v in graph.vertices if v.is_initialized]
        self.tasks: list[Task] = [(v.id, k) for v in vertices for k in range(v.parallelism)]
        self.inputs: dict[Task, list[tuple[Task, int]]] = {task: [] for task in self.tasks}
        self.outputs: dict[Task, list[tuple[Task, int]]] = {task: [] for task in self.tasks}
        for vertex in vertices:
            for edge, groups in zip(vertex.job.inputs, vertex.inputs, strict=True):
                dataset = graph.job_graph.datasets[edge.dataset]
                for p, consumer in self.pairs(groups, edge.index):
                    self.inputs[vertex.id, consumer].append(((dataset.producer, p), dataset.id))
                    self.outputs[dataset.producer, p].append(((vertex.id, consumer), dataset.id))
        self.region_of = self._regions()

    def pairs(self, groups: EdgeGroups, index: int) -> set[tuple[int, int]]:
        """(partition, consumer) of an input of a vertex, by what each of them reads."""
        vertex = self.graph.vertices[groups.vertex]
        result = self.graph.result(groups.dataset)
        everything = range(result.num_partitions)
        # A vertex that was not cut when its groups were made waits for all of its inputs.
        whole = result.dataset.ship.pattern is DistributionPattern.ALL_TO_ALL or len(groups) == 1
        if whole:
            return {(p, c) for p in everything for c in range(vertex.parallelism)}
        ranges = vertex.ranges[index]
        return {(p, c) for c in range(vertex.parallelism) for a, b, _, _ in ranges.of(c).tolist() for p in range(a, b)}

    def is_pipelined(self, dataset: int) -> bool:
        return self.graph.job_graph.datasets[dataset].type is PIPELINED

    def _regions(self) -> dict[Task, frozenset[Task]]:
        edges = [(p, c) for p, readers in self.outputs.items() for c, _ in readers]
        edges += [(c, p) for p, readers in self.outputs.items() for c, d in readers if self.is_pipelined(d)]
        return {task: frozenset(part) for part in components(self.tasks, edges) for task in part}

    # --- decisions ------------------------------------------------------------------------------------------------

    def state(self, task: Task) -> ExecutionState:
        return ExecutionState(self.graph.vertices[task[0]].states[task[1]])

    def is_readable(self, task: Task) -> bool:
        """All it reads from outside of its region is there."""
        return all(self.graph.result(d).available[p[1]] for p, d in self.inputs[task] if p not in self.region_of[task])

    def is_deployable(self, task: Task) -> bool:
        vertex, k = self.graph.vertices[task[0]], task[1]
        table = self.graph.executions
        prior = int(table.prior[vertex.newest[k]])
        waits = not vertex.job.supports_concurrent_attempts and prior >= 0 and IS_PENDING[table.state[prior]]
        created = self.state(task) is ExecutionState.CREATED and not vertex.held[k] and vertex.ranges is not None
        return bool(created and not waits and self.is_readable(task))

    def deployable_regions(self) -> set[frozenset[Task]]:
        return {region for region in set(self.region_of.values()) if all(map(self.is_deployable, region))}

    def restart_set(self, failed: Iterable[Task]) -> set[Task]:
        """Regions of the failed, of finished producers of what cannot be read, of deployed readers of what runs again."""
        tasks: set[Task] = set()
        queue = list(failed)
        while queue:
            task = queue.pop()
            if task in tasks:
                continue
            tasks.add(task)
            queue += self.region_of[task]
            for p, d in self.inputs[task]:
                if not self.is_pipelined(d) and not self.graph.result(d).available[p[1]]:
                    queue += [p] if self.state(p) is ExecutionState.FINISHED else []
            queue += [c for c, d in self.outputs[task] if not self.is_pipelined(d) and IS_DEPLOYED[self.state(c)]]
        return tasks

    def is_done(self, dataset: int, partition: int) -> bool:
        """Whether all regions that read this partition have finished; of what nobody reads, all of its producers."""
        producer = self.graph.job_graph.datasets[dataset].producer
        consumers = [self.graph.vertices[v] for v in self.graph.consumers[dataset]]
        if not consumers:
            return self.graph.vertices[producer].is_finished
        readers = [c for c, d in self.outputs[producer, partition] if d == dataset]
        members = {member for reader in readers for member in self.region_of[reader]}
        return all(v.is_initialized for v in consumers) and all(
            self.state(m) is ExecutionState.FINISHED for m in members
        )


def naive(scheduler: Scheduler, cache: dict) -> Naive:
    """Made again when the graph has grown or was cut."""
    key = tuple((v.parallelism, v.ranges is None) for v in scheduler.graph.vertices)
    if key not in cache:
        cache.clear()
        cache[key] = Naive(scheduler.graph)
    return cache[key]


def random_dag(rng: random.Random, most: int = 200, pipelined: float = 0.4, pointwise: float = 0.7) -> JobGraph:
    """Up to ``most`` tasks, parallelisms 1..8; several edges between two vertices, results with several readers."""
    builder, left, parallelisms = GraphBuilder("random"), rng.randint(2, most), list[int]()
    ships = [s for s in ShipStrategy if not (pipelined and s is ShipStrategy.RANGE)]  # decided from finished results
    all_to_all = [s for s in ships if s.pattern is DistributionPattern.ALL_TO_ALL]
    usual = rng.randint(1, 8)
    while left > 0 and len(parallelisms) < 60:
        number = len(parallelisms)
        n = min(left, usual if rng.random() < 0.5 else rng.randint(1, 8))
        left -= n
        inputs = set()
        for _ in range(rng.randint(0, 3) if number else 0):
            producer = rng.randrange(max(0, number - 5), number)
            near = FORWARD if parallelisms[producer] == n and rng.random() < 0.6 else RESCALE
            ship = near if rng.random() < pointwise else rng.choice(all_to_all)
            inputs.add((producer, ship, PIPELINED if rng.random() < pipelined else BLOCKING))
        if number > 1 and pipelined and rng.random() < 0.3:
            inputs |= _circle(builder.graph, rng)
        fields = {
            "parallelism": n,
            "supports_concurrent_attempts": rng.random() < 0.8,
            "deterministic": rng.random() < 0.9,
        }
        if inputs:
            builder.step(*sorted(inputs, key=lambda i: (i[0], i[1].value, i[2].value)), **fields)
        else:
            builder.source([100] * n, **fields)
        parallelisms.append(n)
    for vertex in list(builder.graph.vertices):
        if not vertex.outputs and rng.random() < 0.2:
            builder.dataset(vertex.id, ShipStrategy.GLOBAL, persistent=rng.random() < 0.5)
    return builder.graph


def _circle(graph: JobGraph, rng: random.Random) -> set:
    """Inputs by which a vertex runs with the producer of its producer, over pointwise edges."""
    middle = graph.vertices[rng.randrange(max(0, len(graph.vertices) - 3), len(graph.vertices))]
    first = [graph.datasets[edge.dataset].producer for edge in middle.inputs]
    return {(middle.id, RESCALE, BLOCKING), (rng.choice(first), RESCALE, PIPELINED)} if first else set()
