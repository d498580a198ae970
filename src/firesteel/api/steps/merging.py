"""Rows merged by key into a folder of Parquet files. The steps that find what is rewritten are steps as any other.

keys of the stream (each once) -> semi join with the keys that are there -> by file -> files rewritten without them
rows of the stream, with those of rewritten files -> the sink
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.steps.aggregates.functions import Aggregation
from firesteel.api.steps.common import step_at
from firesteel.api.steps.keyed import Keyed, aggregate_of, join_of, key_by
from firesteel.api.steps.pipeline import Pipeline
from firesteel.api.steps.projection import project
from firesteel.api.steps.set_operations import union_of
from firesteel.api.steps.spark_columns import plain_names
from firesteel.api.steps.writing import Layout, end_with
from firesteel.compile.stream_graph import ChainedStep, KeyedStep, SourceStep, StreamNode
from firesteel.connectors.files.paths import only_spark_opens
from firesteel.connectors.files.writing.staging import remove_leftovers
from firesteel.connectors.merging import FILE, ROWS, Folder, MergeSink, NoRows, OneRowAKey, RewriteFiles, listed
from firesteel.errors import UsageError
from firesteel.humanize import check_once
from firesteel.task.batches import nullable
from firesteel.task.expressions import column
from firesteel.task.operators.relational import check_columns

MATCHED = ("update", "delete", "ignore")
NOT_MATCHED = ("insert", "ignore")


def merge_parquet(pipeline: Pipeline, key: Any, layout: Layout, when: tuple[str, str], compression: str) -> StreamNode:
    """``when``: what is done with rows whose key is there (``MATCHED``) and with others (``NOT_MATCHED``)."""
    with step_at("merge_parquet") as place:
        pipeline.refuse_sides("merge_parquet")
        _check(when, layout)
        options = {name: value for name, value in layout.checked().items() if name != "mode"}
        sink = MergeSink(layout.path, compression=compression, **options)
        sink.check(pipeline.schema)
        if FILE in pipeline.names:
            raise UsageError(f"merge_parquet keeps the name '{FILE}' for itself.", hint="Rename that column.")
        keyed = key_by(pipeline, _keys(pipeline, key))
        made = _Merge(keyed, sink, options["partition_by"], when, place).made()
        return end_with(made, f"merge_parquet({layout.path})", sink, place)


def _keys(pipeline: Pipeline, key: Any) -> list[Any]:
    """Raises UsageError for what is no key to merge by."""
    names = plain_names(key if isinstance(key, list | tuple) else [key], "merge_parquet")
    if not names:
        raise UsageError("merge_parquet wants the columns of the key.", hint='Write merge_parquet(path, "id").')
    check_columns(pipeline.schema, names, "the key of merge_parquet")
    check_once(names, lambda twice: f"The key of merge_parquet names the column '{twice}' twice.")
    return names


def _check(when: tuple[str, str], layout: Layout) -> None:
    for what, value, known in (("when_matched", when[0], MATCHED), ("when_not_matched", when[1], NOT_MATCHED)):
        if value not in known:
            raise UsageError(f"{what}={value!r} is not known.", hint=f"Use one of {', '.join(known)}.")
    if when == ("ignore", "ignore"):
        raise UsageError("merge_parquet has nothing to do: rows are ignored whether their keys are there or not.")
    if only_spark_opens(layout.path, layout.filesystem):
        raise UsageError(f"merge_parquet cannot open {layout.path}: only Spark has a filesystem for it.")


class _Merge:
    def __init__(
        self, keyed: Keyed, sink: MergeSink, partition_by: tuple[str, ...], when: tuple[str, str], place: str
    ) -> None:
        self._names = keyed.pipeline.names
        self._key = keyed.keys
        self._matched, self._not_matched = when
        self._place = place
        self._new = self._for_the_sink(keyed.pipeline)
        self._schema = nullable(self._new.schema)
        self._name = f"merge_parquet({', '.join(self._key)})"
        remove_leftovers(sink.target, keeps=True)
        sink.seen = listed(sink.target)
        self._folder = Folder(sink.target, sink.seen, keyed.schema, partition_by) if sink.seen else None

    def made(self) -> Pipeline:
        """The rows for the sink."""
        keys = self._keys()
        if self._folder is None:
            return union_of([self._new, self._without_rows(keys)])
        there = self._there(self._folder)
        parts = [
            self._wanted(there),
            self._without_rows(keys) if self._matched == "ignore" else self._rewritten(keys, there),
        ]
        return union_of([part for part in parts if part is not None])

    def _keys(self) -> Pipeline:
        """The keys of the stream, each once."""
        counted = aggregate_of(self._new, self._key, (Aggregation("count", (), ROWS),), self._place)
        schema = pa.schema([counted.schema.field(name) for name in self._key])
        passed = {name: name for name in self._key}
        return counted.then("one row a key", ChainedStep(OneRowAKey(self._name, schema), passed), schema, self._place)

    def _there(self, folder: Folder) -> Pipeline:
        """The keys in the folder, each with its file."""
        source = folder.keys.push_down([*self._key, FILE], None)
        return self._new.at(StreamNode(source.name, SourceStep(source), source.schema, place=self._place))

    def _rewritten(self, keys: Pipeline, there: Pipeline) -> Pipeline:
        assert self._folder is not None
        found = join_of(Keyed(there, self._key), Keyed(keys, self._key), "semi", "", None, self._place)
        rewrite = RewriteFiles("rewrite files", self._key, self._schema, self._folder.reader)
        work = KeyedStep(rewrite, rewrite, ((FILE,),))
        edges = (Keyed(found, (FILE,)).edge(),)
        return self._new.at(StreamNode("rewrite files", work, self._schema, edges, place=self._place))

    def _wanted(self, there: Pipeline) -> Pipeline | None:
        """The rows of the stream that are written; None: none of them."""
        updates, inserts = self._matched == "update", self._not_matched == "insert"
        if updates and inserts:
            return self._new
        if not updates and not inserts:
            return None
        how = "semi" if updates else "anti"
        left, right = Keyed(self._new, self._key), Keyed(there, self._key)
        return join_of(left, right, how, "", None, self._place)

    def _for_the_sink(self, pipeline: Pipeline) -> Pipeline:
        """With the column that names files, which is null."""
        none = pc.scalar(pa.scalar(None, pa.string()))
        pairs: list[tuple[str, pc.Expression]] = [(name, column(name)) for name in self._names]
        return project(pipeline, "select", [*pairs, (FILE, none)], self._place)

    def _without_rows(self, keys: Pipeline) -> Pipeline:
        """So that the keys are looked at all the same."""
        work = ChainedStep(NoRows("one row a key", self._schema))
        return keys.then("one row a key", work, self._schema, self._place)
