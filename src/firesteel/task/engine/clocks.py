"""The engine's times: its clocks, asked before a query relies on them, and values that it takes for the end of time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def offsets_at(zone: str, seconds: np.ndarray) -> np.ndarray:
    """The offset in seconds at each instant. Raises ValueError for a zone that the engine does not know, and ModuleNotFoundError
    without one."""
    import duckdb

    instants = pa.table({"s": pa.array(seconds, pa.int64())})
    query = "SELECT epoch_us(timezone($zone, make_timestamptz(s * 1000000))) // 1000000 - s AS o FROM instants"
    with duckdb.connect(":memory:", config={"threads": 1, "autoinstall_known_extensions": False}) as engine:
        engine.register("instants", instants)
        try:
            return np.asarray(engine.sql(query, params={"zone": zone}).to_arrow_table()["o"])
        except duckdb.Error as error:
            raise ValueError(f"The engine does not know the zone {zone}.") from error


def has_endless(batch: pa.RecordBatch | pa.Table) -> bool:
    """Days or timestamps at the ends of their type, which the engine takes for infinity, and which are days like others in Spark."""
    for column in batch.columns:
        is_day = pa.types.is_date32(column.type)
        if is_day or pa.types.is_timestamp(column.type):
            most = 2**31 - 1 if is_day else 2**63 - 1
            ends = pc.min_max(column.cast(pa.int32() if is_day else pa.int64())).as_py()
            if ends["max"] is not None and (ends["max"] == most or ends["min"] <= -most):
                return True
    return False
