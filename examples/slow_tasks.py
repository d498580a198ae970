"""A slow task detector of one's own: by throughput. Counts the words of text files, with mirrors of what it calls slow.

    firesteel run examples/slow_tasks.py 'src/**/*.py'

docs/speculation.md tells of detectors, and of the one that is there by default.
"""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from firesteel import ExecutionEnvironment, SlowTaskBaseline

FINISHED = 0.25  # this part of a step's subtasks must have finished before anything is said
TIMES = 3.0  # slow is what takes so many times as long as its bytes take at the mean rate of those ...
LEAST_SECONDS = 10.0  # ... and never what has taken less


class Throughput:
    """Goes by bytes per second. One is made for each job, with the job's options."""

    def __init__(self, options):
        self.seconds = LEAST_SECONDS

    def baseline(self, step):
        if step.input_bytes is None or len(step.finished_times) < max(1, FINISHED * step.parallelism):
            return None
        rate = step.finished_input_bytes.sum() / max(step.finished_times.sum(), 1e-3)
        seconds = np.maximum(TIMES * step.input_bytes / rate, self.seconds)
        return SlowTaskBaseline(seconds, f"others read {rate / 2**20:.1f} MiB/s; slow is {TIMES:g} times slower")


OPTIONS = {
    "jobmanager.adaptive-batch-scheduler.speculative.enabled": True,
    "firesteel.slow-task-detector.function": f"{__name__}:Throughput",
}


def tokenize(batches):
    for batch in batches:
        words = pc.list_flatten(pc.split_pattern_regex(batch["value"], r"\W+"))
        yield pa.record_batch({"word": words, "n": pa.repeat(pa.scalar(1), len(words))})


if __name__ == "__main__":
    env = ExecutionEnvironment(options=OPTIONS)
    words = env.read_text(sys.argv[1:]).map_in_arrow(tokenize, "word string, n bigint")
    words.key_by("word").aggregate({"n": "sum"}).top_k(10, "n", ascending=False).show()
