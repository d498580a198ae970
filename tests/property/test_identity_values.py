"""Digests of values: equal just where the values are, of the same types and in the same order; in every copy, and in a code's constants."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.compile.identity.code import code_facts
from identity_kit import value_print

atoms = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.complex_numbers(allow_nan=False),
)
hashable = st.recursive(atoms, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
constants = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
        st.binary(),
    ),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=5,
)
values = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(hashable, inner, max_size=4),
        st.lists(st.integers(), max_size=4).map(np.array),
        st.lists(st.one_of(st.none(), st.integers(-9, 9)), max_size=4).map(lambda items: pa.array(items, pa.int64())),
    ),
    max_leaves=12,
)


def said(value) -> str:
    """Tells 1, 1.0 and True apart, and dicts of another order."""
    match value:
        case list() | tuple():
            return f"{type(value).__name__}({', '.join(map(said, value))})"
        case dict():
            return f"dict({', '.join(f'{said(key)}: {said(one)}' for key, one in value.items())})"
        case np.ndarray():
            return f"array({value.dtype}, {value.tolist()})"
        case pa.Array():
            return f"arrow({value.to_pylist()})"
        case _:
            return f"{type(value).__name__} {value!r}"


@settings(max_examples=examples(300), deadline=None)
@given(values, values)
def test_equal_values_and_no_others_have_one_digest(one, other):
    assert (value_print(one)[0] == value_print(other)[0]) == (said(one) == said(other))


@settings(max_examples=examples(200), deadline=None)
@given(values)
def test_a_copy_has_the_same(value):
    assert value_print(copy.deepcopy(value)) == value_print(pickle.loads(pickle.dumps(value))) == value_print(value)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(hashable, max_size=6), st.randoms())
def test_a_set_has_no_order(items, random):
    different = list(set(items))  # of 1 and True the first would stay
    assert value_print(set(different)) == value_print(set(random.sample(different, len(different))))


@settings(max_examples=examples(200), deadline=None)
@given(constants, constants)
def test_a_constant_counts_by_its_value(one, other):
    def code(value):
        return compile(f"def f(x, y):\n    return x, {value!r}, y", "f.py", "exec")

    same = code_facts(code(one)).digest == code_facts(code(other)).digest
    assert same == (said(one) == said(other))
