"""Operators that hand rows on as they come: only where rows lie, and in how many subtasks, changes (``repartition``), or what they are
in files is looked at."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from firesteel.errors import FiresteelError
from firesteel.model.reports import SAMPLED, SAMPLED_FILE
from firesteel.results.plain import add_row_bytes, to_stored
from firesteel.task.program import Batches, TaskContext, UnitInput


@dataclass(frozen=True, slots=True)
class Passing:
    name: str
    unitwise: ClassVar[bool] = True

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        return batches


@dataclass(frozen=True, slots=True)
class PassingByKey:
    """Behind a hash exchange."""

    name: str
    group_keys: tuple[str, ...]
    unitwise: ClassVar[bool] = True
    any_size: ClassVar[bool] = True

    @property
    def keys(self) -> tuple[tuple[str, ...], ...]:
        return (self.group_keys,)

    def apply_unit(self, inputs: list[UnitInput], ctx: TaskContext) -> Batches:
        yield from inputs[0].batches()


SAMPLE_BYTES = 1 << 20
"""Plain bytes of the rows of one subtask."""


class Encodes(Protocol):
    """A sink that can tell how many bytes rows make in a file. Raises OSError, pa.ArrowException, FiresteelError."""

    def encoded_bytes(self, batches: Sequence[pa.RecordBatch]) -> int: ...


class FileSample:
    """Counts how many bytes the first of its rows make in the files of the sink that they go to."""

    __slots__ = ("_sink", "name")  # without a __dict__, so that files are no part of a step's identity
    unitwise: ClassVar[bool] = False

    def __init__(self, name: str, sink: Encodes) -> None:
        self.name, self._sink = name, sink

    def apply(self, batches: Batches, ctx: TaskContext) -> Batches:
        held: list[pa.RecordBatch] = []
        left = SAMPLE_BYTES
        for batch in batches:
            if left > 0 and batch.num_rows:
                held.append(batch.slice(0, max(1, batch.num_rows * left // max(batch.nbytes, 1))))
                left -= batch.nbytes
                if left <= 0:
                    self._count(held, ctx)
            yield batch
        self._count(held, ctx)

    def _count(self, held: list[pa.RecordBatch], ctx: TaskContext) -> None:
        with suppress(OSError, pa.ArrowException, FiresteelError):  # whoever writes them is told
            written = self._sink.encoded_bytes(held) if held else 0
            if written > 0:
                ctx.report(self.name).add(SAMPLED, sum(map(_plain_bytes, held)))
                ctx.report(self.name).add(SAMPLED_FILE, written)
        held.clear()


def _plain_bytes(batch: pa.RecordBatch) -> int:
    """As results count them."""
    constant, varying = add_row_bytes([to_stored(column) for column in batch.columns])
    return constant * batch.num_rows + (0 if varying is None else int(varying.sum()))


def only_passes(operator: Any) -> bool:
    return isinstance(operator, Passing | PassingByKey)
