"""Joins with rows: the driver of ``scheduler_kit``, with a data plane that really joins, and a plain model of what must come out.

A row is ``(key 0, key 1, number)``; null keys are None. Rows of a vertex that runs in another one's tasks are kept beside those of the
other one, so that each vertex of the job as it was compiled can be looked at by itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from tests.scheduler_kit import Plane, Task

from firesteel.model.absorbing import Absorbing, absorb, obstacle
from firesteel.model.job_graph import (
    PARALLELISM_DEFAULT,
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobVertex,
    JoinInfo,
    ShipStrategy,
    SourceInfo,
)
from firesteel.report.decisions import with_reason
from firesteel.scheduler.joins.replay import JoinOptions, replay_joins
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel import records as r
from firesteel.scheduler.parallelism import decide_vertex
from firesteel.scheduler.parallelism.replay import recalled
from firesteel.scheduler.topology.planned import planned, planned_vertex
from firesteel.task.operators.join import HOWS, build_sides, divisible_sides

ROW_BYTES = 10
Key = int | None
Row = tuple[Key, Key, int]
Object = tuple[int, int, int, int]
"""(data set, partition, attempt, token)."""


def joined(how: str, left: Sequence[Row], right: Sequence[Row], keys: tuple[int, int]) -> list[Row]:
    """The plain join: every pair is looked at. ``keys``: which key of either side. Key 0 is the left row's, key 1 the right one's."""
    pairs = [(a, b) for a in range(len(left)) for b in range(len(right)) if _equal(left[a][keys[0]], right[b][keys[1]])]
    lefts, rights = {a for a, _ in pairs}, {b for _, b in pairs}
    if how in ("semi", "anti"):
        return [row for a, row in enumerate(left) if (a in lefts) == (how == "semi")]
    found = [(left[a][0], right[b][1], hash((1, left[a][2], right[b][2]))) for a, b in pairs]
    if how in ("left", "full"):
        found += [(row[0], None, hash((2, row[2]))) for a, row in enumerate(left) if a not in lefts]
    if how in ("right", "full"):
        found += [(None, row[1], hash((3, row[2]))) for b, row in enumerate(right) if b not in rights]
    return found


def _equal(one: Key, other: Key) -> bool:
    return one is not None and one == other


# --- jobs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RowJob:
    """``rows``: of each source, by split. ``keys``: of each join, which key of either side; its kind is in ``hows``."""

    graph: JobGraph
    rows: dict[int, list[list[Row]]]
    hows: dict[int, str]
    keys: dict[int, tuple[int, int]]


class RowJobBuilder:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.graph = JobGraph("rows", [], [])
        self.rows: dict[int, list[list[Row]]] = {}
        self.hows: dict[int, str] = {}
        self.keys: dict[int, tuple[int, int]] = {}
        self._heavy = rng.random() < 0.3

    def dataset(self, producer: int, ship: ShipStrategy, key: int = 0) -> int:
        """Shared with others who want the same, as the compiler does it."""
        keys = (f"k{key}",) if ship is ShipStrategy.HASH else ()
        for known in self.graph.datasets:
            if (known.producer, known.ship, known.keys) == (producer, ship, keys):
                return known.id
        number = len(self.graph.datasets)
        self.graph.datasets.append(IntermediateDataSet(number, producer, ship, keys))
        self.graph.vertices[producer].outputs.append(number)
        return number

    def source(self, splits: int, most: int) -> int:
        """``most``: rows of a split."""
        rng = self.rng
        rows = [[self._row() for _ in range(rng.randint(0, most))] for _ in range(splits)]
        number = self._add([], source=SourceInfo(np.array([ROW_BYTES * len(own) for own in rows], np.int64)))
        self.rows[number] = rows
        return number

    def step(self, producers: Iterable[int]) -> int:
        """All rows of these, however they come."""
        rng, ships = self.rng, [s for s in ShipStrategy if s not in (ShipStrategy.RANGE, ShipStrategy.BROADCAST)]
        edges = [JobEdge(self.dataset(p, rng.choice(ships)), k) for k, p in enumerate(producers)]
        edges = [replace(edge, co_partitioned=self._ship(edge) is ShipStrategy.HASH) for edge in edges]
        return self._add(edges)

    def join(
        self, left: int, right: int, how: str, hint: int | None = None, keys: tuple[int, int] | None = None
    ) -> int:
        keys = keys or (self.rng.randrange(2), self.rng.randrange(2))
        sides = [self.dataset(side, ShipStrategy.HASH, key) for side, key in zip((left, right), keys, strict=True)]
        divisible = divisible_sides(how) if self.rng.random() < 0.7 else (False, False)
        edges = [JobEdge(d, k, co_partitioned=True, divisible=divisible[k]) for k, d in enumerate(sides)]
        number = self._add(edges)
        self.hows[number], self.keys[number] = how, keys
        self.graph.vertices[number].join = JoinInfo(how, ("?", "?"), hint)  # once all readers are known
        return number

    def beside(self, vertex: int, producer: int) -> None:
        """The vertex gets all rows of another one as a side input."""
        inputs = self.graph.vertices[vertex].inputs
        inputs.append(JobEdge(self.dataset(producer, ShipStrategy.BROADCAST), len(inputs)))

    def follower(self, first: int, other: int | None = None, how: str = "inner") -> int:
        """A step by the key of the join before it, which may be one step with it: it passes rows on, or joins them with another producer's."""
        self.graph.vertices[first].deterministic = True  # its rows would lie elsewhere than their keys say
        if other is None:
            number = self._add([JobEdge(self.dataset(first, ShipStrategy.HASH), 0, co_partitioned=True)])
        else:
            number = self.join(first, other, how, keys=(0, self.rng.randrange(2)))
        self.graph.vertices[number].first_step = first
        return number

    def built(self) -> RowJob:
        for vertex in self.graph.vertices:
            if any(self._ship(edge) is ShipStrategy.FORWARD for edge in vertex.inputs):
                for one in (vertex, *(self._producer(edge) for edge in vertex.inputs)):
                    one.parallelism = PARALLELISM_DEFAULT
        for vertex in self.graph.vertices:
            if vertex.first_step is not None and not self._may_be_one(self.graph.vertices[vertex.first_step], vertex):
                vertex.first_step = None
            if vertex.join is not None:
                found = [self._obstacle(vertex, side) for side in (0, 1)]
                vertex.join = replace(vertex.join, obstacles=(found[0], found[1]))
        return RowJob(self.graph, self.rows, self.hows, self.keys)

    def _obstacle(self, vertex: JobVertex, side: int) -> str:
        assert vertex.join is not None
        may = side in build_sides(vertex.join.how)
        return obstacle(self.graph, Absorbing(vertex.id, side)) if may else "rows without a match"

    def _may_be_one(self, first: JobVertex, second: JobVertex) -> bool:
        """As the compiler has it: nobody else reads the join, and nothing but its sides goes into it."""
        edges = [edge for vertex in self.graph.vertices for edge in vertex.inputs]
        readers = sum(self._producer(edge) is first for edge in edges)
        alone = readers == 1 and not first.has_sink and len(first.inputs) == 2
        return alone and first.parallelism == second.parallelism and self.keys[first.id][0] == 0

    def _producer(self, edge: JobEdge) -> JobVertex:
        return self.graph.vertices[self.graph.datasets[edge.dataset].producer]

    def _add(self, edges: list[JobEdge], **fields) -> int:
        number, rng = len(self.graph.vertices), self.rng
        vertex = JobVertex(number, f"step {number}", f"uid-{number}", inputs=edges, **fields)
        vertex.deterministic = rng.random() < 0.5
        vertex.supports_concurrent_attempts = rng.random() < 0.8
        if rng.random() < 0.04:
            vertex.parallelism = rng.randint(1, 4)
        self.graph.vertices.append(vertex)
        return number

    def _row(self) -> Row:
        keys = (3 if self._heavy and self.rng.random() < 0.6 else self.rng.choice([None, 0, 1, 2, 3]) for _ in (0, 1))
        return (*keys, self.rng.randrange(1 << 30))

    def _ship(self, edge: JobEdge) -> ShipStrategy:
        return self.graph.datasets[edge.dataset].ship


def random_row_job(rng: random.Random) -> RowJob:
    """A fact joined with small sources; or joins of any steps, with themselves too."""
    builder = RowJobBuilder(rng)
    stream = builder.source(rng.randint(2, 6), 8)
    _join_dimensions(builder, stream) if rng.random() < 0.6 else _join_anything(builder, stream)
    last = builder.graph.vertices[-1]
    last.has_sink = rng.random() < 0.3
    for vertex in builder.graph.vertices[1:]:
        if vertex.source is not None and vertex.outputs and rng.random() < 0.1:
            builder.beside(vertex.id, 0)
    return builder.built()


def _join_dimensions(builder: RowJobBuilder, stream: int) -> None:
    rng = builder.rng
    for _ in range(rng.randint(1, 3)):
        side = builder.source(rng.randint(0, 3), 2)
        side = builder.step([side]) if rng.random() < 0.2 else side
        how = rng.choice(["inner", "inner", "left", "right", *HOWS])
        sides = (side, stream) if how == "right" or (how == "inner" and rng.random() < 0.3) else (stream, side)
        stream = builder.join(*sides, how, rng.choice([None, None, None, sides.index(side)]))
        stream = _follow(builder, stream)
        if rng.random() < 0.1:
            builder.beside(stream, builder.source(1, 2))


def _join_anything(builder: RowJobBuilder, stream: int) -> None:
    rng, streams = builder.rng, [stream]
    for _ in range(rng.randint(1, 3)):
        if rng.random() < 0.3:
            streams.append(builder.step(rng.sample(streams, min(len(streams), rng.randint(1, 2)))))
        side = rng.choice(streams) if rng.random() < 0.25 else builder.source(rng.randint(0, 4), 3)
        sides = [rng.choice([streams[-1], streams[-1], rng.choice(streams)]), side]
        rng.shuffle(sides)
        streams += [side] * (side not in streams)
        streams.append(builder.join(*sides, rng.choice(HOWS), rng.choice([None, None, None, 0, 1, 2])))
        streams.append(_follow(builder, streams[-1]))


def _follow(builder: RowJobBuilder, join: int) -> int:
    """Steps by the key of a join, or none."""
    rng = builder.rng
    while builder.keys[join][0] == 0 and rng.random() < 0.4:
        if rng.random() < 0.4:
            return builder.follower(join)
        join = builder.follower(join, builder.source(rng.randint(0, 3), 3), rng.choice(HOWS))
    return join


# --- programs ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stage:
    """One vertex of the job as it was compiled, as it is run in the tasks of some vertex. ``gates``: whose rows it takes; for a
    join that is done behind another stage the place of that one's rows is None. ``sides``: gates of side inputs."""

    vertex: int
    gates: tuple[int | None, ...]
    sides: tuple[int, ...] = ()

    def moved(self, places: Sequence[int]) -> Stage:
        gates = tuple(None if gate is None or places[gate] < 0 else places[gate] for gate in self.gates)
        return replace(self, gates=gates, sides=tuple(places[gate] for gate in self.sides))


@dataclass(slots=True)
class Output:
    """Rows of one stage of one execution. ``drawn``: as they left it: those of a nondeterministic vertex are changed."""

    rows: list[Row]
    drawn: list[Row]


Inputs = Callable[[int], list[Row]]
"""Rows of a gate."""


@dataclass
class Execution:
    """An execution that has finished. ``reads``: by gate, partition and subpartition, the object and the part of it."""

    outputs: dict[int, Output]
    reads: dict[tuple[int, int, int], tuple[Object, tuple[int, int]]]


@dataclass
class RowPlane(Plane):
    """Has rows; ``job`` as it was compiled."""

    job: RowJob = field(kw_only=True)
    programs: dict[int, list[Stage]] = field(default_factory=dict)
    objects: dict[Object, list[list[Row]]] = field(default_factory=dict)
    """Rows by subpartition."""
    executions: dict[tuple[int, int, int], Execution] = field(default_factory=dict)
    """By vertex, subtask and token."""
    changes: list[Absorbing] = field(default_factory=list)
    one_steps: set[tuple[int, int]] = field(default_factory=set)
    """(first, second) of the joins that became one step with what follows."""
    fixed: dict[int, JobVertex] = field(default_factory=dict)
    """Vertices as they were when they were first deployed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for vertex in self.job.graph.vertices:
            ships = [self.job.graph.datasets[edge.dataset].ship for edge in vertex.inputs]
            sides = tuple(k for k, ship in enumerate(ships) if ship is ShipStrategy.BROADCAST)
            gates = tuple(k for k in range(len(ships)) if k not in sides)
            self.programs[vertex.id] = [Stage(vertex.id, gates, sides)]

    # --- running -------------------------------------------------------------------------------------------------

    def reports(self, tasks: Sequence[Task], token: int | None = None) -> e.ExecutionReports:
        """As told of rows that were really made."""
        tokens = [token or self._tokens + 1 + place for place in range(len(tasks))]
        made = [self._run(task, own) for task, own in zip(tasks, tokens, strict=True)]
        written = [self._written_rows(t, m, o) for t, m, o in zip(tasks, made, tokens, strict=True)]
        by_subtask = {task.subtask: rows for task, rows in zip(tasks, written, strict=True)}
        self.sizes = lambda _v, s, d, _n: np.array([ROW_BYTES * len(rows) for rows in by_subtask[s][d]], np.int64)
        reports = super().reports(tasks, token)
        assert reports.tokens.tolist() == tokens
        for task, execution, rows, own in zip(tasks, made, written, tokens, strict=True):
            self.executions[task.deploy.vertex, task.subtask, own] = execution
            self.objects |= {(dataset, task.subtask, task.attempt, own): cells for dataset, cells in rows.items()}
        return reports

    def _run(self, task: Task, token: int) -> Execution:
        deploy, position = task.deploy, task.deploy.subtasks.tolist().index(task.subtask)
        reads = {(g, p, s): read for g in range(len(deploy.gates)) for p, s, read in _reads(deploy, g, position)}
        splits = [] if deploy.splits is None else deploy.splits.of(position).tolist()

        def rows_of(gate: int) -> list[Row]:
            found = [self._rows(read, place[2]) for place, read in reads.items() if place[0] == gate]
            return [row for rows in found for row in rows]

        outputs: dict[int, Output] = {}
        rows: list[Row] = []
        for stage in self.programs[deploy.vertex]:
            rows = self._stage(stage, rows, rows_of, splits)
            random.Random(token).shuffle(rows)
            made = outputs[stage.vertex] = Output(rows, self._drawn(stage.vertex, rows, token))
            rows = made.drawn
        return Execution(outputs, reads)

    def _rows(self, read: tuple[Object, tuple[int, int]], subpartition: int) -> list[Row]:
        named, (part, parts) = read
        rows = self.objects[named][subpartition]
        return rows[len(rows) * part // parts : len(rows) * (part + 1) // parts]

    def _stage(self, stage: Stage, before: list[Row], rows_of: Inputs, splits: list[int]) -> list[Row]:
        """``before``: of the stage before it in the same task."""
        inputs = [before if gate is None else rows_of(gate) for gate in stage.gates]
        if stage.vertex in self.job.hows:
            rows = joined(self.job.hows[stage.vertex], *inputs, self.job.keys[stage.vertex])
        elif self.job.graph.vertices[stage.vertex].source is not None:
            rows = [row for split in splits for row in self.job.rows[stage.vertex][split]]
        else:
            rows = [row for own in inputs for row in own]
        beside = sum(hash(tuple(sorted(rows_of(gate), key=str))) for gate in stage.sides)
        return [(one, other, number ^ beside) for one, other, number in rows]

    def _drawn(self, vertex: int, rows: list[Row], token: int) -> list[Row]:
        if self.job.graph.vertices[vertex].deterministic:
            return rows
        return [(one, (token + number) % 5, number ^ token) for one, _, number in rows]

    def _written_rows(self, task: Task, execution: Execution, token: int) -> dict[int, list[list[Row]]]:
        graph, rows = self.scheduler.job_graph, execution.outputs[task.deploy.vertex].drawn
        found: dict[int, list[list[Row]]] = {}
        for dataset, width in task.deploy.subpartitions.items():
            cells: list[list[Row]] = [[] for _ in range(width)]
            for number, row in enumerate(rows):
                cells[_place_of(row, number + task.subtask, graph.datasets[dataset], width)].append(row)
            found[dataset] = cells
        return found

    # --- the graph that changes ----------------------------------------------------------------------------------

    def _absorbed(self, command: c.VertexAbsorbed) -> None:
        super()._absorbed(command)
        change, before = Absorbing(command.vertex, command.build), self.changed_graph()
        self.changes.append(change)
        if change.build is None:
            self.one_steps.add((command.producer, command.vertex))
        assert change.producer(before) == command.producer
        own, places = self.programs[command.vertex], change.gates(before)
        self.programs[command.vertex] = [*self.programs.pop(command.producer), *(s.moved(places) for s in own)]

    def changed_graph(self) -> JobGraph:
        """The compiled graph with all changes made to it that were told."""
        graph = self.job.graph.copy()
        for change in self.changes:
            absorb(graph, change)
        return graph

    def _deploy(self, deploy: c.Deploy, together: dict[tuple[int, int], int]) -> None:
        vertex = self.scheduler.job_graph.vertices[deploy.vertex]
        assert self.fixed.setdefault(vertex.id, vertex) is vertex, "the graph has changed where it had begun"
        super()._deploy(deploy, together)

    # --- checks --------------------------------------------------------------------------------------------------

    def check_rows(self) -> None:
        """Of a job that has finished: each stage of each vertex made what a plain model makes of all that its winners read."""
        for vertex, program in self.programs.items():
            subtasks = range(self.parallelism(vertex))
            winners = [self.executions[vertex, s, self.admitted[vertex, s][1]] for s in subtasks]
            rows_of = self._read_by(vertex, winners)
            before: list[Row] = []
            for place, stage in enumerate(program):
                splits = list(range(len(self.job.rows.get(stage.vertex, []))))
                expected = Counter(self._stage(stage, before, rows_of, splits))
                found = Counter(row for winner in winners for row in winner.outputs[stage.vertex].rows)
                assert found == expected, (
                    f"stage {place} of vertex {vertex}: {found - expected} and not {expected - found}"
                )
                before = [row for winner in winners for row in winner.outputs[stage.vertex].drawn]

    def _read_by(self, vertex: int, winners: Sequence[Execution]) -> Inputs:
        """All rows of the objects that the winners read; those of one partition must have the same rows, if they are several."""
        objects: dict[tuple[int, int], Object] = {}
        for winner in winners:
            for (gate, partition, _), (named, _) in winner.reads.items():
                first = objects.setdefault((gate, partition), named)
                same = Counter(row for cell in self.objects[first] for row in cell)
                where = f"partition {partition} of gate {gate} of vertex {vertex}"
                assert same == Counter(row for cell in self.objects[named] for row in cell), f"{where} has other rows"
        return lambda gate: [
            row for (own, _), named in objects.items() if own == gate for cell in self.objects[named] for row in cell
        ]

    def check_graph(self) -> None:
        """The changes that were told, and those that were recorded, made to the compiled graph, give the scheduler's; each join is
        decided once at most, and is done where its probe side's rows are."""
        graph, told = self.scheduler.job_graph, self.changed_graph()
        decided = [[replace(vertex, first_step=None) for vertex in one.vertices] for one in (told, graph)]
        assert decided[0] == decided[1] and told.datasets == graph.datasets
        plan = {vertex.id: planned_vertex(self.job.graph, vertex) for vertex in self.job.graph.vertices}
        absorbed = set[int]()
        for record in self.records:
            if isinstance(record, r.GraphChanged):
                assert record.absorbed not in absorbed and record.into not in absorbed
                absorbed.add(record.absorbed)
                plan[record.into] = record.vertex
        left = [vertex for vertex in graph.vertices if vertex.id not in absorbed]
        assert [plan[vertex.id] for vertex in left] == [planned_vertex(graph, vertex) for vertex in left]
        assert absorbed == {vertex.id for vertex in graph.vertices if vertex.absorbed_by is not None}
        assert len(self.decisions("join")) <= sum(vertex.join is not None for vertex in self.job.graph.vertices)
        for program in self.programs.values():
            for before, stage in pairwise(program):
                if self.job.graph.vertices[stage.vertex].first_step == before.vertex and any(
                    (one.vertex, stage.vertex) in self.one_steps for one in program
                ):
                    continue
                build = next(place for place, gate in enumerate(stage.gates) if gate is not None)
                assert Absorbing(stage.vertex, build).producer(self.job.graph) == before.vertex
                assert self.job.graph.vertices[stage.vertex].join.can_build(build)

    def check_records(self) -> None:
        """Each join, and each step that was decided from its inputs, is decided again from its record as it was."""
        compiled = planned(self.job.graph, "job", self.scheduler.options)
        again = replay_joins([compiled, *self.records], JoinOptions())
        assert [one.vertex for one in again.joins] == [decision.vertex for decision in self.decisions("join")]
        assert [with_reason(one.would_be) for one in again.joins] == [one.was for one in again.joins]
        for vertex, program in self.programs.items():
            together = frozenset(stage.vertex for stage in program)
            assert again.was.get(vertex, frozenset((vertex,))) == together and not again.has_moved(vertex)
        for decision in self.decisions("parallelism"):
            found = recalled(decision.inputs)
            assert found is None or decide_vertex(*found).decision["result"] == decision.result


def _reads(deploy: c.Deploy, number: int, position: int) -> Iterator[tuple[int, int, tuple[Object, tuple[int, int]]]]:
    """(partition, subpartition, what of which object) of all that one execution reads at one gate."""
    gate, ranges = deploy.gates[number], deploy.ranges[number]
    for row in range(int(ranges.offsets[position]), int(ranges.offsets[position + 1])):
        first, end, low, high = ranges.rects[row].tolist()
        part = (0, 1) if ranges.shares is None else tuple(ranges.shares[row].tolist())
        for p in range(first, end):
            place = p if gate.partitions is None else gate.partitions.tolist().index(p)
            named = (gate.dataset, p, int(gate.attempts[place]), int(gate.tokens[place]))
            yield from ((p, s, (named, part)) for s in range(low, high))


def _place_of(row: Row, number: int, dataset: IntermediateDataSet, width: int) -> int:
    """The subpartition of the ``number``th row."""
    if dataset.ship is not ShipStrategy.HASH:
        return number % width
    key = row[int(dataset.keys[0][1])]
    return 0 if key is None else hash((7, key)) % width
