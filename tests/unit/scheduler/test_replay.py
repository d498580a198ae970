"""A scheduler rebuilt by its events: what is written beside them, what is played again, what differs, and what a new driver tells it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.scheduler_kit import GraphBuilder, Plane, ints

from firesteel import SlowTaskBaseline
from firesteel.model.costs import StepCost, StepCosts
from firesteel.model.job_graph import JobGraph, ShipStrategy
from firesteel.option_functions import OptionFunctionError
from firesteel.options import Options
from firesteel.scheduler.inputs import Inputs, SideInputs
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel import events as e
from firesteel.scheduler.recovery.codec import dump, encode, load
from firesteel.scheduler.recovery.facts import difference, facts_of
from firesteel.scheduler.recovery.outstanding import Outstanding
from firesteel.scheduler.recovery.reconcile import Found, events_after, kept_tokens
from firesteel.scheduler.recovery.records import Alive, AnyLogRecord, DriverBegan, SinkStep, Told
from firesteel.scheduler.recovery.replay import Diverged, Replayed, replay
from firesteel.scheduler.scheduler import Scheduler, create_scheduler
from firesteel.scheduler.slots.resource_profile import SlotMode

HASH, FORWARD = ShipStrategy.HASH, ShipStrategy.FORWARD
asked: list[int] = []
"""What the user's functions below were asked, and how often."""


def five(step) -> int:
    asked.append(step.parallelism)
    return 5


def refuses(_step) -> int:
    asked.append(0)
    raise ValueError("not on a Monday")


class Impatient:
    def __init__(self, options):
        pass

    def baseline(self, step):
        asked.append(step.vertex)
        return SlowTaskBaseline(np.where(step.subtasks == 0, 0.1, np.inf), "the first is slow")


def options_of(**options) -> Options:
    values = {"subpartition-factor": 4} | {k.replace("__", ".").replace("_", "-"): v for k, v in options.items()}
    return Options(values)


def two_steps_graph(consumer=HASH, splits: int = 3, **fields) -> JobGraph:
    builder = GraphBuilder()
    builder.source([1] * splits, parallelism=splits)
    builder.step((0, consumer), **fields)
    return builder.graph


class Driver:
    """A driver that writes a log, in memory, of what its scheduler is told."""

    def __init__(self, graph: JobGraph, options: Options, **given) -> None:
        self.graph, self.options, self.given = graph, options, given
        self.inputs = SideInputs()
        self.frames: list[list[AnyLogRecord]] = []
        self.records: list[object] = []
        scheduler = create_scheduler(graph, options, Inputs(**given), self.inputs)
        handle = scheduler.handle

        def logged(event: e.Event) -> list[c.Command]:
            commands = handle(event)
            self.frames.append([Told(*encode(event), self.inputs.take()), *facts_of(commands)])
            self.records += [command.record for command in commands if isinstance(command, c.Record)]
            return commands

        scheduler.handle = logged
        self.plane = Plane(scheduler, check=False)

    def replayed(self, options: Options | None = None, **given) -> tuple[Replayed, list[c.Command]]:
        """A successor, made of the same graph, and the commands that it carried out meanwhile."""
        inputs, done = SideInputs(), list[c.Command]()
        scheduler = create_scheduler(self.graph, options or self.options, Inputs(**self.given | given), inputs)
        return replay(scheduler, self.frames, inputs, carry_out=done.append), done


def reconciled(replayed: Replayed, found: Found) -> tuple[list[e.Event], list[c.Command]]:
    events, commands = list[e.Event](), list[c.Command]()
    for event in events_after(replayed, found, lambda: replayed.at):
        events.append(event)
        commands += replayed.scheduler.handle(event)
        replayed.scheduler.validate()
    return events, commands


# --- side inputs -------------------------------------------------------------------------------------------------------


def test_answers_are_played_again_in_their_order():
    inputs = SideInputs()
    assert [inputs.ask(lambda n=n: n) for n in (1, None, "a")] == [1, None, "a"]
    answers = inputs.take()
    assert not inputs.take()
    again = SideInputs()
    with again.play(answers):
        assert [again.ask(lambda: 1 / 0) for _ in range(3)] == [1, None, "a"]


def test_what_a_function_raised_is_raised_again_in_the_same_words():
    inputs = SideInputs()

    def fails():
        raise OptionFunctionError("it is Monday", hint="Wait.", cause_trace="line 1")

    with pytest.raises(OptionFunctionError):
        inputs.ask(fails)
    again = SideInputs()
    with again.play(inputs.take()), pytest.raises(OptionFunctionError) as found:
        again.ask(lambda: 1)
    assert (found.value.message, found.value.hint, found.value.cause_trace) == ("it is Monday", "Wait.", "line 1")


@pytest.mark.parametrize(("then", "now"), [(0, 1), (1, 0), (2, 1)])
def test_other_questions_than_then_are_an_error(then, now):
    inputs = SideInputs()
    for _ in range(then):
        inputs.ask(lambda: 1)
    again = SideInputs()
    with pytest.raises(ValueError), again.play(inputs.take()):
        for _ in range(now):
            again.ask(lambda: 1)


def test_numbers_are_written_when_they_change_and_stay_as_they_are_during_an_event():
    inputs = SideInputs()
    assert inputs.number("n", None) is None and inputs.take() == ()
    inputs.measured("n", 2.0)
    assert inputs.number("n", None) == 2.0
    inputs.measured("n", 3.0)
    assert inputs.number("n", None) == 2.0
    told = [inputs.take()]
    assert inputs.number("n", None) == 3.0
    told.append(inputs.take())
    assert inputs.number("n", None) == 3.0 and inputs.take() == ()
    again, seen = SideInputs(), []
    again.measured("n", 7.0)
    for answers in ((), *told, ()):
        with again.play(answers):
            seen.append(again.number("n", None))
    assert seen == [None, 2.0, 3.0, 3.0]
    assert again.number("n", None) == 7.0, "after the replay it is measured again"


def test_a_decider_of_the_users_is_not_asked_again():
    asked.clear()
    driver = Driver(two_steps_graph(), options_of(firesteel__decider__function=f"{__name__}:five"))
    driver.plane.start().run(0)
    assert len(asked) == 1
    replayed, _ = driver.replayed()
    assert len(asked) == 1 and replayed.scheduler.graph.vertices[1].parallelism == 5


def test_a_decider_that_raised_fails_the_job_again_without_being_asked():
    asked.clear()
    driver = Driver(two_steps_graph(), options_of(firesteel__decider__function=f"{__name__}:refuses"))
    driver.plane.start().run(0)
    replayed, done = driver.replayed()
    assert len(asked) == 1
    assert [command.record for command in done] == driver.records
    assert replayed.outstanding.ended is not None and "Monday" in replayed.outstanding.ended.cause.message


def test_a_slow_task_strategy_of_the_users_is_not_asked_again():
    asked.clear()
    options = options_of(
        jobmanager__adaptive_batch_scheduler__speculative__enabled=True,
        firesteel__slow_task_detector__function=f"{__name__}:Impatient",
        jobmanager__adaptive_batch_scheduler__speculative__block_slow_node_duration="0 s",
    )
    driver = Driver(two_steps_graph(), options)
    plane = driver.plane.start()
    for key in list(plane.tasks):
        plane.launch(key)
    plane.now += 5
    plane.fire("slow-task-detector")
    assert asked and plane.decisions("speculation")
    before = len(asked)
    _, done = driver.replayed()
    assert len(asked) == before
    assert [command.record for command in done] == driver.records


def test_all_that_a_scheduler_is_given_can_be_written_down():
    costs = StepCosts({"a": StepCost(1e-6, 3, 0.5)})
    given = Inputs(4, True, SlotMode(), 2.0, costs, 0.02, None, {1: 7})
    again = load(dump(given))
    assert again == given
    scheduler = create_scheduler(two_steps_graph(), options_of(), again)
    Plane(scheduler, check=False).start().run(0)
    assert scheduler.graph.vertices[1].parallelism == 7


def test_a_parallelism_of_before_the_resume_is_taken_again_if_it_may_be():
    for pinned, most, expected in ((7, 8, 7), (7, 4, None)):
        scheduler = create_scheduler(two_steps_graph(), options_of(max_parallelism=most), Inputs(pinned={1: pinned}))
        plane = Plane(scheduler, check=False).start().run(0)
        (decision,) = plane.decisions("parallelism", 1)
        assert (decision.rule == "as before the resume") == (expected is not None)
        assert expected is None or plane.parallelism(1) == expected


# --- facts -------------------------------------------------------------------------------------------------------------


def deploy(**changes) -> c.Deploy:
    gate = c.GateDescriptor(0, 4, ints(0, 0, 1), ints(5, 6, 7), False)
    rects = np.array([[0, 3, 0, 2], [0, 3, 2, 4]], np.int32)
    ranges = c.InputRanges(np.array([0, 1, 2], np.int32), rects)
    fields = {
        "vertex": 1,
        "parallelism": 2,
        "subtasks": ints(0, 1),
        "attempts": ints(0, 0),
        "gates": (gate,),
        "ranges": (ranges,),
        "subpartitions": {1: 8},
    }
    return c.Deploy(**fields | changes)


def gate_of(**changes) -> c.GateDescriptor:
    columns = {"attempts": ints(0, 0, 1), "tokens": ints(5, 6, 7), "num_subpartitions": 4, "is_broadcast": False}
    return c.GateDescriptor(dataset=0, **columns | changes)


def rects_of(*rects, shares=None) -> c.InputRanges:
    columns = np.array(rects, np.int32)
    return c.InputRanges(np.arange(len(rects) + 1, dtype=np.int32), columns, shares)


def same_reads(other: c.Deploy) -> list[bool]:
    """Of each of the two executions, whether it reads and writes the same as in the first deployment."""
    mine, theirs = facts_of([deploy()])[0].inputs, facts_of([other])[0].inputs
    return [mine[:16] == theirs[:16], mine[16:] == theirs[16:]]


def test_the_same_rows_are_those_of_the_same_objects_ranges_and_shares():
    assert same_reads(deploy()) == [True, True]
    assert same_reads(deploy(attempts=ints(3, 4))) == [True, True]
    assert same_reads(deploy(gates=(gate_of(attempts=ints(9, 9, 9)),))) == [True, True]
    merged = c.MergedObjects(ints(0), ints(2), ints(99))
    assert same_reads(deploy(gates=(gate_of(merged=merged),))) == [True, True]
    assert same_reads(deploy(gates=(gate_of(tokens=ints(5, 6, 8)),))) == [False, False]
    assert same_reads(deploy(gates=(gate_of(boundaries=(b"a", b"b", b"c")),))) == [False, False]
    assert same_reads(deploy(ranges=(rects_of([0, 3, 0, 1], [0, 3, 2, 4]),))) == [False, True]
    shares = np.array([[0, 1], [0, 2]], np.int32)
    assert same_reads(deploy(ranges=(rects_of([0, 3, 0, 2], [0, 3, 2, 4], shares=shares),))) == [False, False]
    assert same_reads(deploy(parallelism=3)) == [False, False]
    assert same_reads(deploy(subpartitions={1: 9})) == [False, False]
    assert same_reads(deploy(subpartitions={7: 8})) == [True, True], "data sets may be numbered anew"


def test_only_partitions_that_an_execution_touches_count():
    pointwise = {"ranges": (rects_of([0, 1, 0, 4], [1, 3, 0, 4]),)}
    before = facts_of([deploy(**pointwise)])[0].inputs
    after = facts_of([deploy(**pointwise, gates=(gate_of(tokens=ints(5, 6, 8)),))])[0].inputs
    assert before[:16] == after[:16] and before[16:] != after[16:]
    part = gate_of(attempts=ints(1), tokens=ints(7), partitions=ints(2))
    whole = gate_of()
    one = {"subtasks": ints(1), "attempts": ints(0), "ranges": (rects_of([2, 3, 0, 4]),)}
    assert facts_of([deploy(**one, gates=(part,))])[0].inputs == facts_of([deploy(**one, gates=(whole,))])[0].inputs


def test_differences_are_told_in_sentences():
    def named(vertex: int) -> str:
        return f"[{vertex}] 'join'"

    then = facts_of([deploy()])
    assert difference(then, then, named) is None
    for other, words in (
        (deploy(parallelism=56), "[1] 'join': 2 subtasks then, 56 now."),
        (deploy(subpartitions={1: 9}), "[1] 'join': wrote 8 subpartitions then, 9 now."),
        (deploy(attempts=ints(0, 1)), "[1] 'join': other executions were deployed then."),
        (deploy(vertex=2), "[1] 'join': deployed then, where [2] 'join' is now."),
        (
            deploy(ranges=(rects_of([0, 3, 0, 2], [0, 3, 2, 3]),)),
            "[1] 'join': subtask 1 was given other rows to read then.",
        ),
    ):
        assert difference(then, facts_of([other]), named) == words
    assert difference(then, [], named) == "[1] 'join' was deployed then, and is not now."
    assert difference([], then, named) == "[1] 'join' was not deployed then, and is now."


# --- replay ------------------------------------------------------------------------------------------------------------


def test_a_replay_comes_to_the_same_records_and_carries_nothing_else_out():
    driver = Driver(two_steps_graph(), options_of())
    driver.plane.start().run()
    replayed, done = driver.replayed()
    assert [command.record for command in done if isinstance(command, c.Record)] == driver.records
    assert {type(command) for command in done} <= {c.Record, c.StoreSizes, c.DropSizes}
    assert replayed.event == len(driver.frames)
    assert [type(command) for command in replayed.outstanding.commands()] == [c.JobStatusChanged]


def test_other_deployments_end_the_replay_with_a_sentence():
    driver = Driver(two_steps_graph(), options_of(max_parallelism=8, data_volume_per_task=1))
    driver.plane.sizes = lambda *_: ints(*range(1, 33))
    driver.plane.start().run(0)
    with pytest.raises(Diverged, match=r"\[1\] 'step 1': \d+ subtasks then, 1 now"):
        driver.replayed(options_of(max_parallelism=8, data_volume_per_task="1 gb"))


def test_events_that_the_scheduler_cannot_have_heard_of_end_the_replay():
    driver = Driver(two_steps_graph(), options_of())
    driver.plane.start().run(0)
    driver.frames.pop(0)  # without its start nothing is deployed
    with pytest.raises(Diverged, match="cannot be handled as it was then"):
        driver.replayed()


def test_records_of_drivers_and_sinks_are_noted():
    left = Outstanding()
    left.noted(DriverBegan(1, 7, "h", 1, None, "a", 0.0, 4.0))
    left.noted(Alive(9.0))
    left.noted(SinkStep(3, 0, "begun", b"state"))
    left.noted(SinkStep(3, 0, "publishing"))
    assert left.at == 9.0 and left.drivers[0].nonce == 7
    assert left.sink_steps == {(3, 0): {"begun": b"state", "publishing": b""}}


def test_what_was_asked_and_answered_is_not_outstanding():
    left = Outstanding()
    gate = gate_of()
    left.told(
        [c.SetTimer("a", 1.0), c.SetTimer("b", 2.0), c.SetTimer("a", 3.0), c.SetTimer("d", 3.0), c.CancelTimer("d")]
    )
    left.told([c.StoreBlob(b"x", b"1"), c.StoreBlob(b"y", b"2"), c.DropBlobs((b"x",))])
    left.told([c.BlockNodes(("n1",)), c.BlockNodes(("n1", "n2"))])
    left.told([c.LoadSizes(0, ints(1, 2), ints(0, 3)), c.LoadSizes(1, ints(5), ints(0))])
    left.told([c.MergePartitions(1, gate, ints(0, 3)), c.MergePartitions(2, gate, ints(0, 3))])
    left.told([c.NarrowSource(3, (), ()), c.NarrowSource(4, (), ())])
    left.heard(e.SourceNarrowed(at=4.0, vertex=3, split_bytes=None, found="all"))
    left.heard(e.TimerFired(at=5.0, timer="b"))
    left.heard(e.SizesLoaded(at=5.0, dataset=0, partitions=ints(2), attempts=ints(3), rows=[None]))
    left.heard(e.SizesLoaded(at=5.0, dataset=1, partitions=ints(5), attempts=ints(0), rows=[b""]))
    merged = {"groups": ints(0), "tokens": ints(70), "stored_bytes": ints(1)}
    left.heard(e.PartitionsMerged(at=6.0, dataset=0, merge=1, **merged))
    timer, blob, blocked, loads, narrow = left.commands()
    assert narrow.vertex == 4
    assert timer == c.SetTimer("a", 3.0)
    assert (blob.digest, blocked.nodes) == (b"y", ("n1", "n2"))
    assert (loads.dataset, loads.partitions.tolist(), loads.attempts.tolist()) == (0, [1], [0])
    assert (left.merges, left.merged, left.at) == ({2: 0}, {0: {70}}, 6.0)
    left.told([c.ReleaseMerged(0, c.MergedObjects(ints(0), ints(3), ints(70))), c.BlockNodes(())])
    assert left.merged == {0: set()}
    assert not any(isinstance(command, c.BlockNodes) for command in left.commands())


def test_staged_outputs_are_known_until_they_are_discarded():
    graph = two_steps_graph(has_sink=True)
    driver = Driver(graph, options_of())
    driver.plane.start().run(0)
    key = driver.plane.keys(1)[0]
    driver.plane.finish(key, keep=True, token=50)
    driver.plane.finish(key, token=51)  # a second run of it: discarded
    replayed, _ = driver.replayed()
    assert [name for name in replayed.outstanding.commits if name[0] == 1] == [(*key, 50)]


# --- reconciliation ----------------------------------------------------------------------------------------------------


def stored_by(scheduler: Scheduler) -> dict[int, np.ndarray]:
    return kept_tokens(scheduler)


def test_what_ran_is_sent_again_and_what_has_finished_stays():
    driver = Driver(two_steps_graph(), options_of())
    plane = driver.plane.start()
    plane.executor(1, "n1")
    plane.finish((0, 1, 0))
    replayed, _ = driver.replayed()
    worker = e.ExecutorChanged(at=0.0, executor="1", host="n2", slots=4, added=True)
    events, commands = reconciled(replayed, Found([worker], stored_by(replayed.scheduler)))
    assert [type(event) for event in events] == [e.ExecutorsChanged, e.ExecutionsFailed]
    assert [(change.host, change.added) for change in events[0].changes] == [("n1", False), ("n2", True)]
    (again,) = (command for command in commands if isinstance(command, c.Deploy))
    assert (again.subtasks.tolist(), again.attempts.tolist()) == ([0, 2], [1, 1])
    assert replayed.scheduler.graph.vertices[0].num_finished == 1


def test_a_job_that_was_not_started_is_started():
    driver = Driver(two_steps_graph(), options_of())
    replayed, _ = driver.replayed()
    events, commands = reconciled(replayed, Found(stored={}))
    assert [type(event) for event in events] == [e.JobStarted]
    assert any(isinstance(command, c.Deploy) for command in commands)


def test_drivers_may_be_lost_more_often_than_anything_is_forgiven():
    options = options_of(restart_strategy__type="none")
    driver = Driver(two_steps_graph(), options)
    driver.plane.start()
    replayed, _ = driver.replayed()
    for _ in range(30):
        reconciled(replayed, Found(stored={}))
    assert replayed.scheduler.status is c.JobStatus.RUNNING
    assert replayed.scheduler.graph.vertices[0][0].current_execution.attempt == 30


def test_objects_that_are_not_there_are_made_again():
    driver = Driver(two_steps_graph(), options_of(restart_strategy__fixed_delay__delay="0 s"))
    driver.plane.start().run(0)
    replayed, _ = driver.replayed()
    stored = stored_by(replayed.scheduler)
    stored[0] = stored[0][1:]
    events, commands = reconciled(replayed, Found(stored=stored))
    lost = [event for event in events if isinstance(event, e.PartitionsLost)]
    assert [event.partitions.tolist() for event in lost] == [[0]]
    deployed = [(d.vertex, d.subtasks.tolist()) for d in commands if isinstance(d, c.Deploy)]
    assert (0, [0]) in deployed
    assert replayed.scheduler.graph.vertices[0].num_finished == 2


def test_objects_that_nobody_needs_any_more_are_not_missed():
    builder = GraphBuilder()
    builder.source([1], parallelism=1)
    builder.step((0, HASH))
    builder.step((1, HASH))
    driver = Driver(builder.graph, options_of(jobmanager__partition__release_during_job_execution=False))
    driver.plane.start().run(0)
    driver.plane.run(1)
    replayed, _ = driver.replayed()
    events, _ = reconciled(replayed, Found(stored={}))
    assert [event.dataset for event in events if isinstance(event, e.PartitionsLost)] == [1]


def test_staged_outputs_that_are_gone_are_made_again():
    driver = Driver(
        two_steps_graph(has_sink=True, parallelism=2), options_of(restart_strategy__fixed_delay__delay="0 s")
    )
    driver.plane.start().run(0)
    driver.plane.finish((1, 0, 0), token=60)
    replayed, _ = driver.replayed()
    scheduler = replayed.scheduler
    for token, again in ((61, False), (60, True)):
        gone = e.OutputsLost(at=9.0, vertex=1, subtasks=ints(0), attempts=ints(0), tokens=ints(token))
        commands = scheduler.handle(gone)
        assert any(isinstance(command, c.DiscardExecutions) for command in commands) == again
    assert scheduler.graph.vertices[1].num_finished == 0
    assert not scheduler.graph.vertices[1].commits


def test_a_vertex_whose_rows_cannot_be_parted_the_same_way_again_is_kept_as_a_whole_or_not_at_all():
    for finished, again in ((2, [0, 1, 2]), (3, [])):
        driver = Driver(two_steps_graph(), options_of(restart_strategy__fixed_delay__delay="0 s"))
        plane = driver.plane.start()
        plane.finish(*[(0, subtask, 0) for subtask in range(finished)])
        replayed, _ = driver.replayed()
        found = Found(stored=stored_by(replayed.scheduler), unrepeatable=(0,))
        _, commands = reconciled(replayed, found)
        deployed = [s for d in commands if isinstance(d, c.Deploy) and d.vertex == 0 for s in d.subtasks.tolist()]
        assert sorted(set(deployed)) == again


def test_a_merge_that_nobody_finished_is_answered():
    driver = Driver(two_steps_graph(), options_of())
    driver.plane.start()
    replayed, _ = driver.replayed()
    replayed.outstanding.merges[3] = 0
    events, _ = reconciled(replayed, Found(stored={}))
    (answer,) = (event for event in events if isinstance(event, e.PartitionsMerged))
    assert (answer.merge, answer.dataset, len(answer.groups)) == (3, 0, 0)
