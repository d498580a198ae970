"""The list of all jobs, from the heads and tails of their journals."""

from __future__ import annotations

import fcntl
import json
import os
import time

import pytest
from msgspec.structs import replace
from tests.journal_samples import planned, word_count

from firesteel.api.job_tables import History
from firesteel.cli.history_list import list_jobs
from firesteel.errors import UsageError
from firesteel.journal import listing
from firesteel.journal.file import Journal, encode, read
from firesteel.journal.listing import Listed, listed
from firesteel.journal.locks import is_held
from firesteel.journal.lookup import find
from firesteel.journal.places import journals
from firesteel.options import Options
from firesteel.scheduler.kernel.records import JobStatusRecord, StateChange
from firesteel.scheduler.streaming.records import StreamEnded, StreamPlanned
from firesteel.spark.recovery.runs import left_by
from firesteel.ui.catalog.index import Index
from firesteel.ui.catalog.jobs import Catalog
from firesteel.ui.catalog.places import place_of


def write(folder, when: str, name: str, job_id: str, records):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{when}_{name}_{job_id}.jsonl"
    path.write_bytes(b"".join(map(encode, records)))
    return path


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "journals"


@pytest.fixture
def options(folder):
    return {"firesteel.journal.directory": str(folder)}


def only(path) -> Listed:
    (found,) = listed([path])
    return found


def test_a_job_that_finished(folder):
    found = only(write(folder, "20260102-030405", "word-count", "3f2a91c0", word_count()))
    assert (found.kind, found.job_id, found.name, found.status) == ("job", "3f2a91c0", "word count", "finished")
    assert time.strftime("%H:%M:%S", time.localtime(found.began)) == "03:04:05"
    assert found.seconds == pytest.approx(104.2)
    assert (found.vertices, found.subtasks, found.rows_in, found.rows_out) == (2, 3, 1000, 200)
    assert (found.restarts, found.failures, found.cause) == (1, 1, "")


def test_each_execution_that_failed_counts(folder):
    change = StateChange(at=101.0, vertex=0, state="FAILED", subtasks=[4, 5, 6], attempts=[0, 0, 0])
    found = only(write(folder, "20260102-030405", "a", "a", [*word_count()[:5], change, *word_count()[5:]]))
    assert found.failures == 4


def test_how_a_job_ended(folder):
    records = word_count()[:6]
    failed = [*records, JobStatusRecord(at=105.0, status="FAILED", cause="worker lost\nmore")]
    assert (only(write(folder, "20260102-030405", "a", "a", failed)).status) == "failed"
    cancelled = [*records, JobStatusRecord(at=105.0, status="CANCELED")]
    assert only(write(folder, "20260102-030406", "b", "b", cancelled)).status == "cancelled"
    cut = write(folder, "20260102-030407", "c", "c", records)
    cut.write_bytes(cut.read_bytes()[:-20])
    assert (only(cut).status, only(cut).cause) == ("broken off", "")


def test_a_job_that_runs_is_known_by_its_journals_lock(folder):
    journal = Journal.create(Options({"firesteel.journal.directory": str(folder)}), "word count", "3f2a91c0")
    for record in word_count()[:5]:
        journal.record(record)
    assert is_held(journal.path) is True
    found = only(journal.path)
    assert found.status == "running" and 0 <= found.seconds < 60
    journal.close()
    assert is_held(journal.path) is False
    assert only(journal.path).status == "broken off"


def test_where_files_cannot_be_locked_nothing_is_claimed(folder, monkeypatch):
    path = write(folder, "20260102-030405", "a", "a", word_count()[:5])

    def refuse(*_):
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    Journal(folder / "x.jsonl").close()
    assert only(path).status == "unfinished"


def test_damaged_journals_are_a_line(folder):
    folder.mkdir()
    empty, garbage = folder / "20260102-030405_a_b.jsonl", folder / "x.jsonl"
    empty.touch()
    garbage.write_bytes(b"\xff\xfe garbage\n{}")
    (folder / "directory.jsonl").mkdir()
    told = {each.path.name: (each.status, each.cause) for each in listed(folder.iterdir())}
    assert told == {
        empty.name: ("damaged", "it is empty"),
        garbage.name: ("damaged", "its first line is not that of a journal"),
        "directory.jsonl": ("damaged", "Is a directory"),
    }
    gone = folder / "gone.jsonl"
    assert only(gone).cause == "No such file or directory"


@pytest.mark.parametrize(("header", "plan"), [(40, 0), (None, 5), (None, 200), (None, -1)])
def test_a_journal_that_is_cut_off_as_it_began_is_called_so_everywhere(folder, header, plan):
    folder.mkdir()
    path = folder / "20260102-030405_a_b.jsonl"
    journal = Journal(path)
    journal.record(replace(planned(), job_name="x" * listing.HEAD_BYTES if plan == -1 else "word count"))
    journal.close()
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first[:header] + second[: plan - 1 if plan < 0 else plan])
    said = "damaged: it is cut off within its first record"
    found = only(path)
    assert f"{found.status}: {found.cause}" == said
    for call in (read, History, lambda path: left_by(str(path), Options())):
        with pytest.raises(UsageError, match=f"^The journal '{path}' is {said}\\. Whoever wrote it was killed"):
            call(path)
    (page,) = Catalog([Index(place_of(str(path)))]).jobs().items
    assert f"{page.status}: {page.cause}" == said


def test_a_plan_that_is_no_jobs_is_a_line_too(folder):
    folder.mkdir()
    for name, vertex in {"word": {"inputs": ["x"]}, "object": {"inputs": {"a": 1}}, "id": {"id": "q"}, "no": 3}.items():
        line = {"type": "JobPlanned", "job_id": "j", "job_name": "n", "vertices": [vertex]}
        (folder / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    assert {each.status for each in listed(folder.iterdir())} == {"damaged"}


def test_a_pipe_among_journals_is_none_of_them(folder, options):
    folder.mkdir()
    os.mkfifo(folder / "pipe.jsonl")
    assert journals(Options(options)) == []


def test_garbage_in_the_middle_hides_nothing(folder):
    path = write(folder, "20260102-030405", "a", "a", word_count())
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([*lines[:4], b"garbage \xff", *lines[4:]]))
    assert only(path).status == "finished"


def test_of_a_long_journal_only_head_and_tail_are_read(folder, monkeypatch):
    monkeypatch.setattr(listing, "HEAD_BYTES", 256)
    monkeypatch.setattr(listing, "TAIL_BYTES", 2048)
    change = StateChange(at=101.0, vertex=0, state="FAILED", subtasks=[0], attempts=[0])
    path = write(folder, "20260102-030405", "a", "a", [planned(), *[change] * 1000, *word_count()[1:]])
    found = only(path)
    assert (found.name, found.status, found.subtasks, found.rows_out) == ("word count", "finished", 3, 200)
    assert found.failures is None, "not counted"


def test_streams_are_listed_too(folder):
    plan = StreamPlanned(at=1767.5, stream_id="s1", name="payments", checkpoint="c", lower=1, upper=2, options={})
    found = only(write(folder, "20260102-030405", "payments", "s1", [plan, StreamEnded(at=1776.5, status="FINISHED")]))
    assert (found.kind, found.name, found.status, found.seconds) == ("stream", "payments", "finished", 9.0)


def test_the_list_is_newest_first_and_can_be_narrowed(folder, options, capsys):
    write(folder, "20260102-030405", "word-count", "old", word_count())
    failed = [*word_count()[:3], JobStatusRecord(at=105.0, status="FAILED", cause="worker lost\nmore")]
    write(folder, "20260103-030405", "word-count", "new", failed)
    list_jobs(options, 20, [], as_json=False)
    header, first, cause, second = capsys.readouterr().out.splitlines()
    assert header.split()[:5] == ["when", "job", "name", "status", "took"]
    assert first.startswith("2026-01-03 03:04:05  3f2a91c0  word count  failed")
    assert cause == "    worker lost"
    assert second.split()[-6:] == ["2", "3", "1,000", "200", "1", "1"]
    list_jobs(options, 1, ["finished,broken-off"], as_json=True)
    (told,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (told["v"], told["status"], told["rows_out"]) == (1, "finished", 200)
    list_jobs(options, 1, [], as_json=False)
    assert "These are the latest 1 of 2 journals" in capsys.readouterr().err
    list_jobs(options, 1, ["cancelled"], as_json=False)
    assert capsys.readouterr().out == "None of 2 journals is of a job that is cancelled.\n"
    with pytest.raises(UsageError, match="No job has the status 'nice'"):
        list_jobs(options, 1, ["nice"], as_json=False)
    with pytest.raises(UsageError, match="negative"):
        list_jobs(options, -1, [], as_json=False)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_the_list_fits_a_terminal(folder, options, capsys, monkeypatch, width):
    write(folder, "20260102-030405", "word-count", "old", word_count())
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(width))
    list_jobs(options, 20, [], as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= width for line in lines)
    assert "word co" in lines[1]


def test_two_thousand_journals_take_a_second_or_two(folder):
    text = b"".join(map(encode, word_count()))
    folder.mkdir()
    for number in range(2000):
        (folder / f"20260102-{number // 60:04d}{number % 60:02d}_a_{number:06d}.jsonl").write_bytes(text)
    started = time.process_time()
    assert sum(each.status == "finished" for each in listed(folder.iterdir())) == 2000
    assert time.process_time() - started < 2


def test_a_job_is_found_by_its_name(folder, options):
    old = write(folder, "20260102-030405", "word-count", "aaa1", word_count())
    new = write(folder, "20260103-030405", "word-count", "aaa2", word_count())
    os.utime(old, (1, 1))
    given = Options(options)
    assert find("word count", given) == find("Word-Count", given) == new
    assert find("aaa1", given) == old, "an id goes before a name"
    odd = write(folder, "20260104-030405", "job", "b", [*word_count()])
    os.utime(odd, (2, 2))
    with pytest.raises(UsageError, match="There is no job 'データ'"):
        find("データ", given)
    with pytest.raises(UsageError, match=r"aaa2 \(word-count\)"):
        find("nothing", given)
