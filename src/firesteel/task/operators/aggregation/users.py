"""Aggregates of the user's own: an object with create, update, merge and finish, called once for the rows of a group that are there together.

A group with only one row so far keeps the row: nothing is called for it before there is another one, or the end.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from firesteel.errors import FiresteelError, UsageError, error_words
from firesteel.task.batches import stable_order, take
from firesteel.task.functions.python_values import exact_array
from firesteel.task.functions.rows import fits, shown
from firesteel.task.functions.user_code import UserFunctionError, user_frames
from firesteel.task.operators.aggregation.aggregate import Mask, Members, elements, lists_of, plain_type, singles

METHODS = ("create", "update", "merge", "finish")


def check_user_aggregate(aggregate: Any) -> None:
    """Raises UsageError for what lacks one of the four methods, or is a class."""
    if isinstance(aggregate, type):
        raise UsageError(
            f"agg.user wants an object, not the class {aggregate.__name__}.", hint=f"Write {aggregate.__name__}()."
        )
    missing = [method for method in METHODS if not callable(getattr(aggregate, method, None))]
    if missing:
        raise UsageError(
            f"{type(aggregate).__name__} is no aggregate: it has no {' and no '.join(missing)}.",
            hint="Give it create(), update(state, batch), merge(state, other) and finish(state).",
        )


@dataclass(frozen=True)
class Users:
    """The user's ``aggregate`` of ``columns``, which it gets under ``labels``; ``result``: the declared type."""

    aggregate: Any
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    result: pa.DataType

    def state(self, schema: pa.Schema) -> UserState:
        types = tuple(plain_type(schema.field(name).type) for name in self.columns)
        return UserState(self.aggregate, self.columns, self.labels, types)

    def type(self, schema: pa.Schema) -> pa.DataType:
        return self.result

    def finished(self, states: Sequence[pa.Array]) -> pa.Array:
        aggregate = self.aggregate
        rows, of = elements(states[1], Members(np.arange(len(states[1])), len(states[1])))
        found: list[Any] = []
        ends = np.cumsum(np.bincount(of.codes, minlength=of.n)).tolist()
        for pickled, low, high in zip(states[0].to_pylist(), [0, *ends], ends, strict=False):
            state = _loaded(aggregate, pickled) if pickled is not None else _call(aggregate, "create")
            if high > low:
                state = _updated(aggregate, state, rows, low, high)
            found.append(_call(aggregate, "finish", state))
        try:
            return exact_array(found, self.result)
        except (pa.ArrowException, OverflowError, TypeError, ValueError, AttributeError):
            wrong = next((value for value in found if not fits(value, self.result)), None)
            raise UserFunctionError(
                f"finish of the aggregate {type(aggregate).__name__} returned {shown(wrong)}, which is not of type {self.result}.",
                hint="Declare what it returns: agg.user(..., type=...).",
            ) from None


@dataclass(frozen=True)
class UserState:
    """A pickled state, or the only row."""

    aggregate: Any
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    kept: tuple[pa.DataType, ...]

    def __hash__(self) -> int:
        return hash((id(self.aggregate), self.columns))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, UserState) or self.aggregate is not other.aggregate:
            return False
        return (self.columns, self.labels) == (other.columns, other.labels)

    @property
    def _row(self) -> pa.DataType:
        return pa.struct([pa.field(name, type_) for name, type_ in zip(self.labels, self.kept, strict=True)])

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        return pa.binary(), pa.list_(self._row)

    def of_rows(self, inputs: Sequence[pa.Array], taken: Mask) -> list[pa.Array]:
        rows = pa.StructArray.from_arrays(list(inputs), fields=list(self._row))
        return [pa.nulls(len(rows), pa.binary()), singles(rows, taken)]

    def merged(self, states: Sequence[pa.Array], members: Members) -> list[pa.Array]:
        rows, of = elements(states[1], members)
        order = stable_order(of.codes)
        rows, codes = take(rows, pa.array(order)), of.codes[order]
        counts = np.bincount(codes, minlength=of.n)
        ends = np.cumsum(counts)
        held: dict[int, list[bytes]] = {}
        for place in np.flatnonzero(np.asarray(states[0].is_valid())).tolist():
            held.setdefault(int(members.codes[place]), []).append(states[0][place].as_py())
        found: list[bytes | None] = [None] * members.n
        for code in {*np.flatnonzero(counts > 1).tolist(), *held}:
            found[code] = self._folded(held.get(code, []), rows, int(ends[code] - counts[code]), int(ends[code]))
        left = (counts == 1) & np.array([state is None for state in found], dtype=np.bool_)
        alone = np.flatnonzero(left[codes])
        return [pa.array(found, pa.binary()), lists_of(take(rows, pa.array(alone)), codes[alone], of.n)]

    def _folded(self, held: list[bytes], rows: pa.Array, low: int, high: int) -> bytes:
        """The state of these states and rows, of which there is at least one."""
        if len(held) == 1 and low == high:
            return held[0]
        parts = [_loaded(self.aggregate, pickled) for pickled in held]
        if high > low:
            parts.append(_updated(self.aggregate, _call(self.aggregate, "create"), rows, low, high))
        state = parts[0]
        for other in parts[1:]:
            state = _call(self.aggregate, "merge", state, other)
        return _said(self.aggregate, "its states cannot be pickled", _pickled, state)


def _updated(aggregate: Any, state: Any, rows: Any, low: int, high: int) -> Any:
    batch = pa.RecordBatch.from_struct_array(rows.slice(low, high - low))
    return _call(aggregate, "update", state, batch)


def _call(aggregate: Any, method: str, *arguments: Any) -> Any:
    return _said(aggregate, f"{method} raised", getattr(aggregate, method), *arguments)


def _loaded(aggregate: Any, pickled: bytes) -> Any:
    return _said(aggregate, "its states cannot be unpickled", pickle.loads, pickled)


def _said(aggregate: Any, what: str, fn: Callable[..., Any], *arguments: Any) -> Any:
    """``fn(*arguments)``; what it raises is told as the user's error."""
    try:
        return fn(*arguments)
    except FiresteelError:
        raise
    except BaseException as error:  # sys.exit() too
        raise UserFunctionError(
            f"Aggregate {type(aggregate).__name__}: {what} {error_words(error)}.", trace=user_frames(error)
        ) from error


def _pickled(state: Any) -> bytes:
    try:
        return pickle.dumps(state, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):  # of a class that was sent with the program
        from pyspark import cloudpickle

        return cloudpickle.dumps(state)
