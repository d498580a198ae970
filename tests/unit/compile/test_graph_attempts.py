"""Which vertices may be mirrored, may have two attempts of a subtask at once, and give the same rows again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder

from firesteel import ExecutionEnvironment, agg
from firesteel.arrow import col
from firesteel.compile.stream_graph import DataFrameStep, StreamNode
from firesteel.errors import UsageError
from firesteel.model.job_graph import ResultPartitionType, ShipStrategy
from firesteel.options import Options
from firesteel.scheduler.kernel.events import JobStarted
from firesteel.scheduler.scheduler import create_scheduler
from firesteel.scheduler.slots.allocators import ExecutionDeploymentOption
from firesteel.scheduler.topology.planned import planned
from graph_kit import check_shape

SPECULATIVE = "jobmanager.adaptive-batch-scheduler.speculative.enabled"


@pytest.fixture
def env():
    return ExecutionEnvironment()


@pytest.fixture
def rows(env):
    return env.from_collection([{"k": 1, "v": 2.0}])


def same(batches):
    yield from batches


def mapped(stream):
    return stream.map_in_arrow(same, stream.schema)


def vertices(env):
    job = env.compile()
    check_shape(job)
    return job.job_graph.vertices


class Sink:
    """Has nothing to say about concurrent attempts."""

    name = "mine"

    def check(self, schema): ...
    def begin(self, job_id): ...
    def write(self, subtask, attempt): ...
    def commit(self, winners): ...
    def abort(self, attempts): ...


def flags(vertex):
    return vertex.supports_concurrent_attempts, vertex.speculative, vertex.deterministic


def test_by_default_all_of_ours_takes_part(env, rows, tmp_path):
    mapped(rows).key_by("k").aggregate({"v": "sum"}).write_parquet(tmp_path / "a")
    (tmp_path / "in").write_text("x\n")
    env.read_text(tmp_path / "in").write_text(tmp_path / "b")
    assert {flags(vertex) for vertex in vertices(env)} == {(True, True, True)}


@pytest.mark.parametrize("member", ["source", "map", "sink"])
def test_one_member_that_refuses_keeps_its_whole_chain_out_and_no_other(env, rows, tmp_path, member):
    step = mapped(rows.rebalance())
    sink = step.write_parquet(tmp_path / "a")
    {"source": rows, "map": step, "sink": sink}[member].no_speculation()
    first, second = vertices(env)
    out, other = (first, second) if member == "source" else (second, first)
    assert flags(out) == (True, False, True) and flags(other) == (True, True, True)
    assert out.not_mirrored.startswith("no_speculation() of step '") and "test_graph_attempts.py:" in out.not_mirrored
    assert "    never mirrored: no_speculation() of step '" in env.explain()


def test_side_effects_allow_one_attempt_at_a_time(env, rows, tmp_path):
    mapped(rows).side_effects().name("post").write_parquet(tmp_path / "a")
    (vertex,) = vertices(env)
    assert flags(vertex) == (False, False, True)
    assert (
        "one attempt of a subtask at a time, never mirrored: side_effects() of step 'post: map_in_arrow"
        in env.explain()
    )
    (described,) = planned(env.compile().job_graph, "j", Options()).vertices
    assert described["not_mirrored"] == vertex.not_mirrored and "other_rows" not in described


def test_a_filter_with_side_effects_is_not_pushed_into_the_source(env, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1]}), tmp_path / "in.parquet")
    env.read_parquet(tmp_path / "in.parquet").filter(col("a") > 0).no_speculation().write_parquet(tmp_path / "a")
    assert flags(vertices(env)[0]) == (True, False, True)


def test_a_keyed_step_that_was_absorbed_still_counts(env, rows, tmp_path):
    once = rows.key_by("k").aggregate({"v": "sum"}).no_speculation()
    once.key_by("k").aggregate({"v": "max"}).write_parquet(tmp_path / "a")
    assert [v.speculative for v in vertices(env)] == [True, False]


def test_a_sink_of_ones_own_takes_part_only_if_it_says_so(env, rows):
    sink = Sink()
    rows.write_to(sink)
    (vertex,) = vertices(env)
    assert flags(vertex) == (False, False, True)
    assert vertex.not_mirrored.endswith("does not support concurrent attempts")
    sink.supports_concurrent_execution_attempts = True
    assert flags(vertices(env)[0]) == (True, True, True)


@pytest.mark.parametrize(
    ("call", "depends"),
    [
        (agg.collect_list("v"), True),
        (agg.collect_list("v", order_by="v"), False),
        (agg.collect_set("v"), False),
        (agg.percentile_approx("v", 0.5), True),
        (agg.median("v"), False),
    ],
)
def test_aggregates_that_depend_on_the_order_of_rows_give_other_rows(env, rows, tmp_path, call, depends):
    mapped(rows.key_by("k").aggregate(x=call)).write_parquet(tmp_path / "a")
    first, second = vertices(env)[:2]
    assert first.deterministic and second.deterministic != depends
    assert second.other_rows.startswith("'x' of step 'aggregate(x)'" if depends else "")
    assert second.other_rows.endswith("depends on the order in which rows come" if depends else "")


def test_what_gives_other_rows_is_said_so(env, rows, tmp_path):
    mapped(rows).asNondeterministic().rebalance().write_parquet(tmp_path / "a")
    first, second = vertices(env)
    assert flags(first) == (True, True, False) and flags(second) == (True, True, True)
    assert (
        "    may give other rows when it runs again: as_nondeterministic() of step 'map_in_arrow(same)'"
        in env.explain()
    )


def test_the_first_rows_are_the_same_only_straight_from_a_source(env, rows, tmp_path):
    rows.limit(3).write_parquet(tmp_path / "a")
    local, whole = vertices(env)
    assert (
        local.deterministic and not whole.deterministic and whole.other_rows == "limit(3) takes the first rows to come"
    )


@pytest.mark.parametrize("deterministic", [True, False])
def test_spark_knows_whether_a_dataframe_is_deterministic(env, rows, tmp_path, deterministic):
    class Settled:
        dataframe, num_partitions = object(), 3

    Settled.deterministic = deterministic
    node = StreamNode("from_dataframe", DataFrameStep(Settled), rows.schema)
    type(rows)(rows._pipeline.at(node)).write_parquet(tmp_path / "a")
    assert vertices(env)[0].deterministic == deterministic


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"jobmanager.scheduler": "Adaptive"}, "the scheduler of streams"),
        ({"jobmanager.scheduler": "Default"}, "jobmanager.scheduler is Default"),
        (
            {"jobmanager.scheduler": "Default", "execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED"},
            "none of their subtasks can be mirrored alone",
        ),
        (
            {"execution.batch-shuffle-mode": "ALL_EXCHANGES_PIPELINED"},
            "ALL_EXCHANGES_PIPELINED makes steps run together",
        ),
    ],
)
def test_speculation_is_refused_where_flip_168_has_none(rows, tmp_path, options, why):
    rows._pipeline.env.options = Options({SPECULATIVE: True, **options})
    rows.write_parquet(tmp_path / "a")
    with pytest.raises(UsageError, match=why) as refused:
        rows._pipeline.env.compile()
    assert "AdaptiveBatch" in refused.value.hint
    builder = GraphBuilder()
    builder.source([1], parallelism=1)
    builder.step((0, ShipStrategy.FORWARD))
    if "execution.batch-shuffle-mode" in options:
        builder.graph.datasets[0] = replace(builder.graph.datasets[0], type=ResultPartitionType.PIPELINED)
    with pytest.raises(UsageError, match=why):
        create_scheduler(builder.graph, rows._pipeline.env.options)


def test_the_command_line_refuses_it_with_exit_code_2(tmp_path, monkeypatch, capsys):
    from firesteel.api import environment
    from firesteel.cli.main import main

    monkeypatch.setattr(environment, "_defaults", environment._Defaults())
    script = tmp_path / "job.py"
    script.write_text(
        "from firesteel import ExecutionEnvironment\n"
        "env = ExecutionEnvironment()\n"
        "env.from_collection([1]).write_parquet('out')\n"
        "env.execute()\n"
    )
    monkeypatch.chdir(tmp_path)
    given = ["-O", f"{SPECULATIVE}=true", "-O", "jobmanager.scheduler=Default"]
    monkeypatch.setattr("sys.argv", ["firesteel", "run", *given, str(script)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "Speculative execution is for batch jobs" in capsys.readouterr().err


def test_every_attempt_of_a_source_subtask_reads_the_same_splits():
    """Asked for by subtask, never by attempt: of a first attempt, a mirror, a replaced one, and one after a restart."""
    builder = GraphBuilder()
    builder.source([10] * 7, parallelism=3)
    scheduler = create_scheduler(builder.graph, Options({"firesteel.progress": False}))
    scheduler.handle(JobStarted(at=0.0))
    vertex = scheduler.graph.vertices[0]

    def deploy(rows):
        option = ExecutionDeploymentOption(0, scheduler.executions.index[rows].astype(np.int64), rows)
        return scheduler.job.descriptors.deploy(option)

    first = deploy(vertex.newest)
    mirrors = vertex.create_new_speculative_executions(np.array([2, 0]), 1.0)
    replaced = vertex.replace_executions(mirrors[:1], 2.0)
    beside, again = deploy(mirrors), deploy(replaced)
    scheduler.graph.reset(vertex, np.array([0, 2]), 3.0)
    restarted = deploy(vertex.newest[[0, 2]])

    def read(deploy):
        return {s: deploy.splits.of(k).tolist() for k, s in enumerate(deploy.subtasks.tolist())}

    assert sorted(x for splits in read(first).values() for x in splits) == list(range(7))
    for later in (beside, again, restarted):
        assert read(later).items() <= read(first).items()
    assert [d.attempts.tolist() for d in (first, beside, again, restarted)] == [[0, 0, 0], [1, 1], [2], [2, 3]]
