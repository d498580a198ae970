"""Settings of a stream, read once from the options."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from firesteel.errors import UsageError
from firesteel.options import (
    CHECKPOINTING_TIMEOUT,
    COOLDOWN_AFTER_RESCALING,
    COOLDOWN_AFTER_SCALE_DOWN,
    COOLDOWN_AFTER_SCALE_UP,
    EXECUTING_STABILIZATION_TIMEOUT,
    LOAD_HIGH,
    LOAD_LOW,
    LOAD_TARGET,
    LOAD_WINDOW,
    MAX_DELAY_FOR_SCALE_TRIGGER,
    MAX_DOWNTIME,
    MAX_PARTITIONS_PER_CORE,
    MIN_PARALLELISM_INCREASE,
    PARTITIONS_PER_CORE,
    PIPELINE_MAX_PARALLELISM,
    RESOURCE_WAIT_TIMEOUT,
    SCALE_ON_FAILED_CHECKPOINTS_COUNT,
    SCHEDULER,
    SPECULATIVE_ENABLED,
    STREAM_SCALING,
    SUBMISSION_STABILIZATION_TIMEOUT,
    Layer,
    Options,
    lookup,
)
from firesteel.options.registry import Scope


@dataclass(frozen=True, slots=True)
class StreamSettings:
    """Durations are seconds."""

    failed_checkpoints: int
    max_delay: float | None
    """None: from the checkpoint interval."""
    cooldown_up: float
    cooldown_down: float
    stabilization: float
    submission_stabilization: float
    resource_wait: float
    """Infinite: without limit."""
    checkpoint_timeout: float
    partitions_per_core: int
    max_partitions_per_core: int
    max_downtime: float
    """Infinite: no rescale waits for the user's word."""
    max_parallelism: int | None
    """None: the requirements alone are the bound."""
    by_load: bool
    load_target: float
    load_high: float
    load_low: float
    load_window: float
    warnings: tuple[str, ...] = ()
    """About options that are set and change nothing; sentences."""

    @staticmethod
    def of(options: Options) -> StreamSettings:
        """Raises UsageError for values that conflict."""
        up, down = options[COOLDOWN_AFTER_SCALE_UP], options[COOLDOWN_AFTER_SCALE_DOWN]
        common, wait, downtime = (
            options[COOLDOWN_AFTER_RESCALING],
            options[RESOURCE_WAIT_TIMEOUT],
            options[MAX_DOWNTIME],
        )
        _check(options)
        return StreamSettings(
            failed_checkpoints=options[SCALE_ON_FAILED_CHECKPOINTS_COUNT],
            max_delay=options[MAX_DELAY_FOR_SCALE_TRIGGER],
            cooldown_up=common if up is None else up,
            cooldown_down=common if down is None else down,
            stabilization=options[EXECUTING_STABILIZATION_TIMEOUT],
            submission_stabilization=options[SUBMISSION_STABILIZATION_TIMEOUT],
            resource_wait=math.inf if wait < 0 else wait,
            checkpoint_timeout=options[CHECKPOINTING_TIMEOUT],
            partitions_per_core=options[PARTITIONS_PER_CORE],
            max_partitions_per_core=options[MAX_PARTITIONS_PER_CORE],
            max_downtime=math.inf if downtime is None else downtime,
            max_parallelism=options[PIPELINE_MAX_PARALLELISM],
            by_load=options[STREAM_SCALING] == "load",
            load_target=options[LOAD_TARGET],
            load_high=options[LOAD_HIGH],
            load_low=options[LOAD_LOW],
            load_window=options[LOAD_WINDOW],
            warnings=tuple(_warnings(options)),
        )


def _check(options: Options) -> None:
    check_no_speculation(options)
    if options[PARTITIONS_PER_CORE] > options[MAX_PARTITIONS_PER_CORE]:
        raise UsageError(
            f"{PARTITIONS_PER_CORE.key} ({options[PARTITIONS_PER_CORE]}) is more than {MAX_PARTITIONS_PER_CORE.key} "
            f"({options[MAX_PARTITIONS_PER_CORE]}).",
            hint="A stream would be rescaled again as soon as it was rescaled; make the one smaller or the other larger.",
        )
    if not options[LOAD_LOW] < options[LOAD_TARGET] < options[LOAD_HIGH]:
        raise UsageError(
            f"{LOAD_LOW.key} ({options[LOAD_LOW]}), {LOAD_TARGET.key} ({options[LOAD_TARGET]}) and {LOAD_HIGH.key} "
            f"({options[LOAD_HIGH]}) must grow in this order.",
            hint="Else each rescale would be followed by the opposite one.",
        )


def check_no_speculation(options: Options) -> None:
    """Raises UsageError where speculation is on, wherever that was said: FLIP-168 is for batch jobs."""
    if options[SPECULATIVE_ENABLED]:
        raise UsageError(
            f"Speculative execution is for batch jobs only (FLIP-168), and {SPECULATIVE_ENABLED.key} = true, from "
            f"{options.origin(SPECULATIVE_ENABLED).where}, asks for it on a stream, whose tasks Spark starts by itself: "
            "Firesteel has none to mirror.",
            hint="Leave it out, or set it to false for the stream.",
        )


def _warnings(options: Options) -> Iterator[str]:
    if options.is_set(MIN_PARALLELISM_INCREASE):
        yield (
            f"{MIN_PARALLELISM_INCREASE.key} is ignored, as in today's Flink: cores, partitions and the predicted downtime "
            "decide whether a rescale is worth it."
        )
    for key in sorted(options):
        option, origin = lookup(key), options.origin(key)
        if option.scope is not Scope.BATCH or options[option] == option.default:
            continue
        # A file, the environment and Spark's configuration hold for batch jobs as well.
        if origin.layer < Layer.COMMAND or (option is SCHEDULER and options[SCHEDULER] == "Adaptive"):
            continue
        instead = f"; a stream has {option.streams_have}" if option.streams_have else ""
        yield f"{key}, from {origin.where}, is for batch jobs and changes nothing on a stream{instead}."
