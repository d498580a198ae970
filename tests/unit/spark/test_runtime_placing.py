"""Where executions run: pools, preferred locations, the blocklist, and what is rejected. Nothing here starts Spark."""

from __future__ import annotations

import xml.etree.ElementTree as xml
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock
from urllib.parse import urlsplit

import pytest
from msgspec import structs

from driver_loop import END, Loop, deploy, ints
from firesteel.model.descriptors import ExecutionDescriptor
from firesteel.results.storage.store import ResultStore, StorageError
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.kernel.commands import BlockNodes, Cancel, Placement
from firesteel.spark.driver.serialise import dumps
from firesteel.spark.placement import pools
from firesteel.spark.placement.avoidance import Avoidance
from firesteel.spark.placement.node_names import MAX_WISHES, ExecutorInfo, NodeNames, locations, preferring
from firesteel.spark.placement.pools import BOUNDED, queue_of
from firesteel.spark.placement.slot_blockers import SlotBlockerFunction, SlotBlockers
from firesteel.spark.session.sessions import _settings
from firesteel.task.executor import notes as blocklist
from firesteel.task.executor.information import Blob, JobInformation, VertexInformation, VertexPart
from firesteel.task.executor.messages import RejectedMessage, Where, decode_other, encode, is_finished
from firesteel.task.executor.notes import Blocklist, publish
from firesteel.task.executor.place import Place
from firesteel.task.executor.spark_task import BatchFunction

FAR = "far_storage:open_far"


def executor(number, host, node="", added=True):
    return ev.ExecutorChanged(at=0.0, executor=str(number), host=host, slots=1, added=added, node=node)


def nodes_on(hosts):
    """An executor of one slot on each of these hosts, numbered from 0."""
    nodes = NodeNames()
    nodes.update({str(number): ExecutorInfo(host, 1) for number, host in enumerate(hosts)})
    return nodes


def returned(subtask, token, batch=0, node="slow", *, retired=False):
    return encode(RejectedMessage(Where(batch, subtask, 0, token, node, 1.0, 1.0, 1.0), retired))


# --- pools ----------------------------------------------------------------------------------------------------------


def context(application, min_share):
    pool = MagicMock()
    pool.isDefined.return_value = min_share is not None
    pool.get().minShare.return_value = min_share
    made = SimpleNamespace(applicationId=application, _jsc=MagicMock())
    made._jsc.sc().getPoolForName.return_value = pool
    return made


def test_our_sessions_have_a_pool_that_spark_serves_before_all_others():
    path = Path(urlsplit(_settings("local[2]")["spark.scheduler.allocation.file"]).path)
    (pool,) = xml.parse(path).getroot().iter("pool")
    assert pool.get("name") == pools.URGENT
    assert int(pool.findtext("minShare")) >= 1_000_000


def test_what_is_urgent_runs_in_the_urgent_pool_or_else_in_a_fresh_one():
    ours = context("ours", 1000)
    assert [pools.urgent(ours), pools.urgent(ours)] == [pools.URGENT] * 2
    assert ours._jsc.sc().getPoolForName.call_count == 1
    pools.give_back(pools.URGENT)
    assert pools.borrow() != pools.URGENT
    for number, min_share in enumerate((None, 0)):
        first, second = (pools.urgent(context(f"given {number}", min_share)) for _ in range(2))
        assert first != second and pools.URGENT not in (first, second)


# --- preferred locations --------------------------------------------------------------------------------------------


def test_all_other_nodes_are_preferred_by_host_or_by_executor_where_a_host_is_shared():
    known = nodes_on("")
    assert locations(known, ["a"]) == []
    known = nodes_on("abbc")
    assert locations(known, ["a"]) == ["b", "c"]
    assert locations(known, ["b"]) == ["a", "c"]
    assert locations(known, ["a", "b", "c"]) == locations(known, ["x"]) == []
    known.update({str(number): ExecutorInfo(host, 1) for number, host in enumerate("abb")})
    assert locations(known, ["a"]) == ["b"]
    shared = nodes_on("hhh")
    assert locations(shared, ["h (executor 1)"]) == ["executor_h_0", "executor_h_2"]
    shared.update({**{str(number): ExecutorInfo("h", 1) for number in range(3)}, "7": ExecutorInfo("i", 1)})
    assert locations(shared, ["h (executor 1)"]) == ["executor_h_0", "executor_h_2", "i"]


def test_too_many_wishes_are_not_told():
    assert preferring(None, "rdd", 5, []) == "rdd"
    assert preferring(None, "rdd", MAX_WISHES, ["a", "b"]) == "rdd"


# --- the blocklist --------------------------------------------------------------------------------------------------


def test_a_task_finds_what_was_blocked_last(tmp_path):
    store = ResultStore(str(tmp_path))
    assert Blocklist().signs("job", store) == set()
    for nodes in (["b", "a"], [], ["c"]):
        publish(store, nodes)
        assert Blocklist().signs("job", store) == set(nodes)
    assert store.list() == [blocklist.NAME]
    (tmp_path / blocklist.NAME).write_text('["half')
    assert Blocklist().signs("job", store) == set()
    with pytest.raises(StorageError):
        publish(ResultStore(str(tmp_path / "gone")), ["a"])
    assert not (tmp_path / "gone").exists()


def test_a_far_blocklist_is_replaced_too(tmp_path):
    store = ResultStore(str(tmp_path / "far"), FAR)
    store.create()
    assert Blocklist().signs("job", store) == set()
    for nodes in (["b", "a"], ["c"]):
        publish(store, nodes)
        assert Blocklist().signs("job", store) == set(nodes)


def test_looking_takes_a_hundredth_of_the_time(tmp_path, monkeypatch):
    now = [0.0]
    store = MagicMock()
    store.open_input.side_effect = lambda name: now.__setitem__(0, now[0] + 0.01) or (_ for _ in ()).throw(OSError())
    monkeypatch.setattr(blocklist.time, "monotonic", lambda: now[0])
    view = Blocklist()
    for _ in range(100):
        view.signs("job", store)
        now[0] += 0.1
    assert 8 <= store.open_input.call_count <= 11
    view.signs("another job", store)
    now[0] += blocklist.LOOK_SECONDS
    before = store.open_input.call_count
    view.signs("another job", store)
    assert store.open_input.call_count == before + 1


def test_a_worker_that_hands_back_one_after_another_takes_longer_each_time(tmp_path, monkeypatch):
    store, slept = ResultStore(str(tmp_path)), []
    monkeypatch.setattr(blocklist.time, "sleep", slept.append)
    view = Blocklist()
    publish(store, ["slow"])
    assert not view.has(["quick"], "job", store)
    assert all(view.has(["slow", "other"], "job", store) for _ in range(9))
    assert slept[:2] == [0.05, 0.1] and slept[-1] == blocklist.LONGEST_PAUSE and len(slept) == 8
    assert not view.has(["quick"], "job", store)
    slept.clear()
    assert view.has(["slow", "other"], "job", store) and slept == []


# --- tasks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("returns", "blocked", "name"), [(True, "here", "Rejected"), (False, "here", "Failed"), (True, "there", "Failed")])  # fmt: skip
def test_a_task_on_a_blocked_node_hands_itself_back_before_its_program_begins(
    tmp_path, monkeypatch, returns, blocked, name
):
    spark_task = SimpleNamespace(taskAttemptId=lambda: 9, attemptNumber=lambda: 0)
    monkeypatch.setattr("firesteel.task.executor.spark_task._spark_task", lambda task_class: spark_task)
    monkeypatch.setattr("firesteel.task.executor.spark_task.here", lambda variable=None: Place("here", "h"))
    store = ResultStore(str(tmp_path))
    publish(store, [f"executor {blocked}"])
    job = JobInformation(f"{tmp_path}", store, "none", 1 << 20, scratch=str(tmp_path))
    part = VertexPart(Blob.of(VertexInformation(0, "v", 1, {}, dumps("no program"))), ())
    function = BatchFunction(4, Blob.of(job), (part, part), (), MagicMock(), may_reject=returns)
    found = function.execute([ExecutionDescriptor(3, 1), ExecutionDescriptor(3, 0)], None)
    messages = list(map(decode_other, found))
    assert [type(m).__name__ for m in messages] == [f"{name}Message"] * (2 if name == "Rejected" else 1)
    assert not any(map(is_finished, found))
    if name == "Rejected":
        told = [(w.batch, w.subtask, w.attempt, w.token, w.node) for w in (m.where for m in messages)]
        assert told == [(4, 3, 1, 9, "here\nh\n"), (5, 3, 0, 9, "here\nh\n")]


# --- slot blockers ----------------------------------------------------------------------------------------------------------


def test_each_slot_of_a_blocked_node_gets_one_blocker_and_a_new_one_when_it_has_ended(monkeypatch):
    known, started = NodeNames(), []
    known.update({"0": ExecutorInfo("a", 2), "1": ExecutorInfo("b", 4), "2": ExecutorInfo("b", 1)})
    blockers = SlotBlockers(MagicMock(), Blob.of(1), "job", known)
    monkeypatch.setattr(blockers, "_start", lambda blocker, locations: started.append((blocker, locations)))
    assert [blockers.occupy_slot("a") for _ in range(3)] == [True, True, False]
    assert blockers.occupy_slot("b") and not blockers.occupy_slot("nowhere")
    assert [locations for _, locations in started] == [["executor_a_0"]] * 2 + [["executor_b_1", "executor_b_2"]]
    started[0][0].ended.set()
    assert [blockers.occupy_slot("a") for _ in range(2)] == [True, False]
    assert len({blocker.tag for blocker, _ in started}) == 4


def test_jobs_that_block_different_nodes_do_not_block_every_slot_together(monkeypatch):
    known, context = nodes_on("ab"), MagicMock(applicationId="two jobs at once")
    jobs, started = [SlotBlockers(context, Blob.of(1), name, known) for name in ("one", "other")], []
    for job in jobs:
        monkeypatch.setattr(job, "_start", lambda blocker, locations: started.append(blocker))
    assert [jobs[0].occupy_slot("a"), jobs[1].occupy_slot("b")] == [True, False]
    started[0].ended.set()
    assert [jobs[1].occupy_slot("b"), jobs[0].occupy_slot("a")] == [True, False]


def test_a_slot_blocker_stays_until_its_node_is_not_blocked_any_more(tmp_path, monkeypatch):
    store, slept = ResultStore(str(tmp_path)), []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            publish(store, ["executor 8"])

    monkeypatch.setattr("firesteel.spark.placement.slot_blockers.time.sleep", sleep)
    monkeypatch.setattr("firesteel.task.executor.spark_task.here", lambda variable: Place("7", "a"))
    monkeypatch.setattr(blocklist, "LOOK_SECONDS", 0.0)
    publish(store, ["executor 7"])
    function = SlotBlockerFunction(Blob.of(JobInformation(f"blocker {tmp_path}", store, "none", 1)))
    assert list(function(iter([b""]))) == [] and len(slept) == 3
    assert list(function(iter([b""]))) == [] and len(slept) == 3


def test_what_a_blocked_node_rejects_blocks_its_slot_where_work_waits_in_spark(monkeypatch):
    for fair, result in ((True, ["slot kept"]), (False, [])):
        avoidance = Avoidance(MagicMock(), MagicMock(), Blob.of(1), "job", nodes=NodeNames())
        monkeypatch.setattr(pools, "is_fair", lambda context, fair=fair: fair)
        monkeypatch.setattr(avoidance._slot_blockers, "occupy_slot", lambda node: node == "slow")
        avoidance.block(BlockNodes(("slow", "other")))
        decisions = avoidance.rejected(["slow", "other", "not blocked"], 1.5)
        assert [decision.result for decision in decisions] == result
        avoidance.stop(0.0)


# --- the job's loop -------------------------------------------------------------------------------------------------


def placed(command, **placement):
    return structs.replace(command, placement=Placement(**placement))


def test_what_was_handed_back_is_told_in_bulk_and_once():
    loop = Loop(lambda e: [deploy(0, 1, 2)] if isinstance(e, ev.JobStarted) else [END])
    loop.put(returned(0, 7), returned(2, 8), returned(0, 7))
    loop.run()
    (event,) = loop.scheduler.of(ev.ExecutionsRejected)
    assert (event.vertex, event.subtasks.tolist(), event.attempts.tolist()) == (1, [0, 2], [0, 0])
    assert list(event.nodes) == ["slow", "slow"]
    assert list(loop.batches[0].open) == [(1, 1)]


def test_what_a_retired_worker_hands_back_is_told_apart():
    told = []

    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1, 2)]
        if isinstance(event, ev.ExecutionsRejected):
            told.append((event.retired, event.subtasks.tolist()))
        return [END] if len(told) == 2 else None

    loop = Loop(answer)
    loop.put(returned(0, 7), returned(2, 8, retired=True), returned(1, 9, retired=True))
    loop.run()
    assert sorted(told) == [(False, [0]), (True, [2, 1])]


def test_one_that_was_cancelled_and_hands_itself_back_leaves_its_batch():
    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0, 1), Cancel(1, ints(1), ints(0), "why")]
        if isinstance(event, ev.ExecutionsRejected):
            cancelled.append(loop.runner.cancel.call_count)
            return [END]
        return None

    cancelled = []
    loop = Loop(answer)
    loop.put(returned(0, 7))
    loop.run()
    assert cancelled == [1]


def test_urgent_executions_get_the_urgent_pool_and_wish_for_other_nodes():
    codes = []

    def answer(event):
        if isinstance(event, ev.JobStarted):
            return [deploy(0)]
        if event.executor == "3":
            return [placed(deploy(1, attempt=1), avoid=("b",), urgent=True), placed(deploy(2)), END]
        return None

    loop = Loop(answer)
    loop.runner.start.side_effect = lambda batch, code: codes.append((batch, code))
    loop.driver._in.nodes.update({str(number): ExecutorInfo(host, 1) for number, host in enumerate("abcd")})
    loop.put(executor(3, "d"))
    loop.run()
    (plain, first), (urgent, second), (other, third) = codes
    assert urgent.pool == pools.URGENT and pools.URGENT not in (plain.pool, other.pool)
    assert [list(code.locations) for code in (first, second, third)] == [[], ["a", "c", "d"], []]


def test_blocked_nodes_are_published_in_order(tmp_path):
    blocks = [BlockNodes(("a",)), BlockNodes(("a", "b")), BlockNodes(("b",)), END]
    store = ResultStore(str(tmp_path))
    loop = Loop(lambda e: blocks, store=store)
    loop.driver._in.nodes.update({"0": ExecutorInfo("a", 1), "1": ExecutorInfo("b", 1)})
    loop.run()
    assert Blocklist().signs("job", store) == {"executor 1"}


def test_an_executor_that_comes_to_a_blocked_node_is_published_too(tmp_path):
    store = ResultStore(str(tmp_path))
    blocking = [BlockNodes(("b",))]
    loop = Loop(
        lambda e: blocking if isinstance(e, ev.JobStarted) else [END] if e.executor == "2" else None, store=store
    )
    loop.driver._in.nodes.update({"1": ExecutorInfo("b", 1), "2": ExecutorInfo("b", 1), "3": ExecutorInfo("c", 1)})
    loop.put(executor("2", "b"))
    loop.run()
    assert Blocklist().signs("job", store) == {"executor 1", "executor 2"}


# --- the queue ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "grows", "bounded"), [("FAIR", "false", False), ("FIFO", "false", True), ("FIFO", "true", False)]
)
def test_a_job_that_speculates_sends_no_more_than_runs_where_spark_serves_in_order(mode, grows, bounded):
    session = context(f"queue {mode} {grows}", 1)
    session._jsc.sc().getSchedulingMode().toString.return_value = mode
    session._conf = {"spark.dynamicAllocation.enabled": grows}
    decision = queue_of(session)
    assert (decision.result == BOUNDED) is bounded
    assert ("FIFO" in decision.reason) is (mode == "FIFO")
