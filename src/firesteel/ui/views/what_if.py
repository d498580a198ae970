"""A job's decisions with other options, from the bytes of that run, beside the real ones."""

from __future__ import annotations

from collections.abc import Mapping

from firesteel.options import ADAPTIVE_JOINS, MEMORY_PER_TASK
from firesteel.options.jobs import DECIDER_OPTIONS
<<<<<<< HEAD
from firesteel.simulation import what_if as again
from firesteel.ui.folds.fold import JobFold
=======
from firesteel.report.fold import JobFold
>>>>>>> 2da263d6 (Read a job's journal by one fold)
from firesteel.ui.views.jobs import option_of
from firesteel.ui.views.structs import JobSummary, Option, Outcome, WhatIf, WhatIfJoin, WhatIfVertex

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
            was_reason=join.was.reason,
            would_be_reason=join.would_be.reason,
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
