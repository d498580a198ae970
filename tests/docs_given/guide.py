"""Orders, customers and meter readings; and a session for the PySpark halves."""

import os
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

dice = np.random.default_rng(7)
rows = 200_000
for folder in ("orders", "customers", "readings"):
    Path(folder).mkdir()
for part in range(4):
    n = rows // 4
    day = dice.integers(0, 365, n)
    pq.write_table(
        pa.table(
            {
                "order": np.arange(part * n, (part + 1) * n),
                "customer": dice.zipf(1.5, n).astype("int64") % 1_000,
                "amount": dice.gamma(2.0, 40.0, n).round(2),
                "due": day,
                "shipped": day + dice.integers(-5, 9, n),
            }
        ),
        f"orders/{part}.parquet",
    )
names = pa.array([f"customer {k}" for k in range(1_000)])
countries = pa.array(np.array(["DE", "FR", "IN", "JP", "US"])[dice.integers(0, 5, 1_000)])
pq.write_table(
    pa.table({"customer": np.arange(1_000), "name": names, "country": countries}), "customers/customers.parquet"
)
meters = dice.integers(0, 200, 100_000)
readings = pa.table(
    {
        "meter": pa.array(meters),
        "hour": pa.array(dice.integers(0, 24 * 30, 100_000)),
        "kwh": pa.array([f"{v:.3f}" if v > 0.02 else "n/a" for v in dice.gamma(2.0, 0.4, 100_000)]),
    }
)
pa_csv.write_csv(readings, "readings/january.csv")
Path("count.py").write_text(
    "from firesteel import ExecutionEnvironment\n"
    "import sys\n"
    "lines = ExecutionEnvironment.get_or_create().read_text(sys.argv[1])\n"
    "print(lines.count())\n"
)
Path("input").mkdir()
Path("input/1.txt").write_text("one\ntwo\n")
