"""Which slot sharing group every step and task is in, whose resources count, and what that forbids."""

from __future__ import annotations

import warnings

import pytest

from firesteel import DataStream, ExecutionEnvironment, SlotSharingGroup
from firesteel.arrow import col
from firesteel.compile.chaining import chain_obstacle, fusion_obstacle, output_obstacle
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.compiler import compile_job
from firesteel.compile.describe import describe
from firesteel.compile.plan import Feed, PlannedStep
from firesteel.compile.stream_graph import CollectStep, StreamNode
from firesteel.errors import UsageError
from firesteel.model.job_graph import ResultPartitionType, ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.spark.driver.runtime import decisions_before
from graph_kit import check_shape

PIPELINED = {"execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED", "jobmanager.scheduler": "Default"}
OPTIONS = {"slot-sharing-group.gpu.cpu-cores": 4, "slot-sharing-group.gpu.task-heap-memory": "4 GiB"}
SMALL = SlotSharingGroup("small", 1, "1 GiB")
GPU = SlotSharingGroup("gpu", 2, "2 GiB", external_resources={"gpu": 1})


@pytest.fixture
def env():
    return ExecutionEnvironment()


@pytest.fixture
def rows(env):
    return env.from_collection([{"k": 1, "v": 2.0}])


def same(batches, **sides):
    yield from batches


def step(stream: DataStream, group: SlotSharingGroup | str | None = None, name: str = "step") -> DataStream:
    made = stream.map_in_arrow(same, stream.schema).name(name)
    return made if group is None else made.slot_sharing_group(group)


def compiled(*streams: DataStream, **options) -> CompiledJob:
    env = streams[0]._pipeline.env
    ends = [StreamNode("collect", CollectStep(i), s.schema, (s._pipeline.edge(),)) for i, s in enumerate(streams)]
    job = compile_job(ends, env.options.with_values(options), "job", env._groups)
    check_shape(job)
    return job


def groups(job: CompiledJob) -> dict[str, str]:
    """Task to its group."""
    return {vertex.name: vertex.slot_sharing_group for vertex in job.job_graph.vertices}


class TestInheritance:
    def test_nobody_says_anything(self, rows):
        job = compiled(rows.key_by("k").aggregate({"v": "sum"}))
        assert set(groups(job).values()) == {"default"}
        assert job.job_graph.slot_sharing_groups == {}
        assert "slot sharing" not in describe(job)

    def test_of_one_input(self, rows):
        job = compiled(step(rows, "a", "one").rebalance().select("k").key_by("k").aggregate(n=("*", "count")))
        assert groups(job) == {"from_collection": "default", "one": "a", "select": "a", "aggregate(n) -> collect": "a"}

    def test_of_several_that_agree_and_that_do_not(self, rows):
        a, b = step(rows, "a"), step(rows.select("v", k=col("k")), "b")
        both = a.key_by("k").join(a.filter(col("v") > 0).key_by("k"))
        assert groups(compiled(both))["inner join -> collect"] == "a"
        mixed = a.key_by("k").join(b.key_by("k"))
        assert groups(compiled(mixed))["inner join -> collect"] == "default"
        assert groups(compiled(mixed.slot_sharing_group("b")))["inner join -> collect"] == "b"

    def test_a_side_input_is_an_input(self, rows):
        small = step(rows, "b", "small")
        told = {
            group: groups(compiled(step(step(rows, group, "one").with_broadcast(small=small), name="two")))
            for group in ("a", "b")
        }
        assert told["a"]["two -> collect"] == "default"
        assert told["b"]["one -> two -> collect"] == "b"

    def test_a_union_stands_for_what_it_unites(self, rows):
        a, b = step(rows, "a", "one"), step(rows, "b", "two")
        assert groups(compiled(step(a.union(step(rows, "a")), name="both")))["both -> collect"] == "a"
        mixed = step(a.union(b), name="both")
        assert groups(compiled(mixed))["both -> collect"] == "default"
        assert groups(compiled(step(a.union(b).union(a), name="both")))["both -> collect"] == "default"

    def test_a_union_that_is_a_step_of_its_own(self, rows):
        a, b = step(rows, "a", "one"), step(rows, "b", "two")
        assert groups(compiled(a.union(b)))["union -> collect"] == "default"
        assert groups(compiled(a.union(step(rows, "a", "two"))))["union -> collect"] == "a"
        side = step(rows, "a", "three").with_broadcast(both=a.union(step(rows, "a", "two")))
        assert groups(compiled(step(side, name="four")))["union"] == "a"

    def test_a_union_has_no_group_of_its_own(self, rows):
        with pytest.raises(
            UsageError, match=r"keyed stream has no slot_sharing_group.*and call slot_sharing_group on that"
        ):
            rows.key_by("k").slot_sharing_group("a")
        with pytest.raises(UsageError, match=r"slot_sharing_group\(\) behind union\(\) has no step to set it on"):
            rows.union(rows).slot_sharing_group("a")

    def test_default_can_be_named(self, rows):
        job = compiled(step(step(rows, "a", "one"), "default", "two"))
        assert groups(job) == {"from_collection": "default", "one": "a", "two -> collect": "default"}

    def test_a_source_can_have_one(self, rows):
        assert set(groups(compiled(step(rows.slot_sharing_group("a")))).values()) == {"a"}

    def test_the_last_word_counts(self, rows):
        assert groups(compiled(step(rows, "a").slot_sharing_group("b")))["step -> collect"] == "b"

    def test_what_one_step_is_made_of(self, rows):
        """What a step does beforehand where its rows are made stays there."""
        job = compiled(step(rows, "a", "one").top_k(3, "v").slot_sharing_group("b"))
        assert groups(job) == {
            "from_collection": "default",
            "one -> local top_k(3, v)": "a",
            "top_k(3, v) -> collect": "b",
        }
        summed = compiled(step(rows, "a", "one").key_by("k").aggregate({"v": "sum"}).slot_sharing_group("b"))
        assert groups(summed) == {"from_collection": "default", "one": "a", "aggregate(v) -> collect": "b"}
        (result,) = summed.job_graph.vertices[1].program.outputs
        assert result.combiner is not None

    def test_a_sink_inherits_or_is_told(self, env, rows, tmp_path):
        one = step(rows, "a", "one")
        one.write_parquet(tmp_path / "x").name("x")
        sink = one.write_parquet(tmp_path / "y").name("y")
        assert sink.slot_sharing_group(SMALL) is sink
        assert groups(env.compile()) == {"from_collection": "default", "one -> x": "a", "y": "small"}

    def test_pushing_a_filter_into_the_source_leaves_the_groups_as_they_are(self, env, tmp_path):
        pq = pytest.importorskip("pyarrow.parquet")
        pa = pytest.importorskip("pyarrow")
        pq.write_table(pa.table({"k": [1, 2], "v": [1.0, 2.0]}), tmp_path / "t.parquet")
        read = env.read_parquet(tmp_path / "t.parquet")
        job = compiled(step(read.filter(col("k") > 1).slot_sharing_group("a"), name="one"))
        assert groups(job)["filter -> one -> collect"] == "a"
        assert len(job.job_graph.vertices) == 2


class TestChains:
    def test_steps_of_one_group_share_a_task(self, rows):
        job = compiled(step(step(step(rows, "a"), "a"), None).slot_sharing_group("a"))
        assert list(groups(job)) == ["from_collection", "step -> step -> step -> collect"]

    def test_the_obstacle_in_words(self, rows):
        first, second = step(rows, "a")._pipeline.node, step(rows, "b")._pipeline.node
        before = PlannedStep(first, first.work, first.schema, group="a", reads=1)
        feed = Feed(before, None, (), None, first.schema)
        after = PlannedStep(second, second.work, second.schema, [[feed]], group="b")
        why = "it is in slot sharing group 'b', the step before it in 'a'"
        assert chain_obstacle(after) == output_obstacle(after) == why
        assert fusion_obstacle(after, feed, ("k",), ordered=False) == why
        after.group = "a"
        assert chain_obstacle(after) is None is output_obstacle(after)

    def test_keyed_steps_of_one_key_share_a_task_only_within_a_group(self, rows):
        once = rows.key_by("k").aggregate({"v": "sum"})
        assert len(compiled(once.key_by("k").aggregate({"v": "max"})).job_graph.vertices) == 2
        apart = compiled(once.key_by("k").aggregate({"v": "max"}).slot_sharing_group("a"))
        assert len(apart.job_graph.vertices) == 3
        assert apart.job_graph.vertices[2].inputs[0].co_partitioned

    def test_forward_groups_do_not_mind(self, rows):
        job = compiled(step(step(rows.forward(), "a", "one").set_parallelism(3).forward(), "b", "two"))
        assert [d.ship for d in job.job_graph.datasets][:2] == [ShipStrategy.FORWARD] * 2
        from firesteel.model.forward_group import forward_groups

        (group,) = forward_groups(job.job_graph)
        assert (group.vertices, group.parallelism) == ((0, 1, 2), 3)


class TestResources:
    def test_of_a_group_that_a_step_gives(self, rows):
        job = compiled(step(step(rows, GPU, "one"), SMALL, "two"))
        assert job.job_graph.slot_sharing_groups == {"gpu": GPU, "small": SMALL}
        assert job.job_graph.group_of(0) == SlotSharingGroup("default")
        assert job.job_graph.group_of(1) == GPU

    def test_a_name_alone_is_no_other_resource(self, rows):
        job = compiled(step(step(step(rows, "gpu", "a"), GPU, "b"), "gpu", "c"))
        assert job.job_graph.slot_sharing_groups == {"gpu": GPU}

    def test_equal_resources_said_twice(self, rows):
        again = SlotSharingGroup("gpu", 2.0, 2 << 30, external_resources={"gpu": 1.0})
        assert compiled(step(step(rows, GPU), again)).job_graph.slot_sharing_groups == {"gpu": GPU}

    def test_different_resources_name_both_places(self, rows):
        one = rows.map_in_arrow(same, rows.schema)
        one.slot_sharing_group(GPU)
        two = rows.map_in_arrow(same, rows.schema).slot_sharing_group(SlotSharingGroup("gpu", 1, "1 GiB")).name("two")
        with pytest.raises(UsageError) as raised:
            compiled(one, two)
        line = int(one._pipeline.node.place.partition(":")[2])
        file = "test_graph_slot_sharing.py"
        assert str(raised.value).startswith(
            f"Slot sharing group 'gpu' is given two different resources: 2 cores, 2 GiB heap, 1 gpu for step "
            f"'map_in_arrow(same)' at {file}:{line} (slot_sharing_group() at {file}:{line + 1}), and 1 core, 1 GiB heap for "
            f"step 'two: map_in_arrow(same)' at {file}:{line + 2}. Make one SlotSharingGroup"
        )

    def test_what_is_registered_replaces_what_steps_say(self, env, rows):
        one = step(rows, GPU)
        two = step(rows, SlotSharingGroup("gpu", 1, "1 GiB"))
        registered = SlotSharingGroup("gpu", 4, "4 GiB")
        assert env.register_slot_sharing_group(registered) is env
        assert compiled(one, two).job_graph.slot_sharing_groups == {"gpu": registered}
        last = SlotSharingGroup("gpu", 8, "4 GiB")
        env.register_slot_sharing_group(last)
        assert compiled(one).job_graph.slot_sharing_groups == {"gpu": last}
        env.register_slot_sharing_group(SlotSharingGroup("gpu"))
        assert compiled(one).job_graph.slot_sharing_groups == {}

    def test_resources_for_pipelines_that_say_nothing(self, env, rows):
        env.register_slot_sharing_group(SlotSharingGroup("default", 2, "1 GiB"))
        job = compiled(rows.key_by("k").aggregate({"v": "sum"}))
        assert job.job_graph.group_of(0).cpu_cores == 2
        assert len(job.job_graph.vertices) == 2

    def test_registering_a_group_that_nobody_uses_changes_nothing(self, env, rows):
        env.register_slot_sharing_group(GPU)
        assert compiled(rows).job_graph.slot_sharing_groups == {}
        compiled(step(rows), **PIPELINED)

    @pytest.mark.parametrize("group", ["gpu", None])
    def test_only_groups_can_be_registered(self, env, group):
        with pytest.raises(
            UsageError, match=r"In step 'register_slot_sharing_group' at .*wants a SlotSharingGroup, not"
        ):
            env.register_slot_sharing_group(group)

    @pytest.mark.parametrize(
        ("group", "hint"), [(3, "not int"), (None, "not NoneType"), ("", "not empty")]
    )  # fmt: skip
    def test_only_groups_and_names_are_groups(self, rows, group, hint):
        with pytest.raises(
            UsageError, match=rf"In step 'slot_sharing_group' at test_graph_slot_sharing.py:\d+: .*{hint}"
        ):
            rows.slot_sharing_group(group)

    def test_explain_tells_of_groups(self, rows, env, tmp_path):
        stream = step(rows, GPU, "one")
        text = stream.explain()
        assert "    slot sharing group default\n" in text
        assert text.count("    slot sharing group gpu (2 cores, 2 GiB heap, 1 gpu)\n") == 1
        stream.write_parquet(tmp_path / "x").slot_sharing_group("coarse")
        assert "    slot sharing group coarse" in env.explain().splitlines()
        env.register_slot_sharing_group(SlotSharingGroup("default", 1, "1 GiB"))
        assert "slot sharing group default (1 core, 1 GiB heap)" in rows.explain()


class TestFromOutside:
    def test_options_replace_what_steps_say_and_the_program_has_the_last_word(self):
        env = ExecutionEnvironment(options=OPTIONS)
        stream = step(env.from_collection([{"k": 1}]), GPU)
        assert compiled(stream).job_graph.slot_sharing_groups == {"gpu": SlotSharingGroup("gpu", 4, "4 GiB")}
        assert "gpu (4 cores, 4 GiB heap)" in stream.explain()
        env.register_slot_sharing_group(GPU)
        assert compiled(stream).job_graph.slot_sharing_groups == {"gpu": GPU}

    def test_a_name_that_no_step_has_is_told_once(self):
        env = ExecutionEnvironment(options=OPTIONS)
        rows = env.from_collection([{"k": 1}])
        with pytest.warns(UserWarning) as caught:
            env._tell_unused_groups(compiled(step(rows, "gpus")))
        assert [str(w.message) for w in caught] == [
            "No step of this job is in slot sharing group 'gpu', for which resources were given. Did you mean 'gpus'?"
        ]
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env._tell_unused_groups(compiled(rows))

    def test_nothing_is_told_of_names_that_steps_have_or_the_program_registers(self):
        env = ExecutionEnvironment(options=OPTIONS)
        rows = env.from_collection([{"k": 1}])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env._tell_unused_groups(compiled(step(rows, "gpu")))
            other = ExecutionEnvironment(options=OPTIONS).register_slot_sharing_group(GPU)
            other._tell_unused_groups(compiled(rows))
        with pytest.warns(UserWarning, match="Its steps are in 'default'"):
            ExecutionEnvironment(options=OPTIONS)._tell_unused_groups(compiled(rows))


class TestPipelined:
    def test_resources_are_refused(self, rows):
        with pytest.raises(UsageError) as raised:
            compiled(step(rows.forward(), GPU), **PIPELINED)
        assert str(raised.value) == (
            "Slot sharing group gpu (2 cores, 2 GiB heap, 1 gpu) has resources of its own, and exchanges are pipelined "
            "(execution.batch-shuffle-mode = ALL_EXCHANGES_PIPELINED): steps that must run together could each hold slots "
            "that the other needs, and never start. Set fine-grained.shuffle-mode.all-blocking = true, which makes all "
            "exchanges of such a job blocking."
        )

    def test_resources_of_default_are_refused_too(self, env, rows):
        env.register_slot_sharing_group(SlotSharingGroup("default", 1, "1 GiB"))
        with pytest.raises(UsageError, match="Slot sharing group default"):
            compiled(step(rows), **PIPELINED)

    def test_only_groups_of_tasks_count(self, env, rows):
        """A union is no task: its group may have resources that nobody asks for."""
        env.register_slot_sharing_group(SlotSharingGroup("default", 1, "1 GiB"))
        rows.slot_sharing_group("a")
        other = env.from_collection([{"k": 1, "v": 2.0}]).slot_sharing_group("b")
        job = compiled(step(rows.forward().union(other.forward()), "b"), **PIPELINED)
        assert job.job_graph.slot_sharing_groups == {}

    @pytest.mark.parametrize("scheduler", ["AdaptiveBatch", "Default"])
    def test_resources_are_refused_before_the_scheduler_is_asked(self, rows, scheduler):
        """The sentence says what helps, whichever scheduler runs the job."""
        with pytest.raises(UsageError, match=r"Set fine-grained\.shuffle-mode\.all-blocking = true"):
            compiled(step(rows.forward(), GPU), **{**PIPELINED, "jobmanager.scheduler": scheduler})

    @pytest.mark.parametrize("others", [{}, {"speculative.enabled": True}])
    def test_all_blocking_takes_effect_before_the_scheduler_is_asked(self, rows, others):
        """Exchanges that are made blocking are what the adaptive batch scheduler and speculation need."""
        options = {"execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED", **others}
        with pytest.raises(UsageError):
            compiled(step(rows.rebalance(), GPU), **options)
        options |= {"fine-grained.shuffle-mode.all-blocking": True}
        job = compiled(step(rows.rebalance(), GPU), **options)
        assert {d.type for d in job.job_graph.datasets} == {ResultPartitionType.BLOCKING}
        assert create_scheduler(job.job_graph, Options(options)).status is JobStatus.CREATED
        with pytest.raises(UsageError):  # it is for jobs whose groups have resources
            compiled(step(rows.forward(), "a"), **options)

    def test_all_blocking_makes_them_work(self, rows):
        stream = step(rows.rebalance(), GPU).key_by("k").aggregate({"v": "sum"})
        job = compiled(stream, **PIPELINED, **{"fine-grained.shuffle-mode.all-blocking": True})
        assert {d.type for d in job.job_graph.datasets} == {ResultPartitionType.BLOCKING}
        assert job.job_graph.datasets[-1].ship is not ShipStrategy.FORWARD
        why = "slots have resources of their own, and fine-grained.shuffle-mode.all-blocking is set"
        assert job.stored == {0: why, 1: why}
        assert [(d.result, d.reason) for d in decisions_before(job)] == [
            ("blocking", f"What it makes is stored before it is read, not streamed: {why}.")
        ] * 2

    def test_all_blocking_is_of_no_effect_elsewhere(self, rows):
        option = {"fine-grained.shuffle-mode.all-blocking": True}
        assert describe(compiled(step(rows, GPU), **option)) == describe(compiled(step(rows, GPU)))
        coarse = compiled(step(rows.forward(), "a"), **PIPELINED, **option)
        assert describe(coarse) == describe(compiled(step(rows.forward(), "a"), **PIPELINED))

    def test_ends_in_two_coarse_groups_are_stored_first(self, rows):
        job = compiled(step(step(rows.forward(), "a", "one").forward(), "b", "two"), **PIPELINED)
        assert set(job.stored) == {0, 1}
        assert job.stored[1] == "its ends are in the slot sharing groups 'a' and 'b', which share no slot"
        assert "forward, stored first: its ends are in the slot sharing groups 'a' and 'b'" in describe(job)

    def test_ends_in_one_coarse_group_stream(self, rows):
        one = step(rows.slot_sharing_group("a").forward()).disable_chaining()
        job = compiled(one, **PIPELINED)
        assert job.stored == {}
        assert {d.type for d in job.job_graph.datasets if not d.persistent} == {ResultPartitionType.PIPELINED}
