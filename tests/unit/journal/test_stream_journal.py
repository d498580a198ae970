"""A stream's journal, read back as explain, history, lines of progress, and the live view."""

from __future__ import annotations

import io
import threading

import pytest
from msgspec.structs import replace
from rich.console import Console
from tests.stream_samples import GROWN, REFUSED, STATUS, batch, planned, words

from firesteel.errors import UsageError
from firesteel.journal.file import Journal, begins_like_a_journal, encode, last_record, read
from firesteel.report.fold import how_it_ended, kind_of
from firesteel.report.stream_report import MAX_TOLD, explain_stream, rescale_sentence, stream_history
from firesteel.scheduler.kernel.records import Decision
from firesteel.scheduler.streaming.records import StreamStateChange
from firesteel.view.stream_progress import LiveStreamProgress, create_stream_progress
from firesteel.view.stream_view import status_line, status_table, status_text


def test_a_streams_journal_is_read_as_it_was_written(tmp_path):
    journal = Journal(tmp_path / "a.jsonl")
    for record in words():
        journal.record(record)
    assert read(journal.path)[-1] == words()[-1], "the end is written at once"
    journal.close()
    assert read(journal.path) == words()
    assert begins_like_a_journal(journal.path)
    assert kind_of(read(journal.path)) == "stream"
    assert kind_of([]) == "job"


def test_how_a_stream_ended_is_read_from_the_end_of_its_journal(tmp_path):
    path = tmp_path / "a.jsonl"
    assert how_it_ended(str(path)) is None
    path.write_bytes(b"".join(encode(record) for record in words()))
    assert how_it_ended(str(path)) == words()[-1]
    path.write_bytes(path.read_bytes()[:-9])  # cut off
    assert how_it_ended(str(path)) is None
    assert last_record(path) == words()[-2]
    assert how_it_ended("") is None


def test_explain_tells_facts_then_what_happened_in_order():
    text = explain_stream(words())
    assert text.splitlines() == [
        "words (stream 3f2a91c0): FINISHED after 1 min.",
        "    checkpoint   chk",
        "    options      max-parallelism = 12",
        "    bounds       1 to 64 partitions at its start.",
        "    size         3 batches, 3,000 rows, 500 ms each on average.",
        "    partitions   2 -> 8.",
        "    state        700 rows, 1 MiB after batch 18.",
        "    rescales     1 completed of 2; 0 rows processed twice.",
        "",
        "      0 ms  state        WaitingForResources",
        "       1 s  phase        Executing, Cooldown: the query runs",
        "       6 s  wanted       8 partitions: 32 slots, at most 8 allowed.",
        "      10 s  state        Restarting: rescale 1",
        "    12.5 s  rescaled     2 -> 8 partitions at checkpoint 17 (slots went from 8 to 32: an executor came): completed, "
        "down 1.9 s, no row twice. It took: commit barrier 10 ms, stop 100 ms, rewrite state 1.2 s, start 600 ms.",
        "      11 s  wanted       8 of 8 slots are used.",
        "                         the same 2 more times.",
        "      30 s  no rescale   8 -> 500 partitions (a user asked for 500 partitions): ignored: the sink takes at most 64 "
        "partitions.",
    ]


def test_history_is_a_table_of_the_rescales():
    assert stream_history(words()).splitlines() == [
        "words (stream 3f2a91c0): FINISHED after 1 min.",
        "  #  ended at  from -> to  action       trigger        waited  foreseen  downtime  rows twice  end",
        "  1  12.5 s    2 -> 8      repartition  checkpoint 17  4 s     2.1 s     1.9 s     0           completed",
        "     slots went from 8 to 32: an executor came",
        "  2  30 s      8 -> 500    repartition  none                                                   ignored",
        "     a user asked for 500 partitions",
        "     ignored: the sink takes at most 64 partitions",
    ]
    assert stream_history([planned(), batch(101.0, 0, 2)]).splitlines() == [
        "words (stream 3f2a91c0): still Created after 1 s.",
        "No rescale was asked for.",
    ]


@pytest.mark.parametrize("report", [explain_stream, stream_history])
def test_an_empty_journal_is_said_to_be_empty(report):
    with pytest.raises(UsageError, match="has not written anything yet"):
        report([])


def test_of_a_long_story_the_end_is_told():
    many = [Decision(at=float(n), what="wanted", reason=f"number {n}") for n in range(MAX_TOLD + 50)]
    lines = explain_stream([planned(0.0), *many]).splitlines()
    assert sum("number" in line for line in lines) == MAX_TOLD
    assert "50 earlier lines: they are in the journal." in "\n".join(lines)
    assert lines[-1].endswith(f"number {MAX_TOLD + 49}")


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (replace(GROWN, what="", trigger="max delay", trigger_kind="MAX_DELAY", replayed_rows=1),
         "2 -> 8 partitions, set off by max delay (the slots changed): completed, down 1.9 s, 1 row twice"),
        (replace(GROWN, granted=4), "2 -> 4 (of 8) partitions at checkpoint 17 (slots went from 8 to 32: an executor came): "
         "completed, down 1.9 s, no row twice"),
        (replace(REFUSED, what="", cause="SOMETHING_NEW"), "8 -> 500 partitions (SOMETHING_NEW): ignored: the sink takes at "
         "most 64 partitions"),
    ],
)  # fmt: skip
def test_a_rescale_in_a_sentence(record, text):
    assert rescale_sentence(record) == text


def test_status_says_where_it_is_and_what_it_waits_for():
    assert status_text(STATUS).splitlines() == [
        "words: Executing, Stabilizing (checkpoint chk)",
        "    partitions   8 partitions, 16 wanted; 1 to 64 allowed, 4 cores on 2 executors",
        "    waits for    the next completed checkpoint.",
        "    batches      3 committed, the last is 18; run 2",
        "    rate         1,000 rows/s in, 2.5 rows/s processed; 12,000 wait to be read",
        "    state        700 rows, 1 MiB",
        f"    rescales     1; the last: {rescale_sentence(GROWN)}",
    ]
    assert status_line(STATUS) == (
        "Executing, Stabilizing; 8 partitions, 16 wanted; 3 committed, the last is 18; run 2; 1,000 rows/s in; waits for the "
        "next completed checkpoint"
    )


def test_a_stream_that_has_not_begun_has_little_to_say():
    new = replace(
        STATUS, state="WaitingForResources", phase="", parallelism=0, wanted=0, batches=0, batch=-1, state_rows=0,
        state_bytes=0, rescales=0, last_rescale=None, cause="no slot came",
    )  # fmt: skip
    assert status_text(new).splitlines() == [
        "words: WaitingForResources (checkpoint chk)",
        "    partitions   not known yet; 1 to 64 allowed, 4 cores on 2 executors",
        "    waits for    the next completed checkpoint.",
        "    batches      0 committed; run 2",
        "    rescales     0",
        "    cause        no slot came",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_the_table_says_the_same_within_the_width(width):
    console = Console(file=io.StringIO(), width=width)
    console.print(status_table(STATUS, width))
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "16 wanted" in " ".join("\n".join(lines).split())


def test_progress_tells_of_what_happened_and_not_of_each_batch():
    out = io.StringIO()
    progress = create_stream_progress(True, out)
    for record in words():
        progress.record(record)
    progress.close()
    assert out.getvalue().splitlines() == [
        "firesteel     0.0 s  words (stream 3f2a91c0): checkpoint chk",
        "firesteel     0.0 s  WaitingForResources",
        "firesteel     1.0 s  Executing: the query runs",
        "firesteel     3.0 s  first batch with 2 partitions: batch 16",
        f"firesteel    12.5 s  rescale 1: {rescale_sentence(GROWN)}",
        "firesteel    14.0 s  first batch with 8 partitions: batch 18",
        f"firesteel    30.0 s  rescale 2: {rescale_sentence(REFUSED)}",
        "firesteel    60.0 s  finished after 3 batches, 3,000 rows",
    ]


def test_the_live_view_keeps_lines_above_a_table_and_ends_with_the_stream():
    out = io.StringIO()
    progress = LiveStreamProgress(out)
    asked = threading.Event()
    progress.record(words()[0])
    progress.show(lambda: asked.set() or STATUS)
    assert asked.wait(600)
    progress.record(GROWN)
    progress.close()
    progress.close()
    progress.show(lambda: pytest.fail("it is over"))
    text = out.getvalue()
    assert text.startswith("firesteel     0.0 s  words (stream 3f2a91c0): checkpoint chk\n")
    assert f"firesteel    12.5 s  rescale 1: {rescale_sentence(GROWN)}" in text
    assert "16 wanted" in text


def test_several_batches_in_one_record_are_counted_as_several():
    records = [planned(), replace(batch(101.0, 4, 2), batches=3)]
    assert "    size         3 batches, 1,000 rows, 167 ms each on average." in explain_stream(records).splitlines()
    out = io.StringIO()
    progress = create_stream_progress(True, out)
    for record in records:
        progress.record(record)
    assert out.getvalue().splitlines()[-1].endswith("first batch with 2 partitions: batch 2")


def test_progress_that_cannot_write_or_is_off_is_silent():
    closed = io.StringIO()
    closed.close()
    for progress in (create_stream_progress(True, closed), create_stream_progress(False)):
        progress.record(StreamStateChange(at=1.0, state="Failing", cause="x"))
        progress.close()


def test_slots_of_a_group_are_told_where_there_is_one():
    group = "default (2 cores, 1 GiB heap)"
    assert "\n    slots " not in status_text(STATUS)
    assert f"    slots        3 of {group}\n" in status_text(replace(STATUS, slots=3, slot_sharing_group=group))
    first, *others = words()
    assert f"    group        {group}.\n" in explain_stream([replace(first, slot_sharing_group=group), *others])
    assert "    group " not in explain_stream(words())
