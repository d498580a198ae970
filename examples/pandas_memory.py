"""A pandas step that holds all rows of a sensor at once, several times over, beside steps that stream.

    firesteel run examples/pandas_memory.py

Only as many sensors are worked on at once as their memory allows, and one that takes more than it may ends with a sentence
instead of the machine's whole memory. What each really took is under "memory" in what this prints.
"""

import numpy as np
import pandas as pd
import pyarrow as pa

from firesteel import ExecutionEnvironment, SlotSharingGroup

READINGS = 100_000
STREAMS = SlotSharingGroup("streams", cpu_cores=1, task_heap_memory="256 MiB")
WIDE = SlotSharingGroup("wide", cpu_cores=1, task_heap_memory="1 GiB", managed_memory="128 MiB")


def measure(batches):
    """``READINGS`` rows for each sensor, in pieces: nothing is ever held as a whole."""
    for batch in batches:
        for sensor in batch["sensor"].to_pylist():
            for start in range(0, READINGS, 50_000):
                at = np.arange(start, start + 50_000)
                yield pa.record_batch({
                    "sensor": pa.array(np.full(len(at), sensor)), "at": pa.array(at), "value": pa.array(np.sin(at / (sensor + 7.0)))
                })  # fmt: skip


def trend(readings: pd.DataFrame) -> pd.DataFrame:
    """A table of 50 lagged columns: 40 MB here, and about as much again while it is made."""
    ordered = readings.sort_values("at")["value"]
    lagged = pd.concat([ordered.shift(lag) for lag in range(50)], axis=1).dropna()
    return pd.DataFrame({"sensor": readings["sensor"].iloc[:1], "spread": [float(lagged.std(axis=1).mean())]})


def main():
    env = ExecutionEnvironment.get_or_create()
    sensors = env.from_collection([{"sensor": number} for number in range(6)]).slot_sharing_group(STREAMS)
    readings = sensors.map_in_arrow(measure, "sensor bigint, at bigint, value double")  # in its input's group
    trends = readings.key_by("sensor").apply_in_pandas(trend, "sensor bigint, spread double").set_parallelism(3)
    trends.slot_sharing_group(WIDE).write_parquet("out/trends", mode="overwrite")
    print(env.execute("trends").explain())


if __name__ == "__main__":
    main()
