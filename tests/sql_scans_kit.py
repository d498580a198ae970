"""Comparing what our tasks read with what Spark reads."""

from __future__ import annotations

import math
import warnings

from firesteel.compile.stream_graph import SourceStep, reachable


def sortable(row):
    return tuple((value is None, repr(value)) for value in row)


def rows(table):
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=sortable)


def kind(stream):
    return stream._pipeline.node.kind


def sources(stream):
    nodes = reachable([stream._pipeline.node], lambda node: True)
    return [node.work.source for node in nodes if isinstance(node.work, SourceStep)]


def same(mine, its):
    if isinstance(mine, float) and isinstance(its, float):
        return (math.isnan(mine) and math.isnan(its)) or (
            mine == its and math.copysign(1, mine) == math.copysign(1, its)
        )
    return mine == its


def assert_equal(ours, theirs):
    """Names, types and rows, in any order."""
    assert ours.schema.names == theirs.schema.names
    zoned = [[str(kind).replace("Etc/", "") for kind in table.schema.types] for table in (ours, theirs)]
    assert zoned[0] == zoned[1]
    mine, its = rows(ours), rows(theirs)
    assert len(mine) == len(its)
    for one, other in zip(mine, its, strict=True):
        assert all(map(same, one, other)), (one, other)


def assert_as_spark(env, frame):
    """Returns the stream, none of which Spark computed."""
    stream = env.from_dataframe(frame)
    assert kind(stream).startswith("sql("), stream.explain()
    assert "Spark computes" not in stream.explain()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # so that Spark does not compute it
        ours = stream.to_arrow()
    assert_equal(ours, frame.toArrow())
    return stream


def assert_left_to_spark(env, frame, why):
    stream = env.from_dataframe(frame)
    assert why in stream.explain(), stream.explain()
    assert_equal(stream.to_arrow(), frame.toArrow())
