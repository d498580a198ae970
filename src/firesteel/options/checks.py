"""Combinations of options that no batch job can have, refused before anything is compiled."""

from __future__ import annotations

from firesteel.errors import UsageError
from firesteel.options import BATCH_SHUFFLE_MODE, SCHEDULER, SPECULATIVE_ENABLED, Options


def check_options(options: Options, pipelined: bool) -> None:
    """Refuses what a batch job cannot have, with the reason. ``pipelined``: its exchanges are, all options considered."""
    check_speculation(options, pipelined)
    if options[SCHEDULER] == "Adaptive":
        raise UsageError(
            "jobmanager.scheduler = Adaptive is the scheduler of streams: it rescales running steps after checkpoints, "
            "which a batch job does not have.",
            hint="Use AdaptiveBatch (the default) or Default.",
        )
    if pipelined and options[SCHEDULER] != "Default":
        default = "" if options.is_set(SCHEDULER) else ", the scheduler unless another is chosen,"
        raise UsageError(
            f"{BATCH_SHUFFLE_MODE.key} = ALL_EXCHANGES_PIPELINED asks for results that are read while they are written, but "
            f"{options[SCHEDULER]}{default} decides a step's parallelism from the finished results it reads.",
            hint=f"Set {SCHEDULER.key} = Default, or leave the exchanges at ALL_EXCHANGES_BLOCKING.",
        )


def check_speculation(options: Options, pipelined: bool) -> None:
    """Speculative execution is for batch jobs with blocking exchanges under the adaptive batch scheduler (FLIP-168).

    ``pipelined``: the job has others."""
    if not options[SPECULATIVE_ENABLED]:
        return
    why = ""
    if options[SCHEDULER] == "Adaptive":
        why = f"{SCHEDULER.key} = Adaptive is the scheduler of streams: all subtasks of a stream run until it ends"
    elif pipelined:
        why = f"{BATCH_SHUFFLE_MODE.key} = ALL_EXCHANGES_PIPELINED makes steps run together, so that none of their subtasks can be mirrored alone"
    elif options[SCHEDULER] != "AdaptiveBatch":
        why = f"{SCHEDULER.key} is {options[SCHEDULER]}"
    if why:
        raise UsageError(
            f"Speculative execution is for batch jobs under the adaptive batch scheduler, and {why}.",
            hint=f"Set {SCHEDULER.key} = AdaptiveBatch (the default) and leave the exchanges at ALL_EXCHANGES_BLOCKING, "
            f"or {SPECULATIVE_ENABLED.key} = false.",
        )
