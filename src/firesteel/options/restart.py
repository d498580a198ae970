"""Options of restarts and of speculative execution: Flink's keys."""

from __future__ import annotations

from firesteel.options.registry import Scope, at_least, number, one_of, seconds, switch, text, whole

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


_SPECULATIVE = "jobmanager.adaptive-batch-scheduler.speculative."
_FLINK_SPECULATIVE = "execution.batch.speculative."

SPECULATIVE_ENABLED = switch(
    _SPECULATIVE + "enabled",
    False,
    "Speculative execution (FLIP-168): executions that are slow get a mirror on another node; the first to finish wins. With jobmanager.scheduler = AdaptiveBatch only.",
    aliases=(_FLINK_SPECULATIVE + "enabled",),
)
MAX_CONCURRENT_EXECUTIONS = whole(
    _SPECULATIVE + "max-concurrent-executions",
    2,
    "The most executions of a subtask, the original one among them, that may run at the same time.",
    aliases=(_FLINK_SPECULATIVE + "max-concurrent-executions",),
    check=at_least(1),
)
BLOCK_SLOW_NODE_DURATION = seconds(
    _SPECULATIVE + "block-slow-node-duration",
    60.0,
    "The time in which the node of a slow execution gets no new tasks. 0: nodes are not blocked.",
    aliases=(_FLINK_SPECULATIVE + "block-slow-node-duration",),
    check=at_least(0),
)
MAX_REJECTIONS = whole(
    "firesteel.speculative.max-rejections",
    5,
    "How often in a row the executions of a subtask that Spark starts on a blocked node may be rejected there; the next one runs wherever it is.",
    deprecated_keys=("firesteel.speculative.max-returns",),
    check=at_least(0),
)
CHECK_INTERVAL = seconds(
    "slow-task-detector.check-interval",
    1.0,
    "The interval in which the detector looks for slow executions.",
    check=at_least(0.01, "10 ms"),
)
BASELINE_LOWER_BOUND = seconds(
    "slow-task-detector.execution-time.baseline-lower-bound",
    60.0,
    "No execution that has taken less is slow.",
    check=at_least(0),
)
BASELINE_RATIO = number(
    "slow-task-detector.execution-time.baseline-ratio",
    0.75,
    "Part of a step's subtasks that must have finished before any of the others is called slow.",
    check=lambda ratio: None if 0 <= ratio < 1 else "must be at least 0 and less than 1",
)
BASELINE_MULTIPLIER = number(
    "slow-task-detector.execution-time.baseline-multiplier",
    1.5,
    "An execution is slow when it takes so many times as long as is usual in its step.",
    check=lambda multiplier: None if multiplier > 0 else "must be greater than 0",
)
SLOW_TASK_RULE = one_of("input-weighted", "seed")(
    "firesteel.slow-task-detector.rule",
    "input-weighted",
    "The baseline of a step. input-weighted: the median time per input byte, so that an execution which only has more to read is not slow; seed: FLIP-168's median time, unchanged: no execution is slow before baseline-ratio is reached.",
)
SLOW_TASK_FUNCTION = text(
    "firesteel.slow-task-detector.function",
    None,
    "What makes a slow task strategy of your own, as 'module:function': it is given the job's options and returns an object with the method baseline(step), a firesteel.SlowTaskStrategy. It takes the place of rule, expected, absolute-time and the slow-task-detector.execution-time.* options. Unset: those.",
)
SLOW_TASK_EXPECTED = switch(
    "firesteel.slow-task-detector.expected",
    None,
    "Where baseline-ratio cannot be reached (few subtasks, or a node that hangs runs many), an execution is slow too when it takes far longer than its bytes and the rate of others let expect. Unset: true with firesteel.slow-task-detector.rule = input-weighted, false with seed, which knows no expectations.",
)
SLOW_TASK_ABSOLUTE_TIME = seconds(
    "firesteel.slow-task-detector.absolute-time",
    None,
    "An execution that has taken so long is slow, whatever others take. Unset: there is no such bound.",
    check=at_least(0.01, "10 ms"),
)
NODE_VARIABLE = text(
    "firesteel.node.environment-variable",
    None,
    "Environment variable of the executors that names the machine they run on, for example one that Kubernetes fills in from spec.nodeName. Unset: the executor's host, or the executor where all share one host.",
)
