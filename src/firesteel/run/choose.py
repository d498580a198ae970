"""The choice of a runner, as a decision that is recorded."""

from __future__ import annotations

from collections.abc import Iterable

from firesteel.humanize import format_bytes
from firesteel.model.runner import Choice
from firesteel.options import IN_PROCESS, IN_PROCESS_MAX_BYTES, Options
from firesteel.options.registry import GIB, MIB
from firesteel.plan.rules import Applied
from firesteel.scheduler.kernel.records import Decision

_LEAST_MEMORY = 256 * MIB
LEAST_FOR_STAGES = 16 * MIB
"""Bytes, by Spark's estimate: a query that reads less is answered by Spark sooner than by a job of stages."""


_MOST_LOCAL, _MOST_ON_CLUSTERS = 16 * GIB, GIB
"""On two cores of a local master one statement took a quarter of the time of stages, up to 15 GiB (six queries of TPC-H, scales 10 and 30)."""


def choose(  # noqa: PLR0911
    options: Options, nbytes: int | None, why: str, estimate: int, memory: int, *, local: bool
) -> Choice:
    """``nbytes``: plain bytes that the query reads as one statement; None: it cannot be one, and ``why`` is the reason.

    ``estimate``: bytes that it reads, by Spark; ``memory``: bytes that the engine of this process may hold; ``local``: stages have no
    more cores than this process.
    """
    given = options[IN_PROCESS_MAX_BYTES]
    most = given if given is not None else _MOST_LOCAL if local else _MOST_ON_CLUSTERS
    inputs = {"bytes": nbytes, "max_bytes": most, "memory": memory, "estimate": estimate}
    if options[IN_PROCESS] == "never":
        return Choice("stages", "option", f"{IN_PROCESS.key} is never", inputs)
    if nbytes is None:
        if estimate >= LEAST_FOR_STAGES:
            return Choice("stages", "statement", why, inputs)
        reason = f"{why}, and it reads {format_bytes(estimate)}: a job would take longer than Spark"
        return Choice("Spark", "statement", reason, inputs)
    reads = f"it reads {format_bytes(nbytes)}"
    if nbytes > most and options[IN_PROCESS] != "all":
        return Choice(
            "stages", "bytes", f"{reads}, more than {format_bytes(most)} ({IN_PROCESS_MAX_BYTES.key})", inputs
        )
    if memory < _LEAST_MEMORY:
        return Choice("stages", "memory", f"this process has only {format_bytes(memory)} for the engine", inputs)
    if options[IN_PROCESS] == "all":
        return Choice("in process", "option", f"{IN_PROCESS.key} is all", inputs)
    return Choice("in process", "bytes", f"{reads}, at most {format_bytes(most)}", inputs)


def decision_of(choice: Choice, at: float = 0.0) -> Decision:
    """``at``: seconds since the job's start."""
    inputs = dict(choice.inputs)
    reason = f"{choice.runner}: {choice.reason}"
    return Decision(at=at, what="runner", inputs=inputs, rule=choice.rule, result=choice.runner, reason=reason)


def decisions_of(rules: Iterable[Applied], at: float = 0.0) -> list[Decision]:
    """One for each rule that changed the plan."""
    changed = dict.fromkeys(one.rule for one in rules if one.changed)
    return [Decision(at=at, what="plan", rule=one.name, result="changed", reason=one.why) for one in changed]
