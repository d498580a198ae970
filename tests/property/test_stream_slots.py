"""Slots of a stream against a naive model that hands them out one by one, and what a stream that takes them promises."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from firesteel import SlotSharingGroup
from firesteel.options import Options
from firesteel.scheduler.streaming.events import ExecutorOffer
from firesteel.scheduler.streaming.settings import StreamSettings
from firesteel.scheduler.streaming.slots import Resources, slots_of_stream, task_cpus
from firesteel.scheduler.streaming.wish import ResourceRequirements, Wanted

SETTINGS = StreamSettings.of(Options())
CORES = st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.75, 1, 1.5, 2, 3])
MEMORY = st.integers(0, 40)
GROUPS = st.builds(
    lambda cores, heap, beside, managed, gpu: SlotSharingGroup(
        "g", cores, 1 + heap, beside, managed, {"gpu": gpu} if gpu else {}
    ),
    CORES,
    MEMORY,
    MEMORY,
    MEMORY,
    st.sampled_from([0, 0, 0.1, 0.5, 1, 2]),
)
OFFERS = st.builds(
    lambda count, cores, heap, beside, gpu: ExecutorOffer(count, cores, heap, beside, (("gpu", float(gpu)),)),
    st.integers(1, 3),
    st.integers(1, 8),
    st.integers(0, 200),
    st.integers(0, 200),
    st.integers(0, 3),
)


def exact(number):
    return Fraction(str(number))


def one_by_one(group, offer):
    """Slots of one executor: another one is taken as long as all that it needs is left."""
    cores, heap, beside = exact(group.cpu_cores), group.task_heap_memory, group.task_off_heap_memory
    cores = cores if cores <= 1 else Fraction(-(-cores.numerator // cores.denominator))
    need = [cores, heap, beside + group.managed_memory, exact(group.external_resources.get("gpu", 0))]
    left = [Fraction(offer.cores), offer.heap, offer.beside_heap, exact(dict(offer.external)["gpu"])]
    slots = 0
    while all(has >= wants for has, wants in zip(left, need, strict=True)):
        left = [has - wants for has, wants in zip(left, need, strict=True)]
        slots += 1
    return slots


def resources(offers):
    cores = sum(offer.count * offer.cores for offer in offers)
    return Resources(cores=cores, executors=len(offers), known=True, offers=tuple(offers))


@given(GROUPS, st.lists(OFFERS, max_size=4))
def test_slots_are_those_that_can_be_taken_one_by_one(group, offers):
    there = sum(offer.count * one_by_one(group, offer) for offer in offers)
    assert slots_of_stream(group, SETTINGS, 1).there(resources(offers)) == there


@given(
    GROUPS,
    st.lists(OFFERS, max_size=4),
    st.integers(1, 40),
    st.integers(0, 40),
    st.integers(1, 80),
    st.none() | st.integers(1, 60),
)
def test_what_is_wanted_and_can_be_had_has_a_slot_for_each_partition(group, offers, lower, more, running, load):
    slots = slots_of_stream(group, SETTINGS, 1)
    wanted, there = Wanted(ResourceRequirements(lower, lower + more), SETTINGS, slots), resources(offers)
    wish = wanted.running(running, there, load, user=False)
    assert wish.slots == slots.there(there)
    assert wish.sufficient == (wish.slots >= lower)
    if wish.sufficient:
        assert lower <= wish.parallelism <= min(lower + more, wish.slots)
        if load is None:  # no core is left without a partition that a slot on it would allow
            at_once = sum(offer.count * (offer.cores // task_cpus(group)) for offer in offers)
            assert wish.parallelism >= min(at_once, wish.slots, lower + more)
        again = wanted.running(wish.parallelism, there, load, user=False)
        assert again.parallelism == wish.parallelism, "it comes to rest"
    start = wanted.at_start(there)
    assert start.parallelism <= max(1, start.slots) or not start.slots
