"""Spark DataFrames as sources: computed by our own tasks as far as they give Spark's answers, and by Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.api.connectors import reading
from firesteel.api.ddl import check_spark_types, dataframe_schema
from firesteel.api.steps.actions import to_dataframe
from firesteel.api.steps.common import step_at
from firesteel.api.steps.pipeline import Pipeline, pipeline_of
from firesteel.api.steps.projection import project
from firesteel.compile.stream_graph import DataFrameStep, StreamNode
from firesteel.connectors.files.paths import first_line
from firesteel.errors import FiresteelError, UsageError
from firesteel.options import SQL_DATAFRAMES, SQL_NEAR, Options
from firesteel.task.expressions import column

if TYPE_CHECKING:
    from firesteel.api.environment import ExecutionEnvironment
    from firesteel.sql.plans.catalyst import Catalyst
    from firesteel.sql.takeover import TakenOver

_NO_ENGINE = "DuckDB is not installed (pip install 'duckdb>=2,<3')"


def from_dataframe(env: ExecutionEnvironment, dataframe: Any) -> Pipeline:
    with step_at("from_dataframe") as place:
        by_spark = reading.from_spark(env, "from_dataframe", dataframe, place)
        env._adopt(dataframe.sparkSession)  # pyright: ignore[reportPrivateUsage]
        return _taken_over(env, dataframe, by_spark, place)


def sql(env: ExecutionEnvironment, query: str, given: Mapping[str, Any]) -> Pipeline:
    """A query over what the session knows, and over streams of the environment."""
    with step_at("sql") as place:
        if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"sql wants the text of a query, not {query!r}.", hint='Write sql("select ...").')
        pipelines = {name: found for name, value in given.items() if (found := pipeline_of(value)) is not None}
        others = {name: value for name, value in given.items() if name not in pipelines}
        return _query(env, query, pipelines, others, place)


def _query(
    env: ExecutionEnvironment, query: str, pipelines: Mapping[str, Pipeline], others: Mapping[str, Any], place: str
) -> Pipeline:
    """``pipelines``, ``others``: what stands in braces, streams of the environment and what ``spark.sql`` takes."""
    if pipelines:
        return of_streams(
            env, "sql", pipelines, lambda frames: _analysed(env.spark, query, {**others, **frames}), place
        )
    frame = _analysed(env.spark, query, others)
    return _taken_over(env, frame, reading.from_spark(env, "sql", frame, place), place)


def of_streams(
    env: ExecutionEnvironment,
    step: str,
    pipelines: Mapping[str, Pipeline],
    make: Callable[[Mapping[str, Any]], Any],
    place: str,
) -> Pipeline:
    """The DataFrame that ``make`` makes of the streams, given as DataFrames by the same names."""
    for name, pipeline in pipelines.items():
        _check_stream(env, step, name, pipeline)
    stand_ins = {name: _stand_in(env.spark, pipeline.schema) for name, pipeline in pipelines.items()}
    frame = make(stand_ins)

    def settled() -> DataFrameSource:
        """Spark computes it: the streams are computed first, and it reads their rows."""
        return dataframe_source(make({name: to_dataframe(pipeline) for name, pipeline in pipelines.items()}))

    from firesteel.spark.dataframes import DataFrameSource, dataframe_source

    by_spark = Pipeline(env, StreamNode(step, DataFrameStep(settled), dataframe_schema(frame), place=place))
    numbers = {_rdd_of(stand_ins[name]): pipeline for name, pipeline in pipelines.items()}
    return _taken_over(env, frame, by_spark, place, numbers)


def where(pipeline: Pipeline, condition: str) -> Pipeline:
    """The rows for which a condition in SQL is true."""
    query = f"SELECT * FROM {{rows}} WHERE {_braced(condition)}"
    with step_at("sql") as place:
        env = pipeline.env
        return carried(
            pipeline,
            condition,
            lambda rows: env.spark.sql(query, rows=rows),
            lambda given: _query(env, query, {"rows": given}, {}, place),
            place,
        )


_CARRIERS = {
    **{pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)},
    **{
        pa.time32("s"): pa.int32(),
        pa.time32("ms"): pa.int32(),
        pa.time64("us"): pa.int64(),
        pa.time64("ns"): pa.int64(),
    },
    pa.float16(): pa.float32(),
}
"""Types that some Sparks lack, and those of its own that hold all their values."""
_ALL_COLUMNS = re.compile(r"(?:[(,.]|\bDISTINCT)\s*\*|unresolvedstar", re.IGNORECASE)


def carried(
    pipeline: Pipeline, condition: str, make: Callable[[Any], Any], filtered: Callable[[Pipeline], Pipeline], place: str
) -> Pipeline:
    """The rows that a filter keeps. Columns that it does not use need no type in Spark: they pass it in a wider one.

    ``condition``: its text; ``make``: the filter of a DataFrame; ``filtered``: of a stream.
    """
    kinds = {field.name: field.type for field in pipeline.schema}
    carriers = {name: _carrier(kind) for name, kind in kinds.items()}
    wider = {name: kind for name, kind in carriers.items() if kind is not None and _is_lacking(kinds[name])}
    if not wider or _ALL_COLUMNS.search(condition) or any(map(partial(_names, condition), wider)):
        return filtered(pipeline)
    try:
        make(_stand_in(pipeline.env.spark, pa.schema([one for one in pipeline.schema if one.name not in wider])))
    except Exception:  # Spark says what is wrong with it
        return filtered(pipeline)

    def cast(name: str, to: Mapping[str, pa.DataType]) -> tuple[str, pc.Expression]:
        return name, column(name).cast(to[name]) if name in wider else column(name)

    kept = filtered(project(pipeline, "cast", [cast(name, wider) for name in kinds], place))
    return project(kept, "cast", [cast(name, kinds) for name in kinds], place)


def _is_lacking(kind: pa.DataType) -> bool:
    """True if this Spark has no such type."""
    try:
        check_spark_types(pa.schema([("column", kind)]), "")
    except UsageError:
        return True
    return False


def _carrier(kind: pa.DataType) -> pa.DataType | None:
    """The type in which values of one that Spark may lack pass through it; None: there is none."""
    if pa.types.is_list(kind):
        inner = _carrier(kind.value_type)
        return None if inner is None else pa.list_(inner)
    return _CARRIERS.get(kind)


def _names(condition: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", condition, re.IGNORECASE) is not None


def select_expr(pipeline: Pipeline, expressions: Sequence[str]) -> Pipeline:
    """Columns by expressions in SQL."""
    if not expressions or not all(isinstance(text, str) for text in expressions):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError("select_expr wants texts of expressions.", hint='Write select_expr("a", "a + 1 AS b").')
    chosen = ", ".join(map(_braced, expressions))
    return _of_one(pipeline, f"SELECT {chosen} FROM {{rows}}")


def _of_one(pipeline: Pipeline, query: str) -> Pipeline:
    """A query of this stream, which it calls ``{rows}``."""
    with step_at("sql") as place:
        return _query(pipeline.env, query, {"rows": pipeline}, {}, place)


def _braced(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _check_stream(env: ExecutionEnvironment, step: str, name: str, pipeline: Pipeline) -> None:
    pipeline.refuse_sides(step)
    if pipeline.env is not env:
        raise UsageError(f"The stream {name} belongs to another environment.", hint="Make both from the same one.")
    check_spark_types(pipeline.schema, step)


def _stand_in(session: Any, schema: pa.Schema) -> Any:
    """A DataFrame of a stream's columns, without rows, which the optimiser does not know to be empty."""
    from firesteel.spark.session.versions import spark_schema

    return session.createDataFrame(session.sparkContext.parallelize([], 1), spark_schema(schema))


def _rdd_of(frame: Any) -> int:
    return int(frame._jdf.queryExecution().analyzed().rdd().id())


def _analysed(session: Any, query: str, given: Mapping[str, Any]) -> Any:
    """Raises UsageError in Spark's words."""
    try:
        return session.sql(query, **given)
    except Exception as error:
        raise UsageError(f"Spark does not take this query: {first_line(error)}") from error


def wholly_taken_over(plan: Catalyst, schema: pa.Schema, options: Options) -> TakenOver:
    """A DataFrame's plan without any help of Spark's but rows that it has. Raises UsageError with the reason where that cannot be had."""
    if find_spec("duckdb") is None:
        raise UsageError(_NO_ENGINE)
    from firesteel.plan.expr import Unsupported
    from firesteel.sql.takeover import take_over

    try:
        taken = take_over(plan, schema, whole=True, near=options[SQL_NEAR])
    except Unsupported as reason:
        raise UsageError(str(reason)) from reason
    if taken.left:
        raise UsageError("; ".join(taken.left))
    return taken


def _taken_over(
    env: ExecutionEnvironment,
    dataframe: Any,
    by_spark: Pipeline,
    place: str,
    streams: Mapping[int, Pipeline] | None = None,
) -> Pipeline:
    """By our own tasks as far as the options and the plan allow. ``streams``: of the environment, by the RDDs that stand for them."""
    if env.options[SQL_DATAFRAMES] == "spark":
        return by_spark
    if find_spec("duckdb") is None:
        return by_spark.left_to_spark([_NO_ENGINE])
    from firesteel.plan.expr import Unsupported  # loads what only these jobs need
    from firesteel.sql.plans.catalyst import read_plan
    from firesteel.sql.takeover import take_over

    edges = {number: pipeline.edge() for number, pipeline in (streams or {}).items()}
    try:
        taken = take_over(read_plan(dataframe), by_spark.schema, edges, near=env.options[SQL_NEAR])
        return Pipeline(env, taken.step(place)).left_to_spark(taken.left).or_by_spark(by_spark)
    except (Unsupported, FiresteelError) as reason:  # what cannot be read is told by Spark
        return by_spark.left_to_spark([str(reason)])
