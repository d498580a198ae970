"""Broadcast or hash: decided from the real bytes of a join's build side, before anything of the probe side was made.

A broadcast join saves the exchange of the probe side; it costs memory for the build side, and time until each executor has read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from firesteel.humanize import format_bytes, plural
from firesteel.model import build_memory
from firesteel.model.absorbing import SIDES

HASH = "hash"
"""Both sides are exchanged by the hash of their keys."""
UNKNOWN_MEMORY = 256 << 20
"""A task's memory budget where nobody told it."""


@dataclass(frozen=True, slots=True)
class JoinSizes:
    """All that is known of a join when its build side has finished. Sizes are plain bytes."""

    how: str
    build: int
    """The input, 0 or 1, that would be given whole to every task."""
    build_bytes: int
    build_rows: int
    probe_bytes: int
    """Estimated: what the probe side's producer will read; 0: nobody knows."""
    readers: int
    """Tasks that would run at once, as far as can be said now: all of them wait until the build side is read, those that follow do not."""
    memory: int
    """Of one task, for its data."""
    held: tuple[int, ...] = ()
    """Memory of the build sides that the same tasks hold already."""
    is_hint: bool = False
    """The user wants it broadcast."""
    read_bytes: int = 0
    """Estimated: what the tasks that would join read of the probe side."""
    slots: int = 0
    """For these tasks; 0: nobody knows."""
    exchanged_again: bool = False
    """A step by the same key follows, which reads all that comes out: it would need an exchange of that, in place of the probe side's."""

    @property
    def build_memory(self) -> int:
        return build_memory.held_bytes(self.build_bytes, self.build_rows)

    @property
    def limit(self) -> int:
        """Most bytes of memory that the build side can take."""
        return max(build_memory.limit(self.memory) - sum(self.held), 0)

    def with_volume(self, volume: int) -> JoinSizes:
        """The same, with ``readers`` for so many bytes per task."""
        tasks = max(-(-self.read_bytes // volume), 1)
        return replace(self, readers=min(tasks, self.slots or tasks))

    @property
    def held_with_it(self) -> tuple[int, ...]:
        """``held`` once it is broadcast: one that cannot be held, but was asked for, is joined through local disk."""
        return (*self.held, self.build_memory) if self.build_memory <= self.limit else self.held

    def columns(self) -> dict[str, object]:
        """Returns the inputs of the decision's record, from which it can be made again."""
        return {
            "how": self.how,
            "build": SIDES[self.build],
            "build_bytes": self.build_bytes,
            "build_rows": self.build_rows,
            "probe_bytes": self.probe_bytes,
            "readers": self.readers,
            "memory": self.memory,
            "held": list(self.held),
            "hint": self.is_hint,
            "read_bytes": self.read_bytes,
            "slots": self.slots,
            "exchanged_again": self.exchanged_again,
        }

    @classmethod
    def of_columns(cls, told: Mapping[str, Any]) -> JoinSizes | None:
        """Of :meth:`columns`; None where there are none: the join was not decided from sizes."""
        if "build" not in told:
            return None
        names = ("build_bytes", "build_rows", "probe_bytes", "readers", "memory", "read_bytes", "slots")
        sizes: dict[str, int] = {name: int(told[name]) for name in names}
        held = tuple(int(size) for size in told["held"])
        again = bool(told.get("exchanged_again"))
        return cls(
            str(told["how"]),
            SIDES.index(told["build"]),
            **sizes,
            held=held,
            is_hint=bool(told["hint"]),
            exchanged_again=again,
        )


@dataclass(frozen=True, slots=True)
class JoinChoice:
    """``result``: "broadcast left", "broadcast right" or "hash"."""

    result: str
    rule: str
    reason: str

    @property
    def is_broadcast(self) -> bool:
        return self.result != HASH


def decide_join(sizes: JoinSizes) -> JoinChoice:
    """``hint``: as the user wants; ``next step``: nothing is saved; ``memory``: the build side cannot be held; else what is waited for against
    what is saved."""
    side, build = SIDES[sizes.build], format_bytes(sizes.build_bytes)
    broadcast = f"broadcast {side}"
    if sizes.is_hint:
        return JoinChoice(broadcast, "hint", f"broadcast, as was asked for: the {side} side has {build}")
    if sizes.exchanged_again:
        why = "what comes out would be exchanged by the same key for the next step, which needs no exchange as it is"
        return JoinChoice(HASH, "next step", f"hash: the {side} side has {build}, but {why}")
    if sizes.build_memory > sizes.limit:
        beside = f" beside {plural(len(sizes.held), 'other build side')}" if sizes.held else ""
        return JoinChoice(
            HASH,
            "memory",
            f"hash: the {side} side has {build}, with the index of its keys {format_bytes(sizes.build_memory)}, more than the "
            f"{format_bytes(sizes.limit)} that a task can hold{beside}",
        )
    read = sizes.readers * sizes.build_bytes
    tasks = plural(sizes.readers, "task")
    if read > max(sizes.probe_bytes, sizes.limit if not sizes.probe_bytes else 0):
        return JoinChoice(
            HASH,
            "bytes",
            f"hash: {tasks} at once would wait for {build} of the {side} side, {format_bytes(read)} in all, more than the "
            f"{format_bytes(sizes.probe_bytes)} whose exchange that saves",
        )
    return JoinChoice(
        broadcast,
        "bytes",
        f"broadcast: {build} of the {side} side are read once per executor, while {tasks} wait, in place of an exchange of "
        f"{_amount(sizes.probe_bytes)}",
    )


def _amount(probe_bytes: int) -> str:
    return f"about {format_bytes(probe_bytes)}" if probe_bytes else "the other side"
