"""The push channel: messages of tasks reach the driver as each task ends, while the Spark job is still running.

A list accumulator. On an executor it appends; on the driver it hands the bytes to whoever opened the channel. An
exception there would silently end the accumulators of the whole process, so it only enqueues and swallows everything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyspark.accumulators as spark_accumulators
from pyspark.accumulators import AccumulatorParam

_receivers: dict[str, Callable[[bytes], None]] = {}
_opened_here = False
"""True in a process that ever opened a channel, that is: on the driver."""


class MessageParam(AccumulatorParam[list[bytes]]):
    """Lives in an importable module, so that it travels by name and drags no queue along."""

    def __init__(self, channel: str) -> None:
        self.channel = channel

    def zero(self, value: list[bytes]) -> list[bytes]:
        return []

    def addInPlace(self, value1: list[bytes], value2: list[bytes]) -> list[bytes]:  # noqa: N802 (PySpark's name)
        if not _opened_here:
            value1.extend(value2)
            return value1
        receive = _receivers.get(self.channel)
        if receive is not None:  # else: a zombie of a job that is over
            with suppress(Exception):
                for message in value2:
                    receive(message)
        return value1


class Channel:
    """One per job. ``receive`` is called in the accumulator server's thread: it must only enqueue."""

    def __init__(self, context: Any, name: str, receive: Callable[[bytes], None]) -> None:
        global _opened_here  # noqa: PLW0603
        _opened_here = True
        self.name = name
        _receivers[name] = receive
        self.accumulator: Any = context.accumulator([], MessageParam(name))

    def close(self) -> None:
        """Later messages are dropped, and PySpark forgets the accumulator."""
        _receivers.pop(self.name, None)
        registry: dict[int, Any] = spark_accumulators._accumulatorRegistry
        registry.pop(self.accumulator.aid, None)
