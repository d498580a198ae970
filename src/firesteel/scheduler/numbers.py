"""Sets of numbers (subtasks, partitions, regions) as ascending arrays.

``np.unique`` and what is built on it hash: fifty times slower on such numbers than to sort them, most of which are
sorted already.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firesteel.scheduler.events import Ints


def distinct(numbers: Ints) -> Ints:
    """Ascending, each once."""
    if is_ascending(numbers):
        return numbers
    ordered = np.sort(numbers)
    first = np.ones(len(ordered), np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def union(sets: Sequence[Ints]) -> Ints:
    """What is in any of these (at least one) sets."""
    return sets[0] if len(sets) == 1 else distinct(np.concatenate(sets))


def without(numbers: Ints, others: Ints) -> Ints:
    """Those numbers of one set that are not in the other."""
    if not len(others):
        return numbers
    places = np.searchsorted(others, numbers)
    places[places == len(others)] = 0
    return numbers[others[places] != numbers]


def is_ascending(numbers: Ints) -> bool:
    """Each greater than the one before."""
    return bool((numbers[1:] > numbers[:-1]).all())
