"""Slots of a stream: what its slot sharing group makes of the executors, and what is refused or told because no stream can have it."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark import SparkConf
from tests.stream_kit import COUNT, Stream

import firesteel
from firesteel import SlotSharingGroup
from firesteel import options as all_keys
from firesteel.api.environment import running_context
from firesteel.errors import UsageError
from firesteel.model.group_options import group_of_stream
from firesteel.options import Options
from firesteel.options.layers import read_environment, read_spark_conf
from firesteel.options.registry import GIB, ON_COMMAND_LINE, Layer, Option, Origin, Scope, all_options
from firesteel.scheduler.streaming.commands import EndStream, Rescale, StartQuery
from firesteel.scheduler.streaming.events import ExecutorOffer, RequirementsChanged, RescaleRequested
from firesteel.scheduler.streaming.records import StreamPlanned
from firesteel.scheduler.streaming.settings import StreamSettings
from firesteel.scheduler.streaming.slots import Resources, said_in_vain, slots_of_stream
from firesteel.scheduler.streaming.states import SchedulerState
from firesteel.spark.placement.node_names import ExecutorInfo
from firesteel.spark.streams.offers import RESERVED, ClusterWatch, offers_of, settings_for
from firesteel.streaming import AdaptiveStream

VARIABLE = "FIRESTEEL_EXECUTION_BATCH_SPECULATIVE_ENABLED"
ENABLED = "jobmanager.adaptive-batch-scheduler.speculative.enabled"
SOURCE = Path(firesteel.__file__).parent
LARGE = 64 * GIB


def group(cores=1.0, heap="1 GiB", **more):
    return SlotSharingGroup("default", cpu_cores=cores, task_heap_memory=heap, **more)


def offer(cores, count=1, heap=LARGE, beside=LARGE, **external):
    return ExecutorOffer(count, cores, heap, beside, tuple(external.items()))


def slots(wanted, *offers):
    found = slots_of_stream(wanted, StreamSettings.of(Options()), 1)
    return found.there(Resources(cores=sum(each.cores * each.count for each in offers), known=True, offers=offers))


# --- how many


@pytest.mark.parametrize(
    ("wanted", "offers", "expected"),
    [
        (group(1), [offer(4)], 4),
        (group(2), [offer(4, count=3)], 6),
        (group(2), [offer(3, count=2), offer(1)], 2),  # a core is left in each of them
        (group(1.5), [offer(4)], 2),  # Spark gives whole cores
        (group(0.25), [offer(4)], 16),  # four take turns on each
        (group(0.1), [offer(3)], 30),
        (group(1), [offer(4, heap=3 * GIB - 1)], 2),
        (group(1, managed_memory="1 GiB", task_off_heap_memory="1 GiB"), [offer(4, beside=7 * GIB)], 3),
        (group(1, external_resources={"gpu": 1}), [offer(4, gpu=2.0), offer(4)], 2),
        (group(1, external_resources={"gpu": 0.5}), [offer(4, gpu=1.0)], 2),
        (group(1 / 6, external_resources={"gpu": 1 / 6}), [offer(1, gpu=1.0)], 6),  # rounded up there would be five
        (group(4), [offer(2, count=8)], 0),
    ],
)
def test_an_executor_gives_as_many_slots_as_fit(wanted, offers, expected):
    assert slots(wanted, *offers) == expected


def test_a_stream_with_a_group_gets_as_many_partitions_as_there_are_slots():
    stream = Stream(group=group(2))
    stream.executors(offer(4), offer(2), complete=True)
    stream.tell(_submitted())
    assert [each.parallelism for each in stream.commands if isinstance(each, StartQuery)] == [3]
    (decided,) = stream.decisions("parallelism")
    assert decided.inputs["slots"] == decided.result == 3
    assert "6 cores give 3 slots of 2 cores, 1 GiB heap (slot sharing group 'default')" in decided.reason
    (kept,) = stream.decisions("slots")
    assert "Spark gives each task 2 cores (spark.task.cpus)" in kept.reason
    assert "not enforced" in kept.reason
    (planned,) = (record for record in stream.records if isinstance(record, StreamPlanned))
    assert planned.slot_sharing_group == "default (2 cores, 1 GiB heap)"
    status = stream.scheduler.status()
    assert (status.slots, status.slot_sharing_group) == (3, "default (2 cores, 1 GiB heap)")


def test_what_there_is_too_little_of_is_named():
    stream = Stream(group=group(1))
    stream.executors(offer(4, heap=2 * GIB), complete=True)
    stream.tell(_submitted())
    assert "2 slots" in stream.decisions("parallelism")[0].reason
    assert "no executor has heap for more" in stream.decisions("parallelism")[0].reason


def test_a_stream_with_a_group_follows_its_slots_up_and_down():
    stream = Stream(group=group(2), cooldown_after_rescaling="0")
    stream.executors(offer(4), complete=True)
    stream.tell(_submitted())
    stream.started(COUNT)
    assert stream.scheduler.parallelism == 2
    for offers, expected in (([offer(4, count=2)], 4), ([offer(4), offer(2)], 3)):
        stream.executors(*offers, complete=True)
        stream.begin()
        stream.commit(at_barrier=True)
        assert [each.parallelism for each in stream.commands if isinstance(each, Rescale)][-1] == expected
        stream.started(type(COUNT)(stateful=("count",), parallelism=expected))


def test_partitions_that_take_turns_on_a_core_suffice_while_each_has_its_slot():
    stream = Stream(group=group(0.25), cooldown_after_rescaling="0")
    stream.executors(offer(1), complete=True)
    stream.tell(_submitted())
    stream.started(type(COUNT)(stateful=("count",), parallelism=4))
    stream.executors(offer(4), complete=True)
    assert stream.scheduler.status().wanted == 4
    assert "each has its slot" in stream.waits_for
    stream.executors(offer(5), complete=True)
    assert stream.scheduler.status().wanted == 20


def test_more_partitions_than_slots_are_never_come_to_by_a_users_word():
    stream = Stream(group=group(2), cooldown_after_rescaling="0")
    stream.executors(offer(4), complete=True)
    stream.tell(_submitted())
    stream.started(COUNT)
    stream.tell(RescaleRequested(at=0, parallelism=5))
    stream.begin()
    stream.commit(at_barrier=True)
    assert not [each for each in stream.commands if isinstance(each, Rescale)]
    assert "more slots" in stream.waits_for
    assert "2 slots" in stream.waits_for
    stream.executors(offer(10), complete=True)
    stream.begin()
    stream.commit(at_barrier=True)
    assert [each.parallelism for each in stream.commands if isinstance(each, Rescale)] == [5]


def test_a_stream_starts_with_fewer_partitions_than_its_lower_bound_rather_than_more_than_there_are_slots():
    stream = Stream(lower=4, group=group(2))
    stream.executors(offer(4))
    stream.tell(_submitted())
    stream.to(1000)
    assert [each.parallelism for each in stream.commands if isinstance(each, StartQuery)] == [2]


def test_executors_that_can_hold_no_slot_are_none():
    stream = Stream(group=group(4))
    stream.executors(offer(2, count=2))
    stream.tell(_submitted())
    assert "0 there, 1 needed" in stream.waits_for
    stream.to(1000)
    assert stream.state is SchedulerState.FINISHED
    (end,) = (each for each in stream.commands if isinstance(each, EndStream))
    assert "4 cores give 0 slots of 4 cores, 1 GiB heap" in end.cause
    assert "Start larger workers" in end.cause


def test_the_load_is_counted_in_slots():
    found = slots_of_stream(group(2), StreamSettings.of(Options()), 2)
    there = Resources(cores=16, known=True, offers=(offer(8, count=2),))
    assert found.there(there) == 8
    assert [found.needed(there, load) for load in (1, 2, 3, 15, 16, 99, None)] == [1, 1, 2, 8, 8, 8, 8]
    assert found.busy(3, there) == 6
    assert found.still_suffice(2, there, 3)
    assert not found.still_suffice(1, there, 3)
    quarter = slots_of_stream(group(0.25), StreamSettings.of(Options()), 1)
    assert quarter.needed(there, 3) == 12
    assert quarter.busy(3, there) == 3


def test_dynamic_allocation_counts_what_may_come():
    stream = Stream(group=group(2))
    stream.executors(dynamic=True)
    stream.tell(_submitted())
    assert stream.scheduler.status().slots == 1, "the first executor is still to be made"


def test_without_a_group_cores_that_a_task_takes_together_count_as_one():
    stream = Stream(cpus=2)
    stream.submit(8)
    assert [each.parallelism for each in stream.commands if isinstance(each, StartQuery)] == [16]
    assert "8 cores, 2 for each task, give 16 slots" in stream.decisions("parallelism")[0].reason
    stream.started(type(COUNT)(stateful=("count",), parallelism=16))
    stream.tell(RequirementsChanged(at=0, lower=1, upper=64))
    assert "every 2 cores has" not in stream.waits_for


# --- what is refused


@pytest.mark.parametrize(
    ("options", "where"),
    [
        (Options({ENABLED: True}), "options="),
        (Options({"execution.batch.speculative.enabled": "true"}, ON_COMMAND_LINE), "-O"),
        (Options({ENABLED: True}, Origin(Layer.FILE, "site.yaml, line 3")), "site.yaml, line 3"),
        (read_environment({VARIABLE: "true"}), VARIABLE),
        (read_spark_conf([(f"spark.firesteel.{ENABLED}", "true")]), f"spark.firesteel.{ENABLED}"),
    ],
)
def test_speculation_is_refused_wherever_it_was_said(options, where):
    with pytest.raises(UsageError, match=r"batch jobs only \(FLIP-168\)") as refused:
        StreamSettings.of(options)
    assert f"{ENABLED} = true, from {where}" in str(refused.value)


def test_speculation_is_refused_before_spark_is_started(tmp_path, monkeypatch):
    before = running_context()
    with pytest.raises(UsageError, match="FLIP-168"):
        AdaptiveStream.start(lambda spark: None, tmp_path / "chk", options={ENABLED: True})
    monkeypatch.setenv(VARIABLE, "true")
    with pytest.raises(UsageError, match=f"from {VARIABLE}"):
        AdaptiveStream.start(lambda spark: None, tmp_path / "chk")
    assert running_context() is before
    assert not list(tmp_path.iterdir())


def test_a_stream_is_in_one_group():
    large = {"slot-sharing-group.large.cpu-cores": 4, "slot-sharing-group.large.task-heap-memory": "2g"}
    with pytest.raises(UsageError, match=r"slot-sharing-group.large.cpu-cores, from options=.*is in 'default'"):
        group_of_stream(None, Options(large))
    assert group_of_stream("large", Options(large)) == SlotSharingGroup("large", 4, "2g")
    said = SlotSharingGroup("large", 1, "1g")
    assert group_of_stream(said, Options(large)).cpu_cores == 4, "options go over what the program says"
    with pytest.raises(UsageError, match="one slot sharing group"):
        group_of_stream([said, group()], Options())
    # What holds for other programs as well is told.
    everywhere = Options(large, ON_COMMAND_LINE)
    assert group_of_stream(None, everywhere) == SlotSharingGroup("default")
    (told,) = said_in_vain(SlotSharingGroup("default"), everywhere)
    assert "from -O, gives slot sharing group 'large' resources, and changes nothing here" in told


# --- what Spark can give


def context(master="spark://host:7077", **conf):
    given = SparkConf(loadDefaults=False)
    for key, value in conf.items():
        given.set(f"spark.{key.replace('_', '.')}", value)
    return SimpleNamespace(master=master, getConf=lambda: given, _conf=given)


GPU = {"task_resource_gpu_amount": "1", "executor_resource_gpu_amount": "2"}


@pytest.mark.parametrize(
    ("wanted", "on", "options", "said"),
    [
        (group(2), context(), {}, r"needs tasks of 2 cores, and Spark gives 1 core .*spark\.task\.cpus"),
        (group(1, "400m"), context(task_cpus="2"), {}, "needs tasks of 1 core, and Spark gives 2 cores"),
        (group(1, "800m"), context(), {}, r"spark\.executor\.memory is 1 GiB, of which Spark keeps 300 MiB"),
        (group(1, "800m"), context("local[4]"), {}, r"spark\.driver\.memory is 1 GiB"),
        (group(1, "1m", managed_memory="1g"), context(), {}, "how much of it the executors have is not known"),
        (
            group(1, "1m", managed_memory="1g"),
            context(),
            {"firesteel.executor.memory": "512m"},
            r"beside its heap there are 512 MiB \(firesteel\.executor\.memory\)",
        ),
        (group(1, "1m", task_off_heap_memory="1g"), context("yarn"), {}, r"there are 384 MiB \(spark.executor.memoryO"),
        (group(1, "1m", external_resources={"gpu": 1}), context("local[4]"), {}, "on a cluster only"),
        (group(1, "1m", external_resources={"gpu": 1}), context(), {}, "needs 1 gpu, and Spark hands 0 to each task"),
        (group(1, "1m", external_resources={"gpu": 0.5}), context(**GPU), {}, "needs 0.5 gpu, and Spark hands 1"),
        (group(1, "1m"), context(**GPU), {}, "needs 0 gpu, and Spark hands 1"),
    ],
)
def test_what_no_task_of_the_session_is_or_no_executor_has_is_refused(wanted, on, options, said):
    with pytest.raises(UsageError, match=said) as refused:
        offers_of(on, wanted, Options(options))
    assert refused.value.hint


def test_executors_that_are_alike_are_told_together():
    wanted = group(1, "100m", managed_memory="100m", external_resources={"gpu": 1})
    found = offers_of(context(**GPU), wanted, Options({"firesteel.executor.memory": "1g"}))
    small, large = ExecutorInfo("a", 2, 2), ExecutorInfo("b", 4, 4, (("gpu", ("0", "1")),))
    assert found.of([small, large, small]) == (
        ExecutorOffer(2, 2, GIB - RESERVED, GIB),
        ExecutorOffer(1, 4, GIB - RESERVED, GIB, (("gpu", 2.0),)),
    )
    assert offers_of(context(), SlotSharingGroup("default"), Options()) is None


def test_a_session_that_is_made_for_a_stream_gives_its_tasks_what_the_group_says():
    assert settings_for(group(1.5, "1g", external_resources={"gpu": 0.5})) == {
        "spark.task.cpus": "2",
        "spark.task.resource.gpu.amount": "0.5",
    }
    assert settings_for(SlotSharingGroup("default")) == {}


@pytest.mark.parametrize("parts", [3, 6, 7, 9])
def test_a_part_of_an_address_that_no_decimals_say_is_had_on_the_session_made_for_it(parts):
    wanted = group(1, "1m", external_resources={"gpu": 1 / parts})
    made = settings_for(wanted)
    assert int(1 / float(made["spark.task.resource.gpu.amount"])) == parts  # Spark's slots of an address
    offers_of(context(**{key.removeprefix("spark."): value for key, value in made.items()}), wanted, Options())


class Told:
    """What Spark tells of executors, one after the other."""

    listed: dict[str, ExecutorInfo]

    def __init__(self, context):
        pass

    def executor_ids(self):
        return set(self.listed)

    def executors(self):
        return dict(self.listed)


@pytest.mark.parametrize(
    ("conf", "cores", "offers"),
    [
        ({}, 6, (ExecutorOffer(1, 2, GIB - RESERVED), ExecutorOffer(1, 4, GIB - RESERVED))),
        (
            {"dynamicAllocation_enabled": "true", "dynamicAllocation_maxExecutors": "5"},
            20,
            (ExecutorOffer(1, 2, GIB - RESERVED), ExecutorOffer(4, 4, GIB - RESERVED)),
        ),
    ],
)
def test_executors_of_a_resource_profile_are_not_the_streams(monkeypatch, conf, cores, offers):
    Told.listed = {
        "1": ExecutorInfo("a", 2, 2),
        "2": ExecutorInfo("b", 4, 4),
        "3": ExecutorInfo("b", 8, 8, profile_id=7),
    }
    monkeypatch.setattr("firesteel.spark.streams.offers.SparkStatus", Told)
    on = context(**conf)
    watch = ClusterWatch(on, offers_of(on, group(1, "100m"), Options()))
    event = watch.look(1.0)
    assert event is not None
    assert (event.cores, event.executors, event.offers) == (cores, 2, offers)
    assert "executor 3" not in event.what
    assert watch.look(2.0) is None
    del Told.listed["3"]
    assert watch.look(3.0) is None, "nothing that concerns the stream"


# --- which options are whose


def warnings(**options):
    return [each.reason for each in _submitted_stream(**options).decisions("warning")]


def test_an_option_of_batch_jobs_is_told_of_where_it_is_set_for_the_stream():
    (told,) = warnings(**{"max-parallelism": 8})
    assert "max-parallelism, from options=, is for batch jobs and changes nothing on a stream" in told
    assert "pipeline.max-parallelism" in told
    (told,) = warnings(**{"firesteel.results.codec": "zstd"})
    assert told == "firesteel.results.codec, from options=, is for batch jobs and changes nothing on a stream."
    assert not warnings(**{"firesteel.results.codec": "lz4"}), "the default"
    assert not warnings(**{"jobmanager.scheduler": "Adaptive"})
    assert "jobmanager.scheduler" in warnings(**{"jobmanager.scheduler": "Default"})[0]
    everywhere = Options({"max-parallelism": 8}, Origin(Layer.ENVIRONMENT, "FIRESTEEL_MAX_PARALLELISM"))
    assert not StreamSettings.of(everywhere).warnings, "it holds for batch jobs as well"


def test_what_a_group_says_of_cores_makes_partitions_per_core_idle():
    stream = Stream(group=group(0.25), **{"partitions-per-core": 2})
    stream.submit()
    (told,) = stream.decisions("warning")
    assert told.reason.startswith("firesteel.stream.partitions-per-core, from options=, changes nothing here")


def test_every_option_that_streams_read_is_said_to_be_of_streams():
    read = {
        name: folder
        for folder in ("scheduler/streaming", "spark/streams")
        for path in (SOURCE / folder).rglob("*.py")
        for name in _imported(path)
    }
    refused = {all_keys.SPECULATIVE_ENABLED, all_keys.SCHEDULER}
    found = {getattr(all_keys, name) for name in read if isinstance(getattr(all_keys, name), Option)} - refused
    assert len(found) >= 20
    assert {option.key for option in found if option.scope is Scope.BATCH} == set()
    own = {option for option in all_options() if option.scope is Scope.STREAMS}
    assert {option.key for option in own - found} == set(), "an option of streams that nothing reads"


def _imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "firesteel.options":
            yield from (alias.name for alias in node.names)


def _submitted():
    from firesteel.scheduler.streaming.events import StreamSubmitted

    return StreamSubmitted(at=0)


def _submitted_stream(**options):
    stream = Stream(**options)
    stream.submit()
    return stream
