"""A session with a view, and an environment."""

import tempfile

from pyspark.sql import SparkSession

from firesteel import ExecutionEnvironment

spark = SparkSession.builder.master("local[2]").getOrCreate()
_home = tempfile.mkdtemp()
spark.range(1000).selectExpr("id AS n").write.mode("overwrite").parquet(f"{_home}/numbers")
spark.read.parquet(f"{_home}/numbers").createOrReplaceTempView("numbers")
env = ExecutionEnvironment(spark)
