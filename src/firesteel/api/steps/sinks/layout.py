"""The layout of files to write, as all ``write_*`` methods take it: stated once, for them, the type checker and ``help``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ParamSpec, TypedDict, TypeVar, cast

import pyarrow as pa

from firesteel.api.steps.common import unused_name
from firesteel.api.steps.ordering import sort
from firesteel.api.steps.partitioning import gathered
from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.stream_graph import ChainedStep
from firesteel.connectors.files.spark_hash import hashed_as
from firesteel.connectors.files.writing.part_files import BucketNumbers, Buckets
from firesteel.errors import UsageError
from firesteel.humanize import named_twice
from firesteel.options import parse_size
from firesteel.results.order.ordering import can_order
from firesteel.task.operators.relational import check_columns
from firesteel.task.passing import Encodes

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Layout:
    """Folder, mode, partitions and size of the files to write, as the user gave them: the same for all formats."""

    path: Any
    mode: str = "error"
    partition_by: Any = ()
    file_size: Any = None
    max_file_size: Any = None
    filesystem: Any = None

    def checked(self) -> dict[str, Any]:
        """Arguments for a sink of files. Raises UsageError."""
        return {**self.checked_for_table(), "filesystem": self.filesystem}

    def checked_for_table(self) -> dict[str, Any]:
        """Arguments for a sink of a table. Raises UsageError."""
        columns: tuple[Any, ...] = (
            (self.partition_by,) if isinstance(self.partition_by, str) else tuple(self.partition_by or ())
        )
        wrong = next((name for name in columns if not isinstance(name, str)), None)
        if wrong is not None:
            raise UsageError(f"partition_by wants names of columns, not {wrong!r}.")
        most, even = _size("max_file_size", self.max_file_size), _size("file_size", self.file_size)
        if most is not None and even is not None and even > most:
            raise UsageError(f"file_size={self.file_size!r} is more than max_file_size={self.max_file_size!r}.")
        return {"mode": self.mode, "partition_by": columns, "max_file_size": most, "file_size": even}

    def evenly(self, pipeline: Pipeline, columns: Sequence[str], sink: Encodes, kind: str) -> Pipeline:
        """The rows gathered, once more, so that subtasks write files of ``file_size``. Raises UsageError."""
        size = _size("file_size", self.file_size)
        return pipeline if size is None else gathered(pipeline, columns, size, sink, kind)


class TableOptions(TypedDict, total=False):
    """The keywords of methods that write tables, with the defaults of :class:`Layout`."""

    mode: str
    partition_by: Any
    file_size: Any
    max_file_size: Any


class FileOptions(TableOptions, total=False):
    """The keywords of methods that write files."""

    filesystem: Any


def laid_out(options: type[TableOptions]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """For a method with ``**layout: Unpack[options]``: its signature names these keywords, for ``help`` and notebooks, and it takes no
    others (TypeError)."""
    keywords = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type)
        for one in fields(Layout)
        if one.name in options.__optional_keys__
    ]

    def decorate(method: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(method)
        *own, _ = signature.parameters.values()
        signature = signature.replace(parameters=[*own, *keywords])

        @functools.wraps(method)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{method.__name__}() {error}") from None
            return method(*args, **kwargs)

        checked.__signature__ = signature  # pyright: ignore[reportAttributeAccessIssue]
        return checked

    return decorate


def _size(what: str, given: Any) -> int | None:
    """Raises UsageError."""
    try:
        size = None if given is None else parse_size(given)
    except ValueError as error:
        raise UsageError(f"{what}={given!r} must be {error}.") from None
    if size is not None and size < 1:
        raise UsageError(f"{what}={given!r} must be at least 1 byte.")
    return size


MOST_BUCKETS = 100_000
"""As in Spark (``spark.sql.sources.bucketing.maxBuckets``)."""


def buckets_of(schema: pa.Schema, bucket_by: Any, sort_by: Any, partition_by: Sequence[str]) -> Buckets | None:
    """The buckets that a user asked for, checked; None: none. Raises UsageError."""
    order = _names("sort_by", sort_by)
    if bucket_by is None:
        if order:
            raise UsageError(
                f"sort_by={sort_by!r} needs bucket_by: it is the order within a bucket.",
                hint="To write files in order, write the rows of sort(...).",
            )
        return None
    count, columns = _count_and_columns(bucket_by)
    for what, names in (("bucket_by", columns), ("sort_by", order)):
        check_columns(schema, names, what)
        twice = named_twice(names)
        if twice is not None:
            raise UsageError(f"{what} names the column '{twice}' twice.")
        both = next((name for name in names if name in partition_by), None)
        if both is not None:
            raise UsageError(
                f"'{both}' is in partition_by and in {what}: all rows of a partition have one value of it."
            )
    for name in columns:
        if hashed_as(schema.field(name).type) is None:
            raise UsageError(
                f"bucket_by cannot part rows by '{name}': Spark has no hash for {schema.field(name).type}.",
                hint="Cast it to text, a signed number, a decimal, a boolean, a date or a timestamp of microseconds.",
            )
    unordered = next((name for name in order if not can_order(schema.field(name).type)), None)
    if unordered is not None:
        raise UsageError(f"sort_by cannot order by '{unordered}': it is {schema.field(unordered).type}.")
    return Buckets(count, columns, order, unused_name("__bucket", schema.names))


def _count_and_columns(given: Any) -> tuple[int, tuple[str, ...]]:
    parts: list[Any] = list(cast(Sequence[Any], given)) if isinstance(given, list | tuple) else []
    count, columns = (parts[0], _names("bucket_by", parts[1:])) if parts else (None, ())
    if isinstance(count, bool) or not isinstance(count, int) or not columns:
        raise UsageError(
            f"bucket_by={given!r} is not a number of buckets and columns.", hint='Write bucket_by=(8, "user").'
        )
    if not 1 <= count <= MOST_BUCKETS:
        raise UsageError(f"bucket_by wants 1 to {MOST_BUCKETS:,} buckets, not {count:,}.")
    return count, columns


def _names(what: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    names: tuple[Any, ...] = (given,) if isinstance(given, str) else tuple(given)
    if len(names) == 1 and isinstance(names[0], list | tuple):
        names = tuple(cast(Sequence[Any], names[0]))
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        raise UsageError(f"{what} wants names of columns, not {wrong!r}.")
    return names


def in_buckets(pipeline: Pipeline, buckets: Buckets, partition_by: Sequence[str], place: str) -> Pipeline:
    """The rows with the number of their bucket, those of one together, and in order within it."""
    pipeline.refuse_sides("bucket_by")
    schema = pa.schema([*pipeline.schema, pa.field(buckets.number, pa.int32())])
    kind = f"buckets({buckets.words})"
    work = ChainedStep(BucketNumbers(kind, buckets.columns, buckets.count, schema), pipeline.unchanged)
    numbered = pipeline.partitioned(None).then(kind, work, schema, place)
    return sort(numbered, [*partition_by, buckets.number, *buckets.sort_by], True)
