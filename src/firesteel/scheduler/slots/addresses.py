"""The addresses of a worker's external resources ("0" and "1" of its two GPUs), where the slot pool hands them out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from firesteel.model.arrays import Ints

_WHOLE = 1_000_000
Held = dict[tuple[str, tuple[str, ...]], Ints]
"""By resource and its addresses: units of each."""
Taken = list[tuple[int, int, int]]
"""The addresses that a slot holds: resource, place of the address, units of it."""


class Addresses:
    """Of one worker. A part of a resource is a part of one address; from one on, whole addresses are taken."""

    def __init__(self, place: Callable[[str], int], addresses: Mapping[str, tuple[str, ...]]) -> None:
        """``place``: of a resource's name in a row of needs."""
        self._names = {place(name): name for name in addresses}
        self._addresses = {place(name): held for name, held in addresses.items()}
        self._free = {place(name): np.full(len(held), _WHOLE, np.int64) for name, held in addresses.items()}
        self._others = {k: np.zeros_like(free) for k, free in self._free.items()}
        """Held by other jobs of the session; not free."""

    @property
    def held(self) -> Held:
        """By the job's own slots."""
        return {(self._names[k], self._addresses[k]): _WHOLE - free - self._others[k] for k, free in self._free.items()}

    def share_with(self, others: Held) -> None:
        """``others``: what other jobs hold from now on."""
        for k, free in self._free.items():
            now = others.get((self._names[k], self._addresses[k]), np.zeros_like(free))
            np.add(free, self._others[k] - now, out=free)
            self._others[k] = now

    def room(self, need: Ints) -> int:
        """Returns the number of slots of this need that the free addresses suffice for."""
        return min((_fits(free, int(need[k])) for k, free in self._free.items() if need[k]), default=1 << 60)

    def most(self, need: Ints) -> int:
        """Returns the number of such slots when nothing is taken."""
        return min(
            (_fits(np.full_like(free, _WHOLE), int(need[k])) for k, free in self._free.items() if need[k]),
            default=1 << 60,
        )

    def take(self, need: Ints) -> tuple[Taken, dict[str, tuple[str, ...]]]:
        """For one slot that fits. Of those with room the fullest, so that others stay whole."""
        taken: Taken = []
        told: dict[str, tuple[str, ...]] = {}
        for k, free in self._free.items():
            amount = int(need[k])
            if not amount:
                continue
            each = min(amount, _WHOLE)
            able = np.flatnonzero(free >= each)
            chosen = able[np.argsort(free[able], kind="stable")][: _pieces(amount)]
            free[chosen] -= each
            taken += [(k, place, each) for place in chosen.tolist()]
            told[self._names[k]] = tuple(self._addresses[k][place] for place in np.sort(chosen).tolist())
        return taken, told

    def give(self, taken: Taken) -> None:
        for k, place, amount in taken:
            self._free[k][place] += amount

    def is_sound(self) -> bool:
        return all(bool(((free >= 0) & (free <= _WHOLE)).all()) for free in self._free.values())


def _pieces(amount: int) -> int:
    """Addresses that so much is spread over."""
    return -(-amount // _WHOLE)


def _fits(free: Ints, amount: int) -> int:
    if amount < _WHOLE:
        return int((free // amount).sum())
    return int((free == _WHOLE).sum()) // _pieces(amount)
