"""The engine's clocks, compared with others before a query relies on them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from firesteel.engine.connection import connect


def offsets_at(zone: str, seconds: np.ndarray) -> np.ndarray:
    """The offset in seconds at each instant. Raises ValueError for a zone that the engine does not know, and ImportError
    without an engine."""
    instants = pa.table({"s": pa.array(seconds, pa.int64())})
    query = "SELECT epoch_us(timezone($zone, make_timestamptz(s * 1000000))) // 1000000 - s AS o FROM instants"
    with connect() as engine:
        import duckdb

        engine.register("instants", instants)
        try:
            return np.asarray(engine.sql(query, params={"zone": zone}).to_arrow_table()["o"])
        except duckdb.Error as error:
            raise ValueError(f"The engine does not know the zone {zone}.") from error
