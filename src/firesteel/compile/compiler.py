"""Stream graph to job graph: checked, fused, its sources' splits listed, every program built. No Spark job runs here.

steps -> below_unions -> push_down -> plan (unions dissolved) -> fuse (chains) -> data sets -> job graph -> checks
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.compile.adaptive.joins import join_info
from firesteel.compile.adaptive.keyed_chains import joins_apart, parts_joins
from firesteel.compile.adaptive.one_step import InOneStep, Undivided, in_one_step
from firesteel.compile.adaptive.runtime_filters import runtime_filters
from firesteel.compile.adaptive.two_steps import divides_values, parted
from firesteel.compile.attempts import attempts_of, is_called_async
from firesteel.compile.below_unions import below_unions
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.exchanges import asks_for_pipelined, is_pipelined, is_ranged, pipeline, store_all, unasked_ship
from firesteel.compile.fingerprint import step_identity
from firesteel.compile.lineage import external
from firesteel.compile.plan import Feed, PlannedStep, plan
from firesteel.compile.push_down import push_down
from firesteel.compile.slot_sharing import slot_sharing
from firesteel.compile.stream_graph import (
    CollectStep,
    DataFrameStep,
    KeyedStep,
    SinkStep,
    SourceStep,
    StreamNode,
    reachable,
)
from firesteel.compile.validate import check_inputs, check_job_graph, check_outputs, check_uids
from firesteel.compile.vertices import Divisibility, Vertex, divisibility, fuse, settings
from firesteel.connectors.base import Split, infer_parallelism
from firesteel.connectors.formats.parquet import ParquetSource
from firesteel.errors import FiresteelError, OutputExistsError, UsageError
from firesteel.model.external import External
from firesteel.model.job_graph import (
    PARALLELISM_DEFAULT,
    IntermediateDataSet,
    JobEdge,
    JobGraph,
    JobVertex,
    ShipStrategy,
    SourceInfo,
)
from firesteel.model.order import Order
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import DATA_VOLUME_PER_TASK, DEFAULT_SOURCE_PARALLELISM, LINEAGE, MAX_PARALLELISM, Options
from firesteel.options.checks import check_options
from firesteel.task.operators.fragments import KeyedQuery, Query
from firesteel.task.operators.groups import CountValues, PartialRows, SqlGroups
from firesteel.task.program import Combiner, GateHead, KeyedHead, ResultOutput, SinkOutput, SourceHead, VertexProgram


def compile_job(
    ends: Sequence[StreamNode],
    options: Options,
    name: str,
    groups: Mapping[str, SlotSharingGroup] | None = None,
    *,
    may_be_there: bool = False,
) -> CompiledJob:
    """The job that fills these sinks and collects. ``groups``: slot sharing groups that were registered, by name. ``may_be_there``: outputs
    that exist already are noted (``CompiledJob.taken``), for the job may have made them.

    Raises UsageError for whatever is wrong, naming the step and its place.
    """
    if not ends:
        raise UsageError(
            "There is nothing to execute: the pipeline has no sink.",
            hint="Add write_parquet, write_csv, write_to or another write_... step, or run collect, show, count or to_pandas on a stream.",
        )
    nodes = reachable(ends)
    check_uids(nodes)
    ends = below_unions(ends, slot_sharing(nodes, groups or {}).group_of)
    nodes = reachable(ends)
    sharing = slot_sharing(nodes, groups or {})
    steps = plan(ends, push_down(nodes), sharing.group_of)
    vertices, vertex_of = fuse(steps)
    if divides_values(options):
        vertices = parted(vertices, vertex_of)
    if parts_joins(options):
        vertices = joins_apart(vertices, vertex_of)
    used = dict.fromkeys(vertex.first.group for vertex in vertices)
    with_resources = {name: sharing.groups[name] for name in used if name in sharing.groups}
    pipelined = is_pipelined(options, with_resources.values())
    check_options(options, pipelined)
    job = _Builder(vertices, vertex_of, with_resources, options, pipelined).build(name)
    if job.taken and not may_be_there:
        raise job.taken[0]
    job.rules = [one for node in nodes for one in node.rules]
    job.external = _external(vertices, nodes if options[LINEAGE] else None)
    return job


@dataclass(slots=True, eq=False)
class _Result:
    """A data set in the making. Readers with the same partitioning share it."""

    id: int
    producer: int
    ship: ShipStrategy
    keys: tuple[str, ...]
    combiner: Combiner | None
    schema: pa.Schema
    order: Order | None = None
    route: int | None = None
    """It takes what a step could not do; None: the rows that leave the chain."""
    persistent: bool = False


@dataclass(slots=True)
class _Builder:
    vertices: list[Vertex]
    vertex_of: dict[PlannedStep, Vertex]
    groups: dict[str, SlotSharingGroup]
    """Slot sharing groups with resources."""
    options: Options
    pipelined: bool
    results: list[_Result] = field(default_factory=list)
    in_ranges: set[int] = field(default_factory=set)

    def build(self, name: str) -> CompiledJob:
        ids = {vertex: number for number, vertex in enumerate(self.vertices)}
        job = CompiledJob(JobGraph(name, [], [], self.groups))
        inputs = {vertex: self._inputs(vertex, ids) for vertex in self.vertices}
        for vertex in self.vertices:
            for end in vertex.ends:
                if isinstance(end.work, CollectStep):
                    result = self._result(end.feeds[0], ShipStrategy.BROADCAST, ids)
                    result.persistent = True
                    job.collects[end.work.handle] = result.id
                    job.runner = end.work.runner
                    if end.work.keep:
                        job.kept.add(result.id)
        for vertex in self.vertices:
            job.job_graph.vertices.append(self._job_vertex(vertex, ids[vertex], inputs[vertex], job))
        for r in self.results:
            job.job_graph.datasets.append(
                IntermediateDataSet(r.id, r.producer, r.ship, r.keys, persistent=r.persistent, order=r.order)
            )
            job.schemas[r.id] = r.schema
        for vertex in self.vertices:
            if vertex.in_one_step is not None:
                self._could_be_one(vertex, vertex.in_one_step, ids, job)
        job.in_ranges = self.in_ranges
        if self.pipelined:
            pipeline(job)
        elif asks_for_pipelined(self.options):
            store_all(job)
        for vertex, job_vertex in zip(self.vertices, job.job_graph.vertices, strict=True):
            job_vertex.join = join_info(vertex, job_vertex.id, job.job_graph, self.vertices)
        for number, filters in runtime_filters(job.job_graph).items():
            job.job_graph.vertices[number].filters = filters
        check_job_graph(job.job_graph)
        sinks = [(end.node, _sink_of(end)) for v in self.vertices for end in v.ends if isinstance(end.work, SinkStep)]
        check_outputs(sinks)
        works = [(vertex.first.node, vertex.first.work) for vertex in self.vertices]
        check_inputs([(node, work.source) for node, work in works if isinstance(work, SourceStep)], sinks)
        return job

    def _result(self, feed: Feed, ship: ShipStrategy, ids: dict[Vertex, int]) -> _Result:
        producer = ids[self.vertex_of[feed.source]]
        route = feed.source.route if feed.routed else None
        for known in self.results:
            if (known.producer, known.ship, known.keys, known.order, known.route) == (
                producer,
                ship,
                feed.keys,
                feed.order,
                route,
            ) and known.combiner is feed.combiner:
                return known
        result = _Result(len(self.results), producer, ship, feed.keys, feed.combiner, feed.schema, feed.order, route)
        self.results.append(result)
        return result

    def _inputs(self, vertex: Vertex, ids: dict[Vertex, int]) -> list[_Result]:
        """The results it reads: its gates, then its side inputs."""
        gates = [self._gate(feed, vertex, ids) for feed in vertex.gates]
        return gates + [self._result(feed, ShipStrategy.BROADCAST, ids) for feed in vertex.sides.values()]

    def _gate(self, feed: Feed, vertex: Vertex, ids: dict[Vertex, int]) -> _Result:
        ship = feed.ship or self._unasked(feed, vertex)
        result = self._result(feed, ship, ids)
        if feed.ship is None and ship is ShipStrategy.FORWARD and not self.pipelined:
            self.in_ranges.add(result.id)
        return result

    def _unasked(self, feed: Feed, vertex: Vertex) -> ShipStrategy:
        producer = self.vertex_of[feed.source]
        in_ranges = len(vertex.gates) == 1 and vertex.keyed is None and is_ranged(producer, self.vertex_of)
        return unasked_ship(producer, vertex, self.pipelined or in_ranges)

    def _job_vertex(self, vertex: Vertex, number: int, inputs: list[_Result], job: CompiledJob) -> JobVertex:
        parallelism, max_parallelism = settings(vertex)
        keyed = vertex.keyed is not None
        divided = dict(enumerate(divisibility(vertex.head())))
        edges = [
            JobEdge(r.id, i, keyed and i < len(vertex.gates), **divided.get(i, Divisibility())._asdict())
            for i, r in enumerate(inputs)
        ]
        sinks = [end for end in vertex.ends if isinstance(end.work, SinkStep)]
        outputs = [r for r in self.results if r.producer == number]
        job_vertex = JobVertex(
            id=number,
            name=vertex_name(vertex),
            uid=_uid(vertex, number, [job.job_graph.vertices[r.producer].uid for r in inputs]),
            inputs=edges,
            outputs=[r.id for r in outputs],
            parallelism=PARALLELISM_DEFAULT if parallelism is None else parallelism,
            max_parallelism=PARALLELISM_DEFAULT if max_parallelism is None else max_parallelism,
            has_sink=bool(sinks),
            files=next((step.node.config.files for step in vertex.steps if step.node.config.files is not None), None),
            slot_sharing_group=vertex.first.group,
        )
        job_vertex.source = self._source(vertex, job_vertex, job)
        self._attempts(vertex, job_vertex)
        job_vertex.program = _program(vertex, inputs, outputs, sinks)
        job_vertex.step = self._identity(vertex, number, job_vertex.program)
        job_vertex.likely_bytes = vertex.steps[-1].node.likely_bytes
        job_vertex.by_engine = not sinks and _is_by_engine(job_vertex.program)
        if sinks:
            for step in sinks:
                try:
                    _at(step, _sink_of(step).check, step.schema)
                except OutputExistsError as error:
                    job.taken.append(error)
            job.sinks[number] = [_sink_of(step) for step in sinks]
        job.places[number] = ", ".join(dict.fromkeys(s.node.place for s in vertex.steps if s.node.place))
        return job_vertex

    def _identity(self, vertex: Vertex, number: int, program: VertexProgram) -> str:
        # not a uid of ours: those have names of files in them, which change from day to day
        return step_identity(_given_uid(vertex) or str(number), program, self.groups.get(vertex.first.group))

    def _could_be_one(self, vertex: Vertex, how: InOneStep, ids: dict[Vertex, int], job: CompiledJob) -> None:
        """Notes how ``vertex`` and its first step are one vertex."""
        assert vertex.first_step is not None
        first, second = (job.job_graph.vertices[ids[part]] for part in (vertex.first_step, vertex))
        second.first_step, job.in_one_step[second.id] = first.id, how
        if isinstance(how, Undivided):  # the user knows of one step only
            second.is_whole = True
            first.uid = f"{second.uid}-values"
            whole = in_one_step(first.program, second.program, how)
            first.step, second.step = "", self._identity(vertex, second.id, whole)

    @staticmethod
    def _attempts(vertex: Vertex, job_vertex: JobVertex) -> None:
        attempts = attempts_of(vertex, job_vertex.source)
        job_vertex.supports_concurrent_attempts = not attempts.why_alone
        job_vertex.speculative, job_vertex.not_mirrored = not attempts.why_not_mirrored, attempts.why_not_mirrored
        job_vertex.deterministic, job_vertex.other_rows = not attempts.why_other_rows, attempts.why_other_rows
        job_vertex.waits = any(map(is_called_async, vertex.steps))

    def _source(self, vertex: Vertex, job_vertex: JobVertex, job: CompiledJob) -> SourceInfo | None:
        work = vertex.first.work
        if isinstance(work, SourceStep):
            volume = self.options[DATA_VOLUME_PER_TASK]
            splits: list[Any] = list(_at(vertex.first, work.source.list_splits, volume))
            wrong = next((split for split in splits if not isinstance(split, Split)), None)
            if wrong is not None:
                raise UsageError(
                    f"list_splits() of {vertex.first.node} gave {wrong!r}, which is not a firesteel.Split."
                )
            job.splits[job_vertex.id] = splits
            sizes = np.array([split.bytes for split in splits], dtype=np.int64)
            upper = self.options[DEFAULT_SOURCE_PARALLELISM] or self.options[MAX_PARALLELISM]
            if job_vertex.max_parallelism != PARALLELISM_DEFAULT:
                upper = min(upper, job_vertex.max_parallelism)
            wish = _at(vertex.first, infer_parallelism, work.source, upper, volume)
            return SourceInfo(sizes, inferred_parallelism=wish)
        if isinstance(work, DataFrameStep):
            settled = _at(vertex.first, work.settle)
            count: int = settled.num_partitions
            if job_vertex.parallelism not in (PARALLELISM_DEFAULT, count):
                raise UsageError(
                    f"{vertex.first.node} has parallelism {job_vertex.parallelism}, but its DataFrame has {count} partitions.",
                    hint="Use df.repartition(n) before from_dataframe, or set the parallelism behind rescale().",
                )
            job.dataframes[job_vertex.id] = settled.dataframe
            return SourceInfo(
                np.zeros(count, dtype=np.int64), fixed_parallelism=count, deterministic=settled.deterministic
            )
        return None


def _external(vertices: Sequence[Vertex], nodes: Sequence[StreamNode] | None) -> External:
    """All that the job reads and writes. ``nodes``: its steps, where the origins of columns are wanted."""
    firsts = [(vertex.first.node, vertex.first.work, number) for number, vertex in enumerate(vertices)]
    sources = [(node, work.source, number) for node, work, number in firsts if isinstance(work, SourceStep)]
    ends = [(end, number) for number, vertex in enumerate(vertices) for end in vertex.ends]
    sinks = [(end.node, _sink_of(end), number) for end, number in ends if isinstance(end.work, SinkStep)]
    return external(sources, sinks, nodes)


def vertex_name(vertex: Vertex) -> str:
    """``read_text -> map_in_arrow(tokenize) -> (write_parquet(a), write_parquet(b))``, as Flink names chains."""
    chain = [_shown(step) for step in vertex.steps if step not in vertex.ends]
    ends = [end.node.name for end in vertex.ends]
    if ends:
        chain.append(ends[0] if len(ends) == 1 else f"({', '.join(ends)})")
    return " -> ".join(chain)


def _shown(step: PlannedStep) -> str:
    """The step's name; of a source with what filters left of it, ``read_parquet sales [3 of 120 partitions]``, of the first of two
    steps with what it does."""
    pruned = getattr(step.work.source, "pruned", "") if isinstance(step.work, SourceStep) else ""
    if isinstance(step.work, KeyedStep) and isinstance(step.work.operator, CountValues):
        return f"count values of {step.node.name}"
    return f"{step.node.name} [{pruned}]" if pruned else step.node.name


def _uid(vertex: Vertex, number: int, upstream: list[str]) -> str:
    """The user's, else one that the same pipeline has again in its next run."""
    given = _given_uid(vertex)
    if given is not None:
        return given
    kinds = [step.node.kind for step in (*vertex.steps, *vertex.ends)]
    return hashlib.sha1("\n".join([str(number), *kinds, *upstream]).encode(), usedforsecurity=False).hexdigest()[:16]


def _given_uid(vertex: Vertex) -> str | None:
    """The first that the user gave one of its steps; None: there is none."""
    uids = (step.node.config.uid for step in (*vertex.steps, *vertex.ends))
    return next((uid for uid in uids if uid is not None), None)


def _sink_of(step: PlannedStep) -> Any:
    assert isinstance(step.work, SinkStep)
    return step.work.sink


def _program(
    vertex: Vertex, inputs: list[_Result], outputs: list[_Result], sinks: Iterable[PlannedStep]
) -> VertexProgram:
    results = [
        ResultOutput(r.id, r.schema, () if r.order is not None else r.keys, r.combiner, r.order, r.route)
        for r in outputs
    ]
    first_side = len(vertex.gates)
    return VertexProgram(
        head=vertex.head(),
        operators=tuple(vertex.operators),
        outputs=(*results, *(SinkOutput(_sink_of(step)) for step in sinks)),
        gate_schemas=tuple(r.schema for r in inputs),
        gate_orders=tuple(r.order for r in inputs),
        side_inputs=tuple((name, first_side + i) for i, name in enumerate(vertex.sides)),
    )


def _is_by_engine(program: VertexProgram) -> bool:
    """Return whether the engine of queries makes all rows: of files that it reads, or of an exchange."""
    head = program.head
    if isinstance(head, SourceHead):
        known = isinstance(head.source, ParquetSource)
    else:
        known = isinstance(head, GateHead) or (
            isinstance(head, KeyedHead) and isinstance(head.operator, KeyedQuery | SqlGroups)
        )
    combiners = [one.combiner for one in program.outputs if isinstance(one, ResultOutput) and one.combiner is not None]
    engines = all(isinstance(one, Query | PartialRows) or hasattr(one, "chosen") for one in program.operators)
    return known and engines and all(isinstance(one, PartialRows) for one in combiners)


def _at(step: PlannedStep, call: Any, *args: Any) -> Any:
    """Calls a connector; an error of its gets the step and the user's line."""
    try:
        return call(*args)
    except UsageError as error:
        raise located(error, step.node) from None
    except FiresteelError:
        raise
    except Exception as error:  # a connector of the user's own
        what = getattr(call, "__name__", "a call")
        raise UsageError(f"{what}() of {step.node} failed: {type(error).__name__}: {error}") from error


def located(error: UsageError, node: StreamNode) -> UsageError:
    """The error with the step it concerns, unless it names it already."""
    text = str(node)
    if text in error.message:
        return error
    kind = OutputExistsError if isinstance(error, OutputExistsError) else UsageError
    return kind(f"{error.message.rstrip('.')} ({text}).", hint=error.hint)
