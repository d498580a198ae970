"""Why a query failed, as its user is to read it: a sentence, and the frames of their own code."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass

from py4j.protocol import Py4JError, Py4JNetworkError

from firesteel.errors import FiresteelError, UsageError, error_words, shortened
from firesteel.task.functions.user_code import is_foreign, user_frames

_TRACEBACK = "Traceback (most recent call last):"
_STATE = re.compile(r"\s*SQLSTATE: \w+\.?")
_CONDITION = re.compile(r"^\s*(?:[\w.$]+: )?\[[A-Z0-9_.]+\]\s*")
_UNREAD = re.compile(r"\[FAILED_READ_FILE\.?(\w*)\] Encountered error while reading file (\S+)\.\s+([^\n]*)")
_CAUSE = re.compile(r"^Caused by: ([^\n]+)", re.MULTILINE)
_OF_SPARK = re.compile(
    r"^(?:[\w.]+\.)?Py4JJavaError: An error occurred while calling \S+\s+: (?:[\w.$]+: )?(?:\[[A-Z0-9_.]+\]\s*)?(.*)",
    re.DOTALL,
)
"""What a query raised that a Python function ran."""
_FRAME = re.compile(r'\s+File "([^"]+)", line \d+')
_LOST = (
    "ExecutorLostFailure",
    "FetchFailed",
    "MetadataFetchFailed",
    "Executor heartbeat timed out",
    "ExecutorDeadException",
)
_BEFORE = (
    ("Python worker exited unexpectedly", "A Python worker died in the middle of a task: "),
    ("Python worker failed to connect back", "A Python worker died in the middle of a task: "),
    ("No space left on device", "A disk is full: "),
)
_IN_DRIVER = ("FOREACH_BATCH", "raised by the Python Proxy")
_FINAL = (
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_SCHEMA_MUST_BE_NULLABLE",
    "STATE_STORE_PROVIDER_DOES_NOT_SUPPORT",
    "UNSUPPORTED_STREAMING_OPERATION",
    "STREAMING_UNFINISHED_REPARTITION_DETECTED",
    "There are [",
)
"""The checkpoint is of another query; "There are [2] sources ..." has no condition of its own."""
_NOT_THERE = ("[TABLE_OR_VIEW_NOT_FOUND", "[UNRESOLVED_ROUTINE", "[DATA_SOURCE_NOT_FOUND")
_OWN_SESSION = " 'build' gets a session of its own: make its temporary views, functions and data sources in it."
_NO_ANSWER = re.compile(r"An error occurred while calling \S+$")
"""The words of py4j on a call that the JVM died in; where the JVM has answered, its words follow."""
_JVM_ENDED = "Spark's JVM has ended: it crashed or was killed."
_GONE = ("SparkContext was shut down", "stopped SparkContext", "SparkContext has been shutdown")
_OF_THE_CODE = (NameError, TypeError, AttributeError, ImportError, SyntaxError, AssertionError)


@dataclass(frozen=True, slots=True)
class Described:
    """``cause``: a sentence, and below it the user's frames. ``final``: the next try would end alike. ``counted``: the stream's
    own fault."""

    cause: str
    final: bool = False
    counted: bool = True


STOPPED_FROM_OUTSIDE = Described(
    "Its query was stopped from outside, by stop() on the query itself or by another query on its checkpoint.",
    final=True,
)
"""Another try would stop that other query in turn."""


def describe(error: BaseException) -> Described:
    """Describes the error that a streaming query ended with, or that building and starting one raised."""
    if _is_without_jvm(error):
        return Described(_JVM_ENDED, final=True)
    if isinstance(error, FiresteelError):
        return Described(str(error), final=isinstance(error, UsageError))
    kind = type(error).__name__
    if not hasattr(error, "getCondition") and not hasattr(error, "java_exception"):
        frames = _cut(user_frames(error), "\n")
        return Described(f"It raised {error_words(error)}.{frames}", final=isinstance(error, _OF_THE_CODE))
    return described(_text(error), planning=kind in ("AnalysisException", "ParseException", "IllegalArgumentException"))


def described(text: str, *, planning: bool = False) -> Described:
    """``text``: what Spark says. ``planning``: before anything ran."""
    said = text.partition("\n=== Streaming Query ===")[0]
    said = said.partition("terminated with exception: ")[2] or said
    if any(word in said for word in _GONE):
        return Described("Spark was stopped while the stream was running.", final=True)
    unread = _UNREAD.search(said)
    if unread is not None:
        return Described(_unread(unread[1], unread[2], unread[3], _CAUSE.findall(said)))
    before, found, trace = said.partition(_TRACEBACK)
    if found:
        return Described(_in_python(before, trace))
    lost = next((word for word in _LOST if word in said), None)
    line = _CONDITION.sub("", _STATE.sub("", said.strip())).partition("\n\tat ")[0].partition("\nDriver stacktrace")[0]
    line = shortened(" ".join(line.split())).rstrip(".")
    if lost is not None:
        return Described(f"An executor was lost: {line}.", counted=False)
    what = next((sentence for word, sentence in _BEFORE if word in said), "")
    hint = _OWN_SESSION if not what and any(word in said for word in _NOT_THERE) else ""
    final = not what and (planning or bool(hint) or any(word in said for word in _FINAL))
    return Described(f"{what}{line}.{hint}", final=final)


def _in_python(before: str, trace: str) -> str:
    """The sentence on what a Python function raised. ``before``: what Spark says in front of its traceback."""
    frames, words = _frames(trace)
    where = "The function of foreachBatch" if any(w in before for w in _IN_DRIVER) else "A Python function of the query"
    if "FOREACH_USER" in before:
        where = "The function of foreach"
    of_spark = _OF_SPARK.match(words)
    if of_spark is not None:
        return (
            f"A query that Spark ran for {where[:1].lower()}{where[1:]} failed: {of_spark[1]}.{_cut(frames, chr(10))}"
        )
    return f"{where} raised {words}.{_cut(frames, chr(10))}"


def _unread(kind: str, path: str, more: str, causes: list[str]) -> str:
    """The sentence on a file that Spark cannot read. ``kind``: Spark's; ``more``: the rest of its message."""
    more = _STATE.sub("", more).strip() or (causes[-1].strip() if causes else "")
    said = f"The file {path} cannot be read{': ' if more else ''}{shortened(more).rstrip('.')}."
    if kind not in ("", "NO_HINT", "CANNOT_READ_FILE_FOOTER"):
        return said
    return (
        f"{said} It is damaged or has another format. Replace or remove it, or skip such files with "
        "spark.sql.files.ignoreCorruptFiles=true."
    )


def _is_without_jvm(error: BaseException | None) -> bool:
    """Returns whether a call into the JVM found nobody there. (The user's own code may find a connection refused.)"""
    while error is not None:
        if isinstance(error, Py4JNetworkError) or (type(error) is Py4JError and _NO_ANSWER.search(str(error))):
            return True
        if isinstance(error, ConnectionError):
            frames = traceback.extract_tb(error.__traceback__)
            return bool(frames) and any(_in_py4j(frame.filename) for frame in frames)
        error = error.__cause__
    return False


def _in_py4j(filename: str) -> bool:
    return "/py4j/" in filename or "/py4j-" in filename


def _frames(trace: str) -> tuple[str, str]:
    """The frames of the user's code of a traceback's text, and the error that ends it."""
    kept: list[str] = []
    words: list[str] = []
    keep = False
    for line in trace.strip("\n").split("\n"):
        frame = _FRAME.match(line)
        if frame:
            keep = not is_foreign(frame[1]) and not _in_py4j(frame[1])
        if line.startswith("  "):
            kept += [line] * keep
        elif line.startswith("\tat ") or line.strip().startswith("SQLSTATE") or (words and not line.strip()):
            break
        else:
            words.append(_STATE.sub("", line))
    told = shortened(" ".join(" ".join(words).split())).rstrip(".")
    return (f"{_TRACEBACK}\n" + "\n".join(kept) if kept else ""), told or "an error"


def _cut(frames: str, before: str) -> str:
    return before + frames.rstrip() if frames.strip() else ""


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    try:
        return str(error) if java is None else str(java.toString())
    except Exception:  # the JVM is gone
        return type(error).__name__
