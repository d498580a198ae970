"""Spark's optimised logical plan of a DataFrame, read in one call."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from firesteel.plan.expr import Expr, Unsupported, walk
from firesteel.render.expressions.times.zones import ask_for_zones
from firesteel.sql.plans.java import object_of
from firesteel.sql.plans.plan_reader import SOURCE
from firesteel.sql.plans.versions import Version, checked_version

_SETTINGS = (
    "spark.sql.caseSensitive",
    "spark.sql.columnNameOfCorruptRecord",
    "spark.sql.files.ignoreCorruptFiles",
    "spark.sql.files.ignoreMissingFiles",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.orc.impl",
    "spark.sql.parquet.datetimeRebaseModeInRead",
    "spark.sql.parquet.fieldId.read.enabled",
    "spark.sql.parquet.int96RebaseModeInRead",
    "spark.sql.parquet.int96TimestampConversion",
    "spark.sql.session.timeZone",
)
"""Settings that are read with each plan. A rule that looks at another one costs a call."""


_OF_SPARK_2 = {
    name: f"{name}OfSpark2"
    for name in (
        "DateFormatClass", "FromUnixTime", "GetTimestamp", "UnixTimestamp", "ToUnixTimestamp", "JsonToStructs", "StructsToJsonEvaluator",
    )
}  # fmt: skip
"""Expressions that read or write times by other patterns where ``spark.sql.legacy.timeParserPolicy`` is ``LEGACY``."""
_GAINING = {"Aggregate", "Join", "Sort", "Window"}
"""Operators without which a query only passes rows on: a detour by our tasks would gain nothing where Spark needs them after all."""


@dataclass(frozen=True, slots=True, eq=False)
class Operator(Expr):
    """An operator of a plan. ``handle``: its number. ``output``: its attributes, if they were read with the plan."""

    handle: int = -1
    output: list[Expr] | None = None


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file as Spark listed it. ``path``: without escapes."""

    scheme: str | None
    authority: str | None
    path: str
    size: int


@dataclass(frozen=True, slots=True)
class Folder:
    """Files with the same values of the partition columns, which are written as constants in plans are."""

    values: list[Any]
    files: list[FoundFile]


@dataclass(frozen=True, slots=True)
class Catalyst:
    """The optimised plan of a DataFrame, and what was read with it."""

    root: Operator
    frame: Any
    version: Version
    schema: dict[str, Any]
    """Of the DataFrame, as Spark writes it in JSON."""
    deterministic: bool
    """Spark gives the same rows each time."""
    asks_first: bool
    """The user wrote ``first`` or ``last`` of groups. Else those in the plan are of ``dropDuplicates`` and ``any_value``."""
    firsts: list[int]
    """For the handle of each operator, that of the first one that gives the same rows, but for the ids of its columns."""
    sizes: dict[int, int]
    """Spark's estimates of the bytes of operators that have none below them, by handle."""
    _settings: dict[str, str]
    _files: dict[int, Any]
    _reader: Any

    @classmethod
    def of_text(cls, text: str, frame: Any, version: Version, reader: Any) -> Catalyst:
        """``text``: what ``read`` of the reader in Java gave."""
        read = json.loads(text)
        sizes = {int(handle): size for handle, size in read["sizes"].items()}
        files = {int(handle): folders for handle, folders in read["files"].items()}
        if _is_of_spark_2(read["settings"]):
            version = replace(version, classes={**version.classes, **_OF_SPARK_2})
        told = read["schema"], read["deterministic"], read.get("first", False), read["firsts"]
        root = _node(read["plan"], version, read.get("places", []))
        return cls(root, frame, version, *told, sizes, read["settings"], files, reader)

    @property
    def is_of_spark_2(self) -> bool:
        """Dates are read and written as Spark 2 did."""
        return _is_of_spark_2(self._settings)

    @property
    def gains(self) -> bool:
        """Whether it does more than pass rows on."""
        return any(node.cls in _GAINING for node in walk(self.root))

    @property
    def session(self) -> Any:
        return self.frame.sparkSession

    @property
    def names(self) -> list[str]:
        """Of the DataFrame's columns. Several may have the same one."""
        return [field["name"] for field in self.schema["fields"]]

    @property
    def input_bytes(self) -> int:
        return sum(self.sizes.values())

    def setting(self, name: str) -> str:
        """Of the session."""
        if name not in self._settings:
            self._settings[name] = str(self.session.conf.get(name))
        return self._settings[name]

    def output_of(self, node: Operator) -> list[Expr]:
        """The attributes of an operator, in order."""
        if node.output is not None:
            return node.output
        return _node(json.loads(self._reader.output(self.frame._jdf, node.handle)), self.version)

    def files_of(self, relation: Operator) -> list[Folder]:
        """The files of a relation, without directories that partition columns in the conditions of the Filter operators right above it rule
        out. Raises Unsupported."""
        found = self._files.get(relation.handle, "it has another kind of list")
        if isinstance(found, str):
            raise Unsupported(f"Spark cannot list the files: {found}")
        return [Folder(one["values"], [FoundFile(*file) for file in one["files"]]) for one in found]

    def dataframe_of(self, node: Operator, names: list[str]) -> Any:
        """The subtree as a DataFrame of Spark's, its columns called ``names``."""
        from firesteel.spark.session.versions import dataframe_of_plan

        return dataframe_of_plan(self._reader.plan(self.frame._jdf, node.handle), self.session).toDF(*names)

    def table_of(self, node: Operator, names: list[str]) -> pa.Table:
        """The rows of a subtree that has some. Raises Unsupported where this Spark cannot hand them over."""
        return collected(self.dataframe_of(node, names))


MOST_ROWS = 1 << 20
"""That Spark hands over without knowing before how many they are."""


def few_rows(frame: Any) -> pa.Table:
    """The rows of a DataFrame. Raises Unsupported where they are not few."""
    rows = collected(frame.limit(MOST_ROWS + 1))
    if len(rows) > MOST_ROWS:
        raise Unsupported(f"more than {MOST_ROWS:,} rows that Spark would have to hand over")
    return rows


def collected(frame: Any) -> pa.Table:
    """The rows of a DataFrame that has some. Raises Unsupported where this Spark cannot hand them over."""
    try:
        return pa.Table.from_batches(frame._collect_as_arrow())
    except Exception as error:
        raise Unsupported(f"Spark cannot hand over its rows: {str(error).strip().splitlines()[0]}") from error


def read_plan(dataframe: Any) -> Catalyst:
    """Plans the DataFrame, runs nothing. Raises Unsupported where this Spark's plans cannot be read."""
    session = dataframe.sparkSession
    version = checked_version(session)
    try:
        reader = _reader(session, version)
        server = session.sparkContext._gateway.java_gateway_server
        text = reader.read(dataframe._jdf, "\n".join(_SETTINGS), server)
    except Exception as error:
        raise Unsupported(f"Spark's plan cannot be read: {_first_line(error)}") from error
    return Catalyst.of_text(text, dataframe, version, reader)


def _is_of_spark_2(settings: Mapping[str, str]) -> bool:
    return settings.get("spark.sql.legacy.timeParserPolicy", "").upper() == "LEGACY"


def _first_line(error: Exception) -> str:
    """What Java says, without py4j's "An error occurred while calling"."""
    lines = str(error).strip().splitlines()
    return lines[1].removeprefix(": ") if len(lines) > 1 and lines[1].startswith(": ") else lines[0]


def offsets_of(zone: str) -> dict[str, Any]:
    """This JVM's knowledge of a zone: ``name``, ``fixed``, and ``offsets``, as [second, offset from then on]. Raises Unsupported."""
    from pyspark.sql import SparkSession

    session = SparkSession.active()
    reader = _reader(session, checked_version(session))
    try:
        return json.loads(reader.zone(zone))
    except Exception as error:
        raise Unsupported(f"the zone {zone} is not known") from error


def _reader(session: Any, version: Version) -> Any:
    return object_of(SOURCE + version.field_name, session)


def _node(value: Any, version: Version, places: Sequence[str] = ()) -> Any:
    """Nodes of what the reader wrote; types and what it does not know stay dicts."""
    if isinstance(value, list):
        return [_node(item, version, places) for item in value]
    if isinstance(value, dict) and "c" in value:
        fields = {name: _node(field, version, places) for name, field in value["f"].items()}
        cls = version.class_of(value["c"])
        if "h" in value:
            return Operator(cls, fields, handle=value["h"], output=_node(value.get("o"), version))
        place = places[int(value["w"])] if places and "w" in value else ""
        return Expr(cls, fields, value.get("t"), place, value.get("n", ""))
    return value


ask_for_zones(offsets_of)
