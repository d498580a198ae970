"""A job's own page, with its graph, decisions, failures, slots and options, and the page of a vertex."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from firesteel.humanize import format_count
from firesteel.options import format_value
from firesteel.options.registry import written
from firesteel.report.explain import uses
from firesteel.report.fold import MIB, JobFold, VertexHistory, parallelism_of, waiting_text, worker_limit
from firesteel.report.fold import Failure as FailureHistory
from firesteel.scheduler.kernel.records import Decision as DecisionRecord
from firesteel.ui.views.ranges import histogram, ranges, skew
from firesteel.ui.views.structs import (
    MOST_ITEMS,
    Decision,
    Edge,
    Failure,
    Job,
    JobSummary,
    Option,
    Page,
    Pulse,
    RowError,
    SlotGroup,
    Step,
    Vertex,
    VertexSummary,
    page,
)
from firesteel.ui.views.subtasks import Subtasks
from firesteel.ui.views.timeline import blocked

MOST_DECISIONS = 100
MOST_FAILURES = 20
MOST_VERTICES_TOLD = 200


def job_view(fold: JobFold, summary: JobSummary, *, spark_url: str = "", may_cancel: bool = False) -> Job:
    vertices = vertex_summaries(fold)
    failures = failures_page(fold, limit=MOST_FAILURES)
    return Job(
        summary=summary,
        status=fold.status,
        vertices=vertices,
        edges=edges(fold),
        progress=progress(vertices),
        open_vertices=sum(vertex.parallelism is None for vertex in vertices),
        waits_for_slots="" if fold.is_over else waiting_text(fold.groups),
        decisions=[decision_view(decision, fold.zero) for decision in fold.all_decisions[-MOST_DECISIONS:]],
        decisions_total=len(fold.all_decisions),
        failures=failures.items,
        failures_total=failures.total,
        groups=[_group(fold, name) for name in sorted(fold.groups)],
        options=options_of(fold.plan.options, fold.plan.origins) if fold.plan else [],
        blocked=blocked(fold),
        mirrors=sum(vertex.mirrors for vertex in vertices),
        mirrors_won=sum(vertex.mirrors_won for vertex in vertices),
        seconds_left=seconds_left(vertices),
        spark_url=spark_url,
        may_cancel=may_cancel,
    )


def vertex_summaries(fold: JobFold) -> list[VertexSummary]:
    """By id."""
    return [vertex_summary(fold, fold.vertices[number]) for number in sorted(fold.vertices)]


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
    plan = fold.plan
    datasets = {int(each["id"]): each for each in (plan.datasets if plan else []) if "id" in each}
    return [edge for number in sorted(fold.vertices) for edge in _inputs(fold, fold.vertices[number], datasets)]


def _inputs(fold: JobFold, vertex: VertexHistory, datasets: dict[int, dict[str, Any]]) -> Iterator[Edge]:
    sizes = _sizes_read(vertex)
    for producer in dict.fromkeys(vertex.inputs):
        history = fold.vertices.get(producer)
        if history is None:
            continue
        made = [number for number, each in datasets.items() if each.get("producer") == producer]
        read = [number for number in made if number in {*fold.reads(vertex.id), *sizes}] or (
            made if len(made) == 1 else []
        )
        known = [sizes[number] for number in read if number in sizes]
        whole = history.known("numBytesProduced") if len(made) == 1 else None
        yield Edge(
            producer=producer,
            consumer=vertex.id,
            ship=", ".join(dict.fromkeys(str(datasets[number].get("ship", "")) for number in read)),
            keys=[str(key) for key in datasets[read[0]].get("keys") or []] if len(read) == 1 else [],
            rows=history.known("numRecordsOut") if len(made) == 1 else None,
            bytes=sum(known) if known else whole,
        )


def _sizes_read(vertex: VertexHistory) -> dict[int, int]:
    """Data set to bytes, as the vertex was decided from."""
    decision = vertex.decided
    inputs = decision.inputs if decision is not None and decision.what == "parallelism" else {}
    pairs = zip(inputs.get("datasets") or [], inputs.get("bytes") or [], strict=False)
    return {each: int(size) for each, size in pairs if isinstance(each, int)}


def failures_page(fold: JobFold, *, offset: int = 0, limit: int = MOST_ITEMS) -> Page[Failure]:
    """The latest first."""
    found: list[tuple[VertexHistory, FailureHistory]] = [
        (vertex, failure) for vertex in fold.vertices.values() for failure in vertex.failures
    ]
    found.sort(key=lambda each: -each[1].at)
    return page(found, lambda each: failure_view(fold, *each), offset, limit)


def _group(fold: JobFold, name: str) -> SlotGroup:
    group = fold.groups[name]
    members = [vertex for vertex in fold.vertices.values() if vertex.slot_sharing_group == name]
    numbers = sorted(vertex.id for vertex in members)
    return SlotGroup.of(
        group,
        vertices=numbers,
        most_held=max(group.most_held, fold.most_at_once(numbers)),
        peak_bytes=peak_bytes(members),
        limit_bytes=worker_limit(group.profile, fold.framework_memory),
    )


def job_pulse(fold: JobFold, status: str) -> Pulse:
    """``status``: as in the job's summary."""
    vertices = vertex_summaries(fold)
    return Pulse(
        version=fold.version,
        status=status,
        seconds=fold.elapsed,
        is_over=fold.is_over,
        progress=progress(vertices),
        vertices=vertices[:MOST_VERTICES_TOLD],
    )


# --- one vertex ---

MOST_ROW_ERRORS = 20


def vertex_summary(fold: JobFold, vertex: VertexHistory) -> VertexSummary:
    decision = vertex.decided
    waiting, running, finished = vertex.counts()
    is_open = vertex.parallelism is None
    return VertexSummary.of(
        vertex,
        state=fold.state_of(vertex),
        bound=fold.bound(vertex) if is_open else None,
        rule=decision.rule if decision else "",
        reason=reason_of(decision) if decision else "",
        waiting=0 if is_open else waiting,
        running=running,
        finished=finished,
        failures=vertex.failed,
        mirrors=len(vertex.mirrors),
        mirrors_won=vertex.effective,
        rows_in=vertex.known("numRecordsIn"),
        rows_out=vertex.known("numRecordsOut"),
        bytes_in=vertex.known("numBytesIn"),
        bytes_out=vertex.known("numBytesProduced"),
        bytes_stored=vertex.known("numBytesStored"),
        skew=skew(decision),
        began=None if vertex.first_at is None else vertex.first_at - fold.zero,
        ended=vertex.last_at - fold.zero if vertex.is_done and vertex.last_at is not None else None,
        seconds=_seconds(fold, vertex),
        seconds_left=fold.seconds_left(vertex),
        is_sink=bool(fold.described.get(vertex.id, {}).get("sink")),
    )


def _seconds(fold: JobFold, vertex: VertexHistory) -> float | None:
    """Of one that runs until now."""
    if vertex.first_at is None or vertex.is_done or fold.is_over:
        return vertex.seconds
    return max(0.0, fold.now - vertex.first_at)


def vertex_view(fold: JobFold, summary: JobSummary, vertex: VertexHistory, edges: list[Edge]) -> Vertex:
    """``edges``: of the job."""
    subtasks = Subtasks(fold, vertex.id)
    latest = vertex.failures[: -MOST_FAILURES - 1 : -1]
    group = fold.group_of(vertex)
    use = uses(fold).get(vertex.id) if vertex.is_done else None
    return Vertex(
        job=summary,
        summary=vertex_summary(fold, vertex),
        inputs=[edge for edge in edges if edge.consumer == vertex.id],
        outputs=[edge for edge in edges if edge.producer == vertex.id],
        decisions=[decision_view(decision, fold.zero) for decision in vertex.decisions[-MOST_DECISIONS:]],
        decisions_total=len(vertex.decisions),
        ranges=ranges(vertex.decided),
        durations=histogram(*subtasks.durations()),
        stragglers=subtasks.stragglers(),
        nodes=subtasks.nodes(),
        failures=[failure_view(fold, vertex, failure) for failure in latest],
        steps=[Step(name=name, counts=counts) for name, counts in vertex.steps.items()],
        row_errors=list(_row_errors(vertex))[:MOST_ROW_ERRORS],
        slot=f"of {group.name}: {group.needs}" if group is not None and group.profile.is_specified else "",
        memory=fold.memory_text(vertex),
        slots_used=None if use is None else use.used,
        slots_text="" if use is None else use.words(),
        not_mirrored=vertex.not_mirrored if fold.is_speculative else "",
    )


def _row_errors(vertex: VertexHistory) -> Iterator[RowError]:
    for record in vertex.row_errors:
        for row, error in zip(record.rows, record.errors, strict=False):
            yield RowError(step=record.step, subtask=record.subtask, row=row, error=error)


def peak_bytes(vertices: list[VertexHistory]) -> int | None:
    """Most resident bytes of a worker of any of them; None: not watched."""
    peaks = [vertex.peaks.largest[1] for vertex in vertices if vertex.peaks.by_subtask]
    return max(peaks) * MIB if peaks else None


def failure_view(fold: JobFold, vertex: VertexHistory, failure: FailureHistory) -> Failure:
    executions = fold.executions.get(vertex.id)
    nodes: list[str] = []
    if executions is not None:
        pairs = zip(failure.subtasks, failure.attempts, strict=False)
        nodes = [executions.node_of(subtask, attempt) for subtask, attempt in pairs]
    headline = failure.cause.strip().split("\n", 1)[0]
    several = f"{format_count(len(failure.subtasks))} attempts failed" if len(failure.subtasks) > 1 else "it failed"
    return Failure.of(
        failure,
        at=failure.at - fold.zero,
        vertex=vertex.id,
        name=vertex.name,
        nodes=nodes,
        headline=headline or f"{several}; the cause was not recorded",
        text=failure.cause.strip(),
    )


# --- decisions ---

LONGEST = 24
"""Numbers of a list, and items of a table, that are shown."""


def decision_view(record: DecisionRecord, zero: float) -> Decision:
    return Decision.of(
        record,
        at=record.at - zero,
        reason=reason_of(record),
        parallelism=parallelism_of(record),
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
) -> Page[Decision]:
    """In order. ``what``, ``vertex``: only these; empty and None: all."""
    chosen = [
        record
        for record in fold.all_decisions
        if what in ("", record.what) and (vertex is None or record.vertex == vertex)
    ]
    return page(chosen, lambda record: decision_view(record, fold.zero), offset, limit)


# --- options ---


def options_of(values: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> list[Option]:
    """The options that a journal's plan holds, by key. ``origins``: where each came from, as far as that is known."""
    return [option_of(key, values[key], (origins or {}).get(key, "")) for key in sorted(values)]


def option_of(key: str, value: Any, origin: str = "") -> Option:
    """One that this version does not know, or whose value it cannot read, is shown as it is."""
    option, text = written(key, value)
    if option is None:
        return Option(key=key, value=text, origin=origin)
    default = format_value(option, option.default)
    return Option(key=key, value=text, default=default, doc=option.doc, origin=origin)
