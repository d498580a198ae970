"""Every error a user can meet, as a sentence: what is wrong, where, and what to do about it.

Stdlib only: this module is imported on the driver, on executors and by the control plane alike.
"""

from __future__ import annotations

import copy
import sys
from enum import Enum
from functools import partial
from types import TracebackType
from typing import Any

OURS = __file__.removesuffix("errors.py")
"""With this begin the file names of this package's code in this process, as Python has them: unresolved, and in a zip perhaps
relative. A name in a path says nothing: a user's folder may be called firesteel, too."""
MOST_CHARACTERS = 2000
"""Of a user's error message, in what is told of it."""


class FiresteelError(Exception):
    """Base of all errors of ours. ``exit_code`` is what the command line exits with. ``cause_trace`` holds the user's frames, if
    code of theirs raised."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None, cause_trace: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.cause_trace = cause_trace
        if cause_trace:
            self.add_note(cause_trace.rstrip())  # where a script ends by it, Python prints these lines, too

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} {self.hint}"

    def _render_traceback_(self) -> list[str]:
        return _rendered(self)

    def __reduce__(self) -> tuple[Any, ...]:  # keeps ``hint`` across pickling
        return _rebuild, (type(self), self.message, self.hint, dict(self.__dict__))


def interruption(message: str) -> KeyboardInterrupt:
    """The KeyboardInterrupt to raise where Ctrl-C has cancelled something.

    No error of ours: a script's ``except Exception`` must not go on with the next job, and Python ends a script by the signal
    only for a KeyboardInterrupt itself.
    """
    error = KeyboardInterrupt(message)
    error.__dict__["_render_traceback_"] = partial(_rendered, error)
    return error


def error_words(error: BaseException) -> str:
    """``ValueError: its message``; also of an exception that cannot say what it is, and of one that says too much."""
    try:
        text = shortened(str(error).strip().rstrip("."))
    except Exception:
        text = "<its message cannot be shown>"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def failure(error: BaseException) -> str:
    """What failed, for a reason that users read: Spark's own words, or where in Firesteel a defect is."""
    if type(error).__module__.partition(".")[0] in ("py4j", "pyspark"):
        return f"Spark failed: {error_words(error).partition(': ')[2].partition(chr(10))[0] or type(error).__name__}"
    at, where = error.__traceback__, ""
    while at is not None:
        code, at = at.tb_frame.f_code, at.tb_next
        where = f" in {code.co_name}" if code.co_filename.startswith(OURS) else where
    return f"a defect of Firesteel stopped it ({type(error).__name__}{where}); please report the query"


def shortened(text: str) -> str:
    """The text, or its beginning and how much is left out."""
    if len(text) <= MOST_CHARACTERS:
        return text
    end = "\n" if text.endswith("\n") else ""
    return f"{text[:MOST_CHARACTERS]}... ({len(text) - MOST_CHARACTERS:,} more characters){end}"


def _rendered(error: BaseException) -> list[str]:
    """The traceback that IPython shows: the user's own lines and the sentence, without our frames and caught causes."""
    shown = copy.copy(error).with_traceback(None)
    shown.__dict__.pop("__notes__", None)  # these lines come first
    above: str | None = getattr(error, "cause_trace", None)  # a KeyboardInterrupt has none
    tb: Any = sys.modules["IPython"].get_ipython().InteractiveTB
    lines: list[str] = tb.structured_traceback(type(error), shown, _before_ours(error.__traceback__))
    return [*above.rstrip().splitlines(), "", *lines] if above else lines


def _before_ours(trace: TracebackType | None) -> TracebackType | None:
    """The frames down to the first of this package's."""
    frames: list[TracebackType] = []
    while trace is not None and not str(trace.tb_frame.f_globals.get("__name__", "")).startswith("firesteel."):
        frames.append(trace)
        trace = trace.tb_next
    kept: TracebackType | None = None
    for one in reversed(frames):
        kept = TracebackType(kept, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return kept


def _rebuild(cls: type[FiresteelError], message: str, hint: str | None, state: dict[str, Any]) -> FiresteelError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class UsageError(FiresteelError):
    """The pipeline, an option or a path is wrong; found before any Spark job was started."""

    exit_code = 2


class OutputExistsError(UsageError):
    """An output is there already, and may not be. All else about it was looked at, and is right."""


class Stop(Enum):
    """Why the embedded engine stopped."""

    VALUE = "a value that it does not compute as Spark does"
    INPUT = "an input that it does not read as Spark does"
    MEMORY = "too little memory"
    INTERRUPTED = "an interrupt that was asked for"
    ENGINE = "no engine, or one that does not take the statement"
    INTERNAL = "a defect of the engine"


class EngineStop(FiresteelError):
    """The embedded engine, or what stands for it, gave up on a query. Spark runs the query instead, unless it was interrupted."""

    def __init__(self, kind: Stop, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class JobExecutionError(FiresteelError):
    """A job was started and failed."""

    stop: EngineStop | None = None
    """The stop of the embedded engine that ended the job, if one did."""


class WrongAnswerError(FiresteelError):
    """An accelerated query gave another answer than Spark (``firesteel.sql.verify``)."""


class JobCancelledError(FiresteelError):
    """The job was cancelled by ``cancel()``. (Ctrl-C while it is waited for is a KeyboardInterrupt that says so.)"""

    exit_code = 130


MERGED_ATTEMPT = -2
"""Stands for the attempt where not a partition's own object is meant but a merged one that begins with the partition."""


class PartitionException(FiresteelError):
    """A produced partition cannot be read: lost, truncated or damaged (Flink: PartitionException).

    Names the producing execution, so that the scheduler can restart exactly that one; or, with ``attempt`` =
    MERGED_ATTEMPT, the first partition and the token of a merged object, whose partitions have objects of their own.
    """

    def __init__(
        self, message: str, *, dataset: int = -1, partition: int = -1, attempt: int = -1, token: int = -1
    ) -> None:
        super().__init__(message)
        self.dataset = dataset
        self.partition = partition
        self.attempt = attempt
        self.token = token
