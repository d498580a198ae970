"""Differences between the versions of Spark that we run on, in one place; found by what is there, not by numbers.

Numbers decide only what is refused: an older Spark than was ever tried, and a Java that its JVM code cannot run on.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from decimal import Decimal
from importlib.util import find_spec
from typing import Any

import pyarrow as pa

from firesteel.errors import UsageError
from firesteel.extras import command
from firesteel.spark.session import older_rows

_PLAIN_SCALE = 6
"""Decimals with more zeros behind the point are written with an exponent, by Python and by Java."""
LEAST_PYARROW = (26, 0)
LEAST_SPARK = (3, 5)
BELOW_SPARK = (5, 0)
LEAST_STREAMING = (4, 0)
"""Streams need the engine's progress lock, and settings, that Spark 3.5 does not have."""
NEWEST_JAVA = (((4, 2), 23),)
"""Below this Spark, the newest Java: Java 24 took out what the Hadoop of older Sparks calls (``Subject.getSubject``)."""
NEWEST_JAVA_OF_ARROW = (((4, 0), 20),)
"""Below this Spark, the newest Java on which its Arrow runs; Java 21 changed a constructor of the JDK that it calls."""
INTERRUPT_HANDLERS = ("pyspark.core.context", "pyspark.context")
"""Modules whose Ctrl-C handler cancels all jobs: of Spark 4, and of 3.5."""


def version_of(text: str) -> tuple[int, int] | None:
    """Of "4.3.0" or "4.3.1-SNAPSHOT"; None: it is not a version."""
    match = re.match(r"(\d+)\.(\d+)", text)
    return None if match is None else (int(match[1]), int(match[2]))


def check_spark(version: str, what: str = "This session runs") -> None:
    """Raises UsageError for a Spark that we do not work with."""
    found = version_of(version)
    if found is None or not LEAST_SPARK <= found < BELOW_SPARK:
        raise UsageError(
            f"{what} Spark {version}, and this Firesteel works with Spark {_text(LEAST_SPARK)} to 4.",
            hint=f"Install one of these: pip install 'pyspark>={_text(LEAST_SPARK)},<{BELOW_SPARK[0]}'",
        )


def check_pyarrow(version: str = pa.__version__) -> None:
    """Raises UsageError for a pyarrow that we do not work with."""
    found = version_of(version)
    if found is None or found < LEAST_PYARROW:
        raise UsageError(
            f"Installed is pyarrow {version}, and this Firesteel works with {_text(LEAST_PYARROW)} and newer.",
            hint="pip install --upgrade pyarrow",
        )


def check_streaming(version: str) -> None:
    """Raises UsageError for a Spark whose streams we cannot run; what :func:`check_spark` lets pass runs batch jobs."""
    found = version_of(version)
    if found is None or found < LEAST_STREAMING:
        raise UsageError(
            f"Streams need Spark {_text(LEAST_STREAMING)} or newer, and this session runs Spark {version}.",
            hint="Batch jobs run on this version; for streams: pip install --upgrade pyspark",
        )


def installed_pyspark() -> str:
    """Its version. Raises UsageError for one that we do not work with, or none."""
    try:
        import pyspark
    except ImportError as error:
        raise UsageError(f"PySpark cannot be imported: {error}.", hint="pip install pyspark") from None
    check_spark(pyspark.__version__, "Installed is")
    return pyspark.__version__


def newest_java(version: str) -> int | None:
    """The last Java that this Spark runs on; None: no limit is known."""
    return _limit(NEWEST_JAVA, version)


def _limit(limits: Iterable[tuple[tuple[int, int], int]], version: str) -> int | None:
    found = version_of(version)
    return next((java for below, java in limits if found is not None and found < below), None)


@contextmanager
def _distutils() -> Generator[None]:
    """Spark 3.5 asks for a module that Python has no more since 3.12. Raises UsageError that says what brings it back."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "distutils":
            raise
        import pyspark

        raise UsageError(
            f"PySpark {pyspark.__version__} needs the module 'distutils', which Python 3.12 removed.",
            hint="Run pip install setuptools, which brings it, here and where executors run; or take Python 3.11 or Spark 4.",
        ) from None


def arrow_schema(schema: Any, timezone: str) -> pa.Schema:
    """The Arrow schema of a PySpark ``StructType``, timestamps in ``timezone``.

    Raises what PySpark raises, and UsageError where Python lacks what PySpark needs.
    """
    with _distutils():
        from pyspark.sql.pandas.types import to_arrow_schema

        if "timezone" in inspect.signature(to_arrow_schema).parameters:
            return to_arrow_schema(schema, timezone=timezone)
        older: Callable[[Any], pa.Schema] = to_arrow_schema
        return pa.schema([_in_zone(field, timezone) for field in older(schema)])


def spark_schema(schema: pa.Schema) -> Any:
    """The PySpark ``StructType`` of an Arrow schema; timestamps without a time zone stay so. Raises as :func:`arrow_schema`."""
    with _distutils():
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def dataframe_of(java: Any, session: Any) -> Any:
    """The PySpark DataFrame of a Java one."""
    try:
        from pyspark.sql.classic.dataframe import DataFrame
    except ImportError:
        from pyspark.sql import DataFrame
    return DataFrame(java, session)


def dataframe_of_plan(plan: Any, session: Any) -> Any:
    """The PySpark DataFrame of a logical plan of Java's."""
    sql = session._jvm.org.apache.spark.sql
    try:
        java = sql.classic.Dataset.ofRows(session._jsparkSession, plan)
    except TypeError:  # before Spark 4
        java = sql.Dataset.ofRows(session._jsparkSession, plan)
    return dataframe_of(java, session)


def session_tags(session: Any) -> frozenset[str]:
    """The session's tags for this thread. ``getTags`` makes a call for each of them. Before Spark 4 there are none."""
    if not _takes_tables():
        return frozenset()
    return frozenset(filter(None, str(session._jsparkSession.getTags().mkString(",")).split(",")))


def check_frames(session: Any) -> None:
    """Raises UsageError where this Spark cannot hand a DataFrame's rows over as Arrow, for want of pandas or of an older Java.

    Runs nothing.
    """
    newest = _limit(NEWEST_JAVA_OF_ARROW, session.version)
    if newest is not None:
        java = str(session.sparkContext._jvm.java.lang.System.getProperty("java.specification.version"))
        if java.isdigit() and int(java) > newest:
            raise UsageError(
                f"Spark {session.version} cannot pass a DataFrame on with Java {java}: its Arrow needs Java {newest} or older.",
                hint="Take Java 17, or Spark 4. All else works.",
            )
    try:
        with _distutils():
            session.range(0).mapInArrow(_same, "id bigint")
    except ImportError as error:
        said = " ".join(str(error).split())
        raise UsageError(
            f"Spark {session.version} cannot pass the DataFrame on: {said}", hint=f"Run {command('pandas')}."
        ) from None


def rows_of(context: Any, rdd: Any, partitions: Any) -> AbstractContextManager[Any]:
    """The rows of an RDD's partitions, handed over by the JVM without a Python worker."""
    socket = context._jvm.PythonRDD.runJob(context._jsc.sc(), rdd._jrdd, partitions)
    try:
        from pyspark.util import _load_from_socket as load
    except ImportError:
        load: Any = __import__("pyspark.rdd", fromlist=["rdd"])._load_from_socket
    found: Any = load(socket, rdd._jrdd_deserializer)
    return found if hasattr(found, "__enter__") else nullcontext(found)


def rows_of_table(table: pa.Table, schema: Any, session: Any) -> list[Any]:
    """PySpark's rows of a table, with the values that its own ``collect`` gives."""
    rows = _converted(table, schema, session)
    if not any(int(scale) > _PLAIN_SCALE for scale in re.findall(r"decimal\(\d+,(\d+)\)", schema.json())):
        return rows
    return list(map(_as_pickled, rows))


def _converted(table: pa.Table, schema: Any, session: Any) -> list[Any]:
    if not _takes_tables():
        return older_rows.rows_of_table(table, schema)
    from pyspark.sql.conversion import ArrowTableToRowsConversion

    convert: Callable[..., list[Any]] = ArrowTableToRowsConversion.convert
    if "binary_as_bytes" not in inspect.signature(convert).parameters:  # before Spark 4.1 bytes are a bytearray
        return convert(table, schema)
    as_bytes = session.conf.get("spark.sql.execution.pyspark.binaryAsBytes", "true") == "true"
    return convert(table, schema, binary_as_bytes=as_bytes)


def _as_pickled(value: Any) -> Any:
    """With small decimals as Spark hands them to Python, in engineering notation: 1E-10 is 100E-12, so it has three digits."""
    if isinstance(value, Decimal):
        return Decimal(value.to_eng_string()) if value.adjusted() < -_PLAIN_SCALE else value
    if isinstance(value, tuple):
        from pyspark.sql.types import _create_row

        return _create_row(value.__fields__, list(map(_as_pickled, value)))  # type: ignore[attr-defined]
    if isinstance(value, list):
        return list(map(_as_pickled, value))
    if isinstance(value, dict):
        return {_as_pickled(key): _as_pickled(one) for key, one in value.items()}
    return value


def local_dataframe(table: pa.Table, schema: Any, session: Any) -> Any:
    """A PySpark DataFrame that holds these rows itself."""
    if not _takes_tables():
        return dataframe_of(older_rows.local_dataframe(table, schema, session), session)
    whole = table if table.num_rows else table.schema.empty_table()  # of columns without chunks PySpark makes no frame
    return session.createDataFrame(whole, schema)


def _takes_tables() -> bool:
    """PySpark itself converts between Arrow's tables and rows: since Spark 4."""
    return find_spec("pyspark.sql.conversion") is not None


def valid_text(column: str) -> Any:
    """A PySpark Column: the string column with what is not UTF-8 in it replaced by U+FFFD."""
    from pyspark.sql import functions

    made = getattr(functions, "make_valid_utf8", None)
    if made is not None:
        return made(column)
    return functions.decode(functions.col(column).cast("binary"), "UTF-8")  # Spark 3.5 replaces here


def _same(batches: Any) -> Any:
    return batches


def _in_zone(field: pa.Field, timezone: str) -> pa.Field:
    return field.with_type(_type_in_zone(field.type, timezone))


def _type_in_zone(kind: pa.DataType, timezone: str) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, timezone)
    if pa.types.is_list(kind):
        return pa.list_(_in_zone(kind.value_field, timezone))
    if pa.types.is_map(kind):
        return pa.map_(_in_zone(kind.key_field, timezone), _in_zone(kind.item_field, timezone))
    if pa.types.is_struct(kind):
        return pa.struct([_in_zone(kind.field(k), timezone) for k in range(kind.num_fields)])
    return kind


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
