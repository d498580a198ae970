"""The TPC-H pipelines of ``examples/tpch.py``, as the tests run them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

ORDERED = {"q3", "q18"}
QUANTITY = 220
"""For Q18: at this small scale no order has 300 pieces."""
SMALL = {"data-volume-per-task": "64 kb", "jobmanager.adaptive-batch-scheduler.max-parallelism": "4"}
"""Options that give several subtasks even so."""


def _example():
    path = Path(__file__).resolve().parents[1] / "examples" / "tpch.py"
    spec = importlib.util.spec_from_file_location("tpch_example", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


example = _example()
