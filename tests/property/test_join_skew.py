"""Joins whose heavy subpartitions are divided, against a plain model: each pair of rows comes out once, whatever was divided and
whoever ran again."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.scheduler_kit import reason_in
from tests.simulation.digest import JournalDigest
from tests.simulation.job import SimulatedJob
from tests.simulation.random_jobs import random_job

from firesteel.model.job_graph import IntermediateDataSet, JobEdge, JobGraph, JobVertex, ShipStrategy, SourceInfo
from firesteel.options import Options
from firesteel.results.layout import Slice
from firesteel.results.reader import GateReader, shared
from firesteel.results.storage.store import ResultStore, object_name
from firesteel.results.writer import ResultWriter
from firesteel.scheduler.failover.consumer_invalidation import ConsumerInvalidation
from firesteel.scheduler.kernel.commands import InputRanges
from firesteel.scheduler.parallelism import Bounds, ConsumedResult, decide_vertex
from firesteel.scheduler.parallelism.replay import recalled
from firesteel.simulation.violation import ViolationError
from firesteel.simulation.workload import Workload
from firesteel.task.operators.join import HOWS, HashJoin, divisible_sides, join_schema
from firesteel.task.operators.units import run_keyed
from operators_support import collect, context, expected_pairs

MODEST = settings(max_examples=examples(100), deadline=None)
KEYS = {"int": pa.int64(), "text": pa.string(), "double": pa.float64()}
DIVISIBLE = {"inner": (True, True), "full": (False, False), "right": (False, True)}


def bounds(**changes) -> Bounds:
    values = {
        "minimum": 1,
        "maximum": 16,
        "fixed": None,
        "data_volume": 1 << 26,
        "max_slices": 32768,
        "cut": "by-bytes",
    }
    return Bounds(**(values | changes))


def result(sizes, divisible=True, partitions=1, indivisible="") -> ConsumedResult:
    sizes = np.asarray(sizes, np.int64)
    total = int(sizes.sum())
    flags = {"divisible": divisible, "indivisible": "" if divisible else indivisible}
    return ConsumedResult(
        0, ShipStrategy.HASH, True, partitions, len(sizes), subpartition_bytes=sizes, total_bytes=total, **flags
    )


def share(ranges: InputRanges, row: int) -> tuple[int, int]:
    return (0, 1) if ranges.shares is None else tuple(ranges.shares[row].tolist())


def pairs_read(plan) -> dict[int, list]:
    """By subpartition: for each subtask that reads it, its part of either side."""
    found: dict[int, list] = {}
    for subtask in range(plan.parallelism):
        sides = []
        for ranges in plan.ranges[:2]:
            rows = range(ranges.offsets[subtask], ranges.offsets[subtask + 1])
            parts = [(s, share(ranges, row)) for row in rows for s in range(*ranges.rects[row, 2:].tolist())]
            assert len(dict(parts)) == len(parts), "a subpartition is read twice by one subtask"
            sides.append(dict(parts))
        assert sides[0].keys() == sides[1].keys()
        for s in sides[0]:
            found.setdefault(s, []).append((sides[0][s], sides[1][s]))
    return found


# --- what is decided -----------------------------------------------------------------------------------------------

some_bytes = st.one_of(st.integers(0, 40), st.integers(0, 40), st.integers(100, 3000), st.just(2**40))


@st.composite
def joins(draw):
    width = draw(st.integers(1, 12))
    sizes = [draw(st.lists(some_bytes, min_size=width, max_size=width)) for _ in (0, 1)]
    may = draw(st.sampled_from([(True, True), (True, False), (False, True), (False, False)]))
    producers = draw(st.integers(1, 3))
    inputs = [result(s, d, producers, "of this kind") for s, d in zip(sizes, may, strict=True)]
    if draw(st.booleans()):
        inputs.append(ConsumedResult(7, ShipStrategy.BROADCAST, False, 2, 1, total_bytes=9, is_broadcast=True))
    low = draw(st.integers(1, 4))
    limits = bounds(
        minimum=low,
        maximum=draw(st.integers(2 * low, 24)),
        fixed=draw(st.one_of(st.none(), st.none(), st.integers(1, 20))),
        data_volume=draw(st.sampled_from([10, 100, 1000, 2**38])),
        max_slices=draw(st.sampled_from([2, 6, 12, 1000, 1000])),
        cut=draw(st.sampled_from(["by-bytes", "by-bytes", "by-count"])),
        slots=draw(st.sampled_from([1, 4, 7, 100])),
        least_volume=draw(st.sampled_from([0, 1, 50])),
    )
    return inputs, limits


@MODEST
@given(joins())
def test_every_part_of_one_side_meets_every_part_of_the_other_once(request):
    inputs, limits = request
    plan = decide_vertex(inputs, limits)
    found = pairs_read(plan)
    assert sorted(found) == list(range(inputs[0].num_subpartitions))
    for met in found.values():
        parts = [{own[side][1] for own in met} for side in (0, 1)]
        assert all(len(counts) == 1 for counts in parts)
        first, second = (counts.pop() for counts in parts)
        assert sorted((a[0], b[0]) for a, b in met) == [(i, j) for i in range(first) for j in range(second)]
        assert (first == 1 or inputs[0].divisible) and (second == 1 or inputs[1].divisible)


@MODEST
@given(joins())
def test_bounds_hold_and_what_is_told_is_what_is_read(request):
    inputs, limits = request
    plan, whole = decide_vertex(inputs, limits), decide_vertex(inputs, replace(limits, divides=False))
    result_of = plan.decision["result"]
    assert all(ranges.parallelism == plan.parallelism for ranges in plan.ranges)
    if limits.fixed is not None:
        assert plan.parallelism == limits.fixed
    else:
        low, high = limits.interval()
        assert low <= plan.parallelism <= high
    divided = any(ranges.shares is not None for ranges in plan.ranges)
    assert divided == ("divided" in result_of) == ("; divided: " in reason_in(plan.decision))
    if not divided:
        assert plan.parallelism == whole.parallelism
        assert [r.rects.tolist() for r in plan.ranges] == [r.rects.tolist() for r in whole.ranges]
        return
    assert limits.cut == "by-bytes" and limits.divides
    read = np.zeros(plan.parallelism)
    for consumed, ranges in zip(inputs[:2], plan.ranges, strict=False):
        for subtask in range(plan.parallelism):
            for row in range(ranges.offsets[subtask], ranges.offsets[subtask + 1]):
                low, high = ranges.rects[row, 2:].tolist()
                part, parts = share(ranges, row)
                whole_bytes = int(consumed.folded()[low:high].sum())
                read[subtask] += whole_bytes * (part + 1) // parts - whole_bytes * part // parts
    broadcast = sum(r.total_bytes for r in inputs if r.is_broadcast)
    assert plan.input_bytes.tolist() == (read + broadcast).tolist()
    assert result_of["largest"] == read.max() and result_of["largest"] < result_of["largest_subpartition"]
    most = limits.max_slices - 2 * bool(broadcast)
    kept = whole.decision["result"]["slices"] <= limits.max_slices and most >= 2 * inputs[0].num_partitions
    assert not kept or result_of["slices"] <= limits.max_slices


@MODEST
@given(joins())
def test_the_record_alone_makes_the_decision_again(request):
    inputs, limits = request
    plan = decide_vertex(inputs, limits)
    found = recalled(json.loads(json.dumps(plan.decision["inputs"])))
    assert found is not None
    again = decide_vertex(*found)
    assert again.decision == plan.decision
    assert [r.columns[1].tolist() for r in again.ranges] == [r.columns[1].tolist() for r in plan.ranges]


def test_nothing_grows_with_producers_times_consumers():
    rng = np.random.default_rng(3)
    left, right = rng.integers(1 << 20, 3 << 20, 10_000), rng.integers(1, 1 << 20, 10_000)
    left[rng.choice(10_000, 20, replace=False)] *= 3000
    inputs = [result(left, True, 10_000), result(right, True, 10_000)]
    plan = decide_vertex(inputs, bounds(maximum=10_000, slots=1000, max_slices=1 << 30))
    assert plan.decision["result"]["largest"] * 10 < plan.decision["result"]["largest_subpartition"]
    for ranges in plan.ranges:
        assert len(ranges.rects) <= 2 * (10_000 + plan.parallelism)
    assert len(json.dumps(plan.decision["result"])) < 5000


@pytest.mark.parametrize(
    ("left", "right", "may", "parts"),
    [
        (600, 1, (True, True), (5, 1)),
        (1, 600, (True, True), (1, 5)),
        (600, 1, (True, False), (5, 1)),
        (600, 1, (False, True), None),
        (1, 600, (True, False), None),
        (600, 1, (False, False), None),
        (390, 380, (True, True), (2, 3)),
    ],
)
def test_which_side_is_dealt_out(left, right, may, parts):
    """Eight slots, and one subpartition of 600 of some 1,000 MiB; or both sides of one are heavy."""
    sizes = [np.full(64, 6 << 20), np.full(64, 1 << 18)]
    sizes[0][9], sizes[1][9] = left << 20, right << 20
    inputs = [result(s, d, 4, "of this kind") for s, d in zip(sizes, may, strict=True)]
    plan = decide_vertex(inputs, bounds(maximum=8, slots=8, data_volume=64 << 20, least_volume=4 << 20))
    told = plan.decision["result"].get("divided")
    assert (None if told is None else [(one["subpartition"], tuple(one["parts"])) for one in told]) == (
        None if parts is None else [(9, parts)]
    )
    if parts is None:
        assert "subpartition 9 (60" in reason_in(plan.decision)
        assert reason_in(plan.decision).endswith("is not divided: of this kind")


# --- what comes out ------------------------------------------------------------------------------------------------


@dataclass
class Side:
    """One input of a join, as its producers wrote it. Rows of a producer's later attempt come in another order."""

    dataset: int
    table: pa.Table
    keys: tuple[str, ...]
    producers: int
    subpartitions: int
    store: ResultStore
    rng: random.Random

    def __post_init__(self) -> None:
        self.attempts = np.zeros(self.producers, np.int64)
        self.sizes = sum(self.write(producer) for producer in range(self.producers))

    def write(self, producer: int) -> np.ndarray:
        own = self.table.filter(pa.array(np.arange(len(self.table)) % self.producers == producer))
        order = list(range(len(own)))
        self.rng.shuffle(order)
        own = own.take(pa.array(order, pa.int64()))
        name = object_name(self.dataset, producer, int(self.attempts[producer]), 0)
        budget = self.rng.choice([1, 500, 5000, 1 << 20])
        writer = ResultWriter(self.store, name, own.schema, self.subpartitions, self.keys, memory_budget=budget)
        for batch in own.to_batches(max_chunksize=self.rng.randint(1, 20)):
            writer.write(batch)
        return writer.finish().bytes

    def run_again(self) -> None:
        producer = self.rng.randrange(self.producers)
        self.attempts[producer] += 1
        self.write(producer)

    def reader(self, ranges: InputRanges, subtask: int) -> GateReader:
        rows = slice(ranges.offsets[subtask], ranges.offsets[subtask + 1])
        shares = None if ranges.shares is None else ranges.shares[rows]
        tokens = np.zeros(self.producers, np.int64)
        where = self.attempts, tokens, ranges.rects[rows]
        return GateReader(self.store, self.dataset, self.table.schema, self.subpartitions, *where, shares=shares)


@st.composite
def skewed(draw):
    kind = draw(st.sampled_from(sorted(KEYS)))
    heavy = draw(st.sampled_from([0.0, 0.3, 0.7, 1.0]))
    rng = random.Random(draw(st.integers(0, 1 << 30)))
    tables = []
    for side in "lr":
        n = draw(st.sampled_from([0, 1, 30, 150]))
        share = draw(st.sampled_from([heavy, heavy, 0.0]))
        numbers = [7 if rng.random() < share else rng.choice([None, *range(12)]) for _ in range(n)]
        values = [None if v is None else {"text": f"key {v}", "double": v / 2}.get(kind, v) for v in numbers]
        rows = {f"{side}0": pa.array(values, KEYS[kind]), "row": pa.array(range(n), pa.int64())}
        tables.append(pa.table(rows | {"pad": ["x" * rng.randint(0, 30) for _ in range(n)]}))
    return *tables, rng


@MODEST
@given(
    skewed(), st.sampled_from(HOWS), st.integers(1, 3), st.sampled_from([1, 4, 16]), st.sampled_from([1 << 10, 1 << 24])
)
def test_each_pair_comes_out_once_whatever_was_divided_and_whoever_ran_again(tables, how, producers, width, memory):
    left, right, rng = tables
    with tempfile.TemporaryDirectory() as place:
        store = ResultStore(place)
        sides = [
            Side(number, table, (table.column_names[0],), producers, width, store, rng)
            for number, table in enumerate((left, right))
        ]
        schema = join_schema(left.schema, right.schema, ("l0",), ("r0",), how)
        join = HashJoin("join", how, ("l0",), ("r0",), left.schema, right.schema, schema)
        divisible = divisible_sides(how)
        assert divisible == DIVISIBLE.get(how, (True, False))
        inputs = [result(s.sizes, d, producers) for s, d in zip(sides, divisible, strict=True)]
        plan = decide_vertex(inputs, bounds(data_volume=rng.choice([200, 1000]), slots=rng.choice([1, 4, 16])))

        def run(subtask: int) -> pa.Table:
            readers = [side.reader(ranges, subtask) for side, ranges in zip(sides, plan.ranges, strict=True)]
            return collect(run_keyed(join, readers, [left.schema, right.schema], context(Path(place), memory)), schema)

        event(f"divided: {any(ranges.shares is not None for ranges in plan.ranges)}")
        order = list(range(plan.parallelism))
        rng.shuffle(order)
        before, after = order[: len(order) // 2], order[len(order) // 2 :]
        done = {subtask: run(subtask) for subtask in before}
        anew = rng.choice([0, 1])
        sides[anew].run_again()
        done |= {subtask: run(subtask) for subtask in {*after, *sharers(plan.ranges[anew], set(after))}}
        found = pa.concat_tables(done.values())
    others = [None] * len(found) if how in ("semi", "anti") else found["row_right"].to_pylist()
    assert Counter(zip(found["row"].to_pylist(), others, strict=True)) == expected_pairs(
        left, right, ("l0",), ("r0",), how
    )


def sharers(ranges: InputRanges, unfinished: set[int]) -> set[int]:
    """The subtasks that read parts of a subpartition of which one that has not finished reads another part."""
    owners = np.repeat(np.arange(ranges.parallelism), np.diff(ranges.offsets))
    parted = list(zip(owners[ranges.is_divided].tolist(), ranges.rects[ranges.is_divided, 2].tolist(), strict=True))
    open_ones = {subpartition for owner, subpartition in parted if owner in unfinished}
    return {owner for owner, subpartition in parted if subpartition in open_ones}


@MODEST
@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.integers(1, 9))
def test_shares_are_every_row_once_and_every_byte(counts, parts):
    """Of one subpartition in several regions, each with rows of other subpartitions before."""
    none = np.zeros(1, np.int64)
    filled = [(region, n) for region, n in enumerate(counts) if n]
    index = [Slice(np.array([3, 3 + n]), np.array([11, 11 + 7 * n]), none, none, np.array([k])) for k, n in filled]
    found: list[tuple[int, int]] = []
    sizes: list[int] = []
    nbytes = 0
    for part in range(parts):
        pieces = shared(index, (part, parts))
        own = [(int(p.message_seals[0]), row - 3) for p in pieces for row in range(*p.rows.tolist())]
        nbytes += sum(int(np.diff(piece.plain)[0]) for piece in pieces)
        sizes.append(len(own))
        found += own
    assert found == [(region, row) for region, n in filled for row in range(n)]
    assert max(sizes) - min(sizes) <= 1 and nbytes == 7 * sum(counts)


# --- with a cluster on which everything goes wrong -----------------------------------------------------------------


def join_graph(rng: random.Random) -> JobGraph:
    """Two sources, a join of some kind, and who reads it by another key."""
    graph = JobGraph("join", [], [])
    for number in range(4):
        vertex = JobVertex(number, f"step {number}", f"uid-{number}", outputs=[number] if number < 3 else [])
        graph.vertices.append(vertex)
        if number < 3:
            graph.datasets.append(IntermediateDataSet(number, number, ShipStrategy.HASH, ("k",)))
        if number < 2:
            vertex.source = SourceInfo(np.full(rng.randint(1, 5), 1000))
            vertex.parallelism = len(vertex.source.split_bytes)
    may = rng.choice([(True, True), (True, False), (False, True)])
    graph.vertices[2].inputs = [JobEdge(side, side, True, may[side]) for side in (0, 1)]
    graph.vertices[3].inputs = [JobEdge(2, 0, True)]
    return graph


def run_join(seed: int) -> SimulatedJob:
    rng = random.Random(seed)
    job = next(job for job in (random_job(rng.randrange(1 << 30)) for _ in iter(int, 1)) if job.forgiving)
    changes = {
        "jobmanager.scheduler": "AdaptiveBatch",
        "firesteel.decider.cut": "by-bytes",
        "max-parallelism": 8,
        "data-volume-per-task": 500,
    }
    workload = Workload(seed, mean=rng.choice([300, 3000]), heavy=0.95, variants=1 << 20)
    job = replace(
        job,
        graph=join_graph(rng),
        options=job.options.with_values(Options(changes)),
        world=replace(job.world, workload=workload),
    )
    simulated = SimulatedJob(job.scheduler(), job.world, JournalDigest(), validate_every=1)
    simulated.run()
    return simulated


def test_divided_joins_on_a_cluster_where_everything_goes_wrong():
    """Who was told which part, and of which rows: the simulation's own book is looked at when the job has finished."""
    divided = sum(run_join(seed).plane.shares.any_divided for seed in range(examples(50)))
    assert divided * 3 > examples(50)


@pytest.mark.full
def test_sharers_that_read_different_attempts_are_seen(monkeypatch):
    def nobody(self, result, vertex, ranges):
        return np.zeros(vertex.parallelism, np.bool_)

    monkeypatch.setattr(ConsumerInvalidation, "_over_shares", nobody)
    with pytest.raises(ViolationError, match="several attempts of its producers"):
        for seed in range(400):
            run_join(seed)
