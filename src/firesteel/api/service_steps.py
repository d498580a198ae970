"""Steps of a stream that call a service, and the stream of rows that a step could not do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from firesteel.api.steps import functions
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.rows import errors

if TYPE_CHECKING:
    from firesteel.api.data_stream import DataStream


class ServiceSteps:
    """A part of ``DataStream``."""

    _pipeline: Pipeline

    def _after(self, pipeline: Pipeline) -> DataStream:
        """The stream of a pipeline that begins with this one's."""
        raise NotImplementedError

    def map_async(
        self,
        func: Callable[..., Awaitable[Any]],
        schema: Any,
        *,
        concurrency: int = 16,
        ordered: bool = False,
        rate: str | float | None = None,
        retries: int = 0,
        timeout: Any = None,
        on_error: str = "fail",
        max_errors: int | None = None,
    ) -> DataStream:
        """As :meth:`map` with an ``async def func(row)``, which calls a service: each subtask waits for ``concurrency`` rows at a time.

        ``ordered``: rows leave in the order in which they came, else as they are answered. ``rate``: calls of the whole job, ``"100/s"``
        or ``"5000/min"``, which its subtasks share. ``retries``: repetitions of a call that raised, after pauses of 0.1 s, 0.2 s, ... with
        jitter. ``timeout``: of each try, seconds or ``"500 ms"``. What failed in each try is an error: see ``on_error`` of :meth:`map`.
        An execution of the step is never mirrored: the service would be called twice.
        """
        settings = {
            "concurrency": concurrency,
            "ordered": ordered,
            "rate": rate,
            "retries": retries,
            "timeout": timeout,
        }
        return self._after(functions.map_async(self._pipeline, func, schema, (on_error, max_errors), **settings))

    @property
    def errors(self) -> DataStream:
        """Of the stream that a step with ``on_error="route"`` returned: the rows that its function could not do, as they came in, and a
        column ``error`` with the reason."""
        return self._after(errors.errors(self._pipeline))
