"""The choice of a runner, as a decision that is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from firesteel.humanize import format_bytes
from firesteel.options import IN_PROCESS, IN_PROCESS_MAX_BYTES, Options

_LEAST_MEMORY = 256 << 20


@dataclass(frozen=True, slots=True)
class Choice:
    """``inputs``: all that it was made of."""

    runner: Literal["in process", "stages"]
    rule: str
    reason: str
    inputs: Mapping[str, Any]


def choose(options: Options, nbytes: int, memory: int) -> Choice:
    """``nbytes``: plain bytes that the query reads; ``memory``: bytes that the engine of this process may hold."""
    most: int = options[IN_PROCESS_MAX_BYTES]
    inputs = {"bytes": nbytes, "max_bytes": most, "memory": memory}
    if options[IN_PROCESS] == "never":
        return Choice("stages", "option", f"{IN_PROCESS.key} is never", inputs)
    if nbytes > most:
        reason = f"it reads {format_bytes(nbytes)}, more than {format_bytes(most)} ({IN_PROCESS_MAX_BYTES.key})"
        return Choice("stages", "bytes", reason, inputs)
    if memory < _LEAST_MEMORY:
        return Choice("stages", "memory", f"this process has only {format_bytes(memory)} for the engine", inputs)
    reason = f"it reads {format_bytes(nbytes)}, at most {format_bytes(most)}"
    return Choice("in process", "bytes", reason, inputs)
