"""A source tree and a script of one job."""

import os
import sys
from pathlib import Path

Path("src/words").mkdir(parents=True)
Path("src/words/one.py").write_text("def count(words):\n    return len(words)\n")
Path("job.py").write_text(
    "from firesteel import ExecutionEnvironment\n"
    "env = ExecutionEnvironment(options={'firesteel.storage.directory': 'results'})\n"
    "env.from_collection([(1,)], 'n int').write_parquet('one')\n"
    "env.execute('load')\n"
)
os.environ["PYSPARK_PYTHON"] = sys.executable
