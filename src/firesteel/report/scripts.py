"""Says which queries of an accelerated script were taken over, and why not the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from firesteel.humanize import format_seconds
from firesteel.journal.file import skipped
from firesteel.journal.scripts import QueryRecord
from firesteel.report.fold import ScriptFold
from firesteel.scheduler.kernel.records import JournalRecord


def explain_script(records: Iterable[JournalRecord], *, broken_off: bool = False) -> str:
    """Every query, in order. ``broken_off``: whoever ran the script is gone."""
    records = list(records)
    fold = ScriptFold(records)
    assert fold.plan is not None
    standing = fold.end.status if fold.end else "broken off" if broken_off else "still RUNNING"
    title = f"{fold.plan.name} (script {fold.id}): {standing} after {format_seconds(fold.elapsed)}."
    lines = query_lines(fold.queries, dry_run=fold.plan.dry_run)
    return "\n".join([title, *lines, *skipped(records)])


def query_lines(queries: Sequence[QueryRecord], *, dry_run: bool) -> list[str]:
    """The number of those taken over, and a line for each."""
    taken, word = sum(not query.left for query in queries), "would take over" if dry_run else "took over"
    lines = [f"Firesteel {word} {taken} of {len(queries)} queries."]
    for query in queries:
        job = f" (job {query.job})" if query.job else ""
        took = "" if dry_run else f", {format_seconds(query.seconds)}{job}"  # a dry run has only planned it
        who = f"Spark: {'; '.join(query.left)}" if query.left else f"Firesteel{took}{_checked(query)}"
        lines.append(f"  {query.number}. {query.action} at {query.place or 'an unknown place'}: {who}")
    checks = Counter(query.check for query in queries if query.check)
    if checks:
        lines[0] += (
            f" Spark checked {checks['same'] + checks['differs']} of them: {checks['differs']} differ. {checks['skipped']} checks were skipped."
        )
    return lines


def _checked(query: QueryRecord) -> str:
    words = {"": "", "same": ", Spark gives the same", "differs": ", Spark gives another answer"}
    return words.get(query.check, f", not checked: {query.unchecked}")
