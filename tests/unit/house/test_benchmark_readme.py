"""The README's table, as ``./dev bench readme`` writes it."""

from __future__ import annotations

from pathlib import Path

from benchmarks.jobs import readme
from benchmarks.jobs.readme import DUCKDB, SAIL, SCRIPT, STEPS, Spent
from tools.docs import replace_part

ROOT = Path(__file__).resolve().parents[3]


def test_a_query_that_failed_counts_nowhere_and_is_told():
    asked = {1: [2.0, 3.0, 0.1], 6: [0.5, 0.25, 0.1], 9: [float("nan"), float("nan"), float("nan")]}
    assert readme.total(asked, None) == Spent(2.5, 3.25, 1)
    assert readme.total(asked, 6) == Spent(0.5, 0.25)
    assert str(readme.total(asked, None)) == "2.5 (3.2), without 1 of the queries"


def test_the_table_has_a_line_for_each_contender_and_says_who_is_missing():
    tpch = {SCRIPT: [Spent(48.4, 80.1), Spent(1.234, 2.5)], DUCKDB: [Spent(2.48, 4.5), Spent(0.06, 0.1)]}
    function = {STEPS: [Spent(0.61, 1.1)], DUCKDB: [Spent(0.17, 0.2)]}
    lines = readme.table(tpch, function, {"sail": "sail cannot be installed: no network"}, 3).splitlines()
    assert lines[2] == f"| **{SCRIPT}** | 48 (80) | 1.23 (2.5) | - |"
    assert lines[3] == f"| **{STEPS}** | - | - | 0.61 (1.10) |"
    assert lines[6] == f"| {SAIL} 0.7.2 | not installed | not installed | not installed |"
    assert lines[8].endswith("| 2.5 (4.5) | 0.06 (0.10) | 0.17 (0.20), as SQL |")
    assert (
        lines[10].startswith("Medians of 3 warm runs in turns, ")
        and lines[11] == "sail cannot be installed: no network"
    )


def test_the_page_has_a_place_for_it():
    written = replace_part((ROOT / "README.md").read_text(), readme.MARK, "| a table |")
    assert "<!-- generated: bench readme -->\n| a table |\n<!-- end of bench readme -->" in written
