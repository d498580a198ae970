"""Options of restarts: Flink's keys."""

from __future__ import annotations

from firesteel.options.registry import Scope, at_least, number, one_of, seconds, whole

_whole, _number, _seconds = whole.of(Scope.BOTH), number.of(Scope.BOTH), seconds.of(Scope.BOTH)
_RESTART_NAMES = {
    "off": "none",
    "disable": "none",
    "fixeddelay": "fixed-delay",
    "failurerate": "failure-rate",
    "exponentialdelay": "exponential-delay",
}
"""Names that Flink also understands."""

RESTART_STRATEGY = one_of("none", "fixed-delay", "failure-rate", "exponential-delay", also=_RESTART_NAMES).of(
    Scope.BOTH
)(
    "restart-strategy.type",
    "fixed-delay",
    "The reaction to a failed execution. none (off, disable): the job fails. fixed-delay: so many restarts in the whole job, each after the same pause. failure-rate: so many within an interval. exponential-delay: without limit, after pauses that grow.",
    deprecated_keys=("restart-strategy",),
)
RESTART_ATTEMPTS = _whole(
    "restart-strategy.fixed-delay.attempts",
    3,
    "Restarts before the job fails.",
    check=at_least(0),
)
RESTART_DELAY = _seconds(
    "restart-strategy.fixed-delay.delay",
    1.0,
    "Pause before a restart.",
    check=at_least(0),
)
MAX_FAILURES_PER_INTERVAL = _whole(
    "restart-strategy.failure-rate.max-failures-per-interval",
    1,
    "Failures within failure-rate-interval that are followed by a restart; the next one fails the job.",
    check=at_least(1),
)
FAILURE_RATE_INTERVAL = _seconds(
    "restart-strategy.failure-rate.failure-rate-interval",
    60.0,
    "Over how long failures are counted.",
    check=at_least(0.001, "1 ms"),
)
FAILURE_RATE_DELAY = _seconds(
    "restart-strategy.failure-rate.delay",
    1.0,
    "Pause before a restart.",
    check=at_least(0),
)
_EXPONENTIAL = "restart-strategy.exponential-delay."

INITIAL_BACKOFF = _seconds(
    _EXPONENTIAL + "initial-backoff",
    1.0,
    "Pause before the first restart.",
    check=at_least(0.001, "1 ms"),
)
MAX_BACKOFF = _seconds(
    _EXPONENTIAL + "max-backoff",
    60.0,
    "The longest pause before a restart.",
    check=at_least(0.001, "1 ms"),
)
BACKOFF_MULTIPLIER = _number(
    _EXPONENTIAL + "backoff-multiplier",
    1.5,
    "Each pause is so many times as long as the one before.",
    check=lambda multiplier: None if multiplier > 1 else "must be greater than 1",
)
RESET_BACKOFF_THRESHOLD = _seconds(
    _EXPONENTIAL + "reset-backoff-threshold",
    3600.0,
    "After so long without a failure the next pause is initial-backoff again.",
    check=at_least(0.001, "1 ms"),
)
JITTER_FACTOR = _number(
    _EXPONENTIAL + "jitter-factor",
    0.1,
    "A pause is longer or shorter by up to this part of it, so that jobs which failed together do not all come back in one moment. The same job has the same pauses.",
    check=lambda factor: None if 0 <= factor <= 1 else "must be at least 0 and at most 1",
)
ATTEMPTS_BEFORE_RESET_BACKOFF = _whole(
    _EXPONENTIAL + "attempts-before-reset-backoff",
    None,
    "Restarts before the job fails, counted anew when the pause is initial-backoff again. Unset: without limit.",
    check=at_least(1),
)
