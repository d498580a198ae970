"""Sentences on what steps counted while they ran: calls of services, set-ups of functions, rows that functions could not do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.model.steps.reports import (
    CALL_MS,
    CALLS,
    CLOSE_ERRORS,
    CLOSED,
    ERRORS,
    FUNCTION_MS,
    GROUP_ROWS,
    HELD_MS,
    RETRIES,
    SET_UP_BYTES,
    SET_UP_MS,
    SET_UPS,
    WAITED_MS,
    failed,
)
from firesteel.report.history import VertexHistory

_MOST_SHOWN = 3
"""Rows that failed, of each step."""


def step_lines(vertex: VertexHistory) -> Iterator[tuple[str, str]]:
    """A label and what it says, of each step that counted anything."""
    for step, counts in sorted(vertex.steps.items()):
        if counts.get(CALLS):
            yield "calls", f"{_calls(step, counts)}."
        if counts.get(SET_UPS) or counts.get(SET_UP_BYTES):
            yield "set up", f"{_set_ups(step, counts)}."
        if counts.get(HELD_MS):
            yield "held", f"{_held(step, counts)}."
        if counts.get(ERRORS):
            yield "errors", "\n".join(_errors(vertex, step, counts))
        if counts.get(CLOSE_ERRORS):
            yield "errors", "\n".join(_close_errors(vertex, step, counts[CLOSE_ERRORS]))


def _calls(step: str, counts: dict[str, int]) -> str:
    mean = format_seconds(counts.get(CALL_MS, 0) / 1e3 / counts[CALLS])
    repeated = f", {format_count(counts[RETRIES])} of them repetitions" if counts.get(RETRIES) else ""
    waited = format_seconds(counts.get(WAITED_MS, 0) / 1e3)
    return f"{plural(counts[CALLS], 'call')} by {step}, {mean} each on average{repeated}; its subtasks waited {waited} for answers"


def _set_ups(step: str, counts: dict[str, int]) -> str:
    """``the function of score 2 times, 3.1 s each, which its cost leaves out; a worker keeps 1 GiB``."""
    times, seconds, held = counts.get(SET_UPS, 0), counts.get(SET_UP_MS, 0) / 1e3, counts.get(SET_UP_BYTES, 0)
    each = f"{format_seconds(seconds / times)} each" if times > 1 else format_seconds(seconds)
    told = (
        f"{plural(times, 'time')}, {each}, which its cost leaves out" if times else "by earlier subtasks of the workers"
    )
    whose = f"the function of {step}" if step else "functions of its steps"
    return f"{whose} {told}{f'; a worker keeps {format_bytes(held)}' if held else ''}"


def _held(step: str, counts: dict[str, int]) -> str:
    held, ran = counts[HELD_MS] / 1e3, counts.get(FUNCTION_MS, 0) / 1e3
    share = f"{format_seconds(ran)} ({100 * ran / held:.0f} %)"
    return f"external resources {format_seconds(held)} in all; the function of {step} ran {share} of that, and waited for rows, or for its own to be written"


def _errors(vertex: VertexHistory, step: str, counts: Mapping[str, int]) -> Iterator[str]:
    of = f", {plural(counts[GROUP_ROWS], 'row')} in all" if GROUP_ROWS in counts else ""
    yield f"{step} failed for {failed(counts[ERRORS], counts)}{of}."
    told = [one for one in _samples(vertex, step) if one[1] != CLOSED]
    for subtask, row, error in told[:_MOST_SHOWN]:
        yield f"{error} for {row} (subtask {subtask})."


def _close_errors(vertex: VertexHistory, step: str, count: int) -> Iterator[str]:
    yield f"close() of the function of {step} raised {plural(count, 'time')}, which fails no job."
    told = [one for one in _samples(vertex, step) if one[1] == CLOSED]
    for subtask, _, error in told[:_MOST_SHOWN]:
        yield f"{error} (told by the worker of subtask {subtask})."


def _samples(vertex: VertexHistory, step: str) -> list[tuple[int, str, str]]:
    """Subtask, row and error of each that is on record."""
    return [
        (record.subtask, *pair)
        for record in vertex.row_errors
        if record.step == step
        for pair in zip(record.rows, record.errors, strict=False)
    ]
