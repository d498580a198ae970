"""Why it was decided so, in sentences, of decisions whose inputs are facts."""

from __future__ import annotations

import msgspec

import firesteel.scheduler.kernel.decisions as d
from firesteel.humanize import first_of, format_bytes, format_count, format_seconds, plural
from firesteel.report.waits import of_request
from firesteel.scheduler.kernel.records import Decision, JournalRecord
from firesteel.scheduler.kernel.waits import ForRoom, ForWorker, Subtasks

_ADMITTED = {
    d.AdmittedBecause.CORES_RUN_OUT: "cores run out before memory ({}): all is given to Spark, which keeps cores apart",
    d.AdmittedBecause.MEMORY_MAY: "memory may run out before cores ({}): what has no slot waits, the rest runs where its slot is",
    d.AdmittedBecause.OTHER_JOB: "another job of the session asks for so much memory a core that it may run out before cores: what has no slot waits",
    d.AdmittedBecause.IN_TURN: "the session serves what came first, and nothing may queue there before a mirror",
}
_BLOCKED_USE = {
    d.BlockedUse.REJECTED_OFTEN: "it was rejected too often",
    d.BlockedUse.BEGAN_BEFORE: "it began before it could know",
    d.BlockedUse.NO_OTHER: "no other node is known",
}
_HASH = {
    "one step": "it is one step with the join before it, by the same key",
    "too late": "the producers of both sides had begun before either side was there",
    "not adaptive": "both sides are exchanged, as firesteel.join.adaptive is false",
    "hint": "the {} side cannot be broadcast, as was asked for, because {}",
}
_STEPS = {
    d.StepsBecause.EXCHANGE: "dividing what it reads would save the largest subtask {saved}, less than the {exchanged} of each slot in the "
    "exchange that would follow",
    d.StepsBecause.JOINED: "{subtasks} join, which share out the rows of heavy keys, so that what comes out is exchanged for the next step",
    d.StepsBecause.COUNTED: "{subtasks} count parts of the values, and what they count is added up",
    d.StepsBecause.COUNTED_HEAVY: "{subtasks} count the values, those of heavy keys by parts, and what they count is added up",
}


def with_reason(record: JournalRecord) -> JournalRecord:
    """The record as it is written down."""
    if isinstance(record, Decision) and not record.reason and "type" in record.inputs:
        return msgspec.structs.replace(record, reason=reason_of(record))
    return record


def reason_of(decision: Decision, *, named: bool = True) -> str:
    """``named``: with the name of the step."""
    try:
        facts = msgspec.convert(decision.inputs, d.AnyFacts)
    except msgspec.ValidationError:  # its reason is a sentence; or it is of a later format
        return decision.reason
    return _sentence(facts, f" of '{decision.name}'" if named else "", decision)


def _sentence(facts: d.AnyFacts, of: str, decision: Decision) -> str:  # noqa: PLR0912, PLR0915 - one for each kind
    result = decision.result
    match facts:
        case d.MetRetiredWorker():
            text = (
                f"{Subtasks.named(facts.subtasks)}{of} met a Python worker that had begun with other external resources: "
                "it is gone, and a new attempt is sent at once"
            )
        case d.Failed():
            text = _failed(facts, of, result)
        case d.Slow():
            text = _slow(facts, of, result)
        case d.Won():
            winner, *losers = map(_attempt, facts.attempts, facts.nodes, facts.mirrors)
            taken = ("was queued" if each is None else f"had taken {format_seconds(each)}" for each in facts.taken)
            beaten = ", ".join(map(" ".join, zip(losers, taken, strict=True)))
            text = f"{winner} of subtask {facts.subtask}{of} finished first; {beaten}"
        case d.RejectedOften():
            text = (
                f"executions of {Subtasks.named(facts.subtasks)}{of} were rejected {plural(facts.rejections, 'time')} in a row: "
                "the next ones run wherever Spark starts them"
            )
        case d.OnBlockedNode():
            on = ", ".join(facts.nodes)
            text = f"{Subtasks.named(facts.subtasks)}{of} runs on {on}, though blocked: {_BLOCKED_USE[facts.why]}"
        case d.KeptSubtasks():
            jobs = f"{'job' if len(facts.jobs) == 1 else 'jobs'} {first_of(facts.jobs)}"
            text = f"{facts.kept:,} of {facts.subtasks:,} subtasks{of} are kept from {jobs}."
        case ForWorker() | ForRoom():
            text = of_request(facts)
        case d.GoesOn():
            waited = format_seconds(facts.seconds)
            how = f"waits no more, after {waited}: there is a worker that can hold a slot"
            if facts.others:
                how = f"has all its slots, {waited} after other jobs held some of what it asked for"
            text = f"group '{facts.group}' {how}"
        case d.BlockedFor():
            text = _blocked(facts, decision)
        case d.BlockedAlone():
            text = f"blocked nodes are left alone again: {plural(facts.others, 'other node')} can be used"
            if result == "used":
                blocked = ", ".join(facts.blocked)
                text = f"nothing but blocked nodes is known ({blocked}): they are used again, rather than wait"
        case d.RoomKept():
            text = (
                f"others got {facts.passed} slots while none was large enough for '{decision.name}': room for one is kept on "
                f"{', '.join(facts.workers)} until it is there, and again whenever that happens"
            )
        case d.Admission():
            asked, there = max(facts.asked_bytes_per_core.values()), facts.least_bytes_per_core
            text = _ADMITTED[facts.why].format(
                f"{format_bytes(asked)} a core are asked for, {format_bytes(there)} are there"
            )
        case d.NetworkNeed():
            text = (
                f"readers and writers of the {plural(len(facts.vertices), 'step')} of group '{facts.group}' hold up to "
                f"{format_bytes(facts.needed)} in a slot: {_network_share(facts.share, result)}"
            )
        case d.Merge():
            text = _merge(facts, result)
        case d.Merged():
            text = _merged(facts, result)
        case d.PipelinedRegions():
            each = "all at once" if result == 1 else "each all at once"
            text = (
                f"{plural(facts.subtasks, 'subtask')} of vertices {', '.join(map(str, facts.vertices))} run in "
                f"{plural(result, 'region')}, {each}: {decision.rule}"
            )
        case d.Offload():
            text = (
                f"The descriptor of {plural(facts.partitions, 'partition')} takes {format_bytes(facts.bytes)} and "
                f"goes to {plural(facts.consumers, 'consumer')}, so it is stored once and fetched by every executor."
            )
        case d.NotStored():
            text = f"A descriptor could not be stored as a blob and travels in each deployment: {facts.error}"
        case d.CancelPutOff():
            text = "The sinks are being published, which is not interrupted: the job is cancelled only if that fails."
        case d.ReadLess():
            text = f"reads all of {format_bytes(facts.bytes)}: {facts.found}"
            if result["bytes"] < facts.bytes:
                less, splits = format_bytes(result["bytes"]), plural(facts.splits, "split")
                text = f"reads {less} of {format_bytes(facts.bytes)} in {splits}: {facts.found}"
        case d.DeferredFor():
            text = f"put off until the {facts.build} side of [{facts.join}] is there, {_deferred(facts, decision.rule)}"
        case d.BegunWithout():
            text = f"begins without the {facts.side} side of [{facts.join}]: {_begun(facts, decision.rule)}"
        case d.JoinSizes():
            text = _joined(facts, decision)
        case d.HashJoin():
            text = f"hash: {_HASH[decision.rule].format(facts.side, facts.obstacle)}"
        case d.TwoOrOne():
            saved, exchanged = format_bytes(facts.saved), format_bytes(facts.exchanged)
            why = _STEPS.get(facts.why, facts.why.value)
            text = f"{result}: {why.format(subtasks=plural(facts.parallelism, 'subtask'), saved=saved, exchanged=exchanged)}"
        case d.Told():
            text = f"{facts.before}{of}{facts.after}"
    return text


def _failed(facts: d.Failed, of: str, result: dict[str, int]) -> str:
    subtasks = sorted(set(facts.subtasks))
    who = f"subtask {subtasks[0]}" if len(subtasks) == 1 else plural(len(subtasks), "subtask")
    place = "" if facts.dataset < 0 else f" at partition {facts.partition} of data set {facts.dataset}"
    end = f"failed{place} ({facts.kind})" if facts.counted else f"ended{place} ({facts.cause.rstrip('.')})"
    match facts.outcome:
        case d.Outcome.ANOTHER_RUNS:
            then = (
                f"another attempt can still finish, so nothing runs again (for the restart strategy: {facts.verdict})"
            )
        case d.Outcome.JOB_FAILS:
            then = f"the job fails, {facts.verdict}"
        case d.Outcome.RESTART:
            finished = sum(facts.invalidated.values())
            why = "finished before: what they read may come in another order, or be other rows"
            reread = f" ({finished} of them {why})" if finished else ""
            again = "run again" if facts.counted else "be sent again"
            then = f"{plural(sum(result.values()), 'subtask')} to {again}{reread}, {facts.verdict}"
    return f"{who}{of} {end}: {then}"


def _slow(facts: d.Slow, of: str, mirrors: list[list[int]]) -> str:
    who = f"attempt {facts.attempts[facts.place] + 1} of subtask {facts.subtasks[facts.place]}{of}"
    if not mirrors:
        return f"{who} is slow and gets no mirror: {facts.why}"
    node = facts.nodes[facts.place]
    there = f" on {node}" if node else ""
    others = f", and {len(mirrors) - 1} more" if len(mirrors) > 1 else ""
    return f"{who} has taken {format_seconds(facts.taken)}{there}, {facts.why}: attempt {mirrors[0][1] + 1} is made beside it{others}"


def _blocked(facts: d.BlockedFor, decision: Decision) -> str:
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


def _network_share(share: d.NetworkShare, given: int) -> str:
    match share:
        case d.NetworkShare.NOTHING_STORED:
            return "nothing is stored between them"
        case d.NetworkShare.SLOTS_STAY:
            return "its slots stay as they are, for others would need other executors"
        case d.NetworkShare.WHOLE:
            return "it is part of the slots that are asked for from now on"
        case d.NetworkShare.AS_FITS:
            part = f"{format_bytes(given)} of it" if given else "nothing of it"
            return f"{part} enters the profile, for workers would hold fewer slots with all of it"


def _merge(facts: d.Merge, groups: int | str) -> str:
    mean, least = format_bytes(round(facts.stored_bytes / facts.slices)), format_bytes(facts.threshold)
    slices = f"{plural(facts.slices, 'slice')} of {mean} on average, under {least}"
    saved, cost = format_seconds(facts.saved_s), format_seconds(facts.cost_s)
    if not isinstance(groups, int):
        return f"{slices}, but merging saves only {saved} for {cost}, less than twice its price: they are read as they are."
    become = f"{plural(facts.partitions, 'object')} become {format_count(groups)}"
    return f"{slices}: {become}, which saves {saved} for {cost}."


def _merged(facts: d.Merged, count: int) -> str:
    seconds = format_seconds(facts.seconds)
    if not facts.in_time:
        return f"Merging data set {facts.dataset} took longer than {seconds}: its consumers read the single objects."
    stale = f", {plural(facts.stale, 'group')} of partitions produced anew meanwhile" if facts.stale else ""
    why = f", {plural(facts.failed, 'group')} not ({facts.failure or 'no reason was given'})" if facts.failed else ""
    done = f"{plural(count, 'group')} of data set {facts.dataset} merged{stale}{why}"
    return f"{done}, {format_bytes(facts.bytes)}, {seconds} after it was asked for."


def _deferred(facts: d.DeferredFor, rule: str) -> str:
    if facts.budget is None:
        return "which is to be broadcast, as was asked for"
    built = _estimate(facts.build_bytes, facts.build_read, facts.build_runs)
    idle = f"slots may be idle for {format_seconds(facts.budget)} in all meanwhile"
    if rule == "runtime filter":
        return f"estimated {built}, whose keys may save much of {format_bytes(facts.probe_bytes)}: {idle}"
    probe = _estimate(facts.probe_bytes, facts.probe_read, facts.probe_runs)
    at_most = "" if facts.likely else " at most"
    return f"estimated {built}{at_most}; {idle}, a part of what an exchange of the other side takes, estimated {probe}"


def _estimate(nbytes: int, read: int, runs: int) -> str:
    if not runs:
        return format_bytes(nbytes)
    percent = 100 * nbytes / max(read, 1)
    part = "under 0.01" if 0 < percent < 0.01 else f"{percent:.2g}" if percent < 10 else f"{percent:.0f}"
    return f"{format_bytes(nbytes)}: {format_bytes(read)} read, of which {part} % came out in {plural(runs, 'earlier run')}"


def _begun(facts: d.BegunWithout, rule: str) -> str:
    match rule:
        case "memory":
            written, limit = format_bytes(facts.written), format_bytes(facts.limit)
            return f"that side has {written} already, more than the {limit} that a task can hold"
        case "idle slots":
            return f"its share of the time of idle slots was {format_seconds(facts.budget or 0.0)}"
        case _:
            return "that side is likely the larger one by now"


def _joined(sizes: d.JoinSizes, decision: Decision) -> str:
    build, side = format_bytes(sizes.build_bytes), f"{sizes.build} side"
    if decision.rule == "hint":
        return f"broadcast, as was asked for: the {side} has {build}"
    if decision.rule == "next step":
        why = "what comes out would be exchanged by the same key for the next step, which needs no exchange as it is"
        return f"hash: the {side} has {build}, but {why}"
    if decision.rule == "memory":
        beside = f" beside {plural(len(sizes.held), 'other build side')}" if sizes.held else ""
        return (
            f"hash: the {side} has {build}, with the index of its keys {format_bytes(sizes.build_memory)}, more than the "
            f"{format_bytes(sizes.limit)} that a task can hold{beside}"
        )
    tasks, probe = plural(sizes.readers, "task"), format_bytes(sizes.probe_bytes)
    if decision.result == "hash":
        read = format_bytes(sizes.readers * sizes.build_bytes)
        return f"hash: {tasks} at once would wait for {build} of the {side}, {read} in all, more than the {probe} whose exchange that saves"
    saved = f"about {probe}" if sizes.probe_bytes else "the other side"
    return f"broadcast: {build} of the {side} are read once per executor, while {tasks} wait, in place of an exchange of {saved}"


def _attempt(number: int, node: str, is_mirror: bool) -> str:
    inside = ", ".join(filter(None, ["a mirror" if is_mirror else "", f"on {node}" if node else ""]))
    return f"attempt {number + 1}{f' ({inside})' if inside else ''}"
