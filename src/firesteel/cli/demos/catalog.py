"""The list of demos. Each runs on real input and ends with what was decided and why."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from firesteel.errors import UsageError

DEMOS = {
    "word-count": "Count the identifiers of all Python sources of this machine, and where each is used most.",
    "skew": "The same, with all rows of an identifier in one place: how ranges are cut around a few very frequent keys.",
    "sort": "Sort all uses of identifiers over all subtasks, with ranges decided from what was written.",
    "tpch": "TPC-H query 3 on tables that tpchgen-cli makes, or on yours (--data).",
    "stream": "Payments that flow in, with state per customer: a stream that is rescaled twice while it runs.",
}
DEFAULT = "word-count"
_MODULES = {DEFAULT: "words"}
"""Modules whose names differ from those of their demos."""


def list_text() -> str:
    width = max(map(len, DEMOS))
    return "\n".join(f"{name:<{width}}  {told}" for name, told in DEMOS.items())


def run_named(
    name: str, out: Path | None, master: str | None, options: Mapping[str, Any], data: Path | None = None
) -> None:
    """Raises UsageError for a demo that there is not, and for ``data`` where it reads none."""
    import difflib

    if name not in DEMOS:
        close = difflib.get_close_matches(name, DEMOS, n=1)
        hint = f"Did you mean '{close[0]}'?" if close else f"There are: {', '.join(DEMOS)}."
        raise UsageError(f"There is no demo '{name}'.", hint=hint)
    if data is not None and name != "tpch":
        raise UsageError(f"The demo '{name}' finds its input itself.", hint="--data is for the demo 'tpch'.")
    folder = out or Path("out") / ("demo" if name == DEFAULT else f"demo-{name}")
    module = import_module(f"firesteel.cli.demos.{_MODULES.get(name, name)}")
    module.run(folder, master, options, *([data] if name == "tpch" else []))
