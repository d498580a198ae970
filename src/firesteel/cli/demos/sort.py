"""The demo of sorting: every identifier of every Python module, the most frequent uses first, in files that follow one another.

Nothing is sampled beforehand: the ranges are decided from sketches that the producers write beside their sorted output.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from firesteel import DataStream, ExecutionEnvironment
from firesteel.cli.demos.words import identifier_counts, source_roots, with_volume
from firesteel.humanize import format_bytes, format_count, format_seconds, printable

VOLUME = "16 MiB"


def run(out: Path, master: str | None, options: Mapping[str, Any]) -> None:
    """Writes ``out/sorted`` (over that of an earlier run) and prints what each of its files holds."""
    env = ExecutionEnvironment(master=master, options=with_volume(options, VOLUME))
    ordered(identifier_counts(env, source_roots())).write_parquet(str(out / "sorted"), mode="overwrite")
    result = env.execute("identifiers in order")
    print(f"\nDone in {format_seconds(result.duration)}. The files follow one another:\n")
    print(printable(files_text(out / "sorted")))
    print(printable(f"\nWhat was decided, and why:\n\n{result.explain()}"))


def ordered(counts: DataStream) -> DataStream:
    """Of columns identifier, module, n: the largest n first, and of equal ones by name."""
    return counts.sort(("n", False), "identifier", "module")


def files_text(folder: Path) -> str:
    """Of each file: rows, size, its first row and its last."""
    lines: list[str] = []
    for file in sorted(folder.glob("*.parquet")):
        table = pq.read_table(file)
        if table.num_rows:
            first, last = (table.slice(n, 1).to_pylist()[0] for n in (0, table.num_rows - 1))
            size = f"{format_count(table.num_rows)} rows, {format_bytes(file.stat().st_size)}"
            lines.append(f"{file.stem[:12]}  {size:>24}  {_said(first)} ... {_said(last)}")
    return "\n".join(lines)


def _said(row: Mapping[str, Any]) -> str:
    return f"{format_count(row['n'])} x {row['identifier'][:24]}"
