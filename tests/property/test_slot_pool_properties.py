"""The slot pool against a loop over workers that nobody could get wrong: the same grants, and never more than a worker has."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.effort import examples

from firesteel.model.job_graph import JobGraph, JobVertex
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.scheduler.kernel.events import ExecutorChanged
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption
from firesteel.scheduler.slots.pool import SlotPool
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, SlotMode, WorkerResources

MIB = 1 << 20
NODES = ("a", "b", "c")
GROUPS = (
    SlotSharingGroup("coarse"),
    SlotSharingGroup("small", 0.1, 64 * MIB),
    SlotSharingGroup("wide", 3.0, MIB, managed_memory=100 * MIB),
    SlotSharingGroup("large", 0.5, 300 * MIB, 200 * MIB),
    SlotSharingGroup("gpu", 1.0, MIB, external_resources={"gpu": 1.0}),
    SlotSharingGroup("third", 0.5, MIB, external_resources={"gpu": 1 / 3}),
)
SIZES = (
    WorkerResources(1.0, 512 * MIB),
    WorkerResources(4.0, 1024 * MIB, managed_memory=128 * MIB),
    WorkerResources(8.0, 400 * MIB, {"gpu": 2.0}, addresses={"gpu": ("0", "1")}),
    WorkerResources(2.5, 4096 * MIB, {"gpu": 1.0, "fpga": 3.0}),
)


@dataclass
class NaiveWorker:
    """All it holds is a list, and whether one more fits is found by adding it up."""

    name: str
    node: str
    resources: WorkerResources
    slots: int
    occupied: Fraction = Fraction(0)
    held: dict[int, ResourceProfile] = field(default_factory=dict)
    address_of: dict[int, str] = field(default_factory=dict)

    def fits(self, profile: ResourceProfile) -> bool:
        enough = all(used <= have for used, have in self.amounts([*self.held.values(), profile]))
        return enough and not (self.resources.addresses and profile.external and self.address_for(profile) is None)

    def address_for(self, profile: ResourceProfile) -> str | None:
        """The fullest of those with room; None: there is none."""
        wanted = exact(dict(profile.external)["gpu"])
        taken = dict.fromkeys(self.resources.addresses["gpu"], Fraction(0))
        for row, address in self.address_of.items():
            taken[address] += exact(dict(self.held[row].external)["gpu"])
        able = [address for address, amount in taken.items() if amount + wanted <= 1]
        return max(able, key=lambda address: taken[address], default=None)

    def hold(self, row: int, profile: ResourceProfile) -> None:
        if self.resources.addresses and profile.external:
            address = self.address_for(profile)
            assert address is not None
            self.address_of[row] = address
        self.held[row] = profile

    def let_go(self, rows: set[int]) -> None:
        for row in rows & self.held.keys():
            del self.held[row]
            self.address_of.pop(row, None)

    def amounts(self, profiles):
        """(what these take, what there is), by resource."""
        own = self.resources
        yield self.occupied + sum(map(self.cores, profiles)), Fraction(own.cpu_cores)
        yield sum(map(self.memory, profiles)), own.memory
        for kind in ("task_heap_memory", "task_off_heap_memory", "managed_memory"):
            if getattr(own, kind) is not None:
                yield (
                    sum(getattr(p, kind) if p.is_specified else getattr(own, kind) // self.slots for p in profiles),
                    (getattr(own, kind)),
                )
        for name in ("gpu", "fpga"):
            yield sum(exact(dict(p.external).get(name, 0.0)) for p in profiles), Fraction(own.external.get(name, 0.0))

    def cores(self, profile):
        return exact(profile.cpu_cores) if profile.is_specified else Fraction(self.resources.cpu_cores) / self.slots

    def memory(self, profile):
        return profile.memory if profile.is_specified else self.resources.memory // self.slots


def exact(amount):
    return Fraction(amount).limit_denominator(1000)


class PoolAgainstLoop(RuleBasedStateMachine):
    @initialize(first=st.sampled_from(SIZES))
    def begin(self, first):
        vertices = [JobVertex(n, g.name, g.name, slot_sharing_group=g.name) for n, g in enumerate(GROUPS)]
        graph = JobGraph("pool", vertices, [], {group.name: group for group in GROUPS})
        self.pool = SlotPool(graph, SlotMode(SlotEnforcement.POOL), avoided=lambda: self.blocked)
        self.blocked: tuple[str, ...] = ()
        self.model: dict[str, NaiveWorker] = {}
        self.lost: set[int] = set()
        """Executions whose worker has gone, and that still hold their slots."""
        self.came, self.rows = 0, 0
        self.a_worker_comes(first, "a")

    @rule(resources=st.sampled_from(SIZES), node=st.sampled_from(NODES))
    def a_worker_comes(self, resources, node):
        if len(self.model) == 4:
            return
        self.came += 1
        name, slots = f"w{self.came}", max(1, int(resources.cpu_cores))
        self.model[name] = NaiveWorker(name, node, resources, slots)
        for _ in range(1 + self.came % 2):  # it may be told twice
            self.pool.workers.change(
                ExecutorChanged(
                    at=0.0, executor=name, host=node, slots=slots, added=True, node=node, resources=resources
                )
            )

    @precondition(lambda self: self.model)
    @rule(which=st.integers(0, 9))
    def a_worker_goes(self, which):
        worker = self.model.pop(sorted(self.model)[which % len(self.model)])
        self.lost |= worker.held.keys()
        self.pool.workers.change(
            ExecutorChanged(at=0.0, executor=worker.name, host=worker.node, slots=0, added=False, node=worker.node)
        )

    @rule(share=st.sampled_from([0.0, 0.25, 1.0]), every=st.integers(1, 3))
    def others_take_cores(self, share, every):
        taken = {
            name: share * w.resources.cpu_cores for k, (name, w) in enumerate(self.model.items()) if k % every == 0
        }
        self.pool.workers.occupy(taken)
        for name, worker in self.model.items():
            worker.occupied = Fraction(taken.get(name, 0.0))

    @rule(
        vertex=st.integers(0, len(GROUPS) - 1),
        count=st.sampled_from([3, 1, 20]),
        blocked=st.sampled_from([(), ("a",), ("b", "c"), NODES]),
    )
    def slots_are_asked_for(self, vertex, count, blocked):
        self.blocked = blocked
        rows = np.arange(self.rows, self.rows + count)
        self.rows += count
        granted = self.pool.allocate_slots_for(ExecutionDeploymentOption(vertex, np.arange(count), rows))
        profile = ResourceProfile.of(GROUPS[vertex])
        expected: list[str] = []
        for name in filter(self.model.__contains__, self.pool.workers.names):
            worker = self.model[name]
            while len(expected) < count and worker.node not in self.blocked and worker.fits(profile):
                worker.hold(int(rows[len(expected)]), profile)
                expected.append(name)
        assert granted.executions.tolist() == rows[: len(expected)].tolist()
        assert granted.subtasks.tolist() == list(range(len(expected)))
        assert self.pool.workers_of(rows) == expected + [""] * (count - len(expected))
        if expected:
            assert granted.slots is not None and granted.slots.profile == profile
            assert [granted.slots.executors[k] for k in range(len(expected))] == expected
            self.addresses_are_as_expected(granted.slots, granted.executions.tolist())

    def addresses_are_as_expected(self, grants, rows):
        for place, row in enumerate(rows):
            own = self.model[grants.executors[place]].address_of.get(row)
            told = grants.addresses[place] if grants.addresses else {}
            assert told == ({} if own is None else {"gpu": (own,)})

    @precondition(lambda self: self.rows)
    @rule(every=st.sampled_from([1, 2, 3]), twice=st.booleans())
    def executions_are_over(self, every, twice):
        over = np.arange(0, self.rows, every)
        for _ in range(1 + twice):
            self.pool.ended(over)
        for worker in self.model.values():
            worker.let_go(set(over.tolist()))
        self.lost = {row for row in self.lost if row % every}

    @invariant()
    def the_pool_holds_what_the_loop_holds(self):
        if not hasattr(self, "pool"):
            return
        held = {row: worker.name for worker in self.model.values() for row in worker.held}
        assert int(self.pool.num_slots.sum()) == len(held) + len(self.lost)
        rows = np.array(sorted(held), np.int64)
        assert self.pool.workers_of(rows) == [held[row] for row in rows.tolist()]
        for name, worker in self.model.items():
            free = self.pool.workers.free[:, self.pool.workers.number(name)]
            used, have = next(worker.amounts(worker.held.values()))
            assert abs(int(free[0]) / 1_000_000 - float(have - used)) < 1e-4


class TestPoolAgainstLoop(PoolAgainstLoop.TestCase):
    settings = settings(
        max_examples=examples(30), stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
