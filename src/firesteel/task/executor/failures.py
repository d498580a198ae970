"""Whatever an execution raised, as something to tell: a kind, a sentence, a hint, the user's frames."""

from __future__ import annotations

import errno
import traceback
from dataclasses import dataclass

from firesteel.errors import EngineStop, FiresteelError, PartitionException, Stop, UsageError, error_words, shortened
from firesteel.results.storage.store import StorageError
from firesteel.task.executor.place import here
from firesteel.task.functions.user_code import SetUpError, UserFunctionError


class RunAgainError(FiresteelError):
    """Spark lost a task, or killed it, and started it again by itself. Each attempt is the scheduler's: this one ends at once."""


@dataclass(frozen=True, slots=True)
class Described:
    """``kind``: name of the FailureKind; ``message``: a sentence; ``trace``: the user's frames; ``stop``: of the embedded engine."""

    kind: str
    message: str
    hint: str | None = None
    trace: str | None = None
    stop: Stop | None = None


def describe_failure(error: BaseException) -> Described:
    """Whatever an execution raised, as something to tell."""
    trace: str | None = getattr(error, "trace", None) or None
    cause = error.__cause__ if isinstance(error, UserFunctionError) and error.__cause__ is not None else error
    match cause:
        case RunAgainError():
            described = Described("LOST", cause.message)
        case PartitionException():
            described = Described("PARTITION", str(cause))
        case EngineStop():
            described = Described("FATAL", cause.message, cause.hint, stop=cause.kind)
        case MemoryError():
            described = Described(
                "USER",
                f"The task on {node_name()} ran out of memory: {error_words(cause)}.",
                "Give tasks less to do (data-volume-per-task) or executors more memory.",
                trace,
            )
        case StorageError():
            described = Described("STORAGE", cause.message, cause.hint)
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            described = Described(
                "STORAGE",
                f"The disk of {node_name()} is full{f' at {cause.filename}' if cause.filename else ''}: {error_words(cause)}.",
                "Free some space there.",
                trace,
            )
        case ModuleNotFoundError() if cause is error:
            described = Described(
                "FATAL",
                f"{node_name()} cannot load the step's code: {error_words(cause)}.",
                f"Install '{cause.name}' on every executor, or ship it with spark.sparkContext.addPyFile(...).",
            )
        case _ if isinstance(error, FiresteelError):
            described = Described(_kind_of(error), error.message, error.hint, trace)
        case OSError():
            described = Described("STORAGE", f"{error_words(error)} (on {node_name()}).", None, _frames(error))
        case _:
            described = Described("USER", f"{error_words(error)}.", None, _frames(error))
    return described


def _kind_of(error: FiresteelError) -> str:
    if isinstance(error, UsageError):
        return "FATAL"
    return "SET_UP" if isinstance(error, SetUpError) and error.is_lasting else "USER"


def node_name() -> str:
    return here().host


def _frames(error: BaseException) -> str:
    return "".join(map(shortened, traceback.format_exception(error)[-12:]))
