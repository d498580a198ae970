"""Why it was decided so, in sentences, of decisions whose inputs are facts."""

from __future__ import annotations

import msgspec

from firesteel.humanize import first_of, format_bytes, format_count, format_seconds, plural
from firesteel.report.waits import of_request
from firesteel.scheduler.kernel.decisions import (
    Admission,
    AdmittedBecause,
    AnyFacts,
    BlockedAlone,
    BlockedFor,
    BlockedUse,
    CancelPutOff,
    Failed,
    GoesOn,
    KeptSubtasks,
    Merge,
    Merged,
    MetRetiredWorker,
    NetworkNeed,
    NetworkShare,
    NotStored,
    Offload,
    OnBlockedNode,
    Outcome,
    PipelinedRegions,
    ReadLess,
    RejectedOften,
    RoomKept,
    Slow,
    Told,
    Won,
)
from firesteel.scheduler.kernel.records import Decision, JournalRecord
from firesteel.scheduler.kernel.waits import ForRoom, ForWorker, Subtasks

_ADMITTED = {
    AdmittedBecause.CORES_RUN_OUT: "cores run out before memory ({}): all is given to Spark, which keeps cores apart",
    AdmittedBecause.MEMORY_MAY: "memory may run out before cores ({}): what has no slot waits, the rest runs where its slot is",
    AdmittedBecause.OTHER_JOB: "another job of the session asks for so much memory a core that it may run out before cores: what has no slot waits",
    AdmittedBecause.IN_TURN: "the session serves what came first, and nothing may queue there before a mirror",
}
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
    return _sentence(facts, f" of '{decision.name}'" if named else "", decision)


def _sentence(facts: AnyFacts, of: str, decision: Decision) -> str:  # noqa: PLR0912, PLR0915 - one for each kind
    result = decision.result
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
        case BlockedFor():
            text = _blocked(facts, decision)
        case BlockedAlone():
            text = f"blocked nodes are left alone again: {plural(facts.others, 'other node')} can be used"
            if result == "used":
                blocked = ", ".join(facts.blocked)
                text = f"nothing but blocked nodes is known ({blocked}): they are used again, rather than wait"
        case RoomKept():
            text = (
                f"others got {facts.passed} slots while none was large enough for '{decision.name}': room for one is kept on "
                f"{', '.join(facts.workers)} until it is there, and again whenever that happens"
            )
        case Admission():
            asked, there = max(facts.asked_bytes_per_core.values()), facts.least_bytes_per_core
            text = _ADMITTED[facts.why].format(
                f"{format_bytes(asked)} a core are asked for, {format_bytes(there)} are there"
            )
        case NetworkNeed():
            text = (
                f"readers and writers of the {plural(len(facts.vertices), 'step')} of group '{facts.group}' hold up to "
                f"{format_bytes(facts.needed)} in a slot: {_network_share(facts.share, result)}"
            )
        case Merge():
            text = _merge(facts, result)
        case Merged():
            text = _merged(facts, result)
        case PipelinedRegions():
            each = "all at once" if result == 1 else "each all at once"
            text = (
                f"{plural(facts.subtasks, 'subtask')} of vertices {', '.join(map(str, facts.vertices))} run in "
                f"{plural(result, 'region')}, {each}: {decision.rule}"
            )
        case Offload():
            text = (
                f"The descriptor of {plural(facts.partitions, 'partition')} takes {format_bytes(facts.bytes)} and "
                f"goes to {plural(facts.consumers, 'consumer')}, so it is stored once and fetched by every executor."
            )
        case NotStored():
            text = f"A descriptor could not be stored as a blob and travels in each deployment: {facts.error}"
        case CancelPutOff():
            text = "The sinks are being published, which is not interrupted: the job is cancelled only if that fails."
        case ReadLess():
            text = f"reads all of {format_bytes(facts.bytes)}: {facts.found}"
            if result["bytes"] < facts.bytes:
                less, splits = format_bytes(result["bytes"]), plural(facts.splits, "split")
                text = f"reads {less} of {format_bytes(facts.bytes)} in {splits}: {facts.found}"
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


def _blocked(facts: BlockedFor, decision: Decision) -> str:
    match decision.result:
        case "blocked":
            return f"node {facts.node} is blocked for {format_seconds(facts.end - facts.start)}: {facts.cause}"
        case "unblocked":
            times = f", reported {facts.times} times" if facts.times > 1 else ""
            after = format_seconds(decision.at - facts.start)
            return f"node {facts.node} is not blocked any more, after {after}{times}"
        case _:
            left = format_seconds(facts.end - decision.at)
            return f"node {facts.node} stays blocked for another {left}: it was reported {facts.times} times by now"


def _network_share(share: NetworkShare, given: int) -> str:
    match share:
        case NetworkShare.NOTHING_STORED:
            return "nothing is stored between them"
        case NetworkShare.SLOTS_STAY:
            return "its slots stay as they are, for others would need other executors"
        case NetworkShare.WHOLE:
            return "it is part of the slots that are asked for from now on"
        case NetworkShare.AS_FITS:
            part = f"{format_bytes(given)} of it" if given else "nothing of it"
            return f"{part} enters the profile, for workers would hold fewer slots with all of it"


def _merge(facts: Merge, groups: int | str) -> str:
    mean, least = format_bytes(round(facts.stored_bytes / facts.slices)), format_bytes(facts.threshold)
    slices = f"{plural(facts.slices, 'slice')} of {mean} on average, under {least}"
    saved, cost = format_seconds(facts.saved_s), format_seconds(facts.cost_s)
    if not isinstance(groups, int):
        return f"{slices}, but merging saves only {saved} for {cost}, less than twice its price: they are read as they are."
    become = f"{plural(facts.partitions, 'object')} become {format_count(groups)}"
    return f"{slices}: {become}, which saves {saved} for {cost}."


def _merged(facts: Merged, count: int) -> str:
    seconds = format_seconds(facts.seconds)
    if not facts.in_time:
        return f"Merging data set {facts.dataset} took longer than {seconds}: its consumers read the single objects."
    stale = f", {plural(facts.stale, 'group')} of partitions produced anew meanwhile" if facts.stale else ""
    why = f", {plural(facts.failed, 'group')} not ({facts.failure or 'no reason was given'})" if facts.failed else ""
    done = f"{plural(count, 'group')} of data set {facts.dataset} merged{stale}{why}"
    return f"{done}, {format_bytes(facts.bytes)}, {seconds} after it was asked for."


def _attempt(number: int, node: str, is_mirror: bool) -> str:
    inside = ", ".join(filter(None, ["a mirror" if is_mirror else "", f"on {node}" if node else ""]))
    return f"attempt {number + 1}{f' ({inside})' if inside else ''}"
