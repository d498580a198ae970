"""An environment, a session for the PySpark halves, and a small model in a file."""

import os
import sys

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from firesteel import ExecutionEnvironment

os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
env = ExecutionEnvironment(spark=spark)
np.save("model.npy", np.linspace(0.0, 1.0, 1_000))
texts = env.from_arrow(pa.table({"id": np.arange(1_000)}))
