"""Options of streams: FLIP-461's keys, those that Flink has around them today, and what Firesteel adds."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from firesteel.options.registry import register
from firesteel.options.values import Option, Scope, at_least, one_of, parse_int, parse_number, parse_seconds, parse_wait

T = TypeVar("T")

_AS = "jobmanager.adaptive-scheduler."
_STREAM = "firesteel.stream."


def _register(option: Option[T]) -> Option[T]:
    return register(replace(option, scope=Scope.STREAMS))


def _is_part(value: float | None) -> str | None:
    return None if value is None or 0 < value <= 1 else "must be greater than 0 and at most 1"


SCALE_ON_FAILED_CHECKPOINTS_COUNT = _register(
    Option(
        _AS + "scale-on-failed-checkpoints-count",
        parse_int,
        2,
        "So many checkpoints (micro-batches) that fail one after the other set off a rescale that is wanted, though none was completed. FLIP-461 names 2 in its code and 1 in its text; Flink took 2, and so does Firesteel: one failed batch is most often followed by one that succeeds, after which nothing has to be processed twice.",
        aliases=(_AS + "rescale-on-failed-checkpoints-count", _AS + "rescale-trigger.max-checkpoint-failures"),
        check=at_least(1),
    )
)
MAX_DELAY_FOR_SCALE_TRIGGER = _register(
    Option[float | None](
        _AS + "max-delay-for-scale-trigger",
        parse_seconds,
        None,
        "A rescale that is wanted waits no longer than this for a checkpoint, counted from the first change that could be followed, time in cooldown included; then it begins: no further batch is begun, and the running one is let end unless it has run for as long as this, and is then stopped and replayed. Unset: the checkpoint interval times (scale-on-failed-checkpoints-count + 1). The interval is the gap of the query's trigger, or the median duration of the last 10 batches where that is longer, and at least 1 s. FLIP-461's 0 for jobs without checkpoints has no meaning on Spark: every micro-batch is one. 0 rescales at once, as Flink did before.",
        aliases=(_AS + "rescale-trigger.max-delay",),
        check=at_least(0),
    )
)
COOLDOWN_AFTER_RESCALING = _register(
    Option(
        _AS + "executing.cooldown-after-rescaling",
        parse_seconds,
        30.0,
        "After a rescale, or the first start, nothing is rescaled for so long (FLIP-322); after one that failed at least 10 s, and twice as long for each further failure. What changes meanwhile is remembered.",
        deprecated_keys=(_AS + "scaling-interval.min",),
        check=at_least(0),
    )
)
EXECUTING_STABILIZATION_TIMEOUT = _register(
    Option(
        _AS + "executing.resource-stabilization-timeout",
        parse_seconds,
        60.0,
        "The time after the first change that a running stream waits for all the slots that it could use (its upper bound); then sufficient ones are enough for a rescale.",
        deprecated_keys=(_AS + "scaling-interval.max",),
        check=at_least(0),
    )
)
RESOURCE_WAIT_TIMEOUT = _register(
    Option(
        _AS + "submission.resource-wait-timeout",
        parse_wait,
        300.0,
        "The time that a stream that is started waits for slots for its lower bound; then it starts with what is there, and fails if that is nothing. A negative value waits without limit.",
        deprecated_keys=(_AS + "resource-wait-timeout",),
    )
)
SUBMISSION_STABILIZATION_TIMEOUT = _register(
    Option(
        _AS + "submission.resource-stabilization-timeout",
        parse_seconds,
        10.0,
        "The time that a stream that is started, and has slots for its lower bound, waits for more.",
        deprecated_keys=(_AS + "resource-stabilization-timeout",),
        check=at_least(0),
    )
)
MIN_PARALLELISM_INCREASE = _register(
    Option[int | None](
        _AS + "min-parallelism-increase",
        parse_int,
        None,
        "Accepted and ignored, with a warning, as in today's Flink: whether a rescale is worth it is decided from cores, partitions and the predicted downtime.",
    )
)
CHECKPOINTING_TIMEOUT = _register(
    Option(
        "execution.checkpointing.timeout",
        parse_seconds,
        600.0,
        "A micro-batch that is not committed within this time counts as a failed checkpoint, and as another one each time it has passed again.",
        check=at_least(0.001, "1 ms"),
    )
)
PIPELINE_MAX_PARALLELISM = _register(
    Option[int | None](
        "pipeline.max-parallelism",
        parse_int,
        None,
        "A stream never gets more partitions than this: for a sink that allows no more. A rescale or requirements above it are refused. Unset: the requirements alone are the bound.",
        check=at_least(1),
    )
)
PARTITIONS_PER_CORE = _register(
    Option(
        _STREAM + "partitions-per-core",
        parse_int,
        4,
        "Slots that a core gives: as many partitions of state as a rescale, or the first start, plans for it.",
        check=at_least(1),
    )
)
MAX_PARTITIONS_PER_CORE = _register(
    Option(
        _STREAM + "max-partitions-per-core",
        parse_int,
        16,
        "While a stream runs, its number of partitions stays as it is as long as every core has at least one and none has more than this, and the requirements allow it.",
        check=at_least(1),
    )
)
COOLDOWN_AFTER_SCALE_UP = _register(
    Option[float | None](
        _STREAM + "cooldown-after-scale-up",
        parse_seconds,
        None,
        "The time after a rescale in which the parallelism is not raised. Unset: the common cooldown. The direction that is wanted decides which of the two cooldowns counts.",
        check=at_least(0),
    )
)
COOLDOWN_AFTER_SCALE_DOWN = _register(
    Option[float | None](
        _STREAM + "cooldown-after-scale-down",
        parse_seconds,
        None,
        "The time after a rescale in which the parallelism is not lowered. Unset: the common cooldown.",
        check=at_least(0),
    )
)
MAX_DOWNTIME = _register(
    Option[float | None](
        _STREAM + "max-downtime",
        parse_seconds,
        None,
        "A rescale whose downtime is predicted to be longer waits for the user's confirmation (rescale without a number). Unset: none waits.",
        check=at_least(0),
    )
)
STREAM_SCALING = _register(
    Option(
        _STREAM + "scaling",
        one_of("resources", "load"),
        "resources",
        "The source of the parallelism. resources: the cores there are, within the requirements. load: only those of the cores that its batches need, as busy as they are; where the source tells no backlog and the trigger has no gap that cannot be told, and it is as with resources.",
    )
)
LOAD_TARGET = _register(
    Option(
        _STREAM + "load.target-utilization",
        parse_number,
        0.7,
        "With scaling = load: the share of the time that batches should take of it after a rescale.",
        check=_is_part,
    )
)
LOAD_HIGH = _register(
    Option(
        _STREAM + "load.high-utilization",
        parse_number,
        0.9,
        "With scaling = load: above this a stream is taken to need more cores.",
        check=_is_part,
    )
)
LOAD_LOW = _register(
    Option(
        _STREAM + "load.low-utilization",
        parse_number,
        0.35,
        "With scaling = load: below this it is taken to need fewer.",
        check=_is_part,
    )
)
LOAD_WINDOW = _register(
    Option(
        _STREAM + "load.window",
        parse_seconds,
        60.0,
        "With scaling = load: over how long batches are looked at.",
        check=at_least(0.001, "1 ms"),
    )
)
