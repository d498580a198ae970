"""Tokens name what a task writes: no two drivers of a job's directory give one name."""

from __future__ import annotations

import numpy as np

from firesteel.model.descriptors import GateColumns, decode_gate, encode_gate
from firesteel.results.storage.store import merged_name, merged_token, object_name
from firesteel.task.executor import information
from firesteel.task.executor.information import TASK_BITS, JobInformation, new_token_base


def of_driver(base):
    return JobInformation("job", None, "none", 1, token_base=base)


def test_two_drivers_never_name_one_object_though_spark_counts_from_zero_again():
    first = new_token_base()
    second = new_token_base((first,))
    names = [object_name(0, 0, 0, of_driver(base).token_of(task)) for base in (first, second) for task in range(100)]
    assert len(set(names)) == 200


def test_a_base_that_is_taken_is_drawn_again(monkeypatch):
    draws = iter([3, 3, 5])
    monkeypatch.setattr(information.secrets, "randbits", lambda bits: next(draws))
    assert new_token_base((3 << TASK_BITS,)) == 5 << TASK_BITS


def test_differences_of_tokens_fit_and_those_of_one_driver_stay_small():
    most = of_driver((2**information.DRIVER_BITS - 1) << TASK_BITS)
    tokens = np.array([most.token_of(task) for task in range(10_000)])
    tokens[::7] += 3
    assert int(tokens.max()) - -1 < 2**63 - 1
    gate = GateColumns(0, 8, np.zeros(10_000, np.int64), tokens, False)
    data = encode_gate(gate)
    assert decode_gate(data).tokens.tolist() == tokens.tolist()
    assert len(data) < 10_000
    mixed = np.where(np.arange(10_000) % 3, tokens, -1)
    gate = GateColumns(0, 8, np.zeros(10_000, np.int64), mixed, False)
    assert decode_gate(encode_gate(gate)).tokens.tolist() == mixed.tolist()


def test_the_token_of_a_merged_object_is_in_its_name():
    assert merged_token(merged_name(12, 0, 7, 99), 12) == 99
    assert merged_token(merged_name(12, 0, 7, 99), 1) is None
    assert merged_token(object_name(12, 0, 7, 99), 12) is None
