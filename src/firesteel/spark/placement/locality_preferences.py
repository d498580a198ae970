"""Locality preferences of tasks: places off some nodes, and RDDs whose partitions prefer some executors.

Spark takes preferred locations as a wish: it insists for ``spark.locality.wait`` and then takes any free slot. So a task
looks at where it is too (``blocklist``).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from firesteel.spark.placement.node_names import NodeNames

MAX_WISHES = 20_000
"""Tasks times locations of one batch. Spark keeps a list per location and task; a larger batch goes where it may."""


def locations(nodes: NodeNames, avoid: Collection[str]) -> list[str]:
    """Of all other nodes, as Spark writes them: their hosts, or executors on a host that has an avoided node too.

    Empty where there is nothing to choose.
    """
    avoided = nodes.executors_of(avoid)
    if not avoided:
        return []
    hosts = {info.host for info in avoided.values()}
    others = {executor: info.host for executor, info in nodes.executors().items() if executor not in avoided}
    return sorted({f"executor_{host}_{executor}" if host in hosts else host for executor, host in others.items()})


def preferring(context: Any, rdd: Any, count: int, locations: Collection[str]) -> Any:
    """The RDD, each of its ``count`` partitions of one element preferring ``locations``; as it is where that is too much.

    A second RDD, of one element repeated, carries the wish, and the two are zipped inside the JVM: a handful of py4j
    calls, where telling a partition's locations one by one takes several for each.
    """
    if not locations or count * len(locations) > MAX_WISHES:
        return rdd
    return _carried(context, rdd, context._jvm.java.util.Collections.nCopies(count, _element(context, locations)))


def placed(context: Any, rdd: Any, runs: Sequence[tuple[int, str]]) -> Any:
    """The RDD, its first partitions of one element preferring the first location, as many as its run says, and so on: a few
    py4j calls for each run."""
    util = context._jvm.java.util
    elements = util.ArrayList()
    known: dict[str, Any] = {}
    for count, location in runs:
        if location not in known:
            known[location] = _element(context, [location])
        elements.addAll(util.Collections.nCopies(count, known[location]))
    return _carried(context, rdd, elements)


def _element(context: Any, locations: Collection[str]) -> Any:
    wish = context._jvm.java.util.ArrayList()
    for location in locations:
        wish.add(location)
    return context._jvm.scala.Tuple2("", context._jvm.PythonUtils.toSeq(wish))


def _carried(context: Any, rdd: Any, elements: Any) -> Any:
    from pyspark import RDD

    jvm = context._jvm
    listed = jvm.PythonUtils.toSeq(elements)
    carrier = context._jsc.sc().makeRDD(listed, jvm.scala.reflect.ClassTag.AnyRef()).toJavaRDD()
    return RDD(rdd._jrdd.zip(carrier).keys(), context, rdd._jrdd_deserializer)
