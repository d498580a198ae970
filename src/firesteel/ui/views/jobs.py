"""A job's own page: its graph with live numbers, decisions, failures, slots, options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from firesteel.report.history import Failure as FailureHistory
from firesteel.report.history import VertexHistory
from firesteel.report.slot_sharing import waiting_text
from firesteel.ui.folds.fold import JobFold
from firesteel.ui.views.decisions import decision_view
from firesteel.ui.views.options import options_of
from firesteel.ui.views.paging import paged
from firesteel.ui.views.ranges import decided
from firesteel.ui.views.rest import Pulse
from firesteel.ui.views.structs import (
    MOST_ITEMS,
    Edge,
    Failure,
    Job,
    JobSummary,
    Page,
    SlotGroup,
    VertexSummary,
)
from firesteel.ui.views.timeline import blocked
from firesteel.ui.views.vertices import failure_view, limit_bytes, peak_bytes, vertex_summary

MOST_DECISIONS = 100
MOST_FAILURES = 20
MOST_VERTICES_TOLD = 200


def job_view(fold: JobFold, summary: JobSummary, *, spark_url: str = "", may_cancel: bool = False) -> Job:
    history = fold.history
    vertices = vertex_summaries(fold)
    failures = failures_page(fold, limit=MOST_FAILURES)
    return Job(
        summary=summary,
        status=history.status,
        vertices=vertices,
        edges=edges(fold),
        progress=progress(vertices),
        open_vertices=sum(vertex.parallelism is None for vertex in vertices),
        waits_for_slots="" if fold.is_over else waiting_text(history.groups),
        decisions=[decision_view(decision, fold.zero) for decision in fold.decisions[-MOST_DECISIONS:]],
        decisions_total=len(fold.decisions),
        failures=failures.items,
        failures_total=failures.total,
        groups=[_group(fold, name) for name in sorted(history.groups)],
        options=options_of(history.plan.options, history.plan.origins) if history.plan else [],
        blocked=blocked(fold),
        mirrors=sum(vertex.mirrors for vertex in vertices),
        mirrors_won=sum(vertex.mirrors_won for vertex in vertices),
        seconds_left=seconds_left(vertices),
        spark_url=spark_url,
        may_cancel=may_cancel,
    )


def vertex_summaries(fold: JobFold) -> list[VertexSummary]:
    """By id."""
    return [vertex_summary(fold, fold.history.vertices[number]) for number in sorted(fold.history.vertices)]


def progress(vertices: Sequence[VertexSummary]) -> float | None:
    """Finished subtasks of those of the decided vertices; None: none is decided."""
    decided_ones = [vertex for vertex in vertices if vertex.parallelism is not None]
    total = sum(vertex.parallelism or 0 for vertex in decided_ones)
    if not decided_ones:
        return None
    return min(1.0, sum(vertex.finished for vertex in decided_ones) / total) if total else 1.0


def seconds_left(vertices: Sequence[VertexSummary]) -> float | None:
    """Known where every vertex that is not done runs, and it is known of each."""
    unfinished = [vertex for vertex in vertices if vertex.state != "done"]
    left = [vertex.seconds_left for vertex in unfinished]
    known = [each for each in left if each is not None]
    return max(known) if known and len(known) == len(unfinished) else None


def edges(fold: JobFold) -> list[Edge]:
    """By consumer and the order of its inputs. Where it is not known which data set is read, only from where to where it goes."""
    plan = fold.history.plan
    datasets = {int(each["id"]): each for each in (plan.datasets if plan else []) if "id" in each}
    return [
        edge
        for number in sorted(fold.history.vertices)
        for edge in _inputs(fold, fold.history.vertices[number], datasets)
    ]


def _inputs(fold: JobFold, vertex: VertexHistory, datasets: dict[int, dict[str, Any]]) -> Iterator[Edge]:
    sizes = _sizes_read(vertex)
    for producer in dict.fromkeys(vertex.inputs):
        history = fold.history.vertices.get(producer)
        if history is None:
            continue
        made = [number for number, each in datasets.items() if each.get("producer") == producer]
        read = [number for number in made if number in {*fold.reads(vertex.id), *sizes}] or (
            made if len(made) == 1 else []
        )
        known = [sizes[number] for number in read if number in sizes]
        whole = _number(history, "numBytesProduced") if len(made) == 1 else None
        yield Edge(
            producer=producer,
            consumer=vertex.id,
            ship=", ".join(dict.fromkeys(str(datasets[number].get("ship", "")) for number in read)),
            keys=[str(key) for key in datasets[read[0]].get("keys") or []] if len(read) == 1 else [],
            rows=_number(history, "numRecordsOut") if len(made) == 1 else None,
            bytes=sum(known) if known else whole,
        )


def _sizes_read(vertex: VertexHistory) -> dict[int, int]:
    """Data set to bytes, as the vertex was decided from."""
    decision = decided(vertex)
    inputs = decision.inputs if decision is not None and decision.what == "parallelism" else {}
    pairs = zip(inputs.get("datasets") or [], inputs.get("bytes") or [], strict=False)
    return {each: int(size) for each, size in pairs if isinstance(each, int)}


def _number(vertex: VertexHistory, name: str) -> int | None:
    found = vertex.metrics.get(name)
    return None if found is None else int(found)


def failures_page(fold: JobFold, *, offset: int = 0, limit: int = MOST_ITEMS) -> Page[Failure]:
    """The latest first."""
    found: list[tuple[VertexHistory, FailureHistory]] = [
        (vertex, failure) for vertex in fold.history.vertices.values() for failure in vertex.failures
    ]
    found.sort(key=lambda each: -each[1].at)
    return paged(found, offset, limit).map(lambda each: failure_view(fold, *each))


def _group(fold: JobFold, name: str) -> SlotGroup:
    group = fold.history.groups[name]
    members = [vertex for vertex in fold.history.vertices.values() if vertex.slot_sharing_group == name]
    return SlotGroup(
        name=name,
        needs=group.needs,
        vertices=sorted(vertex.id for vertex in members),
        asked=group.asked,
        held=group.held,
        most_asked=group.most_asked,
        most_held=max(group.most_held, _most_at_once(fold, members)),
        waited=group.waited,
        core_seconds=group.core_seconds,
        gib_seconds=group.gib_seconds,
        peak_bytes=peak_bytes(members),
        limit_bytes=limit_bytes(fold, group.profile),
    )


def _most_at_once(fold: JobFold, vertices: Sequence[VertexHistory]) -> int:
    """Of the executions that finished: launches are often told of only when all is over, so counting as records come shows fewer."""
    columns = [fold.executions[vertex.id] for vertex in vertices if vertex.id in fold.executions]
    done = [(each, each.won() & ~np.isnan(each.began)) for each in columns]
    began = np.concatenate([each.began[rows] for each, rows in done] or [np.zeros(0)])
    ended = np.concatenate([each.ended[rows] for each, rows in done] or [np.zeros(0)])
    if not len(began):
        return 0
    order = np.lexsort((np.repeat((1, 0), len(began)), np.concatenate((began, ended))))  # an end first, at one time
    return int(np.cumsum(np.repeat((1, -1), len(began))[order]).max())


def job_pulse(fold: JobFold, status: str) -> Pulse:
    """``status``: as in the job's summary."""
    vertices = vertex_summaries(fold)
    return Pulse(
        version=fold.version,
        status=status,
        seconds=fold.seconds,
        is_over=fold.is_over,
        progress=progress(vertices),
        vertices=vertices[:MOST_VERTICES_TOLD],
    )
