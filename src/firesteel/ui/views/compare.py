"""Two jobs side by side: vertices that do the same, options that differ, and in sentences why one took longer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.options import ADAPTIVE_JOINS, MEMORY_PER_TASK
from firesteel.options.jobs import DECIDER_OPTIONS
from firesteel.report.decisions import reason_of
from firesteel.report.fold import JobFold
from firesteel.simulation import what_if as again
from firesteel.ui.views.jobs import option_of, vertex_summaries
from firesteel.ui.views.structs import (
    ComparedOption,
    ComparedVertex,
    Comparison,
    JobSummary,
    Option,
    Outcome,
    VertexSummary,
    WhatIf,
    WhatIfJoin,
    WhatIfVertex,
)

MOST_NOTES = 10
_MUCH = 1.2
"""Numbers that differ by less than this factor are not told of."""


def comparison(left: JobFold, right: JobFold, summaries: tuple[JobSummary, JobSummary]) -> Comparison:
    pairs = _paired(left, right)
    vertices = [ComparedVertex(name=_name(a, b), left=a, right=b, seconds_more=_more(a, b)) for a, b in pairs]
    options = _options(left, right)
    notes = [note for _, note in sorted(_notes(left, right, vertices, options), key=lambda each: -each[0])]
    return Comparison(
        left=summaries[0], right=summaries[1], notes=notes[:MOST_NOTES], vertices=vertices, options=options
    )


_Pair = tuple[VertexSummary | None, VertexSummary | None]


def _paired(left: JobFold, right: JobFold) -> list[_Pair]:
    """By the identity of their steps where both journals tell it, else by name; of several alike in their order."""
    ones, others = vertex_summaries(left), vertex_summaries(right)
    steps = (_steps(left), _steps(right))
    free = list(ones)
    pairs: list[_Pair] = []
    for other in others:
        step = steps[1].get(other.id)
        match = next((one for one in free if step and steps[0].get(one.id) == step), None)
        match = match or next((one for one in free if one.name == other.name), None)
        if match is not None:
            free.remove(match)
        pairs.append((match, other))
    return [*pairs, *((one, None) for one in free)]


def _steps(fold: JobFold) -> Mapping[int, str]:
    return {number: str(each["step"]) for number, each in fold.described.items() if each.get("step")}


def _name(left: VertexSummary | None, right: VertexSummary | None) -> str:
    return right.name if right is not None else left.name if left is not None else ""


def _more(left: VertexSummary | None, right: VertexSummary | None) -> float | None:
    if left is None or right is None or left.seconds is None or right.seconds is None:
        return None
    return right.seconds - left.seconds


def _options(left: JobFold, right: JobFold) -> list[ComparedOption]:
    ones = left.plan.options if left.plan else {}
    others = right.plan.options if right.plan else {}
    return [
        ComparedOption(
            key=key,
            left=option_of(key, ones[key]).value if key in ones else "",
            right=option_of(key, others[key]).value if key in others else "",
        )
        for key in sorted({*ones, *others})
        if ones.get(key) != others.get(key)
    ]


def _notes(
    left: JobFold, right: JobFold, vertices: list[ComparedVertex], options: list[ComparedOption]
) -> Iterator[tuple[float, str]]:
    """Yields (how much it tells, a sentence). The total comes first, then the vertices by the seconds between them."""
    more = right.elapsed - left.elapsed
    yield float("inf"), _total(left.elapsed, right.elapsed)
    for vertex in vertices:
        yield from _vertex_notes(vertex, max(abs(more), 1e-9))
    restarts = [int(fold.metrics.get("numRestarts", 0)) for fold in (left, right)]
    if restarts[0] != restarts[1]:
        yield 0.9, f"It was restarted {plural(restarts[1], 'time')}, and the other one {plural(restarts[0], 'time')}."
    if options:
        told = ", ".join(f"{each.key} ({each.left or 'default'} → {each.right or 'default'})" for each in options[:5])
        yield 0.5, f"{plural(len(options), 'option')} differ{'s' if len(options) == 1 else ''}: {told}."


def _total(left: float, right: float) -> str:
    times = f"{format_seconds(right)}, the other one {format_seconds(left)}"
    if max(left, right) < _MUCH * max(min(left, right), 1e-9):
        return f"Both took about as long: {times}."
    return f"It took {'longer' if right > left else 'less time'}: {times}."


def _vertex_notes(vertex: ComparedVertex, difference: float) -> Iterator[tuple[float, str]]:
    left, right = vertex.left, vertex.right
    if left is None or right is None:
        alone = right or left
        seconds = alone.seconds if alone is not None else None
        which = "only in this one" if left is None else "only in the other one"
        took = f", where it took {format_seconds(seconds)}" if seconds is not None else ""
        yield (seconds or 0.0) / difference, f"'{vertex.name}' is {which}{took}."
        return
    more = vertex.seconds_more
    if more is None or not _differs(left.seconds, right.seconds):
        return
    reasons = list(_reasons(left, right))
    why = f": {', '.join(reasons)}" if reasons else ""
    word = "longer" if more > 0 else "less"
    yield abs(more) / difference, f"'{vertex.name}' took {format_seconds(abs(more))} {word}{why}."


def _reasons(left: VertexSummary, right: VertexSummary) -> Iterator[str]:
    if left.parallelism != right.parallelism and left.parallelism and right.parallelism:
        yield f"{plural(right.parallelism, 'subtask')}, it had {format_count(left.parallelism)}"
    if _differs(left.bytes_in, right.bytes_in):
        yield f"it read {format_bytes(right.bytes_in or 0)}, and {format_bytes(left.bytes_in or 0)} then"
    elif _differs(left.rows_in, right.rows_in):
        yield f"it read {plural(right.rows_in or 0, 'row')}, and {format_count(left.rows_in or 0)} then"
    if _differs(left.skew, right.skew):
        yield f"its largest range has {right.skew or 1:.1f} times the average, and had {left.skew or 1:.1f} times"
    if left.failures != right.failures:
        yield f"{plural(right.failures, 'attempt')} failed, and {format_count(left.failures)} then"
    if left.mirrors != right.mirrors:
        yield f"{plural(right.mirrors, 'mirror')}, and {format_count(left.mirrors)} then"


def _differs(left: float | None, right: float | None) -> bool:
    """By a factor that is worth telling; both are known."""
    if left is None or right is None:
        return False
    low, high = sorted((abs(left), abs(right)))
    return high >= _MUCH * low and high > 0


_CHOICES = (*DECIDER_OPTIONS, ADAPTIVE_JOINS, MEMORY_PER_TASK)


def what_if_view(fold: JobFold, summary: JobSummary, values: Mapping[str, str]) -> WhatIf:
    """``values``: options by any of their names; empty ones are left out. Raises UsageError for those that cannot be."""
    given = {key: value.strip() for key, value in values.items() if value.strip()}
    choices = _choices(fold)
    if not given:
        return WhatIf(job=summary, values={}, choices=choices, vertices=[], joins=[])
    vertices = [_vertex(each) for each in again.compare(fold.kept, given)]
    joins = [
        WhatIfJoin.of(
            join,
            was=join.was.result,
            would_be=join.would_be.result,
            was_reason=reason_of(join.was),
            would_be_reason=reason_of(join.would_be),
        )
        for join in again.joins_again(fold.kept, given)
    ]
    return WhatIf(job=summary, values=given, choices=choices, vertices=vertices, joins=joins)


def _choices(fold: JobFold) -> list[Option]:
    plan = fold.plan
    had = plan.options if plan else {}
    return [option_of(option.key, had.get(option.key, option.default)) for option in _CHOICES]


def _vertex(one: again.Comparison) -> WhatIfVertex:
    return WhatIfVertex.of(
        one, was=_outcome(one.was), would_be=None if one.would_be is None else _outcome(one.would_be)
    )


def _outcome(one: again.Outcome) -> Outcome:
    smallest, median, largest = one.share or (None, None, None)
    return Outcome.of(one, smallest=smallest, median=median, largest=largest)
