"""A stream: where its scheduler is, its parallelism and backlog over time, every rescale."""

from __future__ import annotations

from firesteel.humanize import format_count, format_seconds, plural
from firesteel.ui.drawing.canvas import Caption, Span
from firesteel.ui.drawing.lines import Line, Mark, lines
from firesteel.ui.pages.source import Asked
from firesteel.ui.pages.templates import render
from firesteel.ui.views.structs import Rescale, Stream

MOST_BATCHES = 50
"""Rows of the table, the latest."""


def stream_page(stream: Stream, asked: Asked) -> str:
    end = max(
        stream.summary.seconds or 0.0,
        *(batch.at for batch in stream.batches),
        *(level.at for level in stream.levels),
        1e-3,
    )
    span = Span(0.0, end)
    return render(
        "stream.html", asked, job=stream, stream=stream, summary=stream.summary, tab="", parallelism=_parallelism(stream, span),
        backlog=_backlog(stream, span), durations=_durations(stream, span), batches=stream.batches[-MOST_BATCHES:][::-1],
    )  # fmt: skip


def _parallelism(stream: Stream, span: Span) -> str:
    points = _levels(stream)
    marks = [_mark(rescale) for rescale in reversed(stream.rescales) if rescale.end in ("completed", "failed")]
    most = int(max((value for _, value in points), default=0))
    said = f"{plural(stream.rescales_total, 'rescale')}; at most {plural(most, 'partition')}."
    return lines(
        Caption("parallelism", "Parallelism over time", said),
        [Line("partitions", points)],
        span,
        plural(most, "partition"),
        marks,
    )


def _levels(stream: Stream) -> list[tuple[float, float]]:
    """As batches tell it, and rescales after the last of them."""
    done = [rescale for rescale in reversed(stream.rescales) if rescale.end == "completed"]
    known = [(level.at, float(level.parallelism)) for level in stream.levels]
    known = known or [(0.0, float(rescale.before)) for rescale in done[:1]]
    last = max([batch.at for batch in stream.batches] + [at for at, _ in known], default=0.0)
    return known + [(rescale.at, float(rescale.granted)) for rescale in done if rescale.at > last]


def _mark(rescale: Rescale) -> Mark:
    """From where it was set off to its end."""
    took = sum(phase.seconds for phase in rescale.phases if phase.name != "wait")
    kind = "good" if rescale.end == "completed" else "bad"
    return Mark(
        max(0.0, rescale.at - took), f"{rescale.before}→{rescale.granted}", rescale.sentence, kind, until=rescale.at
    )


def _backlog(stream: Stream, span: Span) -> str:
    points = [(batch.at, float(batch.backlog)) for batch in stream.batches if batch.backlog is not None]
    most = int(max((value for _, value in points), default=0))
    return lines(
        Caption("backlog", "Backlog over time", f"At most {plural(most, 'row')} waited."),
        [Line("backlog", points, "area")],
        span,
        plural(most, "row"),
    )


def _durations(stream: Stream, span: Span) -> str:
    """Mean seconds of a batch."""
    points = [(batch.at, batch.seconds / max(1, batch.count)) for batch in stream.batches]
    most = max((value for _, value in points), default=0.0)
    said = f"{format_count(stream.batches_total)} batches, at most {format_seconds(most)} each."
    return lines(
        Caption("batches", "Seconds of a batch over time", said),
        [Line("seconds", points, "area")],
        span,
        format_seconds(most),
    )
