"""Events as bytes: each kind comes back as it was, and no bytes run code."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from enum import Enum

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from firesteel.model.arrays import Floats, Ints, Names
from firesteel.model.reports import Opening, StepReport
from firesteel.scheduler.kernel import events as ev
from firesteel.scheduler.recovery import codec

WHOLE = st.integers(-(2**63), 2**63 - 1)
NUMBER = st.floats(allow_nan=False)


def kinds(base=ev.Event):
    found = (kind for one in base.__subclasses__() for kind in (one, *kinds(one)))
    return [kind for kind in found if getattr(ev, kind.__name__, None) is kind]  # slots make a class anew


def ints(n):
    return arrays.arrays(np.int64, n, elements=WHOLE)


def floats(n):
    return arrays.arrays(np.float64, n, elements=NUMBER)


def a_list(elements, n):
    return st.lists(elements, min_size=n, max_size=n)


@st.composite
def of_type(draw, hint, n):
    """A value of the type; columns have n entries."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in (Ints, Floats):
        return draw((ints if hint == Ints else floats)(n))
    if origin in (typing.Union, types.UnionType):
        return draw(of_type(draw(st.sampled_from(arguments)), n))
    if origin is Sequence:
        return draw(st.one_of(st.just(()), a_list(of_type(arguments[0], n), n)))
    if origin is Mapping:
        return draw(st.dictionaries(of_type(arguments[0], n), of_type(arguments[1], n), max_size=2))
    if origin is tuple:
        inner = arguments[0] if arguments[-1] is Ellipsis else hint
        return tuple(draw(st.lists(of_type(inner, n), max_size=2))) if inner is not hint else draw(fixed(arguments, n))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return draw(st.sampled_from(hint))
    if dataclasses.is_dataclass(hint) or (isinstance(hint, type) and issubclass(hint, msgspec.Struct)):
        return draw(of_class(hint, n))
    plain = {int: WHOLE, float: NUMBER, str: st.text(), bytes: st.binary(), bool: st.booleans(), type(None): st.none()}
    return draw(plain[hint])


def fixed(types_, n):
    return st.tuples(*(of_type(one, n) for one in types_))


@st.composite
def of_class(draw, kind, n):
    if kind is Names:
        return Names.of(draw(a_list(st.sampled_from(["", "a", "node é"]), n)))
    if kind is ev.ExecutionReports:
        return draw(reports(n))
    hints = typing.get_type_hints(kind)
    return kind(**{name: draw(of_type(hints[name], n)) for name in names_of(kind)})


def names_of(kind):
    return (
        kind.__struct_fields__
        if issubclass(kind, msgspec.Struct)
        else [field.name for field in dataclasses.fields(kind) if field.init]
    )


@st.composite
def reports(draw, n):
    part = st.builds(
        ev.PartitionReports,
        st.integers(0, 9),
        ints(n),
        ints(n),
        ints(n),
        *[st.one_of(st.none(), a_list(st.binary(max_size=9), n))] * 3,
    )
    counts = st.dictionaries(st.text(max_size=3), WHOLE, max_size=2)
    samples = st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=2)
    opened = st.none() | st.builds(Opening, st.text(max_size=3), st.text(max_size=3))
    step = st.builds(StepReport, st.text(max_size=3), counts, st.one_of(st.none(), WHOLE), samples, opened)
    return ev.ExecutionReports(
        *(draw(column(n)) for column in (ints, floats, floats, floats, ints, ints, ints)),
        draw(st.one_of(st.none(), of_class(Names, n))),
        tuple(draw(st.lists(part, max_size=2))),
        draw(st.one_of(st.just(()), a_list(st.lists(st.binary(), max_size=2).map(tuple), n))),
        draw(st.one_of(st.none(), ints(n))),
        draw(st.one_of(st.just(()), a_list(st.lists(step, max_size=2).map(tuple), n))),
    )


def told(value):
    """All that a value says: sequences are equal whether tuples or lists."""
    if dataclasses.is_dataclass(value) or isinstance(value, msgspec.Struct):
        return type(value).__name__, [told(getattr(value, name)) for name in names_of(type(value))]
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, list | tuple):
        return [told(one) for one in value]
    if isinstance(value, dict):
        return {key: told(one) for key, one in value.items()}
    return value


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
@given(data=st.data(), n=st.integers(0, 3))
def test_an_event_comes_back_as_it_was(kind, data, n):
    event = data.draw(of_class(kind, n))
    again = codec.decode(codec.encode(event)[1])
    assert type(again) is kind
    assert told(again) == told(event)


def test_columns_that_are_views_or_of_other_widths():
    n = 3
    columns = ev.ExecutionReports.of(np.arange(2 * n)[::2], times=(1.0, 2.0, 3.0), rows_in=7)
    event = ev.ExecutionsFinished(
        at=1.0, vertex=0, subtasks=np.arange(n, dtype=np.int32), attempts=np.zeros(n, np.int64), reports=columns
    )
    again = codec.decode(codec.encode(event)[1])
    assert again.subtasks.tolist() == [0, 1, 2] and again.reports.tokens.tolist() == [0, 2, 4]
    assert again.reports.rows_in.tolist() == [7] * n and again.reports.running_at.tolist() == [2.0] * n


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xc0", b"\x81\xa2at\xa1x", b"\x81\xa2at\x00\x00"])
def test_bytes_that_are_no_event_are_refused(data):
    with pytest.raises(ValueError):
        codec.decode(data)
