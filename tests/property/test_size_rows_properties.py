"""Sums and cells of a result, whatever is stored, restarted and read back in between, against plain dictionaries."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from firesteel.model.job_graph import IntermediateDataSet, ShipStrategy
from firesteel.scheduler.exchange.result_info import blocking_result_info
from firesteel.scheduler.kernel import commands as c
from firesteel.scheduler.kernel.events import PartitionReports, SizesLoaded


class Model:
    """Some producers, some subpartitions, and the scratch files, which answer late and in any order."""

    def __init__(self, rng, unreadable=0.0):
        self.rng, self.unreadable = rng, unreadable
        self.n, self.width = rng.randint(1, 6), rng.choice([1, 3, 300])
        self.files, self.asked = {}, []
        self.sizes, self.attempts = {}, [0] * self.n
        dataset = IntermediateDataSet(0, 0, ShipStrategy.RESCALE)
        self.info = blocking_result_info(dataset, self.n, self.width, self.carry_out, rng.choice([0, 100, 1 << 20]))

    def carry_out(self, command):
        if isinstance(command, c.StoreSizes):
            names = zip(command.partitions.tolist(), command.attempts.tolist(), strict=True)
            self.files |= dict(zip(names, command.rows, strict=True))
        elif isinstance(command, c.LoadSizes):
            self.asked.append(command)
        else:
            assert isinstance(command, c.DropSizes) and self.files
            self.files = {}

    def record(self):
        idle = [p for p in range(self.n) if p not in self.sizes]
        chosen = np.array(self.rng.sample(idle, self.rng.randint(0, len(idle))), np.int64)
        given = [np.array([self.rng.choice([0, 5, 70_000]) for _ in range(self.width)], np.int64) for _ in chosen]
        self.sizes |= dict(zip(chosen.tolist(), given, strict=True))
        attempts = np.array([self.attempts[p] for p in chosen], np.int64)
        self.info.record(chosen, attempts, PartitionReports.of(0, given))

    def erase(self):
        chosen = np.array(self.rng.sample(range(self.n), self.rng.randint(0, self.n)), np.int64)
        self.info.erase(chosen)
        for p in chosen.tolist():
            self.sizes.pop(p, None)
            self.attempts[p] += 1

    def answer(self):
        if not self.asked:
            return
        asked = self.asked.pop(self.rng.randrange(len(self.asked)))
        names = list(zip(asked.partitions.tolist(), asked.attempts.tolist(), strict=True))
        rows = [None if self.rng.random() < self.unreadable else self.files[name] for name in names]
        loaded = SizesLoaded(at=0.0, dataset=0, partitions=asked.partitions, attempts=asked.attempts, rows=rows)
        self.info.loaded(loaded)
        assert self.info.loaded(loaded) == 0, "told twice: nothing new"

    def total(self):
        return sum(self.sizes.values(), np.zeros(self.width, np.int64))

    def settle(self):
        while self.asked:
            self.answer()
        assert self.info.is_settled


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(0, 1 << 32))
def test_the_sums_and_cells_are_those_of_what_is_recorded(seed):
    rng = random.Random(seed)
    model = Model(rng)
    for _ in range(30):
        rng.choice([model.record, model.record, model.erase, model.answer, model.info.fetch_cells])()
        if model.info.is_settled:
            assert (model.info.subpartition_bytes == model.total()).all()
    event(f"stored: {bool(model.files)}")
    model.settle()
    assert (model.info.subpartition_bytes == model.total()).all() and model.info.is_exact
    if not model.info.fetch_cells():
        model.settle()
        assert model.info.fetch_cells()
    expected = [model.sizes.get(p, np.zeros(model.width)) for p in range(model.n)]
    assert (model.info.cells() == np.stack(expected)).all()
    model.info.forget_rows()
    assert not model.files and model.info.kept_row_bytes == 0


@settings(max_examples=examples(80), deadline=None)
@given(st.integers(0, 1 << 32))
def test_rows_that_cannot_be_read_leave_a_guess_that_is_no_nonsense(seed):
    rng = random.Random(seed)
    model = Model(rng, unreadable=0.5)
    for _ in range(30):
        rng.choice([model.record, model.erase, model.answer, model.info.fetch_cells])()
        assert (model.info.subpartition_bytes >= 0).all()
    model.settle()
    while not model.info.fetch_cells():
        model.settle()
    cells = model.info.cells()
    assert (cells >= 0).all() and not cells[~model.info.recorded].any()
    # Everything erased: no guess is left behind.
    model.info.erase(np.arange(model.n))
    assert not model.info.subpartition_bytes.any() and model.info.is_settled


def test_one_row_that_cannot_be_read_takes_the_shape_of_the_sum():
    info = blocking_result_info(IntermediateDataSet(0, 0, ShipStrategy.HASH), 2, 2, buffer_bytes=0)
    pair, first = np.arange(2), np.array([0])
    info.record(pair, np.zeros(2, np.int64), PartitionReports.of(0, [np.array([100, 0]), np.array([200, 100])]))
    info.erase(first)
    assert not info.is_settled and info.num_awaited == 1
    assert info.subpartition_bytes.tolist() == [300, 100]
    answer = SizesLoaded(at=0.0, dataset=0, partitions=first, attempts=np.array([0]), rows=[None])
    assert info.loaded(answer) == 1 and info.is_settled and not info.is_exact
    assert info.subpartition_bytes.tolist() == [225, 75]


@pytest.mark.parametrize("row", [b"", b"x" * 40])
def test_what_is_no_row_counts_as_unreadable(row):
    info = blocking_result_info(IntermediateDataSet(0, 0, ShipStrategy.RESCALE), 1, 2, buffer_bytes=0)
    info.record(np.array([0]), np.array([3]), PartitionReports.of(0, [np.array([1, 3])]))
    assert not info.fetch_cells()
    other = SizesLoaded(at=0.0, dataset=0, partitions=np.array([0]), attempts=np.array([2]), rows=[row])
    assert info.loaded(other) == 0 and not info.fetch_cells(), "of another attempt"
    answer = SizesLoaded(at=0.0, dataset=0, partitions=np.array([0]), attempts=np.array([3]), rows=[row])
    assert info.loaded(answer) == 1 and info.fetch_cells()
    assert info.cells().tolist() == [[1, 3]], "the only row is shaped like the sum"
