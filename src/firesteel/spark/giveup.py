"""Reads what Spark says when it gives a whole batch up: which task was to blame, and why, as a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

_CULPRIT = re.compile(r"Task (\d+) in stage (\d+)\.(\d+) failed (\d+) times")
_HOST = re.compile(r"\(TID \d+\) \((\S+) executor (\S+)\)")
_CANCELLED = re.compile(r"[Jj]ob \d+ (was )?cancel+ed")
_CAUSE = re.compile(r"\(\S+ executor \S+\): (.*)")


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


WITHOUT_A_WORD = GivenUp("Spark's job ended without a word from some of its tasks.", None, None, None, 0, True)


def read_error(error: BaseException) -> GivenUp:
    """What a Spark job's exception says. Never raises."""
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
    where = f" on {host[1]}" if host and host[2] != "driver" else ""
    cause = _CAUSE.search(text)
    said = (cause[1] if cause else text.strip().partition("\n")[0]).strip()
    hint = None
    died = "Python worker exited unexpectedly" in text or "EOFException" in said
    lost = "ExecutorLostFailure" in said
    if died:
        sentence = f"A Python worker{where} died in the middle of the task: it was killed, it crashed, or it exited."
        hint = "If the system killed it for want of memory: give tasks less to do, or the machine more memory."
    elif lost:
        sentence = (
            f"An executor{where} was lost in the middle of the task: {said.partition('Reason:')[2].strip() or said}"
        )
    else:
        sentence = f"Spark gave the task up{where}: {said}"
    numbers = (int(match[1]), int(match[2]), int(match[3])) if match else (None, None, 0)
    return GivenUp(sentence, hint, numbers[0], numbers[1], numbers[2], died or lost)


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


def partition_of(context: Any, given_up: GivenUp) -> int | None:
    """The RDD partition of the culprit, from Spark's status store; None if it is not known any more."""
    if given_up.stage is None or given_up.task is None:
        return None
    try:
        store = context._jsc.sc().statusStore()
        tasks = store.taskList(given_up.stage, given_up.stage_attempt, 1 << 30)
        for i in range(tasks.size()):
            task = tasks.apply(i)
            if task.index() == given_up.task:
                return int(task.partitionId())
    except Exception:  # best effort: without it the index is taken for the position
        return None
    return None
