"""Names that a PySpark user looks for and that are something else here: the error for an unknown attribute says what to write."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import Any

from firesteel.errors import UsageError

_SPARK = "Use to_dataframe().{name}(...), and env.from_dataframe(...) to come back."

ELSEWHERE = {
    "join_where": 'Write join(other, on=["k", ("time", ">=", "start")]).',
    "merge_asof": 'Write join_asof(other, on="time", by="k").',
    "cogroup": 'Write a.key_by("k").cogroup(b.key_by("k")).apply_in_arrow(f, schema).',
    "applyInArrow": 'Write key_by("k").apply_in_arrow(f, schema).',
    "applyInPandas": 'Write key_by("k").apply_in_pandas(f, schema).',
    "apply_in_arrow": 'Write key_by("k").apply_in_arrow(f, schema).',
    "apply_in_pandas": 'Write key_by("k").apply_in_pandas(f, schema).',
    "toDF": 'For a Spark DataFrame write to_dataframe(); for other names rename({"old": "new"}).',
    "toArrow": "Write to_arrow().",
    "tail": "Write to_arrow() and slice it; rows have no order unless they are sorted.",
    "toLocalIterator": "Write to_arrow().to_batches(), or write_parquet for what does not fit into the driver.",
    "foreach": "Write map_in_arrow(f, schema).side_effects(), or a sink of your own with write_to(sink).",
    "foreachPartition": "Write map_in_arrow(f, schema).side_effects(), or a sink of your own with write_to(sink).",
    "mapPartitions": "Write map_in_arrow(f, schema): f gets an iterator of record batches.",
    "rdd": "Write map, flat_map, filter, reduce, or map_in_arrow.",
    "write": "Write write_parquet(path), write_csv(path) or another write_... step, and then env.execute().",
    "writeStream": "A running stream is firesteel.streaming's; here are batch jobs.",
    "writeTo": "Write write_to(sink), or to_dataframe().writeTo(...).",
    "mergeInto": "Write merge_parquet(path, key), or to_dataframe().mergeInto(...).",
    "saveAsTable": "Write to_dataframe().write.saveAsTable(...).",
    "createOrReplaceTempView": "Write to_dataframe().createOrReplaceTempView(name).",
    "checkpoint": "Write cache().",
    "localCheckpoint": "Write cache().",
    "na": 'Write drop_nulls("a", "b") or fill_nulls(0, "a").',
    "stat": _SPARK.format(name="stat"),
    "dtypes": "Write schema, or print_schema().",
    "hint": "For a broadcast write with_broadcast(small=...); how parallel a step is, is decided from its bytes.",
    "sortWithinPartitions": "Write sort(...), or sort in a function: map_in_arrow(f, schema).",
    "over": 'Write key_by("k").window(order_by="t", n=window.row_number()).',
    "window": 'Write key_by("k").window(order_by="t", n=window.row_number()).',
    "alias": 'Streams have no names, and col("a.x") is a field of a struct. Write join(other, "k", suffix="_b"): then col("x_b") is the other x.',
    "withWatermark": "A running stream is firesteel.streaming's; here are batch jobs.",
    "uncacheTable": "Write uncache().",
    "storageLevel": "Cached rows are kept on storage. is_cached is True for them.",
    "pivot": 'Write key_by("k").pivot("p", values=[...]).aggregate({"n": "sum"}).',
    "groupingSets": 'Write grouping_sets(("a", "b"), ("a",)).aggregate({"n": "sum"}).',
    "approxQuantile": 'Write aggregate(p=agg.percentile_approx("x", [0.5, 0.99])), or agg.percentile for the exact ones.',
    "corr": 'Write aggregate(r=agg.corr("x", "y")), after from firesteel import agg.',
    "cov": 'Write aggregate(c=agg.covar_samp("x", "y")), after from firesteel import agg.',
} | {
    name: _SPARK.format(name=name)
    for name in (
        "crosstab", "freqItems", "sampleBy", "observe", "randomSplit", "replace",
    )
}  # fmt: skip
"""Name to what to write instead."""

ELSEWHERE_KEYED = {
    "transformWithState": "A running stream is firesteel.streaming's; here are batch jobs.",
}

ELSEWHERE_COLUMN = {"over": 'Write F.sum("n").over(...), or a function of windows: F.rank().over(...).'}

ELSEWHERE_ENVIRONMENT = {
    "read": "Write read_parquet(path), read_csv(path), read_json(path) or read_text(path), or read_with_spark(format, path).",
    "readStream": "A running stream is firesteel.streaming's; here are batch jobs.",
    "table": 'Write sql("SELECT * FROM name").',
    "createDataFrame": "Write from_collection(rows, schema), from_pandas(frame) or from_arrow(table).",
    "range": "Write from_dataframe(env.spark.range(n)), or from_collection(range(n)).",
    "sparkContext": "Write env.spark.sparkContext.",
    "conf": 'Options are given to the environment: ExecutionEnvironment(options={"max-parallelism": 16}).',
    "stop": "Write close().",
}


_SETTINGS = frozenset({
    "as_nondeterministic", "disable_chaining", "name", "no_speculation", "set_max_parallelism", "set_parallelism",
    "side_effects", "slot_sharing_group", "start_new_chain", "uid",
})  # fmt: skip
"""Settings of a step, which a keyed stream is not."""


class NoSuchStep(UsageError, AttributeError):
    """A name that is not a step; an AttributeError too, so that ``hasattr`` answers."""


def no_such_step(stream: object, name: str, columns: Collection[str]) -> NoSuchStep:
    """The error for an attribute that streams do not have. ``columns``: of the stream, which are not attributes."""
    hint = ELSEWHERE.get(name)
    if hint is None and name in columns:
        hint = f'A column is col("{name}").'
    return NoSuchStep(f"A stream has no {name}.", hint=hint or _near(stream, name))


def no_such_step_of_a_key(name: str, steps: type) -> NoSuchStep | None:
    """The error for an attribute that keyed streams do not have; None if it is nothing that anyone would look for. ``steps``: the
    class of streams without a key."""
    if name in ELSEWHERE_KEYED:
        return NoSuchStep(f"A keyed stream has no {name}.", hint=ELSEWHERE_KEYED[name])
    if not hasattr(steps, name):
        return None
    follow = "aggregate, window, apply_in_arrow, apply_in_pandas, join or cogroup"
    hint = f"Call {name} before key_by, or follow key_by with {follow}."
    if name in _SETTINGS:
        hint = f"It is not a step yet: follow key_by with {follow}, and call {name} on that."
    return NoSuchStep(f"A keyed stream has no {name}.", hint=hint)


def no_subscript(key: Any) -> UsageError:
    """The error for ``stream[...]``."""
    hint = f'A column is col("{key}") in an expression, and select("{key}") as a step.'
    return UsageError("A stream has no [...].", hint=hint if isinstance(key, str) else "Write collect() for its rows.")


def no_such_name_of_a_session(environment: object, name: str) -> NoSuchStep:
    """The error for an attribute that environments do not have, though Spark's sessions may."""
    return NoSuchStep(
        f"An environment has no {name}.", hint=ELSEWHERE_ENVIRONMENT.get(name) or _near(environment, name)
    )


def _near(thing: object, name: str) -> str | None:
    close = difflib.get_close_matches(name, [n for n in dir(type(thing)) if not n.startswith("_")], n=1)
    return f"Did you mean {close[0]}?" if close else None


def no_such_function(module: str, name: str, known: Collection[str], hint: str) -> AttributeError:
    """For an unknown name of ``firesteel.<module>``."""
    close = difflib.get_close_matches(name, known, n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    return AttributeError(f"firesteel.{module} has no '{name}'. {guess}{hint}")
