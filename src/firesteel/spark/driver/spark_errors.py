"""Reads what Spark says of a task that failed, or of a whole batch that it gave up: which task was to blame, and why, as a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass

_CULPRIT = re.compile(r"Task (\d+) in stage (\d+)\.(\d+) failed (\d+) times")
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor (\S+)\)")
_CANCELLED = re.compile(r"[Jj]ob \d+ (was )?cancel+ed")
_CAUSE = re.compile(r"\(\S+ executor \S+\): (.*)")


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """The end of a task, in words for the user. ``worker``: its Python worker or executor died."""

    sentence: str
    hint: str | None
    worker: bool


@dataclass(frozen=True, slots=True)
class GivenUp:
    """``task``: the culprit's index in its stage, None if Spark names none. ``worker``: a Python worker or executor died."""

    sentence: str
    hint: str | None
    task: int | None
    stage: int | None
    stage_attempt: int
    worker: bool
    fatal: bool = False
    """Spark itself is gone, or it was asked for something impossible: trying again is of no use."""


WITHOUT_A_WORD = GivenUp("Spark's job ended before some of its tasks reported.", None, None, None, 0, True)


def read_error(error: BaseException) -> GivenUp:
    """Reads a Spark job's exception. Never raises."""
    text = _text(error)
    if _is_gone(error, text):
        return GivenUp(
            "Spark was stopped while the job was running.",
            "Do not stop the session before it ends.",
            None,
            None,
            0,
            False,
            True,
        )
    if getattr(error, "java_exception", None) is None:
        said = " ".join(line.strip() for line in text.splitlines()[:3])
        return GivenUp(
            f"The Spark job could not be started: {type(error).__name__}: {said}", None, None, None, 0, False, True
        )
    match = _CULPRIT.search(text)
    host = _HOST.search(text)
    cause = _CAUSE.search(text)
    said = cause[1] if cause else text
    ended = read_task_error(said, host[1] if host and host[2] != "driver" else "", text)
    numbers = (int(match[1]), int(match[2]), int(match[3])) if match else (None, None, 0)
    return GivenUp(ended.sentence, ended.hint, *numbers, ended.worker)


def read_task_error(said: str, host: str = "", text: str = "") -> TaskEnd:
    """Reads the words of Spark on one task: ``said`` begins with them, ``host`` is where it ran, if that is worth telling, ``text`` all there is."""
    first, where = said.strip().partition("\n")[0].strip(), f" on {host}" if host else ""
    if "Python worker exited unexpectedly" in (text or said) or "EOFException" in first:
        return TaskEnd(
            f"A Python worker{where} died in the middle of the task: it was killed, it crashed, or it exited.",
            "If the system killed it for want of memory: give tasks less to do, or the machine more memory.",
            worker=True,
        )
    if "ExecutorLostFailure" in first:
        reason = first.partition("Reason:")[2].strip() or first
        return TaskEnd(f"An executor{where} was lost in the middle of the task: {reason}", None, worker=True)
    return TaskEnd(f"Spark gave the task up{where}: {first}", None, worker=False)


def was_cancelled(error: BaseException) -> bool:
    """Somebody cancelled the job in Spark itself. Asked of Spark's first line only: below it may stand a user's words."""
    text = _text(error)
    if getattr(error, "java_exception", None) is None or _is_gone(error, text):
        return False
    return bool(_CANCELLED.search(text.strip().partition("\n")[0]))


def _text(error: BaseException) -> str:
    java = getattr(error, "java_exception", None)
    if java is not None:
        try:
            return str(java.getMessage() or java.toString())
        except Exception:  # the JVM is gone
            return str(type(error).__name__)
    return str(error)


def _is_gone(error: BaseException, text: str) -> bool:
    if (
        "SparkContext was shut down" in text
        or "stopped SparkContext" in text
        or "SparkContext has been shutdown" in text
    ):
        return True
    return type(error).__name__ in ("Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError")
