"""The nodes of the cluster, as far as we were told, and those of them that get nothing new to do for a while (FLIP-224: the blocklist). What
runs there goes on (MARK_BLOCKED).

Blocking is a wish to go elsewhere, never a reason to stand still: while no other node is known, the blocked ones are
used again, and the record says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from firesteel.scheduler.kernel.commands import BlockNodes, ShareBlockedNode
from firesteel.scheduler.kernel.decisions import BlockedAlone, BlockedFor
from firesteel.scheduler.kernel.events import ExecutorChanged, NodeBlocked
from firesteel.scheduler.kernel.recorder import Recorder
from firesteel.scheduler.kernel.timers import Timers
from firesteel.scheduler.kernel.waits import ForBlockedNode, Wait

_TIMER = "blocklist"


class Nodes:
    """What can be slow, be blocked, or die as one."""

    def __init__(self) -> None:
        self._executors: dict[str, tuple[str, int]] = {}
        self.is_told = False
        """Somebody has spoken of executors: what is not known here is not there."""

    def change(self, event: ExecutorChanged) -> None:
        self.is_told = True
        if event.added:
            self._executors[event.executor] = (event.node or event.host, event.slots)
        else:
            self._executors.pop(event.executor, None)

    @property
    def slots(self) -> dict[str, int]:
        """Task slots of each node."""
        found: dict[str, int] = {}
        for node, slots in self._executors.values():
            found[node] = found.get(node, 0) + slots
        return found

    def __bool__(self) -> bool:
        return bool(self._executors)


@dataclass(frozen=True, slots=True)
class BlockedNode:
    """``start`` and ``end``: seconds on the job's clock; it is blocked from the one until before the other."""

    node: str
    cause: str
    start: float
    end: float
    times: int = 1
    """Number of times it was blocked, counting those while it was so already."""


class Blocklist:
    def __init__(self, nodes: Nodes, recorder: Recorder, timers: Timers) -> None:
        self._nodes = nodes
        self._recorder = recorder
        self._timers = timers
        self.entries: dict[str, BlockedNode] = {}
        self.avoided: tuple[str, ...] = ()
        """The nodes that the data plane was told last: the blocked ones, none while there is no other."""
        self.is_all = False
        """Every node that is known is blocked, so they are used as if they were not."""
        self.avoided_since: dict[str, float] = {}
        """Since when the data plane has known of each of these: what is launched there from then on is rejected."""
        self._ends: dict[str, float] = {}
        """Of each node the end that is on record."""

    def block(self, node: str, cause: str, end: float) -> None:
        """MARK_BLOCKED until ``end``. Of a node that is blocked the later end counts (FLIP-224), and the first cause."""
        self._block(node, cause, end)
        if self.entries[node].end == end:
            self._recorder.emit(ShareBlockedNode(node, cause, end))

    def take_over(self, event: NodeBlocked) -> None:
        """Blocks a node that another job of the session has blocked, and shares that with nobody (Flink: job and resource manager
        inform each other)."""
        if event.end > self._recorder.at:
            self._block(event.node, f"job '{event.job}' has blocked it: {event.cause}", event.end)

    def _block(self, node: str, cause: str, end: float) -> None:
        old = self.entries.get(node)
        if old is not None:
            self.entries[node] = replace(old, end=max(old.end, end), times=old.times + 1)
            return
        entry = self.entries[node] = BlockedNode(node, cause, self._recorder.at, end)
        self._decide(entry, "blocked")
        self._set_timer()
        self._tell()

    def _time_over(self) -> None:
        """Unblocks the nodes whose time is over."""
        for entry in [entry for entry in self.entries.values() if entry.end <= self._recorder.at]:
            del self.entries[entry.node]
            self._decide(entry, "unblocked")
        for entry in [entry for entry in self.entries.values() if self._ends[entry.node] <= self._recorder.at]:
            self._decide(entry, "prolonged")
        self._set_timer()
        self._tell()

    def nodes_changed(self) -> None:
        """A node came or went: there may be another than the blocked ones now, or none."""
        if self.entries:
            self._tell()

    def waiting_for(self) -> list[Wait]:
        now = self._recorder.at
        return [
            ForBlockedNode(entry.node, max(0.0, entry.end - now), entry.cause, self.is_all)
            for _, entry in sorted(self.entries.items())
        ]

    def _set_timer(self) -> None:
        """One timer at a time. Ends move on while it runs, so it looks again when it fires."""
        if not self.entries:
            return
        first = min(entry.end for entry in self.entries.values())
        known = self._timers.when(_TIMER)
        if known is None or first < known:
            self._timers.set(_TIMER, first, self._time_over)

    def _tell(self) -> None:
        """The data plane is told of changes only."""
        blocked = tuple(sorted(self.entries))
        others = [node for node, slots in self._nodes.slots.items() if slots > 0 and node not in self.entries]
        is_all = bool(blocked) and self._nodes.is_told and not others
        if is_all != self.is_all and blocked:
            self._decide_use(blocked, is_all, len(others))
        self.is_all = is_all
        avoided = () if is_all else blocked
        if avoided != self.avoided:
            self.avoided = avoided
            self.avoided_since = {node: self.avoided_since.get(node, self._recorder.at) for node in avoided}
            self._recorder.emit(BlockNodes(avoided))

    def _decide(self, entry: BlockedNode, result: str) -> None:
        self._ends[entry.node] = entry.end
        self._recorder.decision(
            "blocklist",
            inputs=BlockedFor(node=entry.node, cause=entry.cause, start=entry.start, end=entry.end, times=entry.times),
            rule="MARK_BLOCKED",
            result=result,
        )

    def _decide_use(self, blocked: tuple[str, ...], is_all: bool, others: int) -> None:
        self._recorder.decision(
            "blocklist",
            inputs=BlockedAlone(blocked=list(blocked), others=others),
            rule="a blocked node is used when nothing else exists",
            result="used" if is_all else "avoided",
        )
