"""The slot manager: what several jobs of a session hold of the same workers, who goes first, and what each is told."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from tests.groups_kit import FOUR, GIB, HEAVY, LIGHT, SPECULATIVE, requests, sources
from tests.scheduler_kit import Plane, waits_of

from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.slots.manager import Requirement, SlotManager
from firesteel.scheduler.slots.reservations import Reservations
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, SlotMode, WorkerResources
from firesteel.scheduler.slots.workers import Dimensions, Workers

GPU = SlotSharingGroup("gpu", 1.0, GIB, external_resources={"gpu": 1.0})
HALF = SlotSharingGroup("half", 0.5, 1, external_resources={"gpu": 0.5})
TWO_GPUS = WorkerResources(8.0, 16 * GIB, {"gpu": 2.0}, addresses={"gpu": ("0", "1")})
TASKS = SlotMode(SlotEnforcement.TASK_PROFILES)


class Session:
    """Jobs by name; ``told``: those that may ask again and have not been sent word of it."""

    def __init__(self):
        self.manager, self.told = SlotManager(), []
        self.jobs: dict[str, Plane] = {}

    def job(self, name, *counts, workers=(("w", FOUR),), **more):
        def join(_, own, left_to_spark):
            return self.manager.register(name, own, lambda: self.told.append(name), left_to_spark)

        job = self.jobs[name] = sources(*counts, join=join, **more)
        for worker, resources in workers:
            job.worker(worker, resources)
        return job

    def tell(self):
        """Those that were told, in turn, until nobody is."""
        order = []
        while self.told:
            name = self.told.pop(0)
            order.append(name)
            self.jobs[name].send(e.SlotsFreed(at=self.jobs[name].tick()))
        return order

    def running(self):
        return {name: len(job.tasks) for name, job in self.jobs.items()}


def test_what_one_job_holds_the_other_does_not_get_until_it_is_free():
    session = Session()
    first = session.job("first", 4, groups=(LIGHT,)).start()
    second = session.job("second", 4, groups=(LIGHT,)).start()
    assert session.running() == {"first": 4, "second": 0} and not session.told
    first.finish((0, 0, 0))
    assert session.tell() == ["second"] and session.running() == {"first": 3, "second": 1}
    first.run()
    assert first.status == "FINISHED"
    session.tell()
    assert second.run().status == "FINISHED"


def test_two_jobs_of_one_gpu_each_run_at_once_on_a_worker_with_two_and_share_no_address():
    session = Session()
    workers = (("w", TWO_GPUS),)
    jobs = [session.job(name, 1, groups=(GPU,), workers=workers).start() for name in ("first", "second")]
    assert session.running() == {"first": 1, "second": 1}
    (one,), (other,) = (job.tasks.values() for job in jobs)
    assert {one.addresses["gpu"], other.addresses["gpu"]} == {("0",), ("1",)}
    third = session.job("third", 3, groups=(HALF,), workers=workers).start()
    assert not third.tasks
    jobs[1].finish((0, 0, 0))
    session.tell()
    assert [task.addresses["gpu"] for task in third.tasks.values()] == [("1",)] * 2, (
        "two halves of the one that is free"
    )


def test_a_job_that_waits_gets_a_slot_before_any_other_gets_two_more():
    session, rng, passed = Session(), Random(1), Counter()
    for name in ("first", "second", "third"):
        session.job(name, 60, groups=(LIGHT,)).start()
    assert session.running() == {"first": 4, "second": 0, "third": 0}
    for _ in range(50):
        holder = rng.choice([name for name, count in session.running().items() if count])
        left = {**session.running(), holder: session.running()[holder] - 1}
        session.jobs[holder].finish(rng.choice(list(session.jobs[holder].tasks)))
        session.tell()
        (taker,) = (name for name, count in session.running().items() if count > left[name])
        for name in session.jobs:
            passed[taker, name] = 0
            passed[name, taker] += name != taker
            assert passed[name, taker] < 2
    assert min(session.running().values()) >= 1


def test_a_job_that_waits_for_something_else_bars_nobody_from_what_is_idle():
    session = Session()
    gpu = (("w", WorkerResources(8.0, 16 * GIB, {"gpu": 1.0}, addresses={"gpu": ("0",)})),)
    session.job("first", 2, groups=(GPU,), workers=gpu).start()
    session.job("second", 1, groups=(GPU,), workers=gpu).start()
    light = session.job("third", 9, groups=(LIGHT,), workers=gpu).start()
    assert len(light.tasks) == 7, "all cores that are free, though two wait for the GPU"


def test_two_jobs_that_come_to_an_empty_cluster_share_it_whoever_asks_first():
    session = Session()
    before = session.job("before", 4, groups=(LIGHT,)).start()
    session.job("first", 9, groups=(LIGHT,)).start()
    session.job("second", 9, groups=(LIGHT,)).start()
    before.run()
    assert set(session.tell()) == {"first", "second"}
    assert session.running() == {"before": 0, "first": 3, "second": 1}
    for key in list(session.jobs["first"].tasks)[:2]:
        session.jobs["first"].finish(key)
        session.tell()
    assert session.running() == {"before": 0, "first": 2, "second": 2}


def test_a_large_request_is_not_passed_for_ever_by_another_jobs_small_ones():
    session = Session()
    small = session.job("small", 60, groups=(LIGHT,)).start()
    large = session.job("large", 1, groups=(HEAVY,)).start()
    passed = 0
    while not large.tasks:
        small.finish(next(iter(small.tasks)))
        session.tell()
        passed += 1
        assert passed < 20
    assert large.decisions("slot reservation")
    assert not small.tasks, "all four cores are the large one's"
    large.run()
    session.tell()
    assert small.run().status == "FINISHED"


def test_a_job_that_ends_or_vanishes_leaves_all_it_held_to_the_others():
    session = Session()
    first = session.job("first", 4, groups=(LIGHT,)).start()
    second = session.job("second", 4, groups=(LIGHT,)).start()
    first.scheduler.allocator.session.close()
    first.scheduler.allocator.session.close()
    session.tell()
    assert len(second.tasks) == 4
    third = session.job("third", 4, groups=(LIGHT,)).start()
    second.send(e.CancelRequested(at=second.tick()))
    assert not third.tasks, "what is being cancelled still runs"
    for key in list(second.tasks):
        second.confirm_cancel(key)
    session.tell()
    assert second.status == "CANCELED" and len(third.tasks) == 4


def test_it_is_written_down_and_told_for_whose_slots_a_job_waits():
    session = Session()
    first = session.job("first", 4, groups=(LIGHT,)).start()
    second = session.job("second", 2, groups=(LIGHT,), slot__request__timeout="20 s").start()
    (waits,) = requests(second)
    asked = "Group 'light' (step 'step 0') waits for 2 slots of 1 core, 1 GiB heap"
    held = "1 worker could hold one, but it has no room now, and there job 'first' holds 4 cores, 4 GiB."
    assert waits.reason == f"{asked}: {held}" and waits.rule == "slots of other jobs"
    assert waits.reason in waits_of(second.scheduler)
    assert not second.timers, "no time runs while another job uses what will come back"
    for key in list(first.tasks)[:2]:
        first.finish(key)
        session.tell()
    assert [decision.result for decision in requests(second)] == ["waits", "goes on"]
    assert not requests(first)


def test_jobs_that_see_a_worker_with_more_or_less_memory_count_the_same_bytes():
    session = Session()
    wide = SlotSharingGroup("wide", 1.0, 3 * GIB)
    session.job("first", 9, groups=(wide,)).start()
    assert session.running()["first"] == 2
    large = (("w", WorkerResources(4.0, 11 * GIB)),)
    second = session.job("second", 9, groups=(wide,), workers=large).start()
    assert len(second.tasks) == 1, "11 GiB less the 6 that are held"


def test_who_leaves_all_to_spark_counts_memory_as_soon_as_another_jobs_can_bind():
    session = Session()
    workers = (("w", WorkerResources(4.0, 4 * GIB)),)
    first = session.job("first", 3, groups=(LIGHT,), workers=workers, mode=TASKS).start()
    assert len(first.tasks) == 3 and not first.deploys[0].slots.insists, "4 GiB for 4 cores: cores run out first"
    wide = SlotSharingGroup("wide", 1.0, 2 * GIB)
    second = session.job("second", 1, groups=(wide,), workers=workers, mode=TASKS).start()
    assert not second.tasks, "what was left to Spark may take three cores, and a GiB each"
    for key in list(first.tasks):
        first.launch(key, worker="w")
        session.tell()
    assert not second.tasks, "3 GiB of 4 are held"
    first.finish((0, 0, 0))
    session.tell()
    assert len(second.tasks) == 1
    third = session.job("third", 9, groups=(LIGHT,), workers=workers, mode=TASKS).start()
    assert not third.tasks, "alone it would have left all to Spark"
    first.run()
    session.tell()
    second.run()
    session.tell()
    assert len(third.tasks) == 9, "with the last job whose memory binds Spark is enough again"


def test_a_node_that_one_job_blocks_is_blocked_for_the_others_with_its_reason_and_its_end():
    workers = (("w", FOUR), ("v", FOUR))
    session = Session()
    first = session.job("first", 2, groups=(LIGHT,), workers=workers, **SPECULATIVE).start()
    second = session.job("second", 9, groups=(LIGHT,), workers=workers, **SPECULATIVE)
    first.launch((0, 0, 0), node="w")
    first.launch((0, 1, 0), node="v")
    first.detector.slow.append((0, 0, 0))
    first.fire("slow-task-detector")
    (shared,) = first.shared
    assert shared.node == "w"
    end = second.now + 60.0
    second.send(e.NodeBlocked(at=second.tick(), node="w", cause=shared.cause, end=end, job="first"))
    second.start()
    (blocked,) = second.decisions("blocklist")
    assert blocked.inputs["end"] == end
    assert "job 'first' has blocked it: attempt 1 of subtask 0 of 'step 0' has taken" in blocked.reason
    assert not second.shared, "nobody is told of it twice"
    assert {task.worker for task in second.tasks.values()} == {"v"}


@pytest.mark.parametrize("left", [1, 0])
def test_a_job_alone_in_its_session_is_as_if_there_were_no_session(left):
    """Whether it always was, or the other has gone."""
    session = Session()
    job = session.job("first", 9, 2, groups=(LIGHT, HEAVY)).start()
    if not left:
        other = session.job("second", 1, groups=(LIGHT,)).start()
        other.scheduler.allocator.session.close()
    alone = sources(9, 2, groups=(LIGHT, HEAVY))
    alone.worker("w", FOUR)
    alone.start()
    while not alone.ended:
        key = next(iter(alone.tasks))
        alone.finish(key)
        job.finish(key)
        assert list(job.tasks) == list(alone.tasks)
    assert job.status == "FINISHED" and not session.told


def test_room_that_is_free_as_it_comes_to_be_kept_is_asked_for_at_once():
    """It was refused for another job's claim on it, which what is kept goes before: nobody would say so later."""
    manager = SlotManager()
    workers = Workers(Dimensions(()))
    workers.change(e.ExecutorChanged(at=0.0, executor="w", host="w", slots=4, added=True, resources=FOUR))
    need = workers.needs(ResourceProfile.of(LIGHT))
    job = manager.register("waits", workers, lambda: None)
    other = manager.register("other", Workers(Dimensions(())), lambda: None)
    kept = Reservations(workers, job)

    def asks_in_vain():
        kept.begin_round()
        kept.asked((0, False), [(need, 1)], 1, 0)
        again = kept.end_round(workers.usable(), 1)
        job.declare([Requirement([(need, 1)], [workers.usable()], 1)], kept.next_due)
        return again

    assert not asks_in_vain() and not job.kept
    other.granted(1)  # a turn of the cluster has passed
    assert asks_in_vain() and job.kept, "it is free"
    assert not asks_in_vain() and job.kept, "what is kept already is no news"
    workers.change(e.ExecutorChanged(at=1.0, executor="w", host="w", slots=4, added=False, resources=FOUR))
    assert asks_in_vain() and not job.kept, "others of the job may have what was kept on a worker that is gone"
