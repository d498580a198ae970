"""Aggregations of distinct values as one step, as two, and with subpartitions divided by value at random: always the rows of one task."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.aggregates_kit import VALUES, keyed_tables
from tests.effort import examples

from firesteel import ExecutionEnvironment, agg
from firesteel.compile.adaptive.joins import absorb_in
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.compiler import compile_job
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.model.absorbing import Absorbing
from firesteel.model.job_graph import JobEdge, ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.parallelism import bounds_within, decide_vertex
from firesteel.scheduler.parallelism.model import ConsumedResult
from firesteel.task.program import Gate, PipelinedGate
from graph_kit import SUBPARTITIONS, LocalRun, check_shape
from operators_support import rows

ALL = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
OTHERS = [(c, f) for c, fs in (("i", "sum min max count mean"), ("f", "min max count")) for f in fs.split()]
"""Sums of doubles differ in their last digits with the order of rows."""


class Divided(LocalRun):
    """Subpartitions that a first step may divide are, into some parts each."""

    def __init__(
        self, job: CompiledJob, directory: Path, parallelism: Callable[[int], int], memory: int, seed: int
    ) -> None:
        super().__init__(job, directory, parallelism, memory)
        dice = random.Random(seed)
        self._parts = {s: dice.randint(2, 4) for s in range(SUBPARTITIONS[ShipStrategy.HASH]) if dice.random() < 0.4}
        for vertex in self.graph.vertices:
            if any(edge.by_value for edge in vertex.inputs):
                self.parallelism[vertex.id] = 1 + sum(self._parts.values())

    def gate(self, edge: JobEdge, subtask: int, n: int) -> Gate | PipelinedGate:
        gate = super().gate(edge, subtask, n)
        if not edge.by_value:
            return gate
        assert isinstance(gate, Gate)
        producers, size = int(gate.rects[0][1]), SUBPARTITIONS[ShipStrategy.HASH]
        own = [(s, part, parts) for s, parts in self._parts.items() for part in range(parts)]
        if subtask < len(own):
            s, part, parts = own[subtask]
            rects, shares = [(0, producers, s, s + 1)], [(part, parts)]
        else:  # the last one reads what is left, with columns as a batch of deployments has them
            rects = [(0, producers, s, s + 1) for s in range(size) if s not in self._parts]
            shares = [(0, 1)] * len(rects)
        columns = np.array(rects, np.int32).reshape(-1, 4), np.array(shares, np.int32).reshape(-1, 2)
        return replace(gate, rects=columns[0], shares=columns[1] if own else None)


def result(job: CompiledJob, parallelism: Callable[[int], int], memory: int, seed: int | None = None) -> pa.Table:
    """``seed``: of how subpartitions are divided; None: none is."""
    with tempfile.TemporaryDirectory() as directory:
        given = job, Path(directory), parallelism, memory
        return (LocalRun(*given) if seed is None else Divided(*given, seed)).run()[0]


def same(found: pa.Table, expected: pa.Table) -> bool:
    """The rows are equal. Variances may differ in their last digits, which depend on the order in which parts are merged."""
    names = sorted(expected.schema.names, key="spread".__eq__)  # it comes last
    if names[-1] != "spread":
        return rows(found) == rows(expected)
    ours, theirs = (
        sorted(rows(table.select(names)).elements(), key=lambda row: repr(row[:-1])) for table in (found, expected)
    )
    return len(ours) == len(theirs) and all(
        a[:-1] == b[:-1] and (a[-1] == b[-1] or math.isclose(a[-1], b[-1], rel_tol=1e-12, abs_tol=1e-9))
        for a, b in zip(ours, theirs, strict=True)
    )


class Both:
    """The job that may take two steps, and the same job of one. Hypothesis prints all fields of a dataclass, and refuses texts so long."""

    def __init__(self, may: CompiledJob, whole: CompiledJob) -> None:
        self.may, self.whole = may, whole


@st.composite
def jobs(draw):
    env = ExecutionEnvironment()
    table = draw(keyed_tables(key_names=draw(st.integers(1, 2))))
    keys = [name for name in table.schema.names if name.startswith("k")]
    counted = draw(st.sampled_from([*VALUES, keys[0]]))
    aggs = {"distinct": (counted, "count_distinct"), "again": (counted, "count_distinct")}
    aggs |= {f"{c}_{f}": (c, f) for c, f in draw(st.lists(st.sampled_from(OTHERS), max_size=3, unique=True))}
    aggs |= draw(st.sampled_from([{}, {"n": ("*", "count")}]))
    aggs |= {f"also_{c}": (c, "count_distinct") for c in draw(st.sets(st.sampled_from(sorted(VALUES)), max_size=2))}
    aggs |= draw(st.sampled_from([{}, {"first": agg.first("s", order_by="i"), "spread": agg.var_pop("i")}]))
    stream = env.from_arrow(table)
    behind = (stream.key_by(*keys) if draw(st.booleans()) else stream).aggregate(aggs)
    end = StreamNode("collect", CollectStep(0), behind.schema, (behind._pipeline.edge(),))
    return Both(*(compile_job([end], Options({"firesteel.join.skew": skew}), "counts") for skew in ("auto", "none")))


@ALL
@given(jobs(), st.integers(0, 5), st.sampled_from([1 << 12, 32 << 20]), st.integers(0, 1 << 20))
def test_one_step_two_steps_and_divided_ones_give_the_same_rows(both, spread, memory, seed):
    job, whole = both.may, both.whole
    check_shape(job)

    def parallelism(vertex: int) -> int:
        return 1 + (vertex * 7 + spread) % 3

    expected = result(whole, lambda _: 1, 32 << 20)
    (second,) = [v for v in job.job_graph.vertices if v.first_step is not None]
    assert same(result(job, parallelism, memory), expected)
    assert same(result(job, parallelism, memory, seed), expected)
    one = job.copy()
    absorb_in(one, Absorbing(second.id, None))
    check_shape(one)
    absorbed = result(one, parallelism, memory)
    assert same(absorbed, expected) and absorbed.schema == expected.schema
    assert job.job_graph.vertices[second.id].first_step == second.first_step, "the compiled job is as it was"
    event("keys" if job.job_graph.vertices[second.first_step].inputs[0].by_value else "no keys")


@st.composite
def requests(draw):
    n = draw(st.integers(1, 40))
    sizes = np.array(draw(st.lists(st.integers(0, 100), min_size=n, max_size=n)), np.int64)
    for _ in range(draw(st.integers(0, 3))):
        sizes[draw(st.integers(0, n - 1))] *= draw(st.integers(1, 200))
    return sizes


@settings(max_examples=examples(200), deadline=None)
@given(requests(), st.integers(1, 30), st.integers(1, 2000), st.integers(1, 16), st.sampled_from([0, 10, 100]))
def test_each_part_is_read_once_and_the_largest_gets_less(sizes, most, volume, slots, least):
    total = int(sizes.sum())
    given_options = Options({"max-parallelism": most, "data-volume-per-task": volume, "least-volume-per-slot": least})
    limits = replace(bounds_within(given_options, None), slots=slots)
    read = ConsumedResult(
        0, ShipStrategy.HASH, True, 3, len(sizes), sizes, total_bytes=total, divisible=True, by_value=True
    )
    plan = decide_vertex([read], limits)
    whole = decide_vertex([replace(read, divisible=False)], limits)
    (ranges,) = plan.ranges
    shares = np.array([[0, 1]] * len(ranges.rects)) if ranges.shares is None else ranges.shares
    found: dict[int, list[tuple[int, int]]] = {}
    for subtask in range(plan.parallelism):
        own = range(ranges.offsets[subtask], ranges.offsets[subtask + 1])
        assert len(own) == 1 or all(shares[row, 1] == 1 for row in own), "a part is all that its subtask reads"
        for row in own:
            for s in range(ranges.rects[row, 2], ranges.rects[row, 3]):
                found.setdefault(s, []).append(tuple(shares[row].tolist()))
    assert {s: sorted(parts) for s, parts in found.items()} == {
        s: [(part, n) for part in range(n)] for s, n in ((s, found[s][0][1]) for s in range(len(sizes)))
    }
    assert plan.parallelism <= most
    divided = bool(plan.decision["result"].get("divided"))
    event(f"divided: {divided}")
    assert plan.input_bytes is not None and whole.input_bytes is not None
    assert int(plan.input_bytes.sum()) == total
    if divided:
        assert plan.input_bytes.max() < whole.input_bytes.max()
