# report.py
import sys

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def tokenize(batches):
    for batch in batches:
        words = pc.list_flatten(pc.split_pattern_regex(batch["value"], r"\W+"))
        yield pa.record_batch({"word": words})


spark = SparkSession.builder.getOrCreate()
files = spark.read.text(sys.argv[1:] or "src", recursiveFileLookup=True, pathGlobFilter="*.py")
words = files.mapInArrow(tokenize, "word string").where("word != ''")
counts = words.groupBy("word").count().orderBy(F.desc("count"), "word")
counts.write.mode("overwrite").parquet("out/words")
