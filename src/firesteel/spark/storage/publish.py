"""Publishes all sinks of a job: all of them, or none as far as they can be taken back.

A sink may offer ``hold()``, ``rollback()`` and ``release()`` beside ``commit`` (see ``connectors.base.Sink``): what it has
committed after ``hold`` can be taken back until ``release``. Such sinks are published first, the others last.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from firesteel.errors import FiresteelError
from firesteel.spark.storage.cleaning import quietly

_log = logging.getLogger("firesteel.spark")


class NotPublishedError(FiresteelError):
    """``published``: the sinks whose output is out nevertheless; ``storage``: trying again may help."""

    def __init__(self, message: str, published: list[Any], storage: bool) -> None:
        super().__init__(message)
        self.published = published
        self.storage = storage


def publish(outputs: Sequence[tuple[Any, Sequence[Any]]]) -> None:
    """``outputs``: each sink with the commit messages of its winners, in subtask order. Raises NotPublishedError."""
    held = [sink for sink, _ in outputs if len(outputs) > 1 and _can_hold(sink)]
    in_order = sorted(outputs, key=lambda output: not any(output[0] is sink for sink in held))
    done: list[Any] = []
    for sink, messages in in_order:
        try:
            if any(sink is one for one in held):
                sink.hold()
            sink.commit(messages)
        except BaseException as error:
            stay = [one for one in reversed(done) if not _taken_back(one, held)][::-1]
            raise NotPublishedError(_words(sink, error, stay), stay, isinstance(error, OSError)) from error
        done.append(sink)
    for sink in held:
        quietly(sink.release)


def _can_hold(sink: Any) -> bool:
    return all(callable(getattr(sink, name, None)) for name in ("hold", "rollback", "release"))


def _taken_back(sink: Any, held: list[Any]) -> bool:
    if not any(sink is one for one in held):
        return False
    try:
        sink.rollback()
    except Exception:
        _log.debug("'%s' could not be taken back", sink.name, exc_info=True)
        return False
    return True


def _words(sink: Any, error: BaseException, stay: list[Any]) -> str:
    said = str(error) if isinstance(error, FiresteelError) else f"{type(error).__name__}: {error}"
    message = f"The output '{sink.name}' could not be published: {said}"
    if not stay:
        return message
    names = ", ".join(f"'{one.name}'" for one in stay)
    return f"{message.rstrip('.')}. Published before that, and left as it is: {names}."
