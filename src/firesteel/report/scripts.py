"""Says which queries of an accelerated script were taken over, and why not the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from firesteel.errors import UsageError
from firesteel.humanize import format_seconds
from firesteel.journal.file import skipped
from firesteel.journal.scripts import QueryRecord, ScriptEnded, ScriptPlanned
from firesteel.scheduler.kernel.records import JournalRecord


def is_script(records: Sequence[JournalRecord]) -> bool:
    """Returns True if a journal tells of a script, not of a job or stream."""
    return bool(records) and isinstance(records[0], ScriptPlanned)


def not_a_script(records: Sequence[JournalRecord]) -> None:
    """Raises UsageError for a script's journal, where a job's is wanted."""
    if is_script(records):
        raise UsageError("This is a script.", hint="'firesteel explain' names the jobs of its queries.")


def explain_script(records: Iterable[JournalRecord], *, broken_off: bool = False) -> str:
    """Every query, in order. ``broken_off``: whoever ran the script is gone."""
    records = list(records)
    plan = next(each for each in records if isinstance(each, ScriptPlanned))
    end = next((each for each in records if isinstance(each, ScriptEnded)), None)
    standing = end.status if end else "broken off" if broken_off else "still RUNNING"
    title = f"{plan.name} (script {plan.script_id}): {standing} after {format_seconds(records[-1].at)}."
    lines = query_lines([each for each in records if isinstance(each, QueryRecord)], dry_run=plan.dry_run)
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
