"""What the tests ask of PySpark and Spark 3.5 has not, or has otherwise. Importing this adds it."""

from __future__ import annotations

import pyarrow as pa

from firesteel.spark.session.versions import arrow_schema

try:
    from pyspark.sql.classic.dataframe import DataFrame
except ImportError:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame

    def _to_arrow(frame) -> pa.Table:
        batches = frame._collect_as_arrow()
        zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
        return pa.Table.from_batches(batches, None if batches else arrow_schema(frame.schema, zone))

    DataFrame.toArrow = _to_arrow
    PySparkException.getCondition = lambda error: error.getErrorClass()
    PySparkException.getMessage = str

__all__ = ["DEFAULTS", "DataFrame"]
DEFAULTS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.legacy.createHiveTableByDefault": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInWrite": "CORRECTED",
}
"""Those of Spark 4."""
