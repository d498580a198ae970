"""What a job, or a stream, waits for, in sentences."""

from __future__ import annotations

from collections.abc import Iterable

from firesteel.humanize import format_seconds, plural
from firesteel.model.job_graph import JobGraph
from firesteel.options import SLOT_REQUEST_TIMEOUT
from firesteel.scheduler.kernel.waits import (
    Attempt,
    ForBlockedNode,
    ForCancelled,
    ForDecision,
    ForExecutions,
    ForMerging,
    ForNothing,
    ForProducers,
    ForRestart,
    ForRoom,
    ForSinks,
    ForSizes,
    ForSlot,
    ForStart,
    ForWorker,
    InputWait,
    Narrowing,
    PutOff,
    Race,
    Running,
    VertexWait,
    Wait,
)
from firesteel.scheduler.streaming.waits import Awaited, StreamWait


def in_words(waits: Iterable[Wait], graph: JobGraph) -> list[str]:
    """A sentence for each. ``graph``: as it is now."""
    return [_sentence(wait, graph) for wait in waits]


def _sentence(wait: Wait, graph: JobGraph) -> str:
    match wait:
        case ForStart():
            text = "The job waits for its start."
        case ForSinks():
            text = "The job waits for its sinks to be published."
        case ForNothing():
            text = f"The job is {wait.status} and waits for nothing: this is a fault of Firesteel's."
        case ForRestart():
            text = f"Waiting for the delay of a restart: {plural(wait.subtasks, 'subtask')}."
        case ForBlockedNode():
            used = " It is used all the same: no other node is known." if wait.is_used else ""
            text = f"Node {wait.node} is blocked for another {format_seconds(wait.seconds)}: {wait.cause}.{used}"
        case ForMerging():
            text = f"The small objects of data set {wait.dataset} are being merged for {wait.seconds:.0f} s; its consumers wait for that."
        case ForWorker() | ForRoom():
            text = of_request(wait)
        case InputWait():
            how = "is not decided yet: it waits for"
            if wait.subtasks is not None:
                how = f"has {wait.subtasks} waiting for"
            text = f"{_vertex(wait.vertex, graph)} {how} {_input(wait, graph)}."
        case VertexWait():
            text = f"{_vertex(wait.vertex, graph)} {_of_vertex(wait, graph)}"
        case _:
            raise TypeError(wait)
    return text


def of_request(wait: ForWorker | ForRoom) -> str:
    who = wait.who[0].upper() + wait.who[1:]
    if isinstance(wait, ForWorker):
        left = f"The job gives up in {format_seconds(wait.seconds)} ({SLOT_REQUEST_TIMEOUT.key})."
        return f"{who} waits: there is {wait.none} {wait.asked} ({wait.there}). {left}"
    if wait.able == 1:
        able = f"1 worker could hold one, but it {'is on a blocked node' if wait.blocked else 'has no room now'}"
    else:
        why = "are on blocked nodes" if wait.blocked == wait.able else "have no room now"
        able = f"{wait.able} workers could hold some, but they {why}"
    held = "; ".join(f"job '{name}' holds {amount}" for name, amount in wait.held)
    missing = plural(wait.missing, "region" if wait.is_region else "slot")
    return f"{who} waits for {missing} of {wait.asked}: {able}{f', and there {held}' if held else ''}."


def _of_vertex(wait: VertexWait, graph: JobGraph) -> str:
    match wait:
        case PutOff():
            text = f"is put off until the {wait.side} side of {_name(wait.join, graph)} is there."
        case Narrowing():
            sides = ", ".join(f"the {side} side of [{join}]" for side, join in wait.sides)
            text = f"waits for the driver to find what it has to read: the keys of {sides} are being read."
        case ForExecutions():
            slot = " Spark has no executor." if wait.no_executor else ""
            text = f"has {_running(wait.running, 'with Spark for' if wait.queued else 'under way for')}.{slot}"
        case ForCancelled():
            text = f"has {'an earlier attempt of ' if wait.earlier else ''}{wait.subtasks} being cancelled."
        case ForSlot():
            text = f"has {'further attempts of ' if wait.joined else ''}{wait.subtasks} waiting for a slot."
        case Race():
            text = f"has several attempts of subtask {wait.subtask}: {'; '.join(map(_attempt, wait.attempts))}."
        case _:
            raise TypeError(wait)
    return text


def _input(wait: InputWait, graph: JobGraph) -> str:
    match wait:
        case ForProducers():
            how = f": {_running(wait.running, 'under way for')}" if wait.running is not None else ""
            count = f"{wait.missing} of {wait.producers} producers of result {wait.dataset}"
            text = f"{count} ({_name(wait.producer, graph)}){how}"
        case ForSizes():
            rows = plural(wait.producers, "producer")
            text = f"the sizes that {rows} of result {wait.dataset} reported: they are being read back"
        case _:
            why = "which has not started" if isinstance(wait, ForDecision) else "with which it runs at the same time"
            text = f"{_name(wait.producer, graph)}, {why}"
    return text


def _running(running: Running, how: str) -> str:
    longest = "" if running.subtasks.count == 1 else f", the longest is subtask {running.oldest}"
    node = f" on host {running.node}" if running.node else ""
    return f"{running.subtasks} {how} {running.seconds:.0f} s{longest}{node}"


def _attempt(attempt: Attempt) -> str:
    since = "queued" if attempt.seconds is None else f"for {attempt.seconds:.0f} s"
    on = f" on {attempt.node}" if attempt.node else ""
    return f"attempt {attempt.number + 1}{on} {since}{', a mirror' if attempt.is_mirror else ''}"


def _vertex(number: int, graph: JobGraph) -> str:
    name = _name(number, graph)
    return name[0].upper() + name[1:]


def _name(number: int, graph: JobGraph) -> str:
    return f"vertex {number} '{graph.vertices[number].name}'"


def of_stream(wait: StreamWait | None) -> str:
    """A sentence that follows "waits for"; empty: for nothing."""
    if wait is None:
        return ""
    aim = f"{plural(wait.partitions, 'partition')} instead of {wait.before}"
    first = wait.reason.splitlines()[0] if wait.reason else ""
    match wait.awaited:
        case Awaited.START:
            text = "the query to start"
        case Awaited.LAST_BATCH:
            text = "the running batch, then it stops"
        case Awaited.STOP:
            text = "the query to stop"
        case Awaited.RESTART:
            text = (
                f"a restart{_left(wait, 'in')} after: {first or 'a failure'}{'; then it stops' if wait.stops else ''}"
            )
        case Awaited.SLOTS:
            limit = "" if wait.seconds is None else f", for at most another {format_seconds(wait.seconds)}"
            few = f"slots: {wait.slots} there, {wait.needed} needed"
            text = f"{few if wait.slots < wait.needed else f'more slots: {wait.slots} are there and enough'}{limit}"
        case Awaited.RESCALE:
            text = aim + (f", step '{wait.step}'" if wait.step else "")
        case Awaited.NOTHING:
            text = f"nothing: {wait.reason}"
        case Awaited.NOTHING_POSSIBLE:
            text = f"nothing: {aim} is not possible: {wait.reason}"
        case Awaited.CONFIRMATION:
            text = f"your confirmation for {aim}: {wait.reason}"
        case Awaited.SUFFICIENT_SLOTS:
            text = f"more slots: {wait.reason}"
        case _:
            text = f"{_before_rescale(wait)}, then {aim}{f'; the last rescale failed: {first}' if first else ''}"
    return text


def _before_rescale(wait: StreamWait) -> str:
    match wait.awaited:
        case Awaited.CHECKPOINT:
            text = f"a checkpoint{_left(wait, 'at most another')}"
        case Awaited.DESIRED_SLOTS:
            text = f"more slots{_left(wait, 'at most another')}, then a checkpoint"
        case _:
            then = {
                Awaited.COOLDOWN_CHECKPOINT: ", then a checkpoint",
                Awaited.COOLDOWN_SLOTS: ", then a checkpoint once no more slots come",
            }
            text = f"the end of the cooldown{_left(wait, 'in')}{then.get(wait.awaited, '')}"
    return text


def _left(wait: StreamWait, word: str) -> str:
    return "" if wait.seconds is None else f" ({word} {format_seconds(wait.seconds)})"
