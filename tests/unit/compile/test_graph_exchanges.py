"""What execution.batch-shuffle-mode makes of the edges: what is pipelined, what is stored all the same, what is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from firesteel import DataStream, ExecutionEnvironment
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.compiler import compile_job
from firesteel.compile.describe import describe
from firesteel.compile.stream_graph import CollectStep, DataFrameStep, StreamNode
from firesteel.errors import UsageError
from firesteel.model.job_graph import ResultPartitionType, ShipStrategy
from firesteel.spark.driver.runtime import decisions_before

PIPELINED = {"execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED", "jobmanager.scheduler": "Default"}


@pytest.fixture
def rows():
    return ExecutionEnvironment().from_collection([{"k": 1, "v": 2.0}])


def same(batches, **sides):
    yield from batches


def step(stream: DataStream, name: str) -> DataStream:
    """A step that shares a task with no other."""
    return stream.map_in_arrow(same, stream.schema).name(name).disable_chaining()


def compiled(*streams: DataStream, **options) -> CompiledJob:
    ends = [StreamNode("collect", CollectStep(i), s.schema, (s._pipeline.edge(),)) for i, s in enumerate(streams)]
    return compile_job(ends, streams[0]._pipeline.env.options.with_values(PIPELINED | options), "job")


def types(job: CompiledJob) -> list[str]:
    """Of the data sets that a vertex reads."""
    return [d.type.value for d in job.job_graph.datasets if job.job_graph.consumers(d.id)]


def refusal(*streams: DataStream, **options) -> str:
    with pytest.raises(UsageError) as raised:
        compiled(*streams, **options)
    return str(raised.value)


class TestWhatStreams:
    def test_forward_edges_between_steps_that_do_not_chain(self, rows):
        job = compiled(step(step(rows.forward(), "one").forward(), "two"))
        assert types(job) == ["pipelined"] * 3  # into one, into two, into the collect behind it
        assert describe(job).count("forward, pipelined: in the same tasks") == 3

    def test_an_edge_nobody_asked_anything_of_is_a_forward_edge(self, rows):
        job = compiled(step(rows.start_new_chain(), "one"))
        assert types(job) == ["pipelined"] * 2
        assert {d.ship for d in job.job_graph.datasets if job.job_graph.consumers(d.id)} == {ShipStrategy.FORWARD}

    def test_every_branch_of_a_union(self, rows):
        other = rows._pipeline.env.from_collection([{"k": 3, "v": 4.0}])
        job = compiled(step(step(rows, "a").union(step(other, "b")), "both"))
        last = next(v for v in job.job_graph.vertices if v.name == "both")
        assert [job.job_graph.datasets[e.dataset].type for e in last.inputs] == [ResultPartitionType.PIPELINED] * 2

    def test_blocking_mode_changes_nothing(self, rows):
        job = compiled(step(rows, "one"), **{"execution.batch-shuffle-mode": "ALL_EXCHANGES_BLOCKING"})
        assert types(job) == ["blocking"] * 2 and not job.stored
        assert {d.ship for d in job.job_graph.datasets if job.job_graph.consumers(d.id)} == {ShipStrategy.RESCALE}

    def test_a_job_of_one_chain_has_nothing_to_pipeline(self, rows):
        job = compiled(rows.map_in_arrow(same, rows.schema))
        assert types(job) == [] and not job.stored


class TestWhatIsStored:
    def test_what_several_read(self, rows):
        one = step(rows, "one")
        job = compiled(step(one.forward(), "left"), step(one.forward(), "right"))
        (number,) = job.stored
        assert job.job_graph.datasets[number].type is ResultPartitionType.BLOCKING
        assert job.stored[number] == "it has several readers: 'left', 'right'"
        assert "forward, stored first: it has several readers: 'left', 'right'" in describe(job)

    def test_what_one_step_reads_twice(self, rows):
        one = step(rows, "one")
        job = compiled(step(one.union(one), "twice"))
        assert list(job.stored.values()) == ["it has several readers: 'twice'"]

    def test_what_a_dataframe_makes(self, rows):
        class Settled:
            dataframe, num_partitions, deterministic = object(), 3, True

        node = StreamNode("from_dataframe", DataFrameStep(Settled), pa.schema({"k": pa.int64()}))
        job = compiled(step(step(DataStream(rows._pipeline.at(node)), "one"), "two"))
        assert types(job) == ["blocking", "pipelined", "pipelined"]
        assert list(job.stored.values()) == ["'from_dataframe' runs inside Spark's plan of its DataFrame"]

    def test_each_leaves_a_record(self, rows):
        one = step(rows, "one")
        *streams, decision = decisions_before(compiled(step(one, "left"), step(one, "right")))
        assert {d.result for d in streams} == {"pipelined"} and streams[0].name == "from_collection"
        assert streams[0].reason == "Streams to 'one' in the same tasks: stores nothing."
        assert (decision.what, decision.name, decision.result) == ("exchange", "one", "blocking")
        assert decision.reason == (
            "What it makes is stored before it is read, not streamed: it has several readers: 'left', 'right'."
        )


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("ship", "make"),
        [
            ("hash", lambda s: s.key_by("k").aggregate({"v": "sum"})),
            ("rebalance", lambda s: s.rebalance().map_in_arrow(same, s.schema)),
            ("rescale", lambda s: s.rescale().map_in_arrow(same, s.schema)),
            ("global", lambda s: s.limit(3)),
            ("broadcast", lambda s: s.with_broadcast(side=s).map_in_arrow(same, s.schema)),
        ],
    )
    def test_every_other_exchange(self, rows, ship, make):
        said = refusal(make(rows))
        assert f"({ship}) cannot be pipelined: Spark's tasks cannot stream to each other" in said
        assert said.endswith(
            "Set execution.batch-shuffle-mode = ALL_EXCHANGES_BLOCKING (the default); only forward() can be pipelined."
        )

    def test_the_whole_sentence(self, rows):
        words = rows.name("words")
        said = refusal(words.rebalance().map_in_arrow(same, rows.schema).name("tokens"))
        place = "test_graph_exchanges.py:"
        assert said.startswith(f"The exchange from 'words' ({place}") and f"to 'tokens -> collect' ({place}" in said
        assert (
            "(rebalance) cannot be pipelined: Spark's tasks cannot stream to each other, and tasks that must run "
            in said
        )
        assert "together might never all get a slot. Set " in said

    def test_steps_of_different_parallelism(self, rows):
        said = refusal(step(step(rows.set_parallelism(2), "two").set_parallelism(2), "three").set_parallelism(3))
        assert "(rescale) cannot be pipelined" in said

    def test_the_scheduler_that_needs_finished_results(self, rows):
        unset = dict(PIPELINED)
        del unset["jobmanager.scheduler"]
        end = StreamNode("collect", CollectStep(0), rows.schema, (rows._pipeline.edge(),))
        with pytest.raises(UsageError) as raised:
            compile_job([end], rows._pipeline.env.options.with_values(unset), "job")
        assert str(raised.value) == (
            "execution.batch-shuffle-mode = ALL_EXCHANGES_PIPELINED asks for results that are read while they are written, "
            "but AdaptiveBatch, the scheduler unless another is chosen, decides a step's parallelism from the finished "
            "results it reads. Set jobmanager.scheduler = Default, or leave the exchanges at ALL_EXCHANGES_BLOCKING."
        )
        chosen = refusal(rows, **{"jobmanager.scheduler": "AdaptiveBatch"})
        assert "but AdaptiveBatch decides a step's parallelism" in chosen


class TestBehindRanges:
    BLOCKING = {"execution.batch-shuffle-mode": "ALL_EXCHANGES_BLOCKING", "jobmanager.scheduler": "AdaptiveBatch"}  # noqa: RUF012

    def test_a_step_behind_a_sort_is_as_parallel_as_it_and_a_record_says_why(self, rows):
        job = compiled(step(rows.sort("k").disable_chaining(), "after"), **self.BLOCKING)
        decision, collects = decisions_before(job)
        assert (decision.rule, decision.result) == ("ranges of keys", "forward")
        assert decision.reason == (
            "Goes forward to 'after', which is as parallel as this, whatever its volume: the rows lie in ranges of keys, "
            "perhaps in order, which any other cut would part. rescale() before it gives that up."
        )
        forward = [d.id for d in job.job_graph.datasets if d.ship is ShipStrategy.FORWARD]
        assert forward == [decision.inputs["dataset"], collects.inputs["dataset"]]

    def test_rescale_gives_it_up_and_elsewhere_there_is_none(self, rows):
        assert decisions_before(compiled(step(rows.sort("k").rescale(), "after"), **self.BLOCKING)) == []
        assert decisions_before(compiled(step(step(rows, "one"), "after"), **self.BLOCKING)) == []
        assert decisions_before(compiled(step(rows.forward(), "after"), **self.BLOCKING)) == [], "it was asked for"
