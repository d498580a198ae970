"""The user's requirements for a stream's parallelism (FLIP-291's resource requirements, of the whole query)."""

from __future__ import annotations

from dataclasses import dataclass

from firesteel.errors import UsageError

MOST_PARTITIONS = 32_768
"""As Flink's largest ``maxParallelism``."""


def check_partitions(number: object) -> None:
    """Raises UsageError unless a stream can have so many partitions."""
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST_PARTITIONS:
        raise UsageError(
            f"A stream cannot have {number!r} partitions.",
            hint=f"Give a whole number from 1 to {MOST_PARTITIONS:,}.",
        )


@dataclass(frozen=True, slots=True)
class ResourceRequirements:
    """Bounds of the parallelism of a stream: the number of partitions that its state has.

    ``lower``: not rescaled with slots for fewer, and not started before the wait for them is over
    (``jobmanager.adaptive-scheduler.submission.resource-wait-timeout``). ``upper``: never more. A *slot* is one partition's
    place; a core of Spark gives ``firesteel.stream.partitions-per-core`` of them, or executors as many as fit, of those that the
    stream's slot sharing group describes. Raises UsageError unless 1 <= lower <= upper <= 32,768.
    """

    lower: int = 1
    upper: int = 128

    def __post_init__(self) -> None:
        for name, value in (("lower", self.lower), ("upper", self.upper)):
            if isinstance(value, bool) or not isinstance(value, int):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise UsageError(f"'{name}' of the resource requirements is {value!r}; it must be a whole number.")
        if not 1 <= self.lower <= self.upper <= MOST_PARTITIONS:
            raise UsageError(
                f"Resource requirements of {self.lower} to {self.upper} cannot be met.",
                hint=f"They must be from 1 to {MOST_PARTITIONS:,}, and 'lower' no more than 'upper'.",
            )

    def clamp(self, parallelism: int) -> int:
        return max(self.lower, min(parallelism, self.upper))
