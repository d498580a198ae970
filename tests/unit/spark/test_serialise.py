"""Variables of the driver that a step's function takes along are named, however it holds them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa
import pytest

from firesteel import ExecutionEnvironment
from firesteel.api.steps.actions import collected
from firesteel.compile.compiler import compile_job
from firesteel.errors import UsageError
from firesteel.spark.driver.serialise import serialise_programs


@dataclass
class Taking:
    held: Any

    def __call__(self, batches):
        return batches

    def method(self, batches):
        return batches


def two(batches, held=None):
    return batches


def in_a_container(held):
    kept = [1, {"deep": held}]
    return lambda batches: (kept, batches)[1]


def in_another_function(held):
    def inner():
        return held

    return lambda batches: (inner, batches)[1]


def as_a_default(stream):
    def given(batches, held=stream):
        return batches

    return given


WAYS = {
    "itself": (lambda held: lambda batches: (held, batches)[1], "variable 'held', which is"),
    "a default": (as_a_default, "variable 'held', which is"),
    "partial": (lambda held: functools.partial(two, held=held), "variable 'held', which is"),
    "an attribute": (Taking, "variable 'held', which is"),
    "a method": (lambda held: Taking(held).method, "variable 'self', which holds something that is"),
    "a container": (in_a_container, "variable 'kept', which holds something that is"),
    "a function": (in_another_function, "variable 'inner', which holds something that is"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_stream_is_named_however_it_is_held(way):
    make, said = WAYS[way]
    env = ExecutionEnvironment()
    env.lock = Lock()  # cannot be sent, as an environment with its Spark
    stream = env.from_arrow(pa.table({"a": [1]}))
    job = compile_job([collected(stream.map_in_arrow(make(stream), "a bigint")._pipeline)], env.options, "job")
    with pytest.raises(UsageError, match=f"{said} of the driver only \\(type DataStream\\)"):
        serialise_programs(job)
