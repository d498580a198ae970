"""Decisions as they are shown: the reason as a sentence, the numbers it came from without long lists."""

from __future__ import annotations

from typing import Any

from firesteel.humanize import format_count
from firesteel.report.history import is_parallelism
from firesteel.scheduler.kernel.records import Decision as DecisionRecord
from firesteel.ui.folds.fold import JobFold
from firesteel.ui.views import structs
from firesteel.ui.views.paging import paged
from firesteel.ui.views.structs import MOST_ITEMS, Page

LONGEST = 24
"""Numbers of a list, and items of a table, that are shown."""


def decision_view(record: DecisionRecord, zero: float) -> structs.Decision:
    return structs.Decision(
        at=record.at - zero,
        what=record.what,
        reason=reason_of(record),
        vertex=record.vertex,
        name=record.name,
        rule=record.rule,
        bounds=record.bounds,
        parallelism=_parallelism(record),
        inputs={name: shortened(value) for name, value in record.inputs.items()},
        result=shortened(record.result),
    )


def reason_of(record: DecisionRecord) -> str:
    """The reason; of one that has none its result."""
    text = record.reason.strip()
    if not text:
        rule = f" by {record.rule}" if record.rule else ""
        text = f"{shortened(record.result)}{rule}"
    return text[:1].upper() + text[1:]


def _parallelism(record: DecisionRecord) -> int | None:
    if not is_parallelism(record):
        return None
    found = record.result.get("parallelism") if isinstance(record.result, dict) else record.result
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def shortened(value: Any) -> Any:
    """Plain data as it is, but for lists, tables and texts that nobody would read: their length stands for them."""
    match value:
        case str():
            return value if len(value) <= 2000 else f"{format_count(len(value))} characters"
        case dict():
            items = list(value.items())
            short = {str(name): shortened(each) for name, each in items[:LONGEST]}
            return short if len(items) <= LONGEST else {**short, "...": f"{format_count(len(items) - LONGEST)} more"}
        case list() | tuple():
            if len(value) <= LONGEST:
                return [shortened(each) for each in value]
            kind = "numbers" if all(isinstance(each, int | float) for each in value) else "items"
            return f"{format_count(len(value))} {kind}"
        case int() | float() | bool() | None:
            return value
        case _:
            return str(value)


def decisions_page(
    fold: JobFold, *, what: str = "", vertex: int | None = None, offset: int = 0, limit: int = MOST_ITEMS
) -> Page[structs.Decision]:
    """In order. ``what``, ``vertex``: only these; empty and None: all."""
    chosen = [
        record for record in fold.decisions if what in ("", record.what) and (vertex is None or record.vertex == vertex)
    ]
    return paged(chosen, offset, limit).map(lambda record: decision_view(record, fold.zero))
