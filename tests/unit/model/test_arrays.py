"""Columns of numbers that take little memory: the same numbers as lists and arrays of them."""

import tracemalloc

import numpy as np
import pytest

from firesteel.journal.file import encode
from firesteel.model.arrays import FEW, Column, Reaching, compact, constant, grown, numbers_of, written
from firesteel.scheduler.kernel.records import StateChange

MANY = np.random.default_rng(7).permutation(3 * FEW + 5) - FEW


def test_a_column_is_read_as_a_list_is():
    column, numbers = Column(MANY), MANY.tolist()
    assert column == numbers and numbers == column and column != numbers[1:] and column != 3
    assert list(column) == numbers and len(column) == len(numbers) and bool(column) and not Column(MANY[:0])
    assert (column[5], column[-1], column[3:9]) == (numbers[5], numbers[-1], numbers[3:9])
    assert all(type(number) is int for number in column) and numbers[7] in column and FEW * 9 not in column
    assert np.asarray(column).tolist() == numbers and str(column).startswith("Column(")


def test_a_few_numbers_are_a_list_and_many_a_column():
    assert type(numbers_of(MANY[:FEW])) is list and type(numbers_of(MANY)) is Column


def test_a_record_is_written_alike_whether_it_has_lists_or_columns():
    zeros = np.zeros(len(MANY), np.int64)
    lists = StateChange(at=1.0, vertex=3, state="SCHEDULED", subtasks=MANY.tolist(), attempts=zeros.tolist())
    columns = StateChange(at=1.0, vertex=3, state="SCHEDULED", subtasks=Column(MANY), attempts=Column(zeros))
    assert encode(columns) == encode(lists) and columns == lists


def test_a_record_of_very_many_subtasks_is_written_some_at_a_time():
    subtasks = Column(np.arange(100_000))
    record = StateChange(at=1.0, vertex=0, state="SCHEDULED", subtasks=subtasks, attempts=subtasks)
    tracemalloc.start()
    line = encode(record)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * len(line), "a list of them takes six times the bytes of the line"


def test_very_many_equal_numbers_take_no_memory():
    equal, other = np.full(2 * FEW, 7), np.full(2 * FEW, 7)
    other[FEW] = 8
    assert compact(equal).strides == (0,) and np.array_equal(compact(equal), equal)
    assert compact(other) is other and compact(equal[:FEW]).strides != (0,), "looking costs more than few are worth"


def test_a_constant_column_is_one_until_something_else_is_written():
    column = constant(5, np.int32(-1))
    assert written(column, np.array([1, 2]), -1) is column and grown(column, 9, -1).strides == (0,)
    other = written(column, slice(1, 3), np.array([4, -1]))
    assert other.tolist() == [-1, 4, -1, -1, -1] and column.tolist() == [-1] * 5
    assert written(other, np.array([0]), 6) is other and other.dtype == np.int32


@pytest.mark.parametrize("value", [0, -1, np.nan])
def test_a_column_grows_by_one_value(value):
    longer = grown(np.array([1.0, 2.0]), 4, value)
    assert np.array_equal(longer, [1.0, 2.0, value, value], equal_nan=True)


def test_a_column_reaches_as_far_as_anything_was_written():
    column = Reaching(np.float64(-1.0))
    assert column.item(10**9) == -1.0 and column[np.array([0, 10**9])].tolist() == [-1.0, -1.0]
    column[np.array([3, 1])] = np.array([3.5, 1.5])
    column.put(5, 5.5)
    assert column[np.arange(8)].tolist() == [-1.0, 1.5, -1.0, 3.5, -1.0, 5.5, -1.0, -1.0]
    assert column[np.array([], np.int64)].tolist() == [] and (column.item(5), column.item(6)) == (5.5, -1.0)
    for row in range(6, 100):
        column.put(row, row)
    assert column[np.array([99, 5, 100, 42])].tolist() == [99.0, 5.5, -1.0, 42.0]
