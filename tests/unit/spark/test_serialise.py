"""Variables of the driver that a step's function takes along are named, however it holds them."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa
import pytest
from pyspark.accumulators import INT_ACCUMULATOR_PARAM, Accumulator, _accumulatorRegistry
from pyspark.core.broadcast import _from_id

from firesteel import ExecutionEnvironment, SlotSharingGroup
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


class Sent:
    """Pickled as a broadcast variable is."""

    def __reduce__(self):
        return _from_id, (0,)


@pytest.mark.parametrize("what", ["an accumulator", "a broadcast variable"])
def test_shared_variables_of_spark_are_refused_where_others_than_its_workers_run_the_step(what):
    held = Accumulator(-1, 0, INT_ACCUMULATOR_PARAM) if what == "an accumulator" else Sent()
    _accumulatorRegistry.pop(-1, None)

    def compiled(group):
        env = ExecutionEnvironment()
        stream = env.from_arrow(pa.table({"a": [1]})).map_in_arrow(Taking(held), "a bigint").slot_sharing_group(group)
        return compile_job([collected(stream._pipeline)], env.options, "job")

    serialise_programs(compiled(SlotSharingGroup("cpu", 1.0, "1 GiB")))
    with pytest.raises(UsageError, match=f"uses {what} of Spark"):
        serialise_programs(compiled(SlotSharingGroup("gpu", 1.0, "1 GiB", external_resources={"gpu": 1.0})))
