"""A driver for the tests: starts a job whose subtasks wait for ever, in the folder given."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).parents[1]))

from firesteel.api.job_client import JobClient
from firesteel.spark.driver.runtime import submit
from firesteel.spark.session.sessions import create_session
from runtime_support import NUMBERS, options, two_steps


class Forever:
    def read(self, split, ctx):
        (ctx.scratch / "spilled").write_bytes(b"x")
        yield pa.RecordBatch.from_arrays([pa.array(np.arange(3)), pa.array(np.arange(3))], schema=NUMBERS)
        Path(folder, f"running-{split}").touch()
        while True:
            time.sleep(0.05)


if __name__ == "__main__":
    folder = sys.argv[1]
    spark = create_session("local[2]")
    client = JobClient(submit(two_steps(splits=4, source=Forever()), spark, options(Path(folder))))
    try:
        client.wait()
    except KeyboardInterrupt as error:
        print(f"told: {error}", flush=True)
        sys.exit(130)
