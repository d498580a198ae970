"""A stream's own page, and an accelerated script's."""

from __future__ import annotations

from firesteel.report.fold import MOST_POINTS, ScriptFold, StreamFold, thinned
from firesteel.report.stream_report import cause_of, rescale_sentence, told
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.streaming.records import RescaleRecord, StreamBatch, StreamStateChange, StreamStatus
from firesteel.ui.views.jobs import options_of
from firesteel.ui.views.structs import (
    MOST_ITEMS,
    Batch,
    Event,
    JobSummary,
    Level,
    Page,
    Phase,
    Pulse,
    Query,
    Rescale,
    Script,
    Stream,
    page,
)

MOST_RESCALES = 100
MOST_STORY = 200
_PHASES = ("wait", "commit barrier", "stop", "replay", "repartition", "start", "first batch")


def stream_view(
    fold: StreamFold,
    summary: JobSummary,
    status: StreamStatus | None = None,
    *,
    spark_url: str = "",
    may_change: bool = False,
) -> Stream:
    """``status``: of one that can be asked."""
    plan, totals = fold.plan, fold.totals
    batches = fold.batches
    while len(batches) > MOST_POINTS:
        batches = thinned(batches)
    rescales = rescales_page(fold, limit=MOST_RESCALES)
    return Stream(
        summary=summary,
        state=status.state if status else fold.state,
        phase=status.phase if status else fold.phase,
        parallelism=status.parallelism if status else totals.last.parallelism if totals.last else None,
        lower=status.lower if status else plan.lower if plan else None,
        upper=status.upper if status else plan.upper if plan else None,
        checkpoint=plan.checkpoint if plan else "",
        batches=[_batch(batch, fold.zero) for batch in batches],
        batches_total=totals.count,
        rows=totals.rows,
        mean_seconds=totals.seconds / totals.count if totals.count else None,
        levels=[Level(at=at - fold.zero, parallelism=parallelism) for at, parallelism in fold.levels],
        rescales=rescales.items,
        rescales_total=fold.num_rescales,
        story=[_event(record, fold.zero) for record in list(fold.story)[-MOST_STORY:]],
        story_total=fold.num_story,
        options=options_of(plan.options, plan.origins) if plan else [],
        waits_for=status.waits_for if status else "",
        wanted=status.wanted if status else None,
        slots=status.slots if status else None,
        slot_sharing_group=(status.slot_sharing_group if status else "") or (plan.slot_sharing_group if plan else ""),
        spark_url=spark_url,
        may_change=may_change,
    )


def _batch(record: StreamBatch, zero: float) -> Batch:
    return Batch.of(record, at=record.at - zero, seconds=record.duration, count=record.batches)


def rescales_page(fold: StreamFold, *, offset: int = 0, limit: int = MOST_ITEMS) -> Page[Rescale]:
    """The latest first; those that are kept."""
    return page(list(reversed(fold.rescales)), lambda record: rescale_view(record, fold.zero), offset, limit)


def rescale_view(record: RescaleRecord, zero: float) -> Rescale:
    known = [Phase(name=name, seconds=record.steps[name]) for name in _PHASES if name in record.steps]
    others = [Phase(name=name, seconds=each) for name, each in record.steps.items() if name not in _PHASES]
    return Rescale.of(
        record,
        number=record.rescale,
        at=record.at - zero,
        sentence=rescale_sentence(record),
        cause=cause_of(record),
        phases=[*known, *others],
    )


def _event(record: Decision | StreamStateChange | RescaleRecord, zero: float) -> Event:
    kind, text = told(record)
    return Event(at=record.at - zero, kind=kind, text=text)


def stream_pulse(fold: StreamFold, status: str) -> Pulse:
    """``status``: as in the stream's summary."""
    last = fold.totals.last
    return Pulse(
        version=fold.version,
        status=status,
        seconds=fold.elapsed,
        is_over=fold.is_over,
        parallelism=last.parallelism if last else None,
        state=f"{fold.state}, {fold.phase}" if fold.phase else fold.state,
        batches=fold.totals.count,
    )


def script_view(fold: ScriptFold, summary: JobSummary) -> Script:
    queries = [Query.of(query) for query in fold.queries]
    return Script(summary=summary, is_dry_run=bool(fold.plan and fold.plan.dry_run), queries=queries)
