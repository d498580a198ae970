import sys

import pyarrow as pa
import pyarrow.compute as pc

from firesteel import ExecutionEnvironment, col


def tokenize(batches):
    for batch in batches:
        words = pc.list_flatten(pc.split_pattern_regex(batch["value"], r"\W+"))
        yield pa.record_batch({"word": words, "n": pa.repeat(pa.scalar(1), len(words))})


env = ExecutionEnvironment.get_or_create()  # or ExecutionEnvironment(spark=my_session, options={...})
lines = env.read_text(sys.argv[1:] or "src/**/*.py")
words = lines.map_in_arrow(tokenize, "word string, n bigint").filter(col("word") != "")
counts = words.key_by("word").aggregate({"n": "sum"})
counts.write_parquet("out/words", mode="overwrite")
result = env.execute("word count")
print(result.explain())
