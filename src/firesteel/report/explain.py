"""Says in sentences what a job did and why, from its records alone: same records, same text; of each step also how it used its slots."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec.structs import replace

from firesteel.errors import UsageError
from firesteel.humanize import format_bytes, format_count, format_seconds, plural
from firesteel.journal.file import skipped
from firesteel.journal.scripts import QueryRecord
from firesteel.model.job_graph import ResultPartitionType
from firesteel.model.reports import (
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
from firesteel.options.registry import written
from firesteel.report.decisions import reason_of
from firesteel.report.executions import Attempt, BusySlots, Lives, Spans, sentences
from firesteel.report.fold import (
    Failure,
    JobFold,
    JobHistory,
    ScriptFold,
    VertexHistory,
    group_lines,
    is_parallelism,
    percent,
    produced,
    subtask_numbers,
    vertex_count,
    weighed,
)
from firesteel.scheduler.kernel.records import Decision, JournalRecord
from firesteel.scheduler.parallelism.replay import TAPERED


def waited(decision: Decision, history: JobHistory) -> str:
    """A decision "waiting", of a job that is over. Times since the job began."""
    waits: list[dict[str, Any]] = decision.inputs.get("waits") or []
    open_vertices = [each["vertex"] if each.get("subtasks", ()) is None else None for each in waits]
    numbers = dict.fromkeys(vertex for vertex in open_vertices if vertex is not None)
    began = history.started_at or 0.0
    sentences = zip(decision.result, open_vertices, strict=False) if waits else [(decision.reason, None)]
    told = " ".join(str(sentence) for sentence, vertex in sentences if vertex is None)
    when = f"At {format_seconds(decision.at - began)}, after a while without news"
    parts = [f"{when}: {told}" if told else f"{when}."]
    if numbers:
        outcomes = "; ".join(_outcome(history.vertex(number), began) for number in numbers)
        parts.append(f"Not decided by then: {outcomes}.")
    return " ".join(parts)


def _outcome(vertex: VertexHistory, began: float) -> str:
    """``[2], which got 11 subtasks at 5 min 52 s``."""
    if vertex.absorbed_by is not None:
        return f"[{vertex.id}], whose work was done {vertex.subtasks_in_words()}"
    if vertex.parallelism is None:
        return f"[{vertex.id}], which never was"
    at = [f" at {format_seconds(each.at - began)}" for each in vertex.decisions if is_parallelism(each)]
    return f"[{vertex.id}], which got {plural(vertex.parallelism, 'subtask')}{''.join(at[-1:])}"


_LABEL_WIDTH = 13
_SHORT = {
    "source parallelism": "source",
    "split assignment": "splits",
    "subpartitions": "pieces",
    "network memory": "network",
    "pipelined regions": "regions",
    "retired worker": "retired",
    "slot admission": "admission",
    "slot reservation": "slots kept",
    "slot request": "slots",
}
EVEN = 1.25
"""Ranges whose largest is at most so many times the average are called even."""
_MAX_FAILURES = 5
_MAX_SUBTASKS = 5
"""Of those with several attempts, so many are told of one by one."""
_MAX_REPEATED = 3
"""Of decisions of one kind about one vertex (releases, restarts), so many are written out."""


def explain(records: Iterable[JournalRecord], vertex: int | str | None = None, *, broken_off: bool = False) -> str:
    """The story of a job, or of one of its vertices given by id or name. ``broken_off``: whoever ran it is gone, so that a job
    which has not ended never will.

    Raises UsageError if there are no records, or no such vertex.
    """
    fold = begun(records)
    used = uses(fold)
    if vertex is not None:
        found = find_vertex(fold, vertex)
        return "\n".join(_vertex_lines(fold, found, used.get(found.id), broken_off=broken_off, alone=True))
    lines = list(_job_lines(fold, broken_off=broken_off))
    for number in sorted(fold.vertices):
        lines += ["", *_vertex_lines(fold, fold.vertices[number], used.get(number), broken_off=broken_off)]
    return "\n".join(lines)


def begun(records: Iterable[JournalRecord]) -> JobFold:
    """Folds all of a job's journal. Raises UsageError if there are no records."""
    fold = JobFold(records)
    if fold.started_at is None:
        raise UsageError("The journal is empty: the job has not written anything yet.")
    return fold


def find_vertex(history: JobHistory, wanted: int | str) -> VertexHistory:
    """By id, by whole name, or by a part of the name that only one vertex has. Raises UsageError."""
    text = str(wanted).strip()
    if text.isdigit() and int(text) in history.vertices:
        return history.vertices[int(text)]
    named = [v for v in history.vertices.values() if v.name == text]
    named = named or [v for v in history.vertices.values() if text and text.lower() in v.name.lower()]
    if len(named) == 1:
        return named[0]
    if named:
        raise UsageError(
            f"Several vertices are called like '{text}': {', '.join(f'{v.id} ({v.name})' for v in named)}.",
            hint="Give the id.",
        )
    names = {v.name.lower(): v for v in history.vertices.values()}
    close = difflib.get_close_matches(text.lower(), names, n=1, cutoff=0.5)
    known = ", ".join(f"{v.id} ({v.name})" for v in sorted(history.vertices.values(), key=lambda v: v.id))
    hint = f"Did you mean {names[close[0]].id} ({names[close[0]].name})?" if close else f"There are: {known}."
    raise UsageError(f"The job has no vertex '{text}'.", hint=hint)


def _job_lines(history: JobFold, *, broken_off: bool) -> Iterator[str]:
    plan = history.plan
    title = f"{plan.job_name} (job {plan.job_id})" if plan else "A job whose plan is not in the journal"
    standing = f"broken off while {history.status} (its process is gone)" if broken_off else f"still {history.status}"
    ended = history.status if history.is_over else standing
    yield f"{title}: {ended} after {format_seconds(history.seconds)}."
    if history.cause and history.status not in {"FINISHED", "RUNNING"}:
        yield labelled("cause", history.cause)
    if plan and plan.options:
        yield labelled("options", ", ".join(option_text(key, value) for key, value in sorted(plan.options.items())))
    total = sum(v.parallelism or 0 for v in history.vertices.values())
    open_vertices = sum(v.parallelism is None for v in history.vertices.values())
    is_over = history.is_over or broken_off
    undecided = f"; {vertex_count(open_vertices)} {_undecided(is_over)}" if open_vertices else ""
    yield labelled("size", f"{vertex_count(len(history.vertices))}, {plural(total, 'subtask')}{undecided}.")
    for name in sorted(history.groups):
        yield labelled("group", "\n".join(_group(history, name)))
    told = history.decisions
    if is_over:
        told = [replace(each, reason=waited(each, history)) if each.what == "waiting" else each for each in told]
    yield from _decision_lines(told)
    for line in blocked_lines(history):
        yield labelled("blocked", line)


def _undecided(is_over: bool) -> str:
    return "never decided" if is_over else "not decided yet"


def blocked_lines(history: JobHistory) -> list[str]:
    """Each node that was blocked: from when until when, and why. Times since the job began."""
    began = history.started_at or 0.0
    lines: list[str] = []
    for block in history.blocks:
        end = f"until {'' if block.is_over else 'at least '}{format_seconds(block.end - began)}"
        lines.append(f"node {block.node} from {format_seconds(block.start - began)} {end}: {block.cause.rstrip('.')}.")
    return lines


def _group(fold: JobFold, name: str) -> Iterator[str]:
    members = [v for v in fold.vertices.values() if v.slot_sharing_group == name]
    numbers = sorted(v.id for v in members)
    peak = max((v.peaks.largest[1] for v in members if v.peaks.by_subtask), default=0)
    return group_lines(fold.groups[name], numbers, fold.most_at_once(numbers), peak, fold.framework_memory)


def _vertex_lines(
    history: JobFold,
    vertex: VertexHistory,
    use: SlotUse | None,
    *,
    broken_off: bool,
    alone: bool = False,
) -> Iterator[str]:
    """``use``: of its slots; None: not known. ``alone``: nothing else is asked for, so that there is room for more about it."""
    decided = vertex.subtasks_in_words(_undecided(history.is_over or broken_off))
    after = (
        f", after {', '.join(f'[{producer}]' for producer in dict.fromkeys(vertex.inputs))}" if vertex.inputs else ""
    )
    yield f"[{vertex.id}] {vertex.name}: {decided}{after}"
    if group := history.group_of(vertex):
        yield labelled("slot", f"of {group.name}: {group.needs}.")
    yield from _decision_lines(replace(each, reason=reason_of(each, named=False)) for each in vertex.decisions)
    yield from (labelled("ranges", text) for text in map(ranges_text, vertex.decisions) if alone and text)
    rows, read, stored_bytes = (vertex.number(name) for name in ("numRecordsIn", "numBytesIn", "numBytesStored"))
    if rows or read:
        yield labelled("read", f"{weighed(rows, read)}.")
    if vertex.number("numRecordsOut") or vertex.number("numBytesProduced"):
        stored = f" ({format_bytes(stored_bytes)} stored)" if stored_bytes else ""
        yield labelled("produced", f"{produced(vertex)}{stored}.")
    yield from (labelled(*line) for line in step_lines(vertex))
    if vertex.seconds is not None:
        waiting, running, done = vertex.counts()
        unfinished = f"; {waiting} waiting, {running} running" if waiting or running else ""
        if unfinished and history.is_over:
            unfinished = f"; {waiting + running} did not finish"
        yield labelled("took", f"{format_seconds(vertex.seconds)}, {plural(done, 'subtask')} finished{unfinished}.")
    yield from _slot_lines(history.memory_text(vertex), use)
    if vertex.not_mirrored and history.is_speculative:
        yield labelled("mirrors", f"none are made: {vertex.not_mirrored}.")
    if vertex.mirrors or vertex.rejected:
        yield labelled("mirrors", f"{mirrored(vertex)}.")
    if vertex.attempts:
        yield labelled("attempts", "\n".join(_attempts(history, vertex)))
    for failure in vertex.failures[:_MAX_FAILURES]:
        yield labelled("failed", _failure(failure))
    if len(vertex.failures) > _MAX_FAILURES:
        yield labelled("failed", f"and {len(vertex.failures) - _MAX_FAILURES} more times.")


def _slot_lines(memory: str, use: SlotUse | None) -> Iterator[str]:
    """The time and the memory of its slots, as far as it is known."""
    if use is not None:
        yield labelled("used", f"{use.words()}.")
    if memory:
        yield labelled("memory", f"{memory}.")


def mirrored(vertex: VertexHistory) -> str:
    """``3 mirrors, 2 of them won; 1 execution was rejected by blocked nodes``."""
    parts: list[str] = []
    if vertex.mirrors:
        won = f"{vertex.effective} of them won"
        if len(vertex.mirrors) == 1:
            won = "which won" if vertex.effective else "which did not win"
        parts.append(f"{plural(len(vertex.mirrors), 'mirror')}, {won}")
    if vertex.rejected:
        were = "execution was" if vertex.rejected == 1 else "executions were"
        parts.append(f"{format_count(vertex.rejected)} {were} rejected by blocked nodes")
    return "; ".join(parts)


def _attempts(fold: JobFold, vertex: VertexHistory) -> Iterator[str]:
    most, many = max(vertex.attempts.values()), plural(len(vertex.attempts), "subtask")
    yield f"{many} needed more than one attempt (at most {most}): {subtask_numbers(list(vertex.attempts))}."
    found = fold.lives(vertex.id)
    for (_, subtask), attempts in list(found.items())[:_MAX_SUBTASKS]:
        for place, sentence in enumerate(sentences(attempts, fold.now, is_over=fold.is_over)):
            yield f"{f'subtask {subtask}: ' if not place else '    '}{sentence}."
    if len(found) > _MAX_SUBTASKS:
        yield f"'firesteel history' lists {len(found) - _MAX_SUBTASKS} more."


def _decision_lines(decisions: Iterable[Decision]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for decision in decisions:
        seen[decision.what] = seen.get(decision.what, 0) + 1
        if seen[decision.what] <= _MAX_REPEATED:
            yield labelled(_SHORT.get(decision.what, decision.what), _sentence(decision))
    for what, times in seen.items():
        if times > _MAX_REPEATED:
            yield labelled(_SHORT.get(what, what), f"and {format_count(times - _MAX_REPEATED)} more.")


def _sentence(decision: Decision) -> str:
    text = decision.reason.strip()  # which names the bounds, if any was hit
    if not text:
        bounded = f"; bounded by {', '.join(decision.bounds)}" if decision.bounds else ""
        text = f"{decision.result}{f' by {decision.rule}' if decision.rule else ''}{bounded}"
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else text + "."


def option_text(key: str, value: Any) -> str:
    """As one would write it. Journals of other versions may have options that are not known here."""
    return f"{key} = {written(key, value)[1]}"


def _failure(failure: Failure) -> str:
    several = "subtasks" if len(failure.subtasks) > 1 else "subtask"
    text = f"{several} {_who(failure)}: {failure.cause or 'cause not recorded'}"
    return text if text.endswith(".") else text + "."


def _who(failure: Failure) -> str:
    """``0-2, attempt 1``, or ``71 (attempt 1) and 82 (attempt 2)``."""
    by_attempt: dict[int, list[int]] = {}
    for subtask, attempt in zip(failure.subtasks, failure.attempts, strict=False):
        by_attempt.setdefault(attempt + 1, []).append(subtask)
    if len(by_attempt) == 1:
        return f"{subtask_numbers(failure.subtasks)}, attempt {next(iter(by_attempt))}"
    parts = [f"{subtask_numbers(subtasks)} (attempt {attempt})" for attempt, subtasks in sorted(by_attempt.items())]
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def labelled(label: str, text: str) -> str:
    """One line; further lines of the text are indented to it."""
    first, *rest = text.splitlines() or [""]
    indent = " " * (4 + _LABEL_WIDTH)
    return "\n".join([f"    {label:<{_LABEL_WIDTH - 1}} {first}", *(indent + line for line in rest)])


def ranges_text(decision: Decision) -> str:
    """Explains a vertex's ranges in a sentence, from the sizes that its decision was taken by.

    Empty: nothing was cut, or the sizes are not known.
    """
    result = decision.result
    if not isinstance(result, dict) or "largest" not in result or not decision.inputs.get("sizes"):
        return ""
    parallelism, largest = int(result["parallelism"]), int(result["largest"])
    sizes = _summed(decision.inputs["sizes"], decision.inputs.get("co_partitioned"))
    total = sum(sizes)
    if parallelism < 2 or not total or len(sizes) < 2:
        return ""
    heaviest, times = max(sizes), largest * parallelism / total
    spread = f"{plural(len(sizes), 'subpartition')}, {format_bytes(total / len(sizes))} on average and {format_bytes(heaviest)} at most"
    if result.get("divided"):
        even = f"{spread}, for {format_count(parallelism)} subtasks: the largest has {times:.2f} times the average."
        return f"{even} {_divided_text(result['divided'], total)}"
    pieces = f"{spread}, in {format_count(parallelism)} contiguous ranges"
    if decision.rule == TAPERED:
        return f"{pieces}: the first ones have {times:.1f} times the average, as those of later waves are smaller."
    if times <= EVEN:
        return f"{pieces}: the largest has {times:.2f} times the average."
    text = f"{pieces}: the largest has {times:.1f} times the average."
    if heaviest * EVEN >= largest:
        text += (
            f" It is one subpartition, with {100 * heaviest / total:.0f} % of all bytes: a key that has so many rows, or a few of "
            "them. Rows of a key stay together; aggregate before, or add a column to the key."
        )
    elif str(decision.inputs.get("cut")) == "by-count":
        text += " By count, each has equally many subpartitions, whatever they weigh; cut=by-bytes evens them out."
    return text


def _divided_text(divided: Sequence[Any], total: int) -> str:
    share = sum(int(size) for one in divided for size in one["bytes"]) / total
    some = "One of them" if len(divided) == 1 else "Some of them"
    return (
        f"{some}, with {100 * share:.0f} % of all bytes, {'is' if len(divided) == 1 else 'are'} divided: a key that has so many "
        "rows, or a few of them, which several subtasks share."
    )


def _summed(sizes: Sequence[Any], together: Sequence[Any] | None) -> list[int]:
    """Bytes per subpartition, of all inputs that are cut together; ``together``: which are (None: not known, all of them)."""
    chosen = sizes if together is None else [each for each, flag in zip(sizes, together, strict=False) if flag]
    lists = [each for each in chosen if isinstance(each, list)]
    length = max(map(len, lists), default=0)
    return [sum(int(each[n]) for each in lists if n < len(each)) for n in range(length)]


def attempts_report(
    records: Iterable[JournalRecord], vertex: int | str | None = None, *, all_of_them: bool = False
) -> str:
    """Of a job or one of its vertices, by id or name; ``all_of_them``: of subtasks with one attempt, too.

    Raises UsageError if there are no records, or no such vertex.
    """
    history = begun(records)
    chosen = None if vertex is None else find_vertex(history, vertex)
    found = history.lives(None if chosen is None else chosen.id, all_of_them=all_of_them)
    lines = [f"blocked  {line}" for line in blocked_lines(history)] if chosen is None else []
    for number in sorted({key[0] for key in found}):
        lines += [*([""] if lines else []), *_attempt_lines(history, history.vertices[number], found)]
    if lines:
        return "\n".join(lines)
    return "No subtask was begun." if all_of_them else "Every subtask had one attempt; --all prints them."


def _attempt_lines(history: JobHistory, vertex: VertexHistory, found: Lives) -> Iterator[str]:
    tried = f"{plural(len(vertex.attempts), 'subtask')} with several attempts" if vertex.attempts else ""
    group = history.group_of(vertex)
    slots = f"slots of {group.name} ({group.needs})" if group else ""
    parts = ", ".join(filter(None, [slots, tried, mirrored(vertex)]))
    yield f"[{vertex.id}] {vertex.name}{f': {parts}' if parts else ''}"
    began, now = history.started_at or 0.0, history.last_at or 0.0
    for (number, subtask), attempts in found.items():
        if number == vertex.id:
            for attempt, sentence in zip(attempts, sentences(attempts, now, is_over=history.is_over), strict=True):
                yield f"{_when(attempt, began):>10}  subtask {subtask}, {sentence}"


def _when(attempt: Attempt, began: float) -> str:
    """Returns the time of its launch by Spark since the job began; unknown if it ended before Spark told of its start."""
    if attempt.deployed is None:
        return "?" if attempt.state in {"FAILED", "FINISHED"} else "never"
    return format_seconds(max(0.0, attempt.deployed - began))


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


def explain_script(records: Iterable[JournalRecord], *, broken_off: bool = False) -> str:
    """Every query, in order. ``broken_off``: whoever ran the script is gone."""
    records = list(records)
    fold = ScriptFold(records)
    assert fold.plan is not None
    standing = fold.end.status if fold.end else "broken off" if broken_off else "still RUNNING"
    title = f"{fold.plan.name} (script {fold.id}): {standing} after {format_seconds(fold.elapsed)}."
    lines = query_lines(fold.queries, dry_run=fold.plan.dry_run)
    return "\n".join([title, *lines, *skipped(records)])


def query_lines(queries: Sequence[QueryRecord], *, dry_run: bool) -> list[str]:
    """The number of those taken over, and a line for each; of a dry run first what is left, the largest first."""
    taken, word = sum(not query.left for query in queries), "would take over" if dry_run else "took over"
    lines = [f"Firesteel {word} {taken} of {len(queries)} queries."]
    ranked = sorted(queries, key=lambda one: -one.bytes if one.left else 1) if dry_run else queries
    for query in ranked:
        job = f" (job {query.job})" if query.job else ""
        took = "" if dry_run else f", {format_seconds(query.seconds)}{job}"  # a dry run has only planned it
        size = f", reads {format_bytes(query.bytes)}" if query.bytes else ""
        who = f"Spark{size}: {'; '.join(query.left)}" if query.left else f"Firesteel{took}{_checked(query)}"
        lines.append(f"  {query.number}. {query.action} at {query.place or 'an unknown place'}: {who}")
    checks = Counter(query.check for query in queries if query.check)
    if checks:
        lines[0] += (
            f" Spark checked {checks['same'] + checks['differs']} of them: {checks['differs']} differ. {checks['skipped']} checks were skipped."
        )
    return lines


def _checked(query: QueryRecord) -> str:
    words = {"": "", "same": ", Spark gives the same", "differs": ", Spark gives another answer"}
    return words.get(query.check, f", not checked: {query.unchecked}")


_PIPELINED = ResultPartitionType.PIPELINED.value
_OVERLAP = 1.25
"""So many times the slots, and one, may seem to be busy: clocks differ, and one execution begins as the one before it ends."""
_SHOWN = 0.005
"""Shares below this are not worth words."""


@dataclass(frozen=True, slots=True)
class SlotUse:
    """Of ``slots`` for ``seconds``: shares of their time, from 0 to 1. ``used`` + ``others`` + the three idle ones are 1."""

    slots: int
    seconds: float
    """From the launch of the step's first execution to the end of its last one."""
    used: float
    """By the step's executions, those that failed among them."""
    others: float
    """By other steps meanwhile."""
    begin: float
    """Idle until as many were launched as have slots."""
    between: float
    """Idle later, while some were still to be launched."""
    end: float
    """Idle after the last launch."""

    def words(self) -> str:
        """``95 % of the time of 16 slots used in 1.1 s; idle: 1 % until all had begun, 3 % between subtasks, 1 % at the end``."""
        others = f", and {percent(self.others)} by other steps" if self.others >= _SHOWN else ""
        idle = [
            f"{percent(share)} {where}"
            for share, where in (
                (self.begin, "until all had begun"),
                (self.between, "between subtasks"),
                (self.end, "at the end"),
            )
            if share >= _SHOWN
        ]
        return (
            f"{percent(self.used)} of the time of {plural(self.slots, 'slot')} used in {format_seconds(self.seconds)}{others}"
            f"{'; idle: ' if idle else ''}{', '.join(idle)}"
        )


def uses(fold: JobFold) -> dict[int, SlotUse]:
    """Of the vertices of a job that are done, by number, each among those of its slot sharing group. Where tasks stream to each other, several
    executions have one slot: nothing is told then."""
    if fold.plan is None or any(dataset.get("type") == _PIPELINED for dataset in fold.plan.datasets):
        return {}
    spans = {number: each.spans() for number, each in fold.executions.items()}
    groups: dict[str, list[Spans]] = {}
    for number, each in spans.items():
        groups.setdefault(fold.vertex(number).slot_sharing_group, []).append(each)
    busy = {name: BusySlots(each) for name, each in groups.items()}
    found: dict[int, SlotUse] = {}
    for number, each in spans.items():
        vertex = fold.vertex(number)
        use = slot_use(each, busy[vertex.slot_sharing_group], known_slots(vertex)) if vertex.is_done else None
        if use is not None:
            found[number] = use
    return found


def slot_use(own: Spans, busy: BusySlots, slots: int) -> SlotUse | None:
    """``busy``: all executions that used these slots, the step's own among them. ``slots``: as many as were known of, 0: none; where clearly
    more were busy, as many as those. None: nothing was launched, or it took no time."""
    began, ended = own
    if not len(began):
        return None
    first, last = float(began.min()), float(ended.max())
    if last <= first:
        return None
    most = busy.most(first, last)
    if not slots or most > slots * _OVERLAP + 1:
        slots = most
    launches = np.sort(began)
    full, done = float(launches[min(slots, len(launches)) - 1]), float(launches[-1])
    whole = slots * (last - first)

    def idle(begin: float, end: float) -> float:
        return max(0.0, slots * (end - begin) - busy.between(begin, end)) / whole

    used = min(1.0, float((ended - began).sum()) / whole)
    others = max(0.0, busy.between(first, last) / whole - used)
    return SlotUse(slots, last - first, used, others, idle(first, full), idle(full, done), idle(done, last))


def known_slots(vertex: VertexHistory) -> int:
    """Slots that the vertex' decision on its parallelism saw; 0: none is on record."""
    inputs = vertex.decided.inputs if vertex.decided else {}
    allowed = inputs.get("allowed")
    slots = inputs.get("slots", allowed.get("slots") if isinstance(allowed, Mapping) else None)
    return slots if isinstance(slots, int) else 0
