"""The blocklist (FLIP-224): merging, expiry, what the data plane is told, and blocked nodes that are all there is."""

from firesteel.report.decisions import reason_of
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel.events import ExecutorChanged, TimerFired
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.kernel.waits import ForBlockedNode
from firesteel.scheduler.nodes import Blocklist, Nodes


class Driven:
    """A blocklist, and what it says at each moment."""

    def __init__(self, *nodes: str) -> None:
        self.recorder, self.nodes = Recorder(), Nodes()
        self.timers = Timers(self.recorder)
        self.list = Blocklist(self.nodes, self.recorder, self.timers)
        for node in nodes:
            self.executor(node)

    def executor(self, node: str, added: bool = True) -> list[c.Command]:
        event = ExecutorChanged(at=self.recorder.at, executor=f"on {node}", host=node, slots=2, added=added)
        self.nodes.change(event)
        self.list.nodes_changed()
        return self.recorder.take()

    def block(self, node: str, at: float, end: float) -> list[c.Command]:
        self.recorder.begin(TimerFired(at=at, timer=""))
        self.list.block(node, f"slow at {at:g} s", end)
        return self.recorder.take()

    def fire(self, at: float, timer: str = "blocklist") -> list[c.Command]:
        self.recorder.begin(TimerFired(at=at, timer=timer))
        self.timers.fired(timer)
        return self.recorder.take()


def told(commands: list[c.Command]) -> list[tuple[str, ...]]:
    return [command.nodes for command in commands if isinstance(command, c.BlockNodes)]


def timers(commands: list[c.Command]) -> list[float]:
    return [command.at for command in commands if isinstance(command, c.SetTimer)]


def reasons(commands: list[c.Command]) -> list[str]:
    return [reason_of(command.record) for command in commands if isinstance(command, c.Record)]


def test_a_blocked_node_is_told_of_with_its_cause_and_its_end():
    d = Driven()
    out = d.block("b", 1.0, 61.0)
    assert told(out) == [("b",)] and timers(out) == [61.0]
    assert reasons(out) == ["node b is blocked for 1 min: slow at 1 s"]
    assert told(d.block("a", 2.0, 62.0)) == [("a", "b")], "the whole list, in order"


def test_a_repeat_keeps_the_later_end_and_is_no_news():
    d = Driven()
    d.block("a", 0.0, 60.0)
    assert d.block("a", 10.0, 70.0) == [c.ShareBlockedNode("a", "slow at 10 s", 70.0)], "but to other jobs"
    assert d.block("a", 11.0, 20.0) == []
    entry = d.list.entries["a"]
    assert (entry.start, entry.end, entry.cause, entry.times) == (0.0, 70.0, "slow at 0 s", 3)
    out = d.fire(60.0)
    assert told(out) == [] and timers(out) == [70.0], "it looks again when its time is over"
    assert reasons(out) == ["node a stays blocked for another 10 s: it was reported 3 times by now"]
    out = d.fire(70.0)
    assert told(out) == [()] and timers(out) == []
    assert reasons(out) == ["node a is not blocked any more, after 1 min 10 s, reported 3 times"]


def test_nodes_are_set_free_each_in_its_time():
    d = Driven()
    d.block("a", 0.0, 10.0), d.block("b", 5.0, 15.0)
    out = d.fire(10.0)
    assert told(out) == [("b",)] and timers(out) == [15.0]
    assert d.fire(12.0, "another timer") == []
    assert told(d.fire(15.0)) == [()] and not d.list.entries
    assert d.fire(16.0) == [], "a timer that fires twice"


def test_blocked_nodes_are_used_again_while_there_is_no_other():
    d = Driven("a", "b")
    assert told(d.block("a", 0.0, 60.0)) == [("a",)]
    out = d.block("b", 1.0, 61.0)
    assert told(out) == [()] and d.list.is_all and d.list.avoided == ()
    assert "nothing but blocked nodes is known (a, b): they are used again" in reasons(out)[1]
    out = d.executor("c")
    assert told(out) == [("a", "b")] and not d.list.is_all
    assert reasons(out) == ["blocked nodes are left alone again: 1 other node can be used"]
    assert told(d.executor("c", added=False)) == [()]
    d.fire(60.0)
    assert d.list.avoided == ("b",), "a is another node now"
    assert d.list.waiting_for() == [ForBlockedNode("b", 1.0, "slow at 1 s", is_used=False)]


def test_nobody_is_presumed_alone_where_no_nodes_were_told():
    d = Driven()
    assert told(d.block("a", 0.0, 60.0)) == [("a",)] and not d.list.is_all


def test_who_waits_is_told_of_nodes_that_are_used_though_blocked():
    d = Driven("a")
    d.block("a", 0.0, 60.0)
    assert d.list.waiting_for() == [ForBlockedNode("a", 60.0, "slow at 0 s", is_used=True)]


def test_only_an_end_that_moved_is_told_of_again():
    d = Driven()
    d.block("a", 0.0, 60.0), d.block("b", 5.0, 90.0), d.block("a", 10.0, 80.0)
    assert len(reasons(d.fire(60.0))) == 1
    (record,) = [command.record for command in d.fire(80.0) if isinstance(command, c.Record)]
    assert record.result == "unblocked" and record.inputs["node"] == "a" and record.inputs["end"] == 80.0


def test_a_node_is_avoided_since_the_data_plane_was_told_of_it_last():
    d = Driven("a", "b")
    d.block("a", 1.0, 61.0), d.block("b", 2.0, 62.0)
    assert d.list.avoided_since == {}
    d.recorder.begin(TimerFired(at=3.0, timer=""))
    d.executor("c")
    assert d.list.avoided_since == {"a": 3.0, "b": 3.0}
    d.block("c", 4.0, 64.0)
    d.recorder.begin(TimerFired(at=5.0, timer=""))
    d.executor("d")
    d.fire(61.0)
    assert d.list.avoided_since == {"b": 5.0, "c": 5.0}
