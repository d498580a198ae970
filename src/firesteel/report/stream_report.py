"""Says what a stream did and why, from its records alone: ``explain`` in order, ``history`` as a table of its rescales."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.report.explain import labelled, option_text
from firesteel.report.fold import StreamFold
from firesteel.scheduler.kernel.records import Decision, JournalRecord
from firesteel.scheduler.streaming.records import RescaleRecord, StreamStateChange, TriggerCause, TriggerKind

MAX_TOLD = 200
"""Of a stream's decisions and changes of state, so many of the latest are written out."""
_STEPS = {
    "commit barrier": "commit barrier",
    "stop": "stop",
    "replay": "replay",
    "repartition": "rewrite state",
    "start": "start",
}


def explain_stream(records: Iterable[JournalRecord]) -> str:
    """The story of a stream. Raises UsageError if there are no records."""
    history = _history(records)
    lines = [_title(history), *_facts(history)]
    lines_told = list(_told(history))
    if lines_told:
        lines.append("")
    if len(lines_told) > MAX_TOLD:
        lines.append(f"{'...':>10}  {format_count(len(lines_told) - MAX_TOLD)} earlier lines: they are in the journal.")
    return "\n".join([*lines, *lines_told[-MAX_TOLD:]])


def stream_history(records: Iterable[JournalRecord]) -> str:
    """Every rescale of a stream: cause, numbers, trigger, waits, downtime, end. Raises UsageError if there are no records."""
    history = _history(records)
    if not history.rescales:
        return f"{_title(history)}\nNo rescale was asked for."
    rows = [_HEAD, *(_row(record, history.started_at or 0.0) for record in history.rescales)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = [_title(history), _aligned(_HEAD, widths)]
    for record, row in zip(history.rescales, rows[1:], strict=True):
        lines.append(_aligned(row, widths))
        lines += [f"{'':{widths[0] + 4}}{text}" for text in _why(record)]
    return "\n".join(lines)


def rescale_sentence(record: RescaleRecord) -> str:
    """``2 -> 8 partitions at checkpoint 17 (the slots changed from 8 to 32): completed, down 1.9 s, no row twice``."""
    text = f"{record.before} -> {_to(record)} partitions"
    if record.trigger:
        at = " at" if record.trigger_kind == TriggerKind.CHECKPOINT.name else ", set off by"
        text += f"{at} {record.trigger}"
    text += f" ({cause_of(record)}): {record.end or 'running'}"
    if record.downtime is not None:
        text += f", down {format_seconds(record.downtime)}, {_twice(record)}"
    return f"{text}: {record.reason.rstrip('.')}" if record.reason else text


def _history(records: Iterable[JournalRecord]) -> StreamFold:
    history = StreamFold(records, whole=True)
    if history.started_at is None:
        raise UsageError("The journal is empty: the stream has not written anything yet.")
    return history


def _title(history: StreamFold) -> str:
    plan = history.plan
    standing = history.end.status if history.end else f"still {history.state}"
    name = f"{plan.name} (stream {plan.stream_id})" if plan else "A stream whose plan is not in the journal"
    return f"{name}: {standing} after {format_seconds(history.elapsed)}."


def _facts(history: StreamFold) -> Iterator[str]:
    plan, batches = history.plan, history.totals
    if history.end is not None and history.end.cause:
        yield labelled("cause", history.end.cause)
    if plan:
        yield labelled("checkpoint", plan.checkpoint)
        if plan.options:
            yield labelled("options", ", ".join(option_text(key, value) for key, value in sorted(plan.options.items())))
        yield labelled("bounds", f"{plan.lower} to {plural(plan.upper, 'partition')} at its start.")
        if plan.slot_sharing_group:
            yield labelled("group", f"{plan.slot_sharing_group}.")
    if batches.last is None:
        yield labelled("batches", "none was committed.")
        return
    took = format_seconds(batches.seconds / batches.count)
    yield labelled(
        "size", f"{plural(batches.count, 'batch', 'es')}, {plural(batches.rows, 'row')}, {took} each on average."
    )
    yield labelled("partitions", f"{' -> '.join(_folded([level for _, level in history.levels]))}.")
    if batches.last.state_rows:
        state = f"{plural(batches.last.state_rows, 'row')}, {format_bytes(batches.last.state_bytes)}"
        yield labelled("state", f"{state} after batch {batches.last.batch}.")
    if history.rescales:
        done = sum(record.end == "completed" for record in history.rescales)
        twice = sum(record.replayed_rows for record in history.rescales)
        yield labelled(
            "rescales", f"{done} completed of {len(history.rescales)}; {plural(twice, 'row')} processed twice."
        )


def _folded(numbers: list[int], most: int = 12) -> list[str]:
    return ["..." if len(numbers) > most else "", *map(str, numbers[-most:])][len(numbers) <= most :]


def _told(history: StreamFold) -> Iterator[str]:
    """One line per thing that happened; the same thing many times over in one line."""
    again, last = 0, ""
    for record in history.story:
        text = _line(record)
        if text == last:
            again += 1
            continue
        if again:
            yield f"{'':>10}  {'':<12} the same {plural(again, 'more time')}."
        again, last = 0, text
        yield f"{format_seconds(max(0.0, record.at - (history.started_at or 0.0))):>10}  {text}"
    if again:
        yield f"{'':>10}  {'':<12} the same {plural(again, 'more time')}."


def _line(record: Decision | StreamStateChange | RescaleRecord) -> str:
    label, text = told(record)
    if isinstance(record, RescaleRecord):
        text += _steps(record)
    elif isinstance(record, StreamStateChange) and record.phase:
        label = "phase"
    first, *rest = text.rstrip().splitlines() or [""]
    return "\n".join([f"{label:<12} {first}", *(f"{'':25}{line}" for line in rest)])


def told(record: Decision | StreamStateChange | RescaleRecord) -> tuple[str, str]:
    """Returns a label of one or two words for a record, and a sentence."""
    match record:
        case RescaleRecord():
            return "rescaled" if record.end == "completed" else "no rescale", f"{rescale_sentence(record)}."
        case StreamStateChange():
            where = f"{record.state}, {record.phase}" if record.phase else record.state
            return "state", f"{where}{f': {record.cause}' if record.cause else ''}"
        case Decision():
            return record.what, record.reason or f"{record.result}"


def _steps(record: RescaleRecord) -> str:
    taken = [f"{_STEPS[name]} {format_seconds(record.steps[name])}" for name in _STEPS if name in record.steps]
    return f" It took: {', '.join(taken)}." if taken else ""


_HEAD = ("#", "ended at", "from -> to", "action", "trigger", "waited", "foreseen", "downtime", "rows twice", "end")


def _row(record: RescaleRecord, began: float) -> tuple[str, ...]:
    wait = record.steps.get("wait")
    return (
        str(record.rescale),
        format_seconds(max(0.0, record.at - began)),
        f"{record.before} -> {_to(record)}",
        record.action,
        record.trigger or "none",
        _seconds(wait),
        _seconds(record.predicted_downtime),
        _seconds(record.downtime),
        format_count(record.replayed_rows) if record.downtime is not None or record.replayed_rows else "",
        record.end,
    )


def _why(record: RescaleRecord) -> Iterator[str]:
    means = "" if record.desired else "; sufficient, though not all that is wanted" if record.sufficient else ""
    yield f"{cause_of(record)}{means}"
    if record.reason:
        yield f"{record.end}: {record.reason.rstrip('.')}"


def cause_of(record: RescaleRecord) -> str:
    """In words."""
    if record.what:
        return record.what.rstrip(".")
    return TriggerCause[record.cause].value if record.cause in TriggerCause.__members__ else record.cause


def _to(record: RescaleRecord) -> str:
    """Returns the parallelism reached, with the wanted one where that differs; the wanted one if the rescale came to nothing."""
    if record.end != "completed" or record.granted == record.requested:
        return str(record.requested)
    return f"{record.granted} (of {record.requested})"


def _twice(record: RescaleRecord) -> str:
    return f"{plural(record.replayed_rows, 'row')} twice" if record.replayed_rows else "no row twice"


def _seconds(value: float | None) -> str:
    return "" if value is None else format_seconds(value)


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(["", *(f"{text:<{width}}" for text, width in zip(row, widths, strict=True))]).rstrip()
