"""Clocks of time zones. Those of the engine are held to the JVM's own when a query first names a zone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from firesteel.engine.clocks import offsets_at
from firesteel.plan.expr import Unsupported
from firesteel.render.expressions.texts import once

_SECOND = 10**6
_DAY = 86400
_TODAY = 1735689600
"""An instant, in 2025, that a zone's clocks must agree on."""


@dataclass(frozen=True, slots=True)
class Zone:
    """``fixed``: the offset in seconds, where it is one. Else ``middle`` and ``factor`` bound the microseconds in which both know the
    same clocks, and ``back`` are the seconds by which they were ever set back there."""

    name: str
    fixed: int | None = None
    middle: int = 0
    factor: int = 1
    back: tuple[int, ...] = ()

    def local(self, instant: str) -> str:
        """A timestamp without a zone: what clocks show."""
        if self.fixed is not None:
            return f"make_timestamp(epoch_us({instant}){_plus(self.fixed)})"
        return f"timezone('{self.name}', make_timestamptz({self._known(f'epoch_us({instant})')}))"

    def instant(self, local: str) -> str:
        """Of two instants the earlier; what no clock showed is as much later as clocks were set forward."""
        if self.fixed is not None:
            return f"make_timestamptz(epoch_us({local}){_plus(-self.fixed)})"

        def earlier(local: str, found: str) -> str:
            whens = " ".join(
                f"WHEN timezone('{self.name}', {found} - to_seconds({back})) = {local} THEN {found} - to_seconds({back})"
                for back in self.back
            )
            return f"(CASE {whens} ELSE {found} END)" if whens else found

        def known(local: str) -> str:
            found = f"timezone('{self.name}', make_timestamp({self._known(f'epoch_us({local})')}))"
            return once(found, lambda found: earlier(local, found))

        return once(local, known)

    def shifted(self, instant: str, by: Callable[[str], str]) -> str:
        """The instant at which clocks show ``by`` of what they show; of two such instants the one with the same offset."""
        if self.fixed is not None:
            return self.instant(by(self.local(instant)))

        def chosen(new: str, kept: str) -> str:
            return f"(CASE WHEN {self.local(kept)} = {new} THEN {kept} ELSE {self.instant(new)} END)"

        def moved(instant: str, old: str, new: str) -> str:
            kept = f"make_timestamptz(epoch_us({instant}) + (epoch_us({new}) - epoch_us({old})))"
            return once(kept, lambda kept: chosen(new, kept))

        def of(instant: str) -> str:
            return once(self.local(instant), lambda old: once(by(old), lambda new: moved(instant, old, new)))

        return once(instant, of)

    def _known(self, microseconds: str) -> str:
        return f"fs_within({microseconds}, {self.middle}, {self.factor})"


def _plus(seconds: int) -> str:
    return f" + {seconds * _SECOND}" if seconds > 0 else f" - {-seconds * _SECOND}" if seconds else ""


_OFFSET = re.compile(r"([+-])(0\d|1[0-7]):([0-5]\d)")
_asked: list[Callable[[str], dict[str, Any]]] = []


def ask_for_zones(offsets_of: Callable[[str], dict[str, Any]]) -> None:
    """Sets who knows Spark's clocks in this process.

    ``offsets_of``: takes a zone, and gives its ``name``, whether it is ``fixed``, and ``offsets``: lists of (second, offset from then on in
    seconds). Raises Unsupported for a zone that it does not know.
    """
    _asked[:] = [offsets_of]


@cache
def zone_of(name: str | None) -> Zone:
    """Raises Unsupported for a zone whose clocks the engine does not know, or knows otherwise."""
    if not name:
        raise Unsupported("it depends on the session's time zone")
    if fixed := _OFFSET.fullmatch(name.replace("UTC", "+00:00")):
        sign, hours, minutes = fixed.groups()
        return Zone(name, int(f"{sign}{int(hours) * 3600 + int(minutes) * 60}"))
    if not _asked:
        raise Unsupported(f"the clocks of the zone {name} are not known without Spark")
    known = _asked[0](name)
    since, offsets = np.array(known["offsets"], dtype=np.int64).T
    if known["fixed"]:
        return Zone(known["name"], int(offsets[0]))
    begin, end = _alike(known["name"], since, offsets)
    half = (end - begin) // 2 * _SECOND
    changes = np.flatnonzero((since[1:] > begin) & (since[1:] < end))
    back = sorted({int(offsets[i] - offsets[i + 1]) for i in changes if offsets[i] > offsets[i + 1]}, reverse=True)
    return Zone(known["name"], None, (begin + end) // 2 * _SECOND, -(-(2**63) // half), tuple(back))


def _alike(name: str, since: np.ndarray, offsets: np.ndarray) -> tuple[int, int]:
    """The seconds around today between which the engine's clocks and the JVM's agree, before and after each change and daily."""
    days = np.arange(since[0], since[0] + 200 * 365 * _DAY, _DAY)
    instants = np.unique(np.concatenate([days, since, since[1:] - 1]))
    theirs = offsets[np.searchsorted(since, instants, side="right") - 1]
    try:
        wrong = offsets_at(name, instants) != theirs
    except (ValueError, ModuleNotFoundError) as error:
        raise Unsupported(str(error)) from error
    before, after = offsets[:-1], offsets[1:]
    midnight = -(-(since[1:] + before + 1) // _DAY) * _DAY  # Spark begins a day without midnight where clocks go on
    wrong |= np.isin(instants, since[1:][midnight < since[1:] + after])
    bad = instants[wrong]
    begin = max([int(since[0]), *(int(t) for t in bad if t <= _TODAY)])
    end = min([int(instants[-1]), *(int(t) for t in bad if t > _TODAY)])
    begin, end = begin + 2 * _DAY, end - 2 * _DAY
    if begin >= _TODAY or end <= _TODAY:
        raise Unsupported(f"the clocks of the zone {name} are not alike in Spark and the engine")
    return begin, end
