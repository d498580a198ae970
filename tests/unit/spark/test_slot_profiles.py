"""What Spark is asked for, what workers are said to have, and what a batch gets for its slots. No JVM."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pytest

from driver_loop import Loop, Status
from firesteel.errors import UsageError
from firesteel.model.arrays import Names
from firesteel.model.job_graph import JobGraph, JobVertex
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.options import GIB, MIB, Options
from firesteel.scheduler.kernel.commands import JobStatus, JobStatusChanged, SlotGrants
from firesteel.scheduler.kernel.events import CancelRequested, ExecutorChanged, JobStarted, WorkersOccupied
from firesteel.scheduler.slots.resource_profile import ResourceProfile, SlotEnforcement, SlotMode, WorkerResources
from firesteel.spark.driver.batch import Batch
from firesteel.spark.placement.node_names import ExecutorInfo, NodeNames
from firesteel.spark.placement.status_store import SparkTask
from firesteel.spark.placement.watch import Killer, Watcher
from firesteel.spark.session.probe import Findings
from firesteel.spark.slots import provisioning as slot_provisioning
from firesteel.spark.slots import workers
from firesteel.spark.slots.provisioning import (
    SlotProvisioning,
    executor_need,
    slot_mode_of,
    slot_provisioning_of,
    task_need,
)
from firesteel.spark.slots.workers import Workers
from firesteel.task.executor.place import Place

PROFILE = ResourceProfile(2.0, GIB, 256 * MIB, 512 * MIB, external=(("gpu", 1.0),))
_applications = iter(range(1000))


class Context(SimpleNamespace):
    def __init__(self, master="spark://m:1", resources=None, **conf):
        settings = {f"spark.{k.replace('__', '.')}": str(v) for k, v in conf.items()}
        super().__init__(
            master=master,
            applicationId=f"slots {next(_applications)}",
            resources={n: SimpleNamespace(addresses=a) for n, a in (resources or {}).items()},
            conf={"spark.master": master, **settings},
        )

    @property
    def _conf(self):
        return self.conf

    def getConf(self):
        return self.conf


def need(profile=PROFILE, master="yarn", *, framework=256 * MIB, dataframes=False, **conf):
    conf = {"resource__gpu__discoveryScript": "/x.sh", **conf}
    context = Context(master, **{f"executor__{k}" if not k.startswith("memory__") else k: v for k, v in conf.items()})
    counts = workers.counts_overhead(context)
    return executor_need(profile, context.conf, framework=framework, dataframes=dataframes, overhead_counts=counts)


class TestNeeds:
    @pytest.mark.parametrize(("cores", "cpus"), [(0.5, 1), (1.0, 1), (1.5, 2), (2.0, 2)])
    def test_spark_counts_whole_cores(self, cores, cpus):
        assert task_need(ResourceProfile(cores, MIB)).cpus == cpus

    def test_executors_have_as_many_slots_as_the_sessions_cores_allow(self):
        plain = ResourceProfile(2.0, GIB)
        assert need(plain).executor.cores == 2, "one, where nothing is set"
        assert need(plain, cores=5).executor.cores == 4
        assert need(plain, cores=1).executor.cores == 2, "a slot that is larger gets an executor of its own"

    def test_no_more_external_resources_than_the_sessions_executors_have(self):
        assert need(cores=8).executor.external == (("gpu", 1, "/x.sh", ""),)
        assert need(cores=8).executor.cores == 2
        four = need(cores=8, resource__gpu__amount=4)
        assert (four.executor.cores, four.executor.external[0][1]) == (8, 4)
        halves = need(ResourceProfile(1.0, MIB, external=(("gpu", 0.5),)), cores=4)
        assert (halves.executor.cores, halves.executor.external[0][1]) == (2, 1), "two share one"

    def test_batch_functions_memory_goes_to_the_overhead(self):
        told = need(cores=4, resource__gpu__amount=2, memory="2g").executor
        assert (told.memory, told.off_heap) == (2048, 0)
        both = 2 * (GIB + 768 * MIB + 256 * MIB)
        assert told.slots_memory == both, "a round number already"
        assert told.overhead == 384 + both // MIB

    def test_dataframe_steps_have_their_heap_in_the_jvm(self):
        told = need(memory="1g", dataframes=True, memory__offHeap__enabled="true").executor
        assert (told.memory, told.off_heap) == (1024, 256)
        assert told.overhead == 384 + 512 + 256
        large = ResourceProfile(1.0, 3 * GIB)
        assert need(large, dataframes=True).executor.memory == 3072
        assert need(large, memory="4g", dataframes=True).executor.memory == 4096, "never less than the session's"

    def test_a_standalone_master_counts_the_heap_alone(self):
        told = need(ResourceProfile(1.0, GIB), "spark://m:1", memory="1g").executor
        assert (told.memory, told.overhead) == (1024 + 1280, 0)

    def test_a_little_network_memory_needs_no_other_profile(self):
        one = need(PROFILE.with_network_memory(20 * MIB))
        assert need(PROFILE.with_network_memory(60 * MIB)) == one
        assert need(PROFILE.with_network_memory(900 * MIB)) != one

    def test_without_a_discovery_script_it_is_refused(self):
        with pytest.raises(UsageError, match="no discovery script for the external resource 'gpu'") as error:
            need(resource__gpu__discoveryScript="")
        assert "spark.executor.resource.gpu.discoveryScript" in error.value.hint


def described(context, listed, **options):
    found = Workers(context, Options({k.replace("__", "."): v for k, v in options.items()})).described(listed)
    return {executor: info.resources for executor, info in found.items()}


class TestWorkers:
    def test_executors_of_one_machine_share_its_memory_by_cores(self):
        context = Context(executor__memory="1g")
        findings = [Findings("a", "", "3", memory=8 * GIB), Findings("b", "", "3", memory=4 * GIB)]
        workers.learn(context.applicationId, findings)
        listed = {"0": ExecutorInfo("a", 3, 3), "1": ExecutorInfo("a", 1, 1), "2": ExecutorInfo("b", 2, 2)}
        found = described(context, listed)
        assert found["0"].memory == 3 * (6 * GIB // 4 - 256 * MIB)
        assert found["1"].memory == 6 * GIB // 4 - 256 * MIB
        assert found["2"].memory == 3 * GIB - 512 * MIB
        late = described(context, {"3": ExecutorInfo("c", 1, 1)})
        assert late["3"].memory == 3 * GIB - 256 * MIB, "a machine that nobody has seen is as small as the smallest"

    def test_what_was_said_goes_first(self):
        context = Context()
        told = Findings("a", "", "3", memory=8 * GIB, place=Place("0", "a"), said_memory="3g")
        workers.learn(context.applicationId, [told])
        listed = {"0": ExecutorInfo("a", 1, 1), "1": ExecutorInfo("a", 1, 1)}
        assert described(context, listed)["0"].memory == 3 * GIB
        assert described(context, listed, firesteel__executor__memory="2 GiB")["0"].memory == 2 * GIB

    def test_where_the_overhead_counts_it_is_what_there_is_and_each_slot_takes_its_framework_memory(self):
        """Spark's overhead of 384 MiB is less than a Python worker's 256 MiB for each of four cores."""
        listed = {"0": ExecutorInfo("a", 4, 4)}
        assert described(Context("yarn"), listed)["0"].memory == 384 * MIB
        more = Context("k8s://x", executor__memoryOverhead="4096")
        assert described(more, listed)["0"].memory == 4 * GIB
        for master in ("yarn", "k8s://x"):
            made = slot_provisioning_of(Context(master), graph(SlotSharingGroup("a")), Options({}), {})
            assert made.mode is None, "no resources, no slots of ours"
            assert Workers(Context(master), Options({})).framework_by_slot == 256 * MIB
        assert Workers(Context("yarn"), Options({"firesteel.memory.framework": "100m"})).framework_by_slot == 100 * MIB

    def test_what_was_said_is_for_slots_alone(self):
        """Neither the option nor the variable holds the framework memory."""
        assert Workers(Context("yarn"), Options({"firesteel.executor.memory": "2 GiB"})).framework_by_slot == 0
        context, listed = Context("yarn"), {"0": ExecutorInfo("a", 1, 1), "1": ExecutorInfo("a", 1, 1)}
        late = Workers(context, Options({}))
        said = Findings("a", "", "3", memory=8 * GIB, place=Place("0", "a"), said_memory="3g")
        workers.learn(context.applicationId, [said])
        assert late.described(listed)["0"].resources.memory == 3 * GIB + 256 * MIB, "for its slots take that, too"
        assert Workers(context, Options({})).framework_by_slot == 0
        found = described(context, listed)
        assert (found["0"].memory, found["1"].memory) == (3 * GIB, 128 * MIB)
        assert Workers(Context("yarn", dynamicAllocation__enabled="true"), Options({})).framework_by_slot == 0
        assert Workers(Context(), Options({})).framework_by_slot == 0, "standalone: a worker per core is subtracted"

    @pytest.mark.parametrize(
        ("master", "settings", "overhead", "beside"),
        [
            ("yarn", {}, 384, 384),
            ("yarn", {"executor__memory": "8g"}, 819, 819),
            ("yarn", {"executor__memory": "5000"}, 500, 500),
            ("yarn", {"executor__memory": "8g", "executor__memoryOverheadFactor": "0.25"}, 2048, 2048),
            ("yarn", {"executor__memory": "8g", "kubernetes__memoryOverheadFactor": "0.4"}, 819, 819),
            ("yarn", {"executor__minMemoryOverhead": "1g"}, 1024, 1024),
            ("yarn", {"executor__memory": "8g", "executor__minMemoryOverhead": "512"}, 819, 819),
            ("yarn", {"executor__memoryOverhead": "100", "executor__minMemoryOverhead": "1g"}, 100, 100),
            ("yarn", {"executor__pyspark__memory": "2g", "yarn__isPython": "true"}, 384, 2432),
            ("yarn", {"executor__pyspark__memory": "2g"}, 384, 384),
            ("k8s://x", {"executor__memory": "8g"}, 819, 819),
            ("k8s://x", {"executor__memory": "8g", "kubernetes__memoryOverheadFactor": "0.4"}, 3276, 3276),
            (
                "k8s://x",
                {
                    "executor__memory": "8g",
                    "kubernetes__memoryOverheadFactor": "0.4",
                    "executor__memoryOverheadFactor": "0.2",
                },
                1638,
                1638,
            ),
            (
                "k8s://x",
                {
                    "executor__memory": "8g",
                    "kubernetes__memoryOverheadFactor": "0.4",
                    "executor__memoryOverhead": "2048m",
                },
                2048,
                2048,
            ),
            ("k8s://x", {"executor__pyspark__memory": "1500", "kubernetes__resource__type": "python"}, 384, 1884),
            ("k8s://x", {"executor__pyspark__memory": "1500"}, 384, 384),
        ],
    )
    def test_the_overhead_is_reckoned_as_spark_does(self, master, settings, overhead, beside):
        """MiB as ``ResourceProfile.getResourcesForClusterManager`` of Spark 4.3.0 answers for the same settings."""
        conf = Context(master, **settings).conf
        assert (workers.default_overhead(conf), workers.beside_heap(conf)) == (overhead * MIB, beside * MIB)

    def test_before_spark_4_the_least_overhead_is_fixed(self, monkeypatch):
        conf = Context("yarn", executor__minMemoryOverhead="1g").conf
        monkeypatch.setattr(workers, "installed_pyspark", lambda: "3.5.8")
        assert workers.default_overhead(conf) == 384 * MIB

    def test_a_heap_without_a_unit_is_in_mib(self):
        assert workers.heap_of(Context(executor__memory="2048").conf, "executor") == 2 * GIB
        assert need(ResourceProfile(1.0, GIB), memory="2048").executor.memory == 2048

    def test_external_resources_are_those_of_the_executor_or_the_driver(self):
        info = ExecutorInfo("a", 2, 2, external=(("gpu", ("0", "1")),))
        assert described(Context(), {"0": info})["0"].external == {"gpu": 2.0}
        assert described(Context(), {"0": info})["0"].addresses == {}, "Spark hands them out"
        local = described(Context("local[4]", {"gpu": ["7"]}), {"driver": ExecutorInfo("a", 4, 4)})["driver"]
        assert (local.cpu_cores, local.external, local.addresses) == (4.0, {"gpu": 1.0}, {"gpu": ("7",)})

    def test_executors_that_spark_made_for_a_need_serve_that_need_only(self):
        made = Workers(Context(executor__memory="1g"), Options({}))
        made.profile_made(3, PROFILE, 5 * GIB)
        found = made.described({str(k): ExecutorInfo("a", 1, 2, profile_id=k) for k in (0, 3, 4)})
        assert [found[e].profile for e in "034"] == [ResourceProfile.UNKNOWN, PROFILE, ResourceProfile.UNKNOWN]
        assert found["3"].resources.memory == 5 * GIB
        assert found["4"].resources == WorkerResources(0.0, 0), "another job's"


def graph(*groups):
    vertices = [JobVertex(k, f"v{k}", f"u{k}", slot_sharing_group=group.name) for k, group in enumerate(groups)]
    return JobGraph("job", vertices, [], {group.name: group for group in groups})


TRAIN = SlotSharingGroup("train", cpu_cores=2, task_heap_memory=GIB, external_resources={"gpu": 1.0})


def grants(executors=("",) * 3, *, profile=None, insists=False, addresses=()):
    profile = profile or ResourceProfile.of(TRAIN)
    return SlotGrants("train", profile, Names.of(executors), insists, addresses)


def deploys(granted):
    return [SimpleNamespace(subtasks=np.arange(3), slots=granted)]


class TestSlotting:
    def test_the_mode_is_as_the_session(self):
        assert slot_mode_of(Context("local[2]")).enforcement is SlotEnforcement.POOL
        assert slot_mode_of(Context()).enforcement is SlotEnforcement.TASK_PROFILES
        dynamic = slot_mode_of(Context(dynamicAllocation__enabled="true"))
        assert dynamic.enforcement is SlotEnforcement.EXECUTOR_PROFILES
        assert dynamic.grows

    def test_without_resources_nothing_happens(self):
        made = slot_provisioning_of(Context(), graph(SlotSharingGroup("a"), SlotSharingGroup("b")), Options({}), {})
        assert type(made) is SlotProvisioning
        listed = {"0": ExecutorInfo("a", 1, 1)}
        assert made.described(listed) == listed
        assert made.slots_of(deploys(None), 0) is None

    def test_a_local_slot_has_its_limit_its_threads_and_addresses(self):
        made = slot_provisioning_of(Context("local[4]"), graph(TRAIN), Options({}), {})
        slots = made.slots_of(deploys(grants(addresses=[{"gpu": (str(k),)} for k in range(3)])), 100 * MIB)
        told = slots.information
        assert slots.profile is None
        assert (told.group, told.cpu_cores, told.threads, told.memory, told.limit) == (
            "train",
            2.0,
            2,
            GIB,
            GIB + 256 * MIB,
        )
        assert told.managed_memory == 100 * MIB
        assert told.addresses[2] == {"gpu": ("2",)}
        assert slots.environment["OPENBLAS_NUM_THREADS"] == "2"
        assert made.slots_of(deploys(grants()), 10 * GIB).information.managed_memory == GIB // 2, (
            "half of the other memory"
        )
        own = ResourceProfile(1.0, GIB, managed_memory=64 * MIB)
        assert made.slots_of(deploys(grants(profile=own)), 10 * GIB).information.managed_memory == 64 * MIB

    def test_a_coarse_group_beside_it_has_no_limit(self):
        made = slot_provisioning_of(Context("local[4]"), graph(TRAIN, SlotSharingGroup("x")), Options({}), {})
        slots = made.slots_of(deploys(grants(profile=ResourceProfile.UNKNOWN)), 0)
        assert (slots.information, slots.environment) == (None, {})

    def test_places_are_told_in_runs_where_the_pool_insists(self):
        made = slot_provisioning_of(Context("local[4]"), graph(TRAIN), Options({}), {})
        made.described({e: ExecutorInfo(f"h{e}", 4, 4) for e in ("1", "2")})
        assert made.slots_of(deploys(grants(("2", "2", "1"), insists=True)), 0).places == [
            (2, "executor_h2_2"),
            (1, "executor_h1_1"),
        ]
        assert made.slots_of(deploys(grants(("2", "2", "9"), insists=True)), 0).places == [], "one is not known"
        assert made.slots_of(deploys(grants(("2", "2", "1"))), 0).places == ()

    def test_it_waits_for_larger_executors_while_the_session_is_young(self, monkeypatch):
        monkeypatch.setattr(slot_provisioning, "spark_profile", lambda *_: None)
        context = Context()
        made = slot_provisioning_of(context, graph(TRAIN), Options({}), {})
        context.startTime = 1000 * time.time()
        made.described({"0": ExecutorInfo("a", 1, 1)})
        assert made.awaits_executors()
        context.startTime -= 1000 * (slot_provisioning.REGISTERING_SECONDS + 1)
        assert not made.awaits_executors()
        context.startTime = 1000 * time.time()
        large = ExecutorInfo("b", 4, 4, external=(("gpu", ("0",)),))
        made.described({"0": ExecutorInfo("a", 1, 1), "1": large})
        assert not made.awaits_executors()


class Busy(Status):
    """Tasks of all jobs, by executor."""

    active: dict[str, int]

    def active_tasks(self):
        return dict(self.active)


def test_what_occupies_workers_is_told_when_it_was_seen_twice_and_has_changed():
    deploy = SimpleNamespace(vertex=1, subtasks=np.array([0, 1]), attempts=np.array([0, 0]))
    batch = Batch.of(0, [deploy], "job", "words")
    status, told = Busy(*[SparkTask(k, k, 0.0, "0", "a") for k in range(2)]), []
    status.hosts = {"0": "a", "1": "b"}
    made = slot_provisioning_of(Context("local[4]"), graph(TRAIN), Options({}), {})
    watcher = Watcher(
        status,
        NodeNames(),
        lambda: [batch],
        told.append,
        killer=Killer(print, print),
        of_wall=float,
        slot_provisioning=made,
    )

    def look(**active):
        status.active = {executor.strip("e"): count for executor, count in active.items()}
        watcher.look()
        events = [event for event in told if isinstance(event, WorkersOccupied)]
        return [dict(zip(event.executors, event.cores.tolist(), strict=True)) for event in events]

    assert look(e0=2) == [], "they are all ours"
    assert look(e0=3, e1=1) == [], "seen once: it may just have ended"
    assert look(e0=3) == [{"0": 1.0}]
    assert look(e0=3) == [{"0": 1.0}]
    batch.close((1, 1), 0)
    look(e0=3)
    assert look(e0=3)[-1] == {"0": 2.0}, "what has reported and still runs holds its core"
    assert look(e0=1)[-1] == {}
    changes = [event for event in told if isinstance(event, ExecutorChanged)]
    assert [(event.executor, type(event.resources)) for event in changes] == [
        ("0", WorkerResources),
        ("1", WorkerResources),
    ]


def test_a_little_more_network_memory_is_still_the_same_need():
    from firesteel.scheduler.slots.workers import Dimensions
    from firesteel.scheduler.slots.workers import Workers as Columns

    columns = Columns(Dimensions(["gpu"]))
    resources = WorkerResources(2.0, 3 * GIB, {"gpu": 1.0})
    columns.change(
        ExecutorChanged(at=0.0, executor="0", host="a", slots=1, added=True, resources=resources, profile=PROFILE)
    )
    assert columns.serving(PROFILE.with_network_memory(GIB)).tolist() == [True]
    assert columns.serving(ResourceProfile(2.0, GIB)).tolist() == [False]
    assert columns.serving(ResourceProfile.UNKNOWN).tolist() == [False]


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_job_hears_of_all_workers_before_it_starts_unless_it_is_cancelled(cancelled):
    def answer(event):
        last = isinstance(event, CancelRequested if cancelled else JobStarted)
        return [JobStatusChanged(JobStatus.CANCELED)] if last else []

    loop, waits = Loop(answer), iter([True, True, False])
    status = loop.driver._status = Busy()
    status.hosts, status.active = {"0": "a"}, {}

    def awaits():
        status.hosts[str(len(status.hosts))] = "b"  # one more has registered
        return next(waits)

    made = SlotProvisioning()
    made.mode, made.awaits_executors = SlotMode(), awaits
    loop.driver._in.slot_provisioning = made
    if cancelled:
        loop.driver.cancel("early")
    loop.run()
    told = [type(event) for event in loop.scheduler.told]
    assert told == (
        [ExecutorChanged, JobStarted, CancelRequested] if cancelled else [ExecutorChanged] * 3 + [JobStarted]
    )
