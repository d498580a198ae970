"""The decisions for a job's recorded sizes under other options, beside the recorded ones.

Each vertex is decided again from the bytes that its inputs had in that run, and each join from those of its sides. So a change is
seen where it acts first; what it would do to the bytes of later steps (fewer partial aggregates, say) is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from firesteel.errors import FiresteelError, UsageError
from firesteel.humanize import format_bytes, format_count, plural
from firesteel.options import (
    ADAPTIVE_JOINS,
    DATA_VOLUME_PER_TASK,
    MAX_PARALLELISM,
    MEMORY_PER_TASK,
    MIN_PARALLELISM,
    Options,
)
from firesteel.report.decisions import reason_of, reason_of_plan
from firesteel.report.explain import find_vertex, labelled
from firesteel.report.fold import JobHistory
from firesteel.scheduler.joins.replay import JoinOptions, Redecided, Replay, replay_joins
from firesteel.scheduler.kernel.records import Decision, JournalRecord
from firesteel.scheduler.parallelism import VertexPlan, decide_vertex
from firesteel.scheduler.parallelism.asked import bounds_changed, parsed
from firesteel.scheduler.parallelism.replay import recalled

JOIN_OPTIONS = (ADAPTIVE_JOINS, MEMORY_PER_TASK)
"""Options that joins are decided by, beside those of the decider."""
_COLUMN = 34


@dataclass(frozen=True, slots=True)
class Outcome:
    """One way to decide a vertex. ``share``: smallest, median and largest plain bytes of a subtask; None: not known."""

    parallelism: int
    rule: str
    bounds: list[str]
    reason: str
    share: tuple[int, int, int] | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A decided vertex as it was, and as it would be; or ``why_not``: why that cannot be told."""

    vertex: int
    name: str
    was: Outcome
    would_be: Outcome | None
    why_not: str = ""


def compare(records: Sequence[JournalRecord], values: Mapping[str, Any]) -> list[Comparison]:
    """Of each vertex with inputs, by its last decision, in their order. ``values``: options of the decider and of joins by any of
    their names, and "parallelism". Raises UsageError for others."""
    replay = replay_joins(records, _join_options(_options(values)))
    last: dict[int, Decision] = {}
    for record in records:
        if isinstance(record, Decision) and record.what == "parallelism" and record.vertex is not None:
            last[record.vertex] = record
    return [_compared(last[vertex], values, replay) for vertex in sorted(last)]


def joins_again(records: Sequence[JournalRecord], values: Mapping[str, Any]) -> list[Redecided]:
    """Each join that was decided, as it was and as it would be, in the order of their decisions. Raises UsageError."""
    return replay_joins(records, _join_options(_options(values))).joins


def _options(values: Mapping[str, Any]) -> Options:
    """Raises UsageError."""
    options = parsed(values, JOIN_OPTIONS).options
    if options.is_set(MIN_PARALLELISM) and options.is_set(MAX_PARALLELISM):
        low, high = options[MIN_PARALLELISM], options[MAX_PARALLELISM]
        if low > high:  # wrong whatever the vertex
            raise UsageError(f"min-parallelism {low} and max-parallelism {high} leave no parallelism to choose.")
    return options


def _join_options(options: Options) -> JoinOptions:
    volume = options[DATA_VOLUME_PER_TASK] if options.is_set(DATA_VOLUME_PER_TASK) else None
    return JoinOptions(options[MEMORY_PER_TASK], volume, options[ADAPTIVE_JOINS])


def _compared(decision: Decision, values: Mapping[str, Any], replay: Replay) -> Comparison:
    vertex = -1 if decision.vertex is None else decision.vertex
    result: dict[str, Any] = decision.result if isinstance(decision.result, dict) else {}
    bare = Outcome(int(result.get("parallelism", 0)), decision.rule, decision.bounds, reason_of(decision), None)
    found = recalled(decision.inputs)
    if found is None:
        why = "the journal does not hold the sizes it was decided from"
        return Comparison(vertex, decision.name, bare, None, f"{why}: too many, not measured, or of an older Firesteel")
    inputs, bounds = found
    cut_again = decide_vertex(
        inputs, replace(bounds, fixed=bare.parallelism)
    )  # another Firesteel may have chosen otherwise
    was = replace(bare, share=_share_of(cut_again))
    if replay.has_moved(vertex):
        why = "as a join is done otherwise its tasks would do other work, and what they would read was not made in that run"
        return Comparison(vertex, decision.name, was, None, why)
    if bounds.fixed_rule == "forward group" or any(r.is_forward for r in inputs):
        return Comparison(vertex, decision.name, was, None, "it has the parallelism of its forward group")
    try:
        changed = bounds_changed(bounds, values, JOIN_OPTIONS)
        return Comparison(vertex, decision.name, was, _outcome(decide_vertex(inputs, changed)))
    except FiresteelError as error:
        return Comparison(vertex, decision.name, was, None, str(error))


def _outcome(plan: VertexPlan) -> Outcome:
    return Outcome(plan.parallelism, plan.rule, plan.bounds, reason_of_plan(plan.decision), _share_of(plan))


def _share_of(plan: VertexPlan) -> tuple[int, int, int] | None:
    sizes = plan.input_bytes
    return None if sizes is None else (int(sizes.min()), int(np.median(sizes)), int(sizes.max()))


def what_if(records: Sequence[JournalRecord], values: Mapping[str, Any], vertex: int | str | None = None) -> str:
    """Both ways side by side, of one vertex or of all that were decided from their inputs. Raises UsageError."""
    history = JobHistory(records)
    if history.started_at is None:
        raise UsageError("The journal is empty: the job has not written anything yet.")
    compared = {one.vertex: one for one in compare(records, values)}
    replay = replay_joins(records, _join_options(_options(values)))
    absorbed = {one.id: one for one in history.vertices.values() if one.absorbed_by is not None}
    chosen = sorted({*compared, *absorbed, *(join.vertex for join in replay.joins)})
    if vertex is not None:
        chosen = [one for one in chosen if one == find_vertex(history, vertex).id]
    title = f"{history.plan.job_name} (job {history.plan.job_id})" if history.plan else "A job"
    asked = ", ".join(f"{key} = {value}" for key, value in values.items())
    lines = [f"{title}, decided again from the bytes of that run, with {asked}."]
    if not chosen:
        return "\n".join([*lines, "Nothing was decided from the bytes of inputs: there is nothing to compare."])
    for number in chosen:
        told = history.vertex(number)
        lines += ["", f"[{number}] {told.name}"]
        lines += [line for join in replay.joins if join.vertex == number for line in _join_lines(join)]
        if number in compared:
            lines += _lines(compared[number])
            lines += [labelled("heavy keys", d.reason) for d in told.decisions if d.what == "heavy keys"]
        if number in absorbed:
            moved = (
                "in others, or in tasks of its own, of which it is not known how many"
                if replay.has_moved(number)
                else "the same"
            )
            lines += [labelled("was", f"{absorbed[number].subtasks_in_words()}."), labelled("what if", f"{moved}.")]
    return "\n".join(lines)


def _join_lines(join: Redecided) -> list[str]:
    was, would_be = join.was, join.would_be
    same = " (the same)" if would_be.result == was.result else ""
    of = "" if join.join == join.vertex else f" of [{join.join}]"
    return [
        labelled(f"join{of}", f"{was.result:<{_COLUMN}}{would_be.result}{same}"),
        labelled("was", reason_of(was)),
        labelled("what if", reason_of(would_be)),
    ]


def _lines(one: Comparison) -> list[str]:
    if one.would_be is None:
        return [labelled("was", one.was.reason), labelled("what if", f"not known: {one.why_not.rstrip('.')}.")]
    was, would_be = one.was, one.would_be
    rows = [
        ("", "as it was", "what if"),
        ("parallelism", format_count(was.parallelism), _changed(was.parallelism, would_be.parallelism)),
        ("rule", was.rule, would_be.rule),
        ("bytes each", _share(was.share), _share(would_be.share)),
    ]
    table = [labelled(label, f"{left:<{_COLUMN}}{right}".rstrip()) for label, left, right in rows]
    return [*table, labelled("was", was.reason), labelled("what if", would_be.reason)]


def _changed(was: int, would_be: int) -> str:
    if was == would_be:
        return f"{format_count(would_be)} (the same)"
    return (
        f"{format_count(would_be)} ({plural(abs(would_be - was), 'subtask')} {'more' if would_be > was else 'fewer'})"
    )


def _share(share: tuple[int, int, int] | None) -> str:
    """Smallest, median and largest."""
    return "not known" if share is None else " / ".join(format_bytes(size) for size in share)
