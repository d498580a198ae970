"""The demo of skew: what one very frequent key does to a step, and how ranges are cut around it.

The identifiers of all Python sources again: a few ("self", "None") are in nearly every module, most in one. How far each is spread
is worked out from all rows of a key at once, so that the key's rows must meet in one subtask, and nothing is summed up before.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel import ExecutionEnvironment, col
from firesteel.cli.demos.words import identifier_counts, source_roots, with_volume
from firesteel.humanize import format_bytes, format_seconds, printable
from firesteel.options import CUT, PROGRESS, lookup

VOLUME = "1 MiB"
STEP = "spread"
LEAST = 3
"""Uses in a module that count."""


def run(out: Path, master: str | None, options: Mapping[str, Any]) -> None:
    """Runs the same job with each way to cut ranges and prints how even they came out. Writes ``out/counts``, ``out/by-bytes``
    and ``out/by-count``."""
    counting = ExecutionEnvironment(master=master, options=options)
    counts = identifier_counts(counting, source_roots()).filter(col("n") >= LEAST)
    counts.write_parquet(str(out / "counts"), mode="overwrite")
    counting.execute("identifiers by module")
    common = {key: value for key, value in with_volume(options, VOLUME).items() if lookup(key).key != CUT.key}
    results: dict[str, Any] = {}
    for cut in ("by-bytes", "by-count"):
        env = ExecutionEnvironment(master=master, options={**common, CUT.key: cut})
        pipeline(env, out / "counts", out / cut)
        results[cut] = env.execute(f"spread of identifiers, {cut}")
    print("\nThe identifiers that are spread most:\n")
    env = ExecutionEnvironment(master=master, options={**common, PROGRESS.key: False})
    env.read_parquet(str(out / "by-bytes")).top_k(5, "modules").show(5, truncate=40)
    print(printable(f"\n{compared(results)}\n\nWhat was decided, and why:\n"))
    for cut, result in results.items():
        print(printable(f"{cut}:\n{result.explain(STEP)}\n"))
    print(_WHY)


def pipeline(env: ExecutionEnvironment, counts: Path, out: Path) -> None:
    """One row per identifier: in how many modules it is used, and the share of its uses that one module has at most."""
    uses = env.read_parquet(str(counts)).key_by("identifier")
    spread = uses.apply_in_arrow(_spread(), SCHEMA).name(STEP)
    spread.write_parquet(str(out), mode="overwrite")


SCHEMA = "identifier string, modules bigint, at_most double"


def _spread() -> Any:
    """Made in here, so that it travels to the workers by value."""

    def spread(rows: pa.Table) -> pa.Table:
        uses = rows.column("n")
        return pa.table(
            {
                "identifier": rows.column("identifier").slice(0, 1),
                "modules": pa.array([rows.num_rows], pa.int64()),
                "at_most": pa.array([pc.max(uses).as_py() / pc.sum(uses).as_py()], pa.float64()),
            }
        )

    return spread


def compared(results: Mapping[str, Any]) -> str:
    """A table of the sizes of each job's ranges of the step."""
    lines = [f"{'cut':<10}{'subtasks':>9}{'largest range':>16}{'smallest range':>16}{'took':>12}"]
    for cut, result in results.items():
        decision = next(d for d in result.decision_records if d.what == "parallelism" and d.name.startswith(STEP))
        told = decision.result
        sizes = [format_bytes(told[name]) for name in ("largest", "smallest")]
        lines.append(
            f"{cut:<10}{told['parallelism']:>9}{sizes[0]:>16}{sizes[1]:>16}{format_seconds(result.duration):>12}"
        )
    return "\n".join(lines)


_WHY = (
    "Rows of one key stay together, so that no range is smaller than its largest key. By bytes, ranges are cut where the bytes are; "
    "by count (FLIP-187's own formula), each has equally many subpartitions, whatever they weigh."
)
