"""Texts, a few functions on them, and the examples."""

from pathlib import Path

from pyspark.sql import SparkSession

import firesteel
from firesteel import ExecutionEnvironment, SlotSharingGroup

Path("examples").symlink_to(Path(__file__).resolve().parents[2] / "examples")
Path("src").mkdir()
Path("src/one.py").write_text("def count(words):\n    return len(words)\n")
Path("in").mkdir()
Path("in/1.txt").write_text("one\ntwo\n")
SCHEMA = MODELS = SCORES = "k string"
GPU = SlotSharingGroup("gpu", cpu_cores=1, task_heap_memory="1 GiB", external_resources={"gpu": 1})
env = ExecutionEnvironment.get_or_create("local[2]")
texts = env.read_text("in/")


def parse(batches):
    yield from batches


def fit(rows):
    return rows


def score(batches):
    yield from batches
