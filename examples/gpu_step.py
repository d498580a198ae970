"""A step that gets a GPU of its own, between steps that need none.

    firesteel run examples/gpu_step.py

As many executions of "embed" run at once as there are GPUs, one on each; all others wait. Without a GPU, addresses that stand for
nothing show the same: GPU_ADDRESSES="0 1" before the command. On a cluster the same group works with Spark's settings for its
executors (spark.executor.resource.gpu.amount); here, with a local master, they are the driver's.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import firesteel
from firesteel import ExecutionEnvironment, SlotSharingGroup

GPUS = str(Path(__file__).resolve().with_name("gpus.sh"))
GPU = SlotSharingGroup("gpu", cpu_cores=1, task_heap_memory="1 GiB", external_resources={"gpu": 1})


def embed(batches):
    """CUDA_VISIBLE_DEVICES names the GPU already: ``torch.device("cuda")`` is the right one."""
    (address,) = firesteel.task_resources().addresses["gpu"]
    for batch in batches:
        time.sleep(0.2)  # the model
        yield pa.record_batch({"document": batch["document"], "gpu": pa.repeat(pa.scalar(address), len(batch))})


def make_session():
    gpus = json.loads(subprocess.run([GPUS], capture_output=True, check=True).stdout)["addresses"]
    if not gpus:
        sys.exit('There is no GPU here: nvidia-smi lists none. GPU_ADDRESSES="0 1" before the command makes two up.')
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master("local[4]")
        .config("spark.driver.resource.gpu.amount", str(len(gpus)))
        .config("spark.driver.resource.gpu.discoveryScript", GPUS)
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def main():
    env = ExecutionEnvironment(spark=make_session())
    documents = env.from_collection([{"document": number} for number in range(8)]).rebalance()
    embedded = documents.map_in_arrow(embed, "document bigint, gpu string").set_parallelism(4).slot_sharing_group(GPU)
    per_gpu = embedded.key_by("gpu").aggregate({"documents": ("document", "count")}).slot_sharing_group("default")
    per_gpu.write_parquet("out/documents-per-gpu", mode="overwrite")
    print(env.execute("embed documents").explain())


if __name__ == "__main__":
    main()
