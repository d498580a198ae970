"""The detector of slow tasks against FLIP-168's own words, and what our fallback rules add."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.effort import examples
from tests.scheduler_kit import GraphBuilder, ints

from firesteel.model.job_graph import JobGraph, ShipStrategy
from firesteel.model.reports import SET_UP_MS, StepReport
from firesteel.options import Options
from firesteel.scheduler.inputs import DirectInputs
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.speculation.detector import SlowTaskDetector
from firesteel.scheduler.speculation.execution_times import SlowTasks
from firesteel.scheduler.topology.execution_graph import DefaultExecutionGraph, ExecutionJobVertex, VertexInitialization
from firesteel.scheduler.topology.executions import ExecutionTable

S = ExecutionState
WAY = (S.CREATED, S.SCHEDULED, S.DEPLOYING, S.RUNNING, S.FINISHED)


class Job:
    """Vertices of one subtask array each, whose executions are brought into any state at any time."""

    def __init__(self, *vertices: tuple[int, list[int] | None], name: str | None = None, **options) -> None:
        """Of each vertex the parallelism, and the bytes of each subtask."""
        builder = GraphBuilder()
        for n, _ in vertices:
            builder.source([1] * n)
        self.job_graph: JobGraph = builder.graph
        if name is not None:
            for vertex in self.job_graph.vertices:
                vertex.name = name
        self.table = ExecutionTable()
        self.graph = DefaultExecutionGraph(self.job_graph, self.table)
        for number, (n, read) in enumerate(vertices):
            given = None if read is None else np.array(read, np.int64)
            self.graph.initialize_job_vertex(VertexInitialization(number, n, {}, (), given), at=0.0)
        self.options = Options(options)

    def vertex(self, number: int = 0) -> ExecutionJobVertex:
        return self.graph.vertices[number]

    def bring(
        self, subtask: int, state: S, deployed: float = 0.0, ended: float = 0.0, vertex: int = 0, node: str = ""
    ) -> None:
        """The newest execution of this subtask goes all the way to ``state``."""
        job_vertex = self.vertex(vertex)
        row = job_vertex.newest[subtask : subtask + 1]
        ended_early = {S.CANCELING: S.RUNNING, S.CANCELED: S.RUNNING, S.FAILED: S.RUNNING}
        way = WAY[int(self.table.state[row[0]]) + 1 : WAY.index(ended_early.get(state, state)) + 1]
        for step in way:
            self.table.transition(row, step, ended if step is S.FINISHED else deployed)
        if state is S.CANCELED:
            self.table.transition(row, S.CANCELING, ended)
        if state not in WAY:
            self.table.transition(row, state, ended)
        if node:
            self.table.node[row] = self.table._node_id(node)
        if state is S.FINISHED:
            job_vertex.winner[subtask] = row[0]
            job_vertex.num_finished += 1

    def finish(self, *seconds: float, first: int = 0, vertex: int = 0) -> None:
        for subtask, took in enumerate(seconds, first):
            self.bring(subtask, S.FINISHED, 0.0, took, vertex)

    def slow(self, at: float) -> list[SlowTasks]:
        return self.detector().slow_tasks(at)

    def detector(self) -> SlowTaskDetector:
        return SlowTaskDetector(self.options, self.graph, DirectInputs())

    def slow_subtasks(self, at: float, vertex: int = 0) -> list[int]:
        return sorted(
            int(self.table.index[row]) for slow in self.slow(at) if slow.vertex == vertex for row in slow.rows
        )


SEED = {"firesteel.slow-task-detector.rule": "seed"}
WEIGHTED = {"firesteel.slow-task-detector.expected": False}
QUICK = {"baseline-lower-bound": "1 s"}


# --- the seed's rule ------------------------------------------------------------------------------------------------


@dataclass
class Attempt:
    """One execution as the seed's text sees it."""

    state: S
    deployed: float
    ended: float


def execution_time(attempt: Attempt, now: float) -> float:
    if attempt.state is S.FINISHED:
        return attempt.ended - attempt.deployed
    if attempt.state in (S.DEPLOYING, S.RUNNING):
        return now - attempt.deployed
    return 0


def slow_by_the_seed(attempts: list[Attempt], now: float, r: float, m: float, b: float) -> list[int]:
    n = len(attempts)
    enough = math.ceil(n * r)  # exact: the ratios below are multiples of 1/32
    finished = sorted((a for a in attempts if a.state is S.FINISHED), key=lambda a: a.ended)
    if len(finished) < n * r or len(finished) == n:
        return []
    times = sorted(execution_time(a, now) for a in finished[:enough])
    baseline = max(times[len(times) // 2] * m, b) if times else b
    running = [k for k, a in enumerate(attempts) if a.state in (S.DEPLOYING, S.RUNNING)]
    return [k for k in running if execution_time(attempts[k], now) >= baseline]


TIMES = st.integers(0, 40).map(lambda quarter: quarter / 4)
ATTEMPTS = st.builds(
    lambda state, deployed, took: Attempt(state, deployed, deployed + took),
    st.sampled_from([S.FINISHED] * 6 + [S.RUNNING] * 4 + list(S)),
    TIMES,
    TIMES,
)


@settings(max_examples=examples(60), deadline=None)
@given(
    attempts=st.lists(ATTEMPTS, min_size=1, max_size=12),
    now=st.integers(80, 160).map(lambda quarter: quarter / 4),
    r=st.sampled_from([0.0, 0.25, 0.5, 0.75, 0.90625]),
    m=st.sampled_from([1.0, 1.5, 3.0]),
    b=st.sampled_from([0.0, 5.0, 25.0]),
)
def test_the_seed_rule_is_the_seeds_text(attempts, now, r, m, b):
    # Who of those that finished at the same time is earlier, the text leaves open.
    for number, attempt in enumerate(attempts):
        attempt.ended += number / 1024
    given_options = {"baseline-ratio": r, "baseline-multiplier": m, "baseline-lower-bound": f"{b} s"}
    job = Job((len(attempts), [1 + k % 3 for k in range(len(attempts))]), **SEED, **given_options)
    for subtask, attempt in enumerate(attempts):
        job.bring(subtask, attempt.state, attempt.deployed, attempt.ended)
    assert job.slow_subtasks(now) == slow_by_the_seed(attempts, now, r, m, b)


def test_the_earliest_finished_count_not_the_fastest():
    job = Job((4, None), **SEED, **QUICK, **{"baseline-ratio": 0.5})
    job.bring(0, S.FINISHED, 0.0, 10.0)
    job.bring(1, S.FINISHED, 0.0, 10.5)
    job.bring(2, S.FINISHED, 20.0, 22.0)
    job.bring(3, S.RUNNING, 20.0)
    assert job.slow_subtasks(35.7) == []
    (slow,) = job.slow(35.75)
    assert (slow.rule, slow.elapsed.tolist(), slow.baseline.tolist()) == ("seed", [15.75], [15.75])
    assert slow.reason == (
        "the earliest 2 to finish of 4 subtasks took 10.5 s in the median; slow is 1.5 times as long, from 1 s on"
    )


@pytest.mark.parametrize("rule", ["seed", "input-weighted", "expected"])
def test_set_ups_of_functions_are_no_slowness(rule):
    """Two subtasks waited 30 s for a model that their workers loaded; a third may be the first in its worker."""
    options = (
        {"baseline-ratio": 0.9}
        if rule == "expected"
        else {"firesteel.slow-task-detector.rule": rule, "baseline-ratio": 0.5}
    )
    job = Job((6, [1] * 6), **QUICK, **options)
    job.finish(31.0, 31.0, 1.0, 1.0)
    waited, kept = (StepReport("step", {SET_UP_MS: ms}) for ms in (30_000, 0))
    job.vertex().step_counts.admit(np.arange(4), [(waited,), (waited,), (kept,), ()])
    for subtask in (4, 5):
        job.bring(subtask, S.RUNNING, 0.0)
    assert job.slow_subtasks(30.9) == []
    (slow,) = job.slow(36.0)
    assert slow.elapsed.tolist() == [6.0, 6.0]
    assert slow.rule == rule


@pytest.mark.parametrize("rule", ["seed", "input-weighted"])
@pytest.mark.parametrize(
    ("n", "ratio", "needed"),
    [(2, 0.25, 1), (6, 0.75, 5), (10, 0.25, 3), (3, 0.1, 1), (7, 0.75, 6), (5, 0.41, 3), (100, 0.07, 7), (10, 0.7, 7)],
)
def test_nobody_is_slow_before_the_ratio_is_reached(n, ratio, needed, rule):
    """Though the product of N and R be a hair above a whole number (100 * 0.07)."""
    options = {"firesteel.slow-task-detector.rule": rule, "firesteel.slow-task-detector.expected": False}
    job = Job((n, None), **options, **QUICK, **{"baseline-ratio": ratio})
    job.bring(n - 1, S.RUNNING)
    job.finish(*[1.0] * (needed - 1))
    assert job.slow_subtasks(500.0) == []
    job.finish(1.0, first=needed - 1)
    assert job.slow_subtasks(500.0) == [n - 1]


def test_a_ratio_of_zero_leaves_the_lower_bound():
    for rule in ("seed", "input-weighted"):
        job = Job((2, [1, 9]), **{"firesteel.slow-task-detector.rule": rule, "baseline-ratio": 0})
        job.bring(0, S.RUNNING)
        job.bring(1, S.FINISHED, 0.0, 500.0)
        assert job.slow_subtasks(59.9) == [] and job.slow_subtasks(60.0) == [0]


def test_the_seed_rule_expects_nothing_unless_it_is_told_to():
    """FLIP-168: no task is identified as slow before N*R have finished."""
    job = Job((4, [100] * 4), **SEED, **QUICK)
    job.finish(2.0, 2.0)
    for subtask in (2, 3):
        job.bring(subtask, S.RUNNING)
    assert job.slow(1e6) == []
    job.options = Options({**SEED, **QUICK, "firesteel.slow-task-detector.expected": True})
    (slow,) = job.slow(1e6)
    assert slow.rule == "expected" and job.table.index[slow.rows].tolist() == [2, 3]


# --- by bytes -------------------------------------------------------------------------------------------------------


def test_one_that_only_has_more_to_read_is_slow_for_the_seed_only():
    for rule, found in ((SEED, [3]), (WEIGHTED, [])):
        job = Job((4, [100, 100, 100, 1000]), **rule, **QUICK)
        job.finish(2.0, 2.0, 2.0)
        job.bring(3, S.RUNNING)
        assert job.slow_subtasks(19.9) == found
    assert job.slow_subtasks(30.0) == [3], "ten times as much to read, and 15 times as long"
    (slow,) = job.slow(30.0)
    assert slow.baseline == pytest.approx([30.0])
    assert slow.reason == (
        "the fastest 3 of 4 subtasks took 2 s, and 20 ms per byte read, in the median; slow is 1.5 times as long, "
        "from 1 s on"
    )


def test_one_that_has_hardly_anything_to_read_may_take_what_is_usual():
    job = Job((4, [1000, 1000, 1000, 1]), **WEIGHTED, **QUICK)
    job.finish(4.0, 4.0, 4.0)
    job.bring(3, S.RUNNING)
    assert job.slow_subtasks(5.9) == [] and job.slow_subtasks(6.0) == [3]


def test_empty_ones_say_nothing_of_a_rate():
    job = Job((10, [0] * 7 + [1000] * 3), **WEIGHTED, **QUICK)
    job.finish(*[0.5] * 7, 4.0, 4.0)
    job.bring(9, S.RUNNING)
    assert job.slow_subtasks(5.9) == [] and job.slow_subtasks(6.0) == [9]


def test_where_bytes_are_not_known_time_is_time():
    for read in (None, [0, 0, 0, 0]):
        job = Job((4, read), **WEIGHTED, **QUICK)
        job.finish(2.0, 3.0, 4.0)
        job.bring(3, S.RUNNING)
        assert job.slow_subtasks(4.4) == [] and job.slow_subtasks(4.5) == [3], "the second of three sorted times"


@settings(max_examples=examples(60), deadline=None)
@given(
    read=st.lists(st.integers(0, 1 << 30), min_size=2, max_size=12),
    start=st.integers(0, 20),
    per_mib=st.floats(0.0, 2.0),
    running=st.sets(st.integers(0, 11)),
)
@example(read=[1 << 30, 0], start=0, per_mib=1.0, running={0})
def test_nobody_is_slow_where_all_take_a_start_and_the_same_time_per_byte(read, start, per_mib, running):
    """Whoever has finished, and however the bytes are spread."""
    options = {"baseline-lower-bound": 0, "baseline-ratio": 0.5, "baseline-multiplier": 1.001}
    job = Job((len(read), read), **options)
    takes = [start + per_mib * n / (1 << 20) for n in read]
    for subtask, seconds in enumerate(takes):
        if subtask in running:
            job.bring(subtask, S.RUNNING, 10_000.0 - seconds)
        else:
            job.bring(subtask, S.FINISHED, 10.0, 10.0 + seconds)
    assert job.slow_subtasks(10_000.0 - 1e-3) == []


# --- several executions, states, timers -------------------------------------------------------------------------


def test_a_mirror_has_its_own_time_and_a_failed_one_none():
    job = Job((5, None), **SEED, **QUICK)
    job.finish(2.0, 2.0, 2.0, 2.0)
    job.bring(4, S.RUNNING)
    (mirror,) = job.vertex().create_new_speculative_executions(ints(4), at=10.0).tolist()
    job.bring(4, S.RUNNING, 10.0)
    (slow,) = job.slow(12.9)
    assert job.table.attempt[slow.rows].tolist() == [0]
    (slow,) = job.slow(13.0)
    assert sorted(job.table.attempt[slow.rows].tolist()) == [0, 1]
    job.table.transition(ints(mirror), S.FAILED, 14.0)
    (slow,) = job.slow(15.0)
    assert job.table.attempt[slow.rows].tolist() == [0]


def test_a_restart_of_finished_ones_is_seen():
    job = Job((3, None), **SEED, **QUICK, **{"baseline-ratio": 0.5})
    job.finish(2.0, 2.0)
    job.bring(2, S.RUNNING)
    detector = job.detector()
    told = [detector.slow_tasks(4.0)]
    job.graph.reset(job.vertex(), ints(0, 1), 4.0)
    told.append(detector.slow_tasks(5.0))
    for subtask in (0, 1):
        job.bring(subtask, S.FINISHED, 4.0, 14.0)
    told += [detector.slow_tasks(14.0), detector.slow_tasks(15.0)]
    assert list(map(len, told)) == [1, 0, 0, 1]


def test_vertices_that_are_not_initialised_or_finished_are_left_alone():
    builder = GraphBuilder()
    builder.source([1])
    builder.step((0, ShipStrategy.HASH))
    job = Job((1, None), **QUICK)
    job.graph = DefaultExecutionGraph(builder.graph, job.table)
    assert job.slow(100.0) == []


# --- fallback rules ----------------------------------------------------------------------------------------------


def test_one_wave_with_a_node_frozen_is_judged_by_those_that_finished():
    job = Job((2, [100, 300]), **QUICK)
    job.finish(2.0)
    job.bring(1, S.RUNNING)
    assert job.slow_subtasks(23.9) == []
    (slow,) = job.slow(24.0)
    assert (slow.rule, slow.baseline.tolist()) == ("expected", [24.0])
    assert slow.reason == (
        "1 finished subtask of 2 took at most 2 s, and 20 ms per byte read, in the median; slow is 4 times what that "
        "lets expect, from 1 s on"
    )
    job.options = Options({**QUICK, **WEIGHTED})
    assert job.slow(1e6) == []


def test_nothing_is_expected_while_something_waits_to_be_launched():
    job = Job((6, None), **QUICK)
    job.finish(2.0, 2.0, 2.0, 2.0)
    job.bring(4, S.RUNNING)
    for state in (S.CREATED, S.SCHEDULED):
        job.bring(5, state)
        assert job.slow(100.0) == []
        job.graph.reset(job.vertex(), ints(5), 1.0)
    job.bring(5, S.DEPLOYING, 99.0)
    assert job.slow_subtasks(100.0) == [4]


def test_an_expectation_that_most_miss_is_wrong():
    job = Job((8, None), **QUICK)
    job.finish(2.0, 2.0, 2.0)
    for subtask in range(3, 8):
        job.bring(subtask, S.RUNNING)
    assert job.slow(100.0) == []
    job.finish(90.0, 90.0, first=3)
    assert job.slow_subtasks(359.0) == [] and job.slow_subtasks(360.0) == [5, 6, 7], "four times what the longest took"


def like(names=("a", "a"), nodes=("n1", "n1"), read=(100, 200), options=QUICK) -> Job:
    """A vertex that has finished, three subtasks of 100 bytes in 2 s each, and one of which two run."""
    job = Job((3, [100] * 3), (len(read), list(read)), **options)
    for vertex, name in zip(job.job_graph.vertices, names, strict=True):
        vertex.name = name
    job.finish(2.0, 2.0, 2.0)
    for subtask, node in enumerate(nodes):
        job.bring(subtask, S.RUNNING, vertex=1, node=node)
    return job


def test_where_nobody_has_finished_like_vertices_tell():
    assert like().slow_subtasks(15.9, vertex=1) == []
    (slow,) = like().slow(20.0)
    assert (slow.rule, slow.vertex, slow.baseline.tolist()) == ("expected", 1, [16.0])
    assert slow.reason.startswith("3 finished subtasks of like vertices (0) took at most 2 s,")
    assert "slow is 8 times" in slow.reason


@pytest.mark.parametrize(
    "other",
    [
        {"names": ("a", "b")},
        {"nodes": ("n1", "n2")},
        {"nodes": ("", "")},
        {"read": (0, 0)},
        {"read": (100,) * 4, "nodes": ("n1",) * 4},
        {"options": {**QUICK, "firesteel.slow-task-detector.expected": False}},
    ],
)
def test_like_vertices_tell_only_of_a_node_and_of_known_bytes(other):
    assert like(**other).slow(1e5) == []


def test_whatever_takes_the_absolute_time_is_slow_and_told_of_once():
    job = Job((4, [1, 1, 1, 1]), **{"firesteel.slow-task-detector.absolute-time": "10 s"})
    job.finish(1.0, 1.0)
    job.bring(2, S.RUNNING)
    job.bring(3, S.DEPLOYING, 5.0)
    (slow,) = job.slow(14.0)
    assert (slow.rule, slow.baseline.tolist()) == ("absolute-time", [10.0]), "sooner than the lower bound of the others"
    told = job.slow(62.0)
    assert [(s.rule, job.table.index[s.rows].tolist()) for s in told] == [("expected", [2]), ("absolute-time", [3])]


def test_who_waits_for_a_service_is_never_slow():
    job = Job((4, [1, 1, 1, 1]), (4, [1, 1, 1, 1]), **{"firesteel.slow-task-detector.absolute-time": "10 s"})
    for vertex in (0, 1):
        job.bring(3, S.RUNNING, vertex=vertex)
    job.vertex(1).job.waits = True
    assert [slow.vertex for slow in job.slow(14.0)] == [0]
