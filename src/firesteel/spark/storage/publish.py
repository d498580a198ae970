"""Publishes all sinks of a job: all of them, or none as far as they can be taken back.

A sink may offer ``hold()``, ``rollback()`` and ``release()`` beside ``commit`` (see ``connectors.base.Sink``): what it has
committed after ``hold`` can be taken back until ``release``. Such sinks are published first, the others last.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from firesteel.compile.compiled import CompiledJob
from firesteel.connectors.base import PUBLISHED, PUBLISHING
from firesteel.errors import FiresteelError
from firesteel.spark.storage.cleaning import quietly

TAKEN_BACK = "taken back"
"""The step of a sink that was published before another one could not be: nothing of it is out any more."""
_log = logging.getLogger("firesteel.spark")


class NotPublishedError(FiresteelError):
    """``published``: the sinks whose output is out nevertheless; ``storage``: trying again may help."""

    def __init__(self, message: str, published: list[Any], storage: bool) -> None:
        super().__init__(message)
        self.published = published
        self.storage = storage


class Steps:
    """The step that each sink has come to, of a job that ends with its driver."""

    lasts = False
    """They outlive this process: nothing may be removed that another one would need."""

    def is_published(self, sink: Any) -> bool:
        """An earlier driver has."""
        return False

    def told(self, sink: Any, step: str) -> None:
        """Returns when it is durable (``connectors.base``: PUBLISHING, PUBLISHED), before what follows from it is done; raises FiresteelError where
        that cannot be."""


class SinkSteps(Steps):
    """``step``: makes durable how far the sink of a vertex at a place has come (``Gate.step``). ``published``: by an earlier driver."""

    lasts = True

    def __init__(self, compiled: CompiledJob, step: Callable[[int, int, str], None], published: Sequence[Any]) -> None:
        self._places = {
            id(sink): (vertex, place) for vertex, sinks in compiled.sinks.items() for place, sink in enumerate(sinks)
        }
        self._step = step
        self._published = published

    def is_published(self, sink: Any) -> bool:
        return _is_in(self._published, sink)

    def told(self, sink: Any, step: str) -> None:
        self._step(*self._places[id(sink)], step)


def publish(outputs: Sequence[tuple[Any, Sequence[Any]]], steps: Steps | None = None) -> None:
    """``outputs``: each sink with the commit messages of its winners, in subtask order. Raises NotPublishedError."""
    steps = steps or Steps()
    left = [sink for sink, _ in outputs if not steps.is_published(sink)]
    held = [sink for sink in left if (steps.lasts or len(outputs) > 1) and _can_hold(sink)]
    in_order = sorted(outputs, key=lambda output: not _is_in(held, output[0]))
    done = [sink for sink, _ in outputs if not _is_in(left, sink)]
    for sink, messages in in_order:
        if not _is_in(left, sink):
            continue
        try:
            if _is_in(held, sink):
                sink.hold()
            steps.told(sink, PUBLISHING)
            sink.commit(messages)
            done.append(sink)
            steps.told(sink, PUBLISHED)
        except BaseException as error:
            stay = [one for one in reversed(done) if not _taken_back(one, held, steps)][::-1]
            raise NotPublishedError(_words(sink, error, stay), stay, isinstance(error, OSError)) from error
    for sink in done:
        if not _is_in(left, sink) or _is_in(held, sink) or not _can_hold(sink):
            quietly(getattr(sink, "release", lambda: None))


def _is_in(sinks: Sequence[Any], sink: Any) -> bool:
    return any(sink is one for one in sinks)


def _can_hold(sink: Any) -> bool:
    return all(callable(getattr(sink, name, None)) for name in ("hold", "rollback", "release"))


def _taken_back(sink: Any, held: list[Any], steps: Steps) -> bool:
    if not _is_in(held, sink):
        return False
    try:
        steps.told(sink, PUBLISHING)  # of which another driver knows that it may be out or not
        sink.rollback()
    except Exception:
        _log.debug("'%s' could not be taken back", sink.name, exc_info=True)
        return False
    quietly(lambda: steps.told(sink, TAKEN_BACK))
    return True


def _words(sink: Any, error: BaseException, stay: list[Any]) -> str:
    said = str(error) if isinstance(error, FiresteelError) else f"{type(error).__name__}: {error}"
    message = f"The output '{sink.name}' could not be published: {said}"
    if not stay:
        return message
    names = ", ".join(f"'{one.name}'" for one in stay)
    return f"{message.rstrip('.')}. Published before that, and left as it is: {names}."
