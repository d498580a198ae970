"""Checks of Spark's data sources before they are used: the format's name, its package, its driver, its options.

Everything here runs on the driver, before a job: a format that Spark does not have is a sentence naming what to add, and not
the end of a job that has computed for an hour.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from firesteel.api.ddl import dataframe_schema
from firesteel.connectors.files.paths import as_paths, first_line
from firesteel.errors import OutputExistsError, UsageError
from firesteel.humanize import minor_version

_BUILT_IN = ("avro", "binaryFile", "csv", "jdbc", "json", "kafka", "noop", "orc", "parquet", "text", "xml")
_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_{scala}:{spark}",
    "bigquery": "com.google.cloud.spark:spark-bigquery-with-dependencies_{scala}:VERSION",
    "delta": "io.delta:delta-spark_{scala}:VERSION",
    "excel": "dev.mauch:spark-excel_{scala}:VERSION",
    "hudi": "org.apache.hudi:hudi-spark{short}-bundle_{scala}:VERSION",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-{short}_{scala}:VERSION",
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}",
    "mongodb": "org.mongodb.spark:mongo-spark-connector_{scala}:VERSION",
    "org.apache.spark.sql.cassandra": "com.datastax.spark:spark-cassandra-connector_{scala}:VERSION",
    "snowflake": "net.snowflake:spark-snowflake_{scala}:VERSION",
}
_SETTINGS = {
    "delta": (
        " and set spark.sql.extensions to io.delta.sql.DeltaSparkSessionExtension and"
        " spark.sql.catalog.spark_catalog to org.apache.spark.sql.delta.catalog.DeltaCatalog"
    ),
    "iceberg": " and set spark.sql.extensions to org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
_DRIVERS = {
    "clickhouse": "com.clickhouse:clickhouse-jdbc:VERSION",
    "db2": "com.ibm.db2:jcc:VERSION",
    "duckdb": "org.duckdb:duckdb_jdbc:VERSION",
    "h2": "com.h2database:h2:VERSION",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client:VERSION",
    "mysql": "com.mysql:mysql-connector-j:VERSION",
    "oracle": "com.oracle.database.jdbc:ojdbc11:VERSION",
    "postgresql": "org.postgresql:postgresql:VERSION",
    "snowflake": "net.snowflake:snowflake-jdbc:VERSION",
    "sqlite": "org.xerial:sqlite-jdbc:VERSION",
    "sqlserver": "com.microsoft.sqlserver:mssql-jdbc:VERSION",
}
_HOW = 'SparkSession.builder.config("spark.jars.packages", "{package}"){more}, and give that session to the environment'
_SECRET = re.compile(
    r"(?i)((?:password|passwd|pwd|secret|token|accesskey|account\.?key)[\w.\-]*\s*[=:]\s*)[^\s&;,)'\"]+"
)
_SECRET_NAME = re.compile(r"(?i)password|passwd|pwd|secret|token|credential|key$")
_USER_PART = re.compile(r"//[^/@\s:]*:[^/@\s]*@")


def read_format(session: Any, format: str, path: Any, schema: Any, options: Mapping[str, Any]) -> Any:
    """A DataFrame of what ``format`` reads, not yet run. Raises UsageError in Spark's words, without secrets."""
    check_format(session, format)
    given = checked_options(options)
    reader = session.read.format(format).options(**given)
    try:
        if schema is not None:
            reader = reader.schema(_reader_schema(schema))
        if format.lower() == "jdbc":
            _check_driver(session, given)
        frame = reader.load() if path is None else reader.load(*_load_argument(path))
        dataframe_schema(frame)
    except UsageError:
        raise
    except Exception as error:
        where = f"{format} {path}" if path is not None else format
        raise UsageError(
            f"Spark cannot read {hidden(where, given)}: {hidden(said(error), given)}.",
            hint="The options are those of Spark's reader of this format.",
        ) from error
    return frame


def check_format(session: Any, format: Any) -> None:
    """Raises UsageError, naming the package to add, when the session's Spark has no such data source."""
    if not isinstance(format, str) or not format.strip():
        raise UsageError(f"{format!r} is not a format.", hint='Name one of Spark, such as "jdbc", "orc" or "delta".')
    state = session._jsparkSession.sessionState()
    try:
        if state.dataSourceManager().dataSourceExists(format):  # written in Python and registered
            return
    except Exception:  # another Spark has no such manager: then the next line decides
        pass
    try:
        session._jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(format, state.conf())
    except Exception as error:
        raise UsageError(f"Spark has no format '{format}' here.", hint=_package_hint(session, format)) from error


def checked_options(options: Mapping[str, Any]) -> dict[str, str]:
    """Spark's options are text. Raises UsageError for a value that is not a string, number or boolean; drops None."""
    found: dict[str, str] = {}
    for name, value in options.items():
        if value is None:
            continue
        if not isinstance(value, str | int | float | bool):
            raise UsageError(
                f"The option {name} is a {type(value).__name__}, which Spark does not take as an option.",
                hint="They are strings, numbers, True or False.",
            )
        found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def check_table(session: Any, options: Mapping[str, str], mode: str) -> None:
    """Before a job writes to JDBC: is there a driver, does the database answer, may the table be there already?"""
    if not {"url", "dbtable"} <= {name.lower() for name in options}:
        raise UsageError("Writing to JDBC needs the options url and dbtable.", hint='Give url="jdbc:...", dbtable="t".')
    jdbc = _check_driver(session, options)
    packages = session._jvm.org.apache.spark.sql
    try:
        dialect = packages.jdbc.JdbcDialects.get(_option(options, "url"))
        connection = dialect.createConnectionFactory(jdbc).apply(-1)
        try:
            exists = bool(packages.execution.datasources.jdbc.JdbcUtils.tableExists(connection, jdbc))
        finally:
            connection.close()
    except Exception as error:
        raise UsageError(
            f"The database of {_option(options, 'dbtable')} cannot be reached: {hidden(said(error), options)}.",
            hint="Check the options url, user and password.",
        ) from error
    if exists and mode == "error":
        raise OutputExistsError(
            f"The table {_option(options, 'dbtable')} exists already.",
            hint="Choose another, or write with mode='append', 'overwrite' or 'ignore'.",
        )


def _check_driver(session: Any, options: Mapping[str, str]) -> Any:
    """Spark's own reading of the options, which loads the driver's class. Raises UsageError."""
    jvm = session._jvm
    url = _option(options, "url")
    try:
        given = {"dbtable": "t", **options} if "query" in {name.lower() for name in options} else dict(options)
        given = {name: value for name, value in given.items() if name.lower() != "query"}
        return jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcOptionsInWrite(jvm.PythonUtils.toScalaMap(given))
    except Exception as error:
        text = said(error)
        if "No suitable driver" not in text and "ClassNotFoundException" not in text:
            raise UsageError(f"These are not options of JDBC: {hidden(text, options)}.") from error
        kind = re.match(r"jdbc:([a-z0-9]+)", url)
        if kind is None:
            raise UsageError(
                f"{hidden(url, options)!r} is not a JDBC URL.", hint='It looks like "jdbc:postgresql://host/db".'
            ) from error
        package = _DRIVERS.get(kind[1], "GROUP:ARTIFACT:VERSION")
        driver = _option(options, "driver")
        what = f"the class {driver}" if driver else f"a driver for jdbc:{kind[1]} URLs"
        raise UsageError(
            f"Spark does not have {what}.",
            hint=f"Start Spark with its package: {_HOW.format(package=package, more='')}; or add the jar with spark.jars.",
        ) from error


def _reader_schema(schema: Any) -> Any:
    """A schema as ``DataFrameReader.schema`` takes it: DDL and StructType as they are, an Arrow schema as Spark's."""
    from firesteel.spark.session.versions import spark_schema

    return spark_schema(schema) if isinstance(schema, pa.Schema) else schema


def hidden(text: str, options: Mapping[str, str]) -> str:
    """The text without what options with a secret's name hold, and without passwords in URLs."""
    for name, value in options.items():
        if _SECRET_NAME.search(name) and len(value) > 2:
            text = text.replace(value, "***")
    return _USER_PART.sub("//", _SECRET.sub(r"\1***", text))


def said(error: BaseException) -> str:
    """The first line of what Spark, or the JVM, says."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return first_line(error)
    return (str(java.toString()).splitlines() or [type(error).__name__])[0].rstrip(". ")


def _option(options: Mapping[str, str], name: str) -> str:
    return next((value for key, value in options.items() if key.lower() == name), "")


def _load_argument(path: Any) -> tuple[Any]:
    paths = as_paths(path)
    return (paths[0],) if len(paths) == 1 else (paths,)


def _package_hint(session: Any, format: str) -> str:
    name = format.lower()
    if name not in _PACKAGES:
        close = difflib.get_close_matches(name, [*map(str.lower, _BUILT_IN), *_PACKAGES], n=1, cutoff=0.7)
        if close:
            return f"Did you mean '{close[0]}'?"
        return (
            "Start Spark with the package that has it (spark.jars.packages), or register your own with "
            "spark.dataSource.register(...)."
        )
    version = str(session.version)
    scala = minor_version(str(session._jvm.scala.util.Properties.versionNumberString()))
    package = _PACKAGES[name].format(scala=scala, spark=version, short=minor_version(version))
    how = _HOW.format(package=package, more=_SETTINGS.get(name, ""))
    choose = " VERSION: one that is made for this Spark." if "VERSION" in package else ""
    return f"Start Spark with its package: {how}.{choose}"
