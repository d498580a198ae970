"""A script of one job, whose results lie where they last."""

from pathlib import Path

Path("job.py").write_text(
    "from firesteel import ExecutionEnvironment\n"
    "env = ExecutionEnvironment(options={'firesteel.storage.directory': 'results'})\n"
    "rows = env.from_collection([{'k': n % 3, 'v': n} for n in range(30)])\n"
    "rows.key_by('k').aggregate({'v': 'sum'}).write_parquet('sums', mode='overwrite')\n"
    "env.execute('load')\n"
)
