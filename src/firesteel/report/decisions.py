"""Why it was decided so, in sentences, of decisions whose inputs are facts."""

from __future__ import annotations

from typing import Any

import msgspec

from firesteel.humanize import first_of, format_seconds, plural
from firesteel.report.waits import of_request
from firesteel.scheduler.kernel.decisions import (
    AnyFacts,
    BlockedUse,
    Failed,
    GoesOn,
    KeptSubtasks,
    MetRetiredWorker,
    OnBlockedNode,
    Outcome,
    RejectedOften,
    Slow,
    Told,
    Won,
)
from firesteel.scheduler.kernel.records import Decision, JournalRecord
from firesteel.scheduler.kernel.waits import ForRoom, ForWorker, Subtasks

_BLOCKED_USE = {
    BlockedUse.REJECTED_OFTEN: "it was rejected too often",
    BlockedUse.BEGAN_BEFORE: "it began before it could know",
    BlockedUse.NO_OTHER: "no other node is known",
}


def with_reason(record: JournalRecord) -> JournalRecord:
    """The record as it is written down."""
    if isinstance(record, Decision) and not record.reason and "type" in record.inputs:
        return msgspec.structs.replace(record, reason=reason_of(record))
    return record


def reason_of(decision: Decision, *, named: bool = True) -> str:
    """``named``: with the name of the step."""
    try:
        facts = msgspec.convert(decision.inputs, AnyFacts)
    except msgspec.ValidationError:  # its reason is a sentence; or it is of a later format
        return decision.reason
    return _sentence(facts, f" of '{decision.name}'" if named else "", decision.result)


def _sentence(facts: AnyFacts, of: str, result: Any) -> str:
    match facts:
        case MetRetiredWorker():
            text = (
                f"{Subtasks.named(facts.subtasks)}{of} met a Python worker that had begun with other external resources: "
                "it is gone, and a new attempt is sent at once"
            )
        case Failed():
            text = _failed(facts, of, result)
        case Slow():
            text = _slow(facts, of, result)
        case Won():
            winner, *losers = map(_attempt, facts.attempts, facts.nodes, facts.mirrors)
            taken = ("was queued" if each is None else f"had taken {format_seconds(each)}" for each in facts.taken)
            beaten = ", ".join(map(" ".join, zip(losers, taken, strict=True)))
            text = f"{winner} of subtask {facts.subtask}{of} finished first; {beaten}"
        case RejectedOften():
            text = (
                f"executions of {Subtasks.named(facts.subtasks)}{of} were rejected {plural(facts.rejections, 'time')} in a row: "
                "the next ones run wherever Spark starts them"
            )
        case OnBlockedNode():
            on = ", ".join(facts.nodes)
            text = f"{Subtasks.named(facts.subtasks)}{of} runs on {on}, though blocked: {_BLOCKED_USE[facts.why]}"
        case KeptSubtasks():
            jobs = f"{'job' if len(facts.jobs) == 1 else 'jobs'} {first_of(facts.jobs)}"
            text = f"{facts.kept:,} of {facts.subtasks:,} subtasks{of} are kept from {jobs}."
        case ForWorker() | ForRoom():
            text = of_request(facts)
        case GoesOn():
            waited = format_seconds(facts.seconds)
            how = f"waits no more, after {waited}: there is a worker that can hold a slot"
            if facts.others:
                how = f"has all its slots, {waited} after other jobs held some of what it asked for"
            text = f"group '{facts.group}' {how}"
        case Told():
            text = f"{facts.before}{of}{facts.after}"
    return text


def _failed(facts: Failed, of: str, result: dict[str, int]) -> str:
    subtasks = sorted(set(facts.subtasks))
    who = f"subtask {subtasks[0]}" if len(subtasks) == 1 else plural(len(subtasks), "subtask")
    place = "" if facts.dataset < 0 else f" at partition {facts.partition} of data set {facts.dataset}"
    end = f"failed{place} ({facts.kind})" if facts.counted else f"ended{place} ({facts.cause.rstrip('.')})"
    match facts.outcome:
        case Outcome.ANOTHER_RUNS:
            then = (
                f"another attempt can still finish, so nothing runs again (for the restart strategy: {facts.verdict})"
            )
        case Outcome.JOB_FAILS:
            then = f"the job fails, {facts.verdict}"
        case Outcome.RESTART:
            finished = sum(facts.invalidated.values())
            why = "finished before: what they read may come in another order, or be other rows"
            reread = f" ({finished} of them {why})" if finished else ""
            again = "run again" if facts.counted else "be sent again"
            then = f"{plural(sum(result.values()), 'subtask')} to {again}{reread}, {facts.verdict}"
    return f"{who}{of} {end}: {then}"


def _slow(facts: Slow, of: str, mirrors: list[list[int]]) -> str:
    who = f"attempt {facts.attempts[facts.place] + 1} of subtask {facts.subtasks[facts.place]}{of}"
    if not mirrors:
        return f"{who} is slow and gets no mirror: {facts.why}"
    node = facts.nodes[facts.place]
    there = f" on {node}" if node else ""
    others = f", and {len(mirrors) - 1} more" if len(mirrors) > 1 else ""
    return f"{who} has taken {format_seconds(facts.taken)}{there}, {facts.why}: attempt {mirrors[0][1] + 1} is made beside it{others}"


def _attempt(number: int, node: str, is_mirror: bool) -> str:
    inside = ", ".join(filter(None, ["a mirror" if is_mirror else "", f"on {node}" if node else ""]))
    return f"attempt {number + 1}{f' ({inside})' if inside else ''}"
