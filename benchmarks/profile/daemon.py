"""Firesteel's daemon of Python workers, with a sampler in each worker: ``spark.python.daemon.module`` of a profiled session."""

from __future__ import annotations

import os

from benchmarks.profile.sampler import start_in_worker

DIRECTORY = "FIRESTEEL_BENCH_SAMPLES"
"""The environment variable with the folder of samples."""


def main() -> None:
    from firesteel.task.executor import daemon

    os.register_at_fork(after_in_child=lambda: start_in_worker(os.environ[DIRECTORY]))
    daemon.main()


if __name__ == "__main__":
    main()
