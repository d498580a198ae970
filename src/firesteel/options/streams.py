"""Options of streams: FLIP-461's keys, those that Flink has around them today, and what Firesteel adds."""

from __future__ import annotations

from firesteel.options.registry import Kind, Scope, at_least, number, one_of, parse_wait, seconds, whole

_whole, _number, _seconds = whole.of(Scope.STREAMS), number.of(Scope.STREAMS), seconds.of(Scope.STREAMS)
_AS = "jobmanager.adaptive-scheduler."
_STREAM = "firesteel.stream."


def _is_part(value: float | None) -> str | None:
    return None if value is None or 0 < value <= 1 else "must be greater than 0 and at most 1"


SCALE_ON_FAILED_CHECKPOINTS_COUNT = _whole(
    _AS + "scale-on-failed-checkpoints-count",
    2,
    "So many checkpoints (micro-batches) that fail one after the other set off a rescale that is wanted, though none was completed. FLIP-461 names 2 in its code and 1 in its text; Flink took 2, and so does Firesteel: one failed batch is most often followed by one that succeeds, after which nothing has to be processed twice.",
    aliases=(_AS + "rescale-on-failed-checkpoints-count", _AS + "rescale-trigger.max-checkpoint-failures"),
    check=at_least(1),
)
MAX_DELAY_FOR_SCALE_TRIGGER = _seconds(
    _AS + "max-delay-for-scale-trigger",
    None,
    "A rescale that is wanted waits no longer than this for a checkpoint, counted from the first change that could be followed, time in cooldown included; then it begins: no further batch is begun, and the running one is let end unless it has run for as long as this, and is then stopped and replayed. Unset: the checkpoint interval times (scale-on-failed-checkpoints-count + 1). The interval is the gap of the query's trigger, or the median duration of the last 10 batches where that is longer, and at least 1 s. FLIP-461's 0 for jobs without checkpoints has no meaning on Spark: every micro-batch is one. 0 rescales at once, as Flink did before.",
    aliases=(_AS + "rescale-trigger.max-delay",),
    check=at_least(0),
)
COOLDOWN_AFTER_RESCALING = _seconds(
    _AS + "executing.cooldown-after-rescaling",
    30.0,
    "After a rescale, or the first start, nothing is rescaled for so long (FLIP-322); after one that failed at least 10 s, and twice as long for each further failure. What changes meanwhile is remembered.",
    deprecated_keys=(_AS + "scaling-interval.min",),
    check=at_least(0),
)
EXECUTING_STABILIZATION_TIMEOUT = _seconds(
    _AS + "executing.resource-stabilization-timeout",
    60.0,
    "The time after the first change that a running stream waits for all the slots that it could use (its upper bound); then sufficient ones are enough for a rescale.",
    deprecated_keys=(_AS + "scaling-interval.max",),
    check=at_least(0),
)
RESOURCE_WAIT_TIMEOUT = Kind(parse_wait, Scope.STREAMS)(
    _AS + "submission.resource-wait-timeout",
    300.0,
    "The time that a stream that is started waits for slots for its lower bound; then it starts with what is there, and fails if that is nothing. A negative value waits without limit.",
    deprecated_keys=(_AS + "resource-wait-timeout",),
)
SUBMISSION_STABILIZATION_TIMEOUT = _seconds(
    _AS + "submission.resource-stabilization-timeout",
    10.0,
    "The time that a stream that is started, and has slots for its lower bound, waits for more.",
    deprecated_keys=(_AS + "resource-stabilization-timeout",),
    check=at_least(0),
)
MIN_PARALLELISM_INCREASE = _whole(
    _AS + "min-parallelism-increase",
    None,
    "Accepted and ignored, with a warning, as in today's Flink: whether a rescale is worth it is decided from cores, partitions and the predicted downtime.",
)
CHECKPOINTING_TIMEOUT = _seconds(
    "execution.checkpointing.timeout",
    600.0,
    "A micro-batch that is not committed within this time counts as a failed checkpoint, and as another one each time it has passed again.",
    check=at_least(0.001, "1 ms"),
)
PIPELINE_MAX_PARALLELISM = _whole(
    "pipeline.max-parallelism",
    None,
    "A stream never gets more partitions than this: for a sink that allows no more. A rescale or requirements above it are refused. Unset: the requirements alone are the bound.",
    check=at_least(1),
)
PARTITIONS_PER_CORE = _whole(
    _STREAM + "partitions-per-core",
    4,
    "Slots that a core gives: as many partitions of state as a rescale, or the first start, plans for it.",
    check=at_least(1),
)
MAX_PARTITIONS_PER_CORE = _whole(
    _STREAM + "max-partitions-per-core",
    16,
    "While a stream runs, its number of partitions stays as it is as long as every core has at least one and none has more than this, and the requirements allow it.",
    check=at_least(1),
)
COOLDOWN_AFTER_SCALE_UP = _seconds(
    _STREAM + "cooldown-after-scale-up",
    None,
    "The time after a rescale in which the parallelism is not raised. Unset: the common cooldown. The direction that is wanted decides which of the two cooldowns counts.",
    check=at_least(0),
)
COOLDOWN_AFTER_SCALE_DOWN = _seconds(
    _STREAM + "cooldown-after-scale-down",
    None,
    "The time after a rescale in which the parallelism is not lowered. Unset: the common cooldown.",
    check=at_least(0),
)
MAX_DOWNTIME = _seconds(
    _STREAM + "max-downtime",
    None,
    "A rescale whose downtime is predicted to be longer waits for the user's confirmation (rescale without a number). Unset: none waits.",
    check=at_least(0),
)
STREAM_SCALING = one_of("resources", "load").of(Scope.STREAMS)(
    _STREAM + "scaling",
    "resources",
    "The source of the parallelism. resources: the cores there are, within the requirements. load: only those of the cores that its batches need, as busy as they are; where the source tells no backlog and the trigger has no gap that cannot be told, and it is as with resources.",
)
LOAD_TARGET = _number(
    _STREAM + "load.target-utilization",
    0.7,
    "With scaling = load: the share of the time that batches should take of it after a rescale.",
    check=_is_part,
)
LOAD_HIGH = _number(
    _STREAM + "load.high-utilization",
    0.9,
    "With scaling = load: above this a stream is taken to need more cores.",
    check=_is_part,
)
LOAD_LOW = _number(
    _STREAM + "load.low-utilization",
    0.35,
    "With scaling = load: below this it is taken to need fewer.",
    check=_is_part,
)
LOAD_WINDOW = _seconds(
    _STREAM + "load.window",
    60.0,
    "With scaling = load: over how long batches are looked at.",
    check=at_least(0.001, "1 ms"),
)
