"""Options of streams: FLIP-461's keys, those that Flink has around them today, and what Firesteel adds; and options of monitoring and of the page."""

from __future__ import annotations

import re
from typing import Any

from firesteel.options.registry import Kind, Scope, at_least, number, one_of, parse_wait, seconds, switch, text, whole

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


_switch, _text = switch.of(Scope.BOTH), text.of(Scope.BOTH)


def _port(value: int | None) -> str | None:
    return None if value is None or 0 <= value < 1 << 16 else "must be a port: 0 (any that is free) to 65535"


PROMETHEUS_ENABLED = _switch(
    "firesteel.metrics.prometheus.enabled",
    False,
    "Keep the metrics of jobs and streams for Prometheus. A program serves them by registering firesteel.monitoring.prometheus.Collector. Needs the extra prometheus.",
)
PROMETHEUS_PORT = whole.of(Scope.BOTH)(
    "firesteel.metrics.prometheus.port",
    None,
    "Serve the metrics of this process to Prometheus at this port too, by a small server of their own; 0: at any that is free. It means firesteel.metrics.prometheus.enabled = true. One that is taken is logged, and the job goes on without.",
    check=_port,
)
PROMETHEUS_HOST = _text(
    "firesteel.metrics.prometheus.host",
    "127.0.0.1",
    "The address at which metrics are served. Whoever reaches another one than 127.0.0.1 can read the names and numbers of all jobs.",
)
OTEL_TRACES = _switch(
    "firesteel.traces.opentelemetry.enabled",
    False,
    "Send a trace of each job and stream by OpenTelemetry: to the tracer provider of your program, if it has set one; else by OTLP over HTTP to where the OTEL_... variables say (http://localhost:4318). Needs the extra otel.",
)
OTEL_METRICS = _switch(
    "firesteel.metrics.opentelemetry.enabled",
    False,
    "Send the metrics of jobs and streams by OpenTelemetry: to the meter provider of your program, if it has set one; else by OTLP over HTTP to where the OTEL_... variables say. Needs the extra otel.",
)
LINEAGE = _switch(
    "firesteel.lineage.openlineage.enabled",
    False,
    "Tell by OpenLineage what each job and stream reads and writes, with schemas, columns and rows, where OpenLineage's own configuration says (OPENLINEAGE_URL, openlineage.yml). Needs the extra lineage.",
)


def parse_ports(value: Any) -> str:
    """``"8081"``, ``"8081-8099"``; ``"0"``: any that is free. Raises ValueError."""
    match = re.fullmatch(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?", "" if isinstance(value, bool) else str(value))
    first = int(match[1]) if match else -1
    last = int(match[2] or first) if match else -1
    if not 0 <= first <= last <= 65535:
        raise ValueError("a port, or a range of ports such as '8081-8099'")
    return f"{first}" if first == last else f"{first}-{last}"


def ports_of(text: str) -> range:
    """Of a value of ``rest.bind-port``."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


UI_ENABLED = switch.of(Scope.BOTH)(
    "firesteel.ui.enabled",
    False,
    "Whether the jobs and streams of this process are shown on a page, and over REST, while it runs (needs the extra ui). One line says where. firesteel run --ui sets it.",
)
BIND_ADDRESS = text.of(Scope.BOTH)(
    "rest.bind-address",
    "127.0.0.1",
    "The address that the page and REST are served at. At any but this machine's own (127.0.0.1, ::1, localhost), everything needs the token. 0.0.0.0: all of the machine's addresses.",
)
BIND_PORT = Kind(parse_ports, Scope.BOTH)(
    "rest.bind-port",
    "8081-8180",
    "The port of the page and REST, or a range of which the first free one is taken. 0: any that is free.",
)
UI_TOKEN_FILE = text.of(Scope.BOTH)(
    "firesteel.ui.token-file",
    None,
    "The file with the token that is needed to change anything over REST or on the page (cancel, stop, rescale), and at other addresses than this machine's own for everything. A file that is not there is made; one that others can read is refused. Unset: ui-token beside the journals.",
)
