"""A source tree, a script of one job, and a session and a function for the PySpark half; what the README's stream reads and calls."""

import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from firesteel import ExecutionEnvironment, col

Path("src/words").mkdir(parents=True)
Path("src/words/one.py").write_text("def count(words):\n    return len(words)\n")
Path("examples").symlink_to(Path(__file__).resolve().parents[2] / "examples")
Path("in").mkdir()
Path("in/1.json").write_text('{"k": 1}\n{"k": 2}\n')
Path("job.py").write_text(
    "from firesteel import ExecutionEnvironment\n"
    "env = ExecutionEnvironment(options={'firesteel.storage.directory': 'results'})\n"
    "env.from_collection([(1,)], 'n int').write_parquet('one')\n"
    "env.execute('load')\n"
)
sys.argv = ["word_count.py"]


def sink(frame, batch):
    frame.collect()


def tokenize(batches):
    for batch in batches:
        words = pc.list_flatten(pc.split_pattern_regex(batch["value"], r"\W+"))
        yield pa.record_batch({"word": words, "n": pa.repeat(pa.scalar(1), len(words))})


os.environ["PYSPARK_PYTHON"] = sys.executable
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", 2)
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
env = ExecutionEnvironment(spark=spark)
