"""Pages of long lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from firesteel.ui.views.structs import MOST_ITEMS, Page

T = TypeVar("T")
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Cut(Generic[T]):
    """Some items of a list, not made yet."""

    chosen: Sequence[T]
    total: int
    offset: int
    limit: int

    def map(self, make: Callable[[T], Item]) -> Page[Item]:
        items = [make(each) for each in self.chosen]
        return Page(items=items, total=self.total, offset=self.offset, limit=self.limit)


def paged(items: Sequence[T], offset: int, limit: int) -> Cut[T]:
    """At most MOST_ITEMS from ``offset`` on."""
    offset, limit = max(0, offset), min(max(1, limit), MOST_ITEMS)
    return Cut(items[offset : offset + limit], len(items), offset, limit)


def page(items: Sequence[T], offset: int = 0, limit: int = MOST_ITEMS) -> Page[T]:
    return paged(items, offset, limit).map(lambda item: item)
