"""The bounds of one vertex' parallelism, from the options, from what the user set on the step, and from an earlier job that is gone on with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from msgspec import structs

from firesteel.errors import UsageError
from firesteel.model.job_graph import JobVertex
from firesteel.options import (
    CUT,
    DATA_VOLUME_PER_TASK,
    JOIN_SKEW,
    LEAST_VOLUME_PER_SLOT,
    MAX_PARALLELISM,
    MAX_SLICES_PER_SUBTASK,
    MIN_PARALLELISM,
    PARALLELISM_DEFAULT,
    TARGET_TASK_DURATION,
    Options,
)
from firesteel.scheduler.parallelism.model import BEFORE_RESUME, Bounds, Cut, Plan


def global_maximum(options: Options) -> tuple[int, str]:
    """The largest parallelism decided adaptively, and the short key it comes from.

    max-parallelism if set explicitly, else parallelism.default if set, else max-parallelism's default
    (Flink: AdaptiveBatchSchedulerFactory).
    """
    default = options[PARALLELISM_DEFAULT]
    if not options.is_set(MAX_PARALLELISM) and default is not None:
        return default, PARALLELISM_DEFAULT.key
    return options[MAX_PARALLELISM], "max-parallelism"


def bounds_for(vertex: JobVertex, options: Options, forward_group: int | None = None) -> Bounds:
    """Bounds for ``decide_vertex`` and ``decide_source``.

    ``forward_group``: the parallelism of the vertex' forward group, if decided. A parallelism the user set wins.
    Raises UsageError, naming both keys, when no parallelism is left to choose.
    """
    own_maximum = vertex.max_parallelism if vertex.max_parallelism > 0 else None
    fixed, rule = (vertex.parallelism, "fixed") if vertex.parallelism > 0 else (forward_group, "forward group")
    if fixed is not None and own_maximum is not None and fixed > own_maximum:
        raise UsageError(
            f"The step '{vertex.name}' has parallelism {fixed}, above its max parallelism {own_maximum}.",
            hint="Lower set_parallelism or raise set_max_parallelism.",
        )
    bounds = bounds_within(options, fixed, own_maximum=own_maximum, fixed_rule=rule)
    if fixed is None:
        bounds.interval()
    return bounds


def bounds_within(
    options: Options, fixed: int | None, *, own_maximum: int | None = None, fixed_rule: str = "fixed"
) -> Bounds:
    """Returns the bounds that the options set, for a step of this parallelism (None: to be decided) and maximum. Checks nothing."""
    maximum, maximum_key = global_maximum(options)
    cut: Cut = "by-count" if options[CUT] == "by-count" else "by-bytes"
    return Bounds(
        minimum=options[MIN_PARALLELISM],
        maximum=maximum,
        fixed=fixed,
        data_volume=options[DATA_VOLUME_PER_TASK],
        max_slices=options[MAX_SLICES_PER_SUBTASK],
        cut=cut,
        least_volume=options[LEAST_VOLUME_PER_SLOT],
        target_seconds=options[TARGET_TASK_DURATION],
        vertex_maximum=own_maximum,
        maximum_key=maximum_key,
        fixed_rule=fixed_rule if fixed is not None else "fixed",
        divides=options[JOIN_SKEW] == "auto",
        tapers=True,
    )


AnyPlan = TypeVar("AnyPlan", bound=Plan)


def decided_as_before(bounds: Bounds, decide: Callable[[Bounds], AnyPlan]) -> AnyPlan | None:
    """The plan that is decided freely, where that gives the parallelism of the earlier job: it was cut so, too. None where nothing
    was decided before, or it would be otherwise now (there are other slots), so that only the parallelism can be the same."""
    if bounds.fixed_rule != BEFORE_RESUME:
        return None
    plan = decide(replace(bounds, fixed=None, fixed_rule="fixed"))
    if plan.parallelism != bounds.fixed:
        return None
    return replace(plan, rule=BEFORE_RESUME, facts=structs.replace(plan.facts, before=plan.rule))
