"""A job, a stream that counts lines, and a folder for journals of others."""

from pathlib import Path

Path("job.py").write_text(
    "from firesteel import ExecutionEnvironment\n"
    "env = ExecutionEnvironment.get_or_create()\n"
    "rows = env.from_collection([{'k': n % 3, 'v': n} for n in range(30)])\n"
    "rows.key_by('k').aggregate({'v': 'sum'}).write_parquet('sums', mode='overwrite')\n"
    "env.execute('load')\n"
)
Path("words.py").write_text(
    "def build(spark):\n"
    "    lines = spark.readStream.text('in')\n"
    "    return lines.groupBy('value').count().writeStream.outputMode('update').foreachBatch(lambda rows, _: rows.count())\n"
)
Path("in").mkdir()
Path("in/1.txt").write_text("one\ntwo\none\n")
Path("journals").mkdir()
