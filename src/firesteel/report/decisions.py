"""Why it was decided so, in sentences, of decisions whose inputs are facts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from math import prod
from operator import or_
from typing import Any

import msgspec

import firesteel.scheduler.kernel.decisions as d
from firesteel.humanize import first_of, format_bytes, format_count, format_seconds, plural
from firesteel.model.sizes import MANY_PRODUCERS
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
_RESUMED = ", as before the resume"
_GIVEN = {
    "fixed": "as set",
    "forward group": "as its forward group",
    "global": "as a global input is never split",
    "as before the resume": "as before the resume",
}
_KINDS: Any = reduce(or_, d.Facts.__subclasses__(), ForWorker | ForRoom)


def with_reason(record: JournalRecord) -> JournalRecord:
    """The record as it is written down."""
    if isinstance(record, Decision) and not record.reason and "type" in record.inputs:
        return msgspec.structs.replace(record, reason=reason_of(record))
    return record


def reason_of(decision: Decision, *, named: bool = True) -> str:
    """``named``: with the name of the step."""
    try:
        facts = msgspec.convert(decision.inputs, _KINDS)
    except msgspec.ValidationError:  # its reason is a sentence; or it is of a later format
        return decision.reason
    return _sentence(facts, f" of '{decision.name}'" if named else "", decision)


def reason_of_plan(fields: Mapping[str, Any]) -> str:
    """Of a parallelism that was decided and not recorded: ``Plan.decision``."""
    return reason_of(Decision(at=0.0, what="parallelism", **fields))


def _sentence(facts: Any, of: str, decision: Decision) -> str:  # noqa: PLR0912, PLR0915 - one for each kind
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
        case d.Sized():
            text = _sized(facts, decision)
        case d.SourceSized():
            text = f"{plural(result, 'source subtask')}{_source(facts, decision)}{_bounded(decision)}{_RESUMED if facts.before else ''}"
        case d.SplitShares():
            span = format_count(facts.fewest) + (
                "" if facts.fewest == facts.most else f" to {format_count(facts.most)}"
            )
            text = (
                f"{plural(facts.splits, 'split')} in order over {plural(facts.parallelism, 'subtask')}, {span} each; "
                f"largest share {format_bytes(result['largest'])}, smallest {format_bytes(result['smallest'])}"
            )
        case d.KnownBeforehand():
            why = "as its forward group" if decision.rule == "forward group" else "as known beforehand"
            text = f"{plural(result['parallelism'], 'subtask')}, {why}; cut by count, before its inputs were there"
        case d.Unmeasured():
            text = (
                f"cut by count: data sets {', '.join(map(str, facts.datasets))} have so many producers and subpartitions that "
                "sizes are not reported by subpartition"
            )
        case d.Unreadable():
            text = (
                f"the sizes that {plural(facts.rows, 'producer')} of data set {facts.dataset} had reported could not be read back "
                "from the driver's scratch files: they are taken to be shaped like the sum over all"
            )
        case d.Subpartitions():
            text = _subpartitions(facts, decision.rule, result)
        case d.ManySubpartitions():
            text = (
                f"Data set {facts.dataset} has {result} subpartitions per producer, more than {facts.most}: each producer indexes and "
                "reports all of them. Lower max-parallelism (or the step's own) or firesteel.subpartition-factor."
            )
        case d.Sketched():
            text = _sketched(facts, result)
        case d.HeavyKeys():
            text = f"of the {format_bytes(facts.bytes)} of '{facts.producer}', {_heavy(result)}"
        case d.Told():
            text = f"{facts.before}{of}{facts.after}"
        case _:
            raise AssertionError(facts)
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


def _sized(facts: d.Sized, decision: Decision) -> str:
    rule, result = facts.before or decision.rule, decision.result
    is_whole, is_fixed = set(facts.ship) == {"broadcast"}, facts.allowed.get("fixed") is not None
    text = plural(result["parallelism"], "subtask")
    if is_fixed or rule in _GIVEN:
        why = _GIVEN.get(rule, f"as {rule} decided")
        if rule == "forward group" and not is_fixed:
            why = "as the producers of its forward input"
        text += f", {why}; {format_bytes(facts.non_broadcast)} cut {facts.cut}"
    elif is_whole:
        text += f": all inputs are broadcast ({format_bytes(facts.broadcast)})"
    else:
        text += f": {_cut(facts, rule, result['parallelism'])}"
    text += _bounded(decision)
    if "largest" in result and not is_whole:
        text += f"; largest range {format_bytes(result['largest'])}, smallest {format_bytes(result['smallest'])}"
    if facts.divided:
        text += f"; {_divided(facts.divided, result['divided'])}"
    if facts.undivided is not None:
        text += f"; {_undivided(facts.undivided, facts.allowed)}"
    return f"{text}{_RESUMED if facts.before else ''}"


def _bounded(decision: Decision) -> str:
    return f", bounded by {' and '.join(decision.bounds) or 'nothing'}"


def _cut(facts: d.Sized, rule: str, subtasks: int) -> str:
    over = f"{format_bytes(facts.non_broadcast)} over {format_bytes(facts.limit)} each"
    if facts.broadcast:
        less = format_bytes(min(facts.broadcast, facts.data_volume * 0.5))
        over += f" ({format_bytes(facts.data_volume)} less {less} for {format_bytes(facts.broadcast)} broadcast)"
    makes = f"{over} makes {format_count(facts.needed)}"
    match rule:
        case "by-count":
            return f"{makes}, closest power of two {format_count(facts.rounded)}"
        case "files":
            volume = format_bytes(facts.data_volume)
            return f"{format_bytes(facts.non_broadcast)} parted where partitions and files end, a file having {volume} of the exchange"
        case "task duration":
            return _duration(facts.allowed["cost"], facts.hashed, facts.non_broadcast, subtasks)
        case "tapered":
            return f"{makes}; {_falling(subtasks, facts.allowed['slots'])}"
        case "idle slots":
            return f"{makes}, and some of {plural(facts.allowed['slots'], 'slot')} would stand idle"
        case _:
            return f"{makes}, and more as some rows are read by several" if facts.needed else over


def _source(facts: d.SourceSized, decision: Decision) -> str:
    subtasks, splits, by_bytes = decision.result, plural(facts.splits, "split"), -(-facts.bytes // facts.data_volume)
    over = f": {format_bytes(facts.bytes)} in {splits} over {format_bytes(facts.data_volume)} each"
    match facts.before or decision.rule:
        case "given by the source":
            text = ", as the source has no other parallelism"
        case "no splits":
            text = ": there is nothing to read"
        case "inferred by the source":
            text = f": the source inferred {format_count(facts.inferred or 0)} for {splits}"
        case "default":
            text = f": {splits} of unknown size take the default"
        case "task duration":
            text = f": {_duration(facts.cost, facts.hashed, facts.bytes, subtasks)}"
        case "tapered":
            text = f"{over} makes {format_count(by_bytes)}; {_falling(subtasks, facts.slots)}"
        case "inferred from bytes" if subtasks > by_bytes:
            text = f"{over} makes {format_count(by_bytes)}, and some of {plural(facts.slots, 'slot')} would stand idle"
        case "inferred from bytes":
            text = over
        case rule:
            text = f", {_GIVEN.get(rule, 'as set')}"
    return text


def _duration(cost: dict[str, Any], hashed: int, volume: int, subtasks: int) -> str:
    if hashed:
        each = format_bytes(volume // subtasks)
        return f"{format_bytes(volume)}, {each} each, because each hashes {format_bytes(hashed)} of build sides"
    seconds, runs = cost["seconds_per_byte"], cost["runs"]
    where = f"measured in {plural(runs, 'earlier run')}" if runs else "as DuckDB computes"
    return f"{format_bytes(volume)} at {format_bytes(1 / seconds)}/s {where}, {format_seconds(seconds * volume / subtasks)} each"


def _falling(subtasks: int, slots: int) -> str:
    waves = f"{plural(subtasks // slots, 'wave')} on {plural(slots, 'slot')}"
    return f"{format_count(subtasks)} in {waves}, the later ones smaller, so that the slots end together"


def _divided(count: int, divided: list[dict[str, Any]]) -> str:
    told = [
        f"subpartition {one['subpartition']} ({format_bytes(sum(one['bytes']))}) among {format_count(prod(one['parts']))} subtasks, "
        f"which {'keep' if len(one['parts']) == 1 else 'read'} {format_bytes(one['each'])} each"
        for one in divided[:2]
    ]
    more = f", and {format_count(count - len(told))} more" if count > len(told) else ""
    return f"divided: {', '.join(told)}{more}"


def _undivided(facts: d.Undivided, allowed: dict[str, Any]) -> str:
    if facts.why is d.WholeBecause.SLICES:
        return f"none is divided, as max-slices-per-subtask {allowed['max_slices']} leaves no subtasks for it"
    if facts.why is d.WholeBecause.AS_MUCH:
        return f"none is divided, as {facts.why.value}"
    others = f" and {plural(facts.others, 'other')} are" if facts.others else " is"
    return f"subpartition {facts.subpartition} ({format_bytes(facts.bytes)}){others} not divided: {facts.obstacle or facts.why.value}"


def _subpartitions(facts: d.Subpartitions, rule: str, n: int) -> str:
    asked = facts.consumers.get(str(facts.asks), 0)
    source, used = "its parallelism", asked // facts.factor
    if facts.maximum:
        rounded = "" if used == facts.maximum else f", {used} as a power of two,"
        source = f"its maximum {facts.maximum}{rounded} x {facts.factor}"
    why = f"consumer vertex {facts.asks} asks for {asked} ({source})"
    match rule:
        case "no consumer":
            why = "no step consumes it"
        case "pointwise" | "rebalance":
            why += f", shared out over {facts.producers} producers"
        case "many producers":
            why += f", bounded by {n}, as there may be over {MANY_PRODUCERS} producers"
        case _ if rule == facts.ship:
            why = f"{rule} results are read whole"
        case _ if facts.multiple:
            why += f", made a multiple of {facts.multiple}, which any parallelism decided by count divides"
        case _:
            pass
    if facts.co_partitioned_with:
        others = ", ".join(map(str, facts.co_partitioned_with))
        why += f", as many as the data sets consumed together with it ({others})"
    return f"{plural(n, 'subpartition')}: {why}"


def _sketched(facts: d.Sketched, result: dict[str, int]) -> str:
    n, largest = result["ranges"], result["largest"]
    by = ", ".join(name if ascending else f"{name} descending" for name, ascending in facts.columns) or "the key"
    even = "there is nothing in them"
    if facts.bytes:
        even = f"largest {format_bytes(largest)}, {largest / (facts.bytes / n):.2f} times the mean"
    return (
        f"{plural(n, 'range')} of {by} over {format_bytes(facts.bytes)}, from the sketches of {plural(facts.sketches, 'producer')}, with "
        f"no pass to sample them; {even}, each known to within {format_bytes(result['error'])}; "
        f"equal keys {'of several producers may be parted' if facts.split_equal else 'stay together'}"
    )


def _heavy(keys: list[dict[str, Any]]) -> str:
    told = [
        f"{', '.join(f'{column} = {value}' for column, value in one['key'].items())} has {100 * one['share']:.3g} % "
        f"(subpartition {one['subpartition']})"
        for one in keys[:3]
    ]
    more = len(keys) - len(told)
    if more:
        have = "has" if more == 1 else "have"
        told.append(f"{plural(more, 'other key')} {have} {100 * keys[-1]['share']:.3g} % or more")
    return " and ".join(filter(None, [", ".join(told[:-1]), told[-1]]))


def _attempt(number: int, node: str, is_mirror: bool) -> str:
    inside = ", ".join(filter(None, ["a mirror" if is_mirror else "", f"on {node}" if node else ""]))
    return f"attempt {number + 1}{f' ({inside})' if inside else ''}"
