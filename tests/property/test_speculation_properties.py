"""Speculation on a simulated cluster where somebody else decides what goes wrong, and when: hypothesis.

The cluster keeps books of its own (``simulation.ledger``, ``simulation.runs``) and stops at the first command that breaks
a rule: one winner for each subtask, consumers that read winners only, no more attempts than are allowed, nothing new on
a blocked node while another is free, nothing left running, nothing left in the storage. ``python -m benchmarks.soak`` runs
thousands of jobs on which all of it comes by dice.
"""

from __future__ import annotations

import collections
import os
import random
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import structs
from tests.effort import examples
from tests.simulation.digest import JournalDigest
from tests.simulation.faults import Faults
from tests.simulation.job import SimulatedJob
from tests.simulation.random_jobs import random_graph, random_job

from firesteel.errors import UsageError
from firesteel.options import MAX_CONCURRENT_EXECUTIONS, SPECULATIVE_ENABLED, Options
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.kernel.states import ExecutionState
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.scheduler.speculation.execution_times import SlowTasks
from firesteel.scheduler.speculation.mirrors import Mirrors
from firesteel.simulation.cluster.nodes import ClusterSpec
from firesteel.simulation.cluster.runs import RunState
from firesteel.simulation.cluster.storage import StorageSpec
from firesteel.simulation.plane import World
from firesteel.simulation.violation import ViolationError
from firesteel.simulation.workload import Workload

NODES = 4
S = ExecutionState


class Accuser:
    """A detector that calls slow whatever it is told to, right or wrong, at each check: every n-th execution."""

    def __init__(self, every: float, nth: int) -> None:
        self.interval = every
        self.table = None
        self.nth = nth
        """0: none."""

    def slow_tasks(self, at):
        table = self.table
        running = [row for row in range(table.size) if table.state[row] in (S.DEPLOYING, S.RUNNING)]
        running = [row for row in running if self.nth and row % self.nth == 0]
        vertices = sorted({int(table.vertex[row]) for row in running})
        return [self._told(v, [r for r in running if table.vertex[r] == v]) for v in vertices]

    def _told(self, vertex, rows):
        ones = np.ones(len(rows))
        return SlowTasks(vertex, np.array(rows, np.int64), "accused", 2 * ones, ones, "somebody says so")


class SpeculatingJob(RuleBasedStateMachine):
    """One job. Rules are what happens between two of its moments; in the end it must finish, whatever happened."""

    seen: ClassVar[collections.Counter[str]] = collections.Counter()

    @initialize(
        seed=st.integers(0, 1 << 20),
        attempts=st.sampled_from([2, 3, 1]),
        returns=st.sampled_from([1, 5, 0]),
        block=st.sampled_from(["0 s", "3 s", "1 min"]),
        slots=st.sampled_from([1, 3]),
        nth=st.sampled_from([3, 5, 1, 0]),
        faults=st.builds(
            Faults,
            race=st.sampled_from([0.0, 1.0]),
            zombie=st.sampled_from([0.0, 1.0]),
            lost=st.sampled_from([0.0, 1.0]),
            launch_late=st.sampled_from([0.0, 0.5]),
            untold=st.sampled_from([0.0, 0.3]),
            late=st.sampled_from([0.0, 0.3]),
            duplicate=st.sampled_from([0.0, 0.3]),
            tie=st.sampled_from([0.0, 1.0]),
            damage=st.sampled_from([0.0, 1.0]),
            heartbeat_timeout=st.sampled_from([1.0, 8.0]),
        ),
    )
    def begin(self, seed, attempts, returns, block, slots, nth, faults):
        rng = random.Random(seed)
        options = {
            "jobmanager.scheduler": "AdaptiveBatch",
            "max-parallelism": 12,
            "data-volume-per-task": 500,
            "restart-strategy.fixed-delay.attempts": 1 << 30,
            SPECULATIVE_ENABLED.key: True,
            MAX_CONCURRENT_EXECUTIONS.key: attempts,
            "block-slow-node-duration": block,
            "firesteel.speculative.max-rejections": returns,
        }
        world = World(
            ClusterSpec(NODES, slots),
            StorageSpec(bandwidth=100.0),
            replace(faults, node_local=rng.random() < 0.5, late_by=0.5, node_back_after=2.0),
            Workload(seed, mean=300, variants=1 << 20),
            seed,
        )
        self.accuser = Accuser(0.2, nth)
        self.job, self.counted = None, [0, 0]
        graph = random_graph(rng)
        try:
            scheduler = create_scheduler(graph, Options(options), detector=self.accuser)
            self.accuser.table = scheduler.executions
        except UsageError:
            return
        self.job = SimulatedJob(scheduler, world, validate_every=3)
        self.job.start()

    @property
    def under_way(self):
        return self.job is not None and self.job.plane.ended is None

    def running(self):
        """Rows of the cluster's executions that are in a slot."""
        runs = self.job.plane.runs
        return np.flatnonzero((runs.state[: runs.size] == RunState.RUNNING) & (runs.slot[: runs.size] >= 0))

    @rule(seconds=st.sampled_from([0.1, 1.0, 10.0]))
    def time_passes(self, seconds):
        until = self.job.plane.clock.now + seconds if self.under_way else 0.0
        while self.under_way and self.job.plane.clock.now < until:
            self.job.step()

    @precondition(lambda self: self.under_way)
    @rule(nth=st.sampled_from([0, 1, 2, 3, 5]))
    def others_are_called_slow(self, nth):
        self.accuser.nth = nth

    @precondition(lambda self: self.under_way)
    @rule(node=st.integers(0, NODES - 1), speed=st.sampled_from([0.05, 0.3, 1.0]))
    def a_node_changes_its_speed(self, node, speed):
        if self.job.plane.healthy[node]:
            self.job.plane.cluster.set_speed(node, speed, self.job.plane.clock.now)

    @precondition(lambda self: self.under_way)
    @rule(node=st.integers(0, NODES - 1), seconds=st.sampled_from([0.5, 3.0, 20.0]))
    def a_node_stands_still(self, node, seconds):
        if self.job.plane.healthy[node]:
            self.job.fault_injection.freeze(node, seconds)

    @precondition(lambda self: self.under_way)
    @rule(node=st.integers(0, NODES - 1))
    def a_node_dies(self, node):
        healthy = self.job.plane.healthy
        if healthy[node] and healthy.sum() > 1:
            self.job.fault_injection.kill(node)

    @precondition(lambda self: self.under_way)
    @rule(dataset=st.integers(0, 20), count=st.integers(1, 3))
    def objects_are_lost_or_damaged(self, dataset, count):
        if self.job.plane.graph.datasets:
            self.job.fault_injection.lose(dataset % len(self.job.plane.graph.datasets), count)

    @precondition(lambda self: self.under_way)
    @rule(which=st.integers(0, 30))
    def a_function_raises(self, which):
        rows = self.running()
        if len(rows):
            self.job.plane.runs.fails[rows[which % len(rows)]] = True

    @invariant()
    def the_scheduler_is_valid(self):
        if self.job is not None:
            self.job.scheduler.validate()

    @invariant()
    def what_counts_never_falls(self):
        if self.job is not None:
            numbers = self.job.scheduler.metrics.job.read()
            now = [numbers[name] for name in ("numRestarts", "numEffectiveSpeculativeExecutions")]
            assert all(later >= earlier for later, earlier in zip(now, self.counted, strict=True))
            self.counted = now

    def teardown(self):
        if getattr(self, "job", None) is None:
            return
        while self.under_way:
            self.job.step()
        assert self.job.plane.status is c.JobStatus.FINISHED
        done = self.job.outcome().speculation
        for what in ("mirrors", "effective", "blocked", "rejected"):
            self.seen[what] += getattr(done, what)


class TestSpeculatingJobs(SpeculatingJob.TestCase):
    settings = settings(
        max_examples=max(8, examples(12)),
        stateful_step_count=25,
        deadline=None,
        derandomize="FIRESTEEL_EXAMPLES" not in os.environ,  # the same jobs each time: they do speculate
        suppress_health_check=[HealthCheck.too_slow],
    )


def test_jobs_did_speculate():
    """Guards the machine above against rules that have gone quiet. Runs after it."""
    if not SpeculatingJob.seen:
        pytest.skip("the machine was not run")
    assert all(SpeculatingJob.seen[what] for what in ("mirrors", "effective", "blocked"))


# --- the cluster's own rules: each is broken on purpose, and seen ----------------------------------------------------


def speculating_jobs(count=60):
    """Chaotic jobs that speculate, ready to run."""
    for seed in range(count):
        job = random_job(seed)
        if not job.options[SPECULATIVE_ENABLED]:
            continue
        try:
            yield SimulatedJob(job.scheduler(), job.world)
        except UsageError:
            continue


def broken(change, count=400):
    """What is complained of when ``change(job)`` breaks the scheduler."""
    with pytest.raises(ViolationError) as complaint:
        for job in speculating_jobs(count):
            change(job)
            job.run()
    return str(complaint.value)


def answers(change):
    """``change(event, commands)`` gives the commands that the cluster gets in their place."""

    def put_between(job):
        handle = job.scheduler.handle
        job.scheduler.handle = lambda event: change(event, handle(event))

    return put_between


@pytest.mark.full
def test_a_second_winner_is_seen():
    def keeps_all(_event, commands):
        return [command for command in commands if not isinstance(command, c.DiscardExecutions)]

    told = broken(answers(keeps_all))
    assert "two winners" in told or "although they have won" in told


@pytest.mark.full
def test_too_many_attempts_are_seen():
    def lift(job):
        next(policy for policy in job.scheduler.policies if isinstance(policy, Mirrors))._limit += 1

    assert "attempts of a subtask" in broken(lift)


@pytest.mark.full
def test_a_deployment_that_keeps_away_from_nothing_is_seen():
    def careless(_event, commands):
        return [
            structs.replace(command, placement=c.Placement(may_reject=False))
            if isinstance(command, c.Deploy)
            else command
            for command in commands
        ]

    assert "which is blocked, while another node has a free slot" in broken(answers(careless))


@pytest.mark.full
def test_a_loser_that_nobody_cancels_is_seen():
    def kind(event, commands):
        spared = isinstance(event, e.ExecutionsFinished)
        return [command for command in commands if not (spared and isinstance(command, c.Cancel))]

    told = broken(answers(kind))  # it goes on, or what it reads is gone before it has ended
    assert "nobody cancelled" in told or "was deleted while subtasks read it" in told


@pytest.mark.full
def test_a_consumer_that_reads_a_loser_is_seen():
    def mixed_up(_event, commands):
        return [
            structs.replace(command, gates=tuple(replace(g, tokens=g.tokens + (g.tokens >= 0)) for g in command.gates))
            if isinstance(command, c.Deploy)
            else command
            for command in commands
        ]

    assert "did not win" in broken(answers(mixed_up))


@pytest.mark.full
def test_a_job_that_waits_for_ever_is_seen():
    def deaf(event, commands):
        return [command for command in commands if not isinstance(command, c.Deploy)]

    assert "does not end" in broken(answers(deaf))


def test_the_same_seed_tells_the_same_story_of_speculation():
    def story(seed):
        job, journal = random_job(seed), JournalDigest()
        try:
            outcome = SimulatedJob(job.scheduler(), job.world, journal).run()
        except UsageError:
            return None
        return outcome, journal.digest

    for seed in range(9000, 9010):
        assert story(seed) == story(seed)
