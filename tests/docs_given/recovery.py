"""A script of one job, whose results lie where they last; orders, and the functions of a pipeline that is being written."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

Path("job.py").write_text(
    "from firesteel import ExecutionEnvironment\n"
    "env = ExecutionEnvironment(options={'firesteel.storage.directory': 'results'})\n"
    "rows = env.from_collection([{'k': n % 3, 'v': n} for n in range(30)])\n"
    "rows.key_by('k').aggregate({'v': 'sum'}).write_parquet('sums', mode='overwrite')\n"
    "env.execute('load')\n"
)
Path("orders").mkdir()
pq.write_table(pa.table({"line": ["ann 2.5", "bob 1", "ann 4"]}), "orders/1.parquet")


def parse(batches):
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        words = pc.split_pattern(batch["line"], " ")
        prices = pc.cast(pc.list_element(words, 1), pa.float64())
        yield pa.RecordBatch.from_arrays([pc.list_element(words, 0), prices], names=["user", "price"])


def summed(key, orders):
    return pa.table({"user": [key[0].as_py()], "total": [pc.sum(orders["price"]).as_py()]})


def largest(key, orders):
    return pa.table({"user": [key[0].as_py()], "most": [pc.max(orders["price"]).as_py()]})
