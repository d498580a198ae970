"""Random streams on which everything that can go wrong does: for property tests, and for soaking."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.streams.invariants import Oversight
from tests.simulation.streams.stream import Observer, SimulatedStream, StreamOutcome
from tests.simulation.streams.world import SimulatedUser, StreamFaults, StreamWorld

from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import Options
from firesteel.scheduler.streaming.adaptive_scheduler import AdaptiveScheduler
from firesteel.scheduler.streaming.wish import ResourceRequirements

_AS = "jobmanager.adaptive-scheduler."
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class RandomStream:
    world: StreamWorld
    options: dict[str, Any]

    def scheduler(self) -> AdaptiveScheduler:
        user, cores = self.world.user, self.world.slot_cores
        needs = ResourceRequirements(user.lower, user.upper)
        group = SlotSharingGroup("default", cores, 1) if cores else SlotSharingGroup("default")
        return AdaptiveScheduler("simulated", "checkpoint", needs, Options(self.options), group=group)


def random_stream(seed: int, faults: bool = True, hours: float = 1.0) -> RandomStream:
    """The stream of this seed. ``faults``: False for one whose cluster and user change, and nothing goes wrong."""
    rng = random.Random(seed)
    options = _options(rng)
    return RandomStream(_world(rng, seed, _faults(rng) if faults else _changes(rng), hours), options)


def run_random_stream(stream: RandomStream, observers: Sequence[Observer] = ()) -> StreamOutcome:
    """Raises ViolationError when the scheduler did what it must not, or did not what it must."""
    scheduler = stream.scheduler()
    oversight = Oversight(scheduler, stream.world, Options(stream.options))
    simulated = SimulatedStream(scheduler, stream.world, (oversight, *observers))
    oversight.plane = simulated.plane
    outcome = simulated.run()
    oversight.ended(outcome)
    return outcome


def _options(rng: random.Random) -> dict[str, Any]:
    cooldown = rng.choice([0, 5, 30, 120])
    options: dict[str, Any] = {
        _AS + "executing.cooldown-after-rescaling": f"{cooldown} s",
        _AS + "executing.resource-stabilization-timeout": f"{rng.choice([0, 1, 20, 60, 300])} s",
        _AS + "scale-on-failed-checkpoints-count": rng.choice([1, 2, 3]),
        _AS + "submission.resource-wait-timeout": rng.choice(["5 min", "5 s"]),
        _AS + "submission.resource-stabilization-timeout": rng.choice(["0 s", "10 s"]),
        "execution.checkpointing.timeout": rng.choice(["10 min", "30 s", "5 s"]),
        "firesteel.stream.partitions-per-core": rng.choice([1, 2, 4]),
        "firesteel.stream.max-partitions-per-core": rng.choice([4, 4, 16]),
    }
    if rng.random() < 0.7:
        options[_AS + "max-delay-for-scale-trigger"] = f"{rng.choice([0, 1, 10, 60, 600])} s"
    if rng.random() < 0.3:
        options["firesteel.stream.cooldown-after-scale-up"] = f"{rng.choice([0, 10, 60])} s"
        options["firesteel.stream.cooldown-after-scale-down"] = f"{rng.choice([0, 10, 300])} s"
    if rng.random() < 0.2:
        options["firesteel.stream.scaling"] = "load"
        options["firesteel.stream.load.window"] = f"{rng.choice([5, 60])} s"
    if rng.random() < 0.15:
        options["firesteel.stream.max-downtime"] = f"{rng.choice([0, 2, 60])} s"
    return options | _restarts(rng)


def _restarts(rng: random.Random) -> dict[str, Any]:
    kind = rng.choice(["none", "fixed-delay", "failure-rate", "exponential-delay"])
    options: dict[str, Any] = {"restart-strategy.type": kind}
    if kind == "fixed-delay":
        options["restart-strategy.fixed-delay.attempts"] = rng.choice([1, 1 << 30, 1 << 30])
        options["restart-strategy.fixed-delay.delay"] = rng.choice(["0 s", "5 s", "100 s"])
    return options


def _changes(rng: random.Random) -> StreamFaults:
    return StreamFaults(executor_every=rng.choice([0.0, 10.0, 60.0, 600.0]))


def _faults(rng: random.Random) -> StreamFaults:
    def sometimes(most: float) -> float:
        return rng.choice([0.0, most * rng.random()])

    return StreamFaults(
        batch=sometimes(0.5) if rng.random() < 0.5 else sometimes(0.02),
        uncounted=sometimes(1.0),
        final=sometimes(0.02),
        hang=sometimes(0.02),
        hang_for=rng.choice([20.0, 1000.0]),
        start=sometimes(0.3),
        step=sometimes(0.4),
        unfinishable=sometimes(0.1),
        executor_every=rng.choice([0.0, 10.0, 60.0, 600.0]),
        late=sometimes(0.3),
        late_by=rng.choice([0.5, 20.0]),
        twice=sometimes(0.3),
        stale=sometimes(0.5),
        jump_every=rng.choice([0.0, 0.0, 120.0, 1200.0]),
        jump_by=rng.choice([20.0, 900.0]),
    )


def _user(rng: random.Random, hours: float) -> SimulatedUser:
    lower, upper = sorted((rng.choice([1, 1, 4, 16]), rng.choice([1, 8, 32, 128])))
    return SimulatedUser(
        lower=lower,
        upper=upper,
        requirements_every=rng.choice([0.0, 0.0, 30.0, 300.0]),
        most=rng.choice([8, 64]),
        regrets=rng.choice([0.0, 0.7]),
        rescale_every=rng.choice([0.0, 0.0, 60.0, 600.0]),
        consent_every=rng.choice([0.0, 60.0, 600.0]),
        end_at=hours * HOUR * rng.choice([0.01, 0.3, 1.0, 1.0]),
        end=rng.choice(["stop", "stop", "cancel", "stop, cancel"]),
    )


def _world(rng: random.Random, seed: int, faults: StreamFaults, hours: float) -> StreamWorld:
    old = rng.random() < 0.3
    world = StreamWorld(
        seed=seed,
        executors=rng.choice([0, 1, 1, 2, 2, 2, 4, 4]),
        most_executors=rng.choice([2, 8]),
        cores_each=rng.choice([1, 2, 4]),
        complete=rng.random() < 0.2,
        dynamic=rng.random() < 0.1,
        stateful=rng.random() < 0.7,
        born=rng.choice([1, 5, 200]) if old else 0,
        pending=rng.choice([0, 1000]) if old else 0,
        has_commit_barrier=rng.random() < 0.8,
        refusal="a global aggregation has one partition" if rng.random() < 0.05 else "",
        trigger_interval=rng.choice([None, None, 1.0, 10.0]),
        rows_to_end=rng.choice([1e4, 1e6]) if rng.random() < 0.15 else float("inf"),
        rates=rng.choice([(1000.0,), (1000.0, 0.0), (500.0, 4000.0, 1000.0), (0.0,), (20_000.0, 100.0)]),
        rate_for=rng.choice([30.0, 300.0]),
        most_rows=rng.choice([10_000, 1_000_000]),
        overhead=rng.choice([0.2, 2.0]),
        tells_backlog=rng.random() < 0.5,
        latency=rng.choice([0.001, 0.001, 0.5]),
        repartitioning=rng.choice([0.5, 5.0]),
        faults=faults,
        user=_user(rng, hours),
    )
    fits = [cores for cores in (0.25, 0.5, 1.0, 2.0) if cores <= world.cores_each]
    return replace(world, slot_cores=rng.choice(fits)) if rng.random() < 0.3 else world
