"""The list of journals and its index, and folds that follow journals as they grow."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.fs as pafs
import pytest
from tests import journal_samples, stream_samples, ui_journals
from tests.ui_server_kit import served

from firesteel.errors import UsageError
from firesteel.journal.file import Journal
from firesteel.journal.listing import listed
from firesteel.report.executions import Attempt, Executions
from firesteel.report.fold import JobFold
from firesteel.scheduler.kernel.records import StateChange
from firesteel.ui.begun import Begun
from firesteel.ui.catalog.following import MOST_WAITING, FileFeed, Following, Tap
from firesteel.ui.catalog.index import Index
from firesteel.ui.catalog.jobs import Catalog
from firesteel.ui.catalog.places import Far, Folder, place_of
from firesteel.ui.catalog.runs import OwnRun, OwnRuns
from firesteel.ui.views.structs import UnknownThing


@pytest.fixture(autouse=True)
def looking_at_once(monkeypatch):
    """Places and journals are looked at each time, not once in a while."""
    monkeypatch.setattr("firesteel.ui.catalog.index.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("firesteel.ui.catalog.following.FRESH_SECONDS", 0.0)
    monkeypatch.setattr("firesteel.ui.catalog.jobs.LISTED_SECONDS", 0.0)


def write(folder: Path, name: str, records) -> Path:
    ui_journals.write(folder, name, records)
    return folder / f"{name}.jsonl"


class Counting(Folder):
    """A folder that counts the journals that were read."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.opened: list[str] = []

    def open(self, name: str):
        self.opened.append(name)
        return super().open(name)


# --- the index ---


def test_lines_are_those_of_the_history_command(tmp_path):
    paths = [
        write(tmp_path, "wc", journal_samples.word_count()),
        write(tmp_path, "mirrors", journal_samples.mirrored()),
        write(tmp_path, "stream", stream_samples.words()),
        write(tmp_path, "script", ui_journals.script()),
        write(tmp_path, "20240101-101112_wc_abc", journal_samples.word_count()[:5]),
    ]
    (tmp_path / "broken.jsonl").write_text("nothing\n")
    lines = Index(Folder(tmp_path)).lines()
    for one in listed([*paths, tmp_path / "broken.jsonl"]):
        line = lines[one.path.name].summary
        for name in (
            *("kind", "name", "status", "seconds", "vertices", "subtasks", "rows_in", "rows_out", "restarts", "failures", "cause"),
        ):  # fmt: skip
            assert getattr(line, name) == getattr(one, name), (one.path.name, name)
        assert line.id == one.job_id and line.began == pytest.approx(one.began, abs=1e-3)


def test_only_what_has_changed_is_read_again(tmp_path):
    place = Counting(tmp_path)
    index = Index(place)
    for name in ("a", "b", "c"):
        write(tmp_path, name, journal_samples.word_count())
    assert set(index.lines()) == {"a.jsonl", "b.jsonl", "c.jsonl"}
    assert sorted(place.opened) == ["a.jsonl", "b.jsonl", "c.jsonl"]
    place.opened.clear()
    index.lines()
    assert place.opened == []
    (tmp_path / "b.jsonl").unlink()
    write(tmp_path, "a", journal_samples.mirrored())
    write(tmp_path, "d", journal_samples.mirrored())
    assert set(index.lines()) == {"a.jsonl", "c.jsonl", "d.jsonl"}
    assert sorted(place.opened) == ["a.jsonl", "d.jsonl"]


def test_the_index_is_kept_and_mended(tmp_path):
    folder, cache = tmp_path / "journals", tmp_path / "cache"
    folder.mkdir()
    for name in ("a", "b"):
        write(folder, name, journal_samples.word_count())
    first = Index(Folder(folder), cache)
    lines = dict(first.lines())
    first.close()
    (kept,) = cache.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    place = Counting(folder)
    assert dict(Index(place, cache).lines()) == lines and place.opened == []
    write(folder, "b", journal_samples.mirrored())
    assert Index(place, cache).lines()["b.jsonl"] != lines["b.jsonl"]
    assert place.opened == ["b.jsonl"]
    for wrong in (b"", b"\x00", kept.read_bytes()[:-3], b"\x93\x63\xa1x\x80"):
        kept.write_bytes(wrong)
        assert set(Index(Counting(folder), cache).lines()) == {"a.jsonl", "b.jsonl"}


def test_of_what_did_not_end_it_is_asked_anew_whether_it_runs(tmp_path):
    index = Index(Folder(tmp_path))
    grown = ui_journals.growing(tmp_path, "a", journal_samples.word_count(), 5)
    assert index.lines()["a.jsonl"].summary.status == "running"
    grown.close()
    assert index.lines()["a.jsonl"].summary.status == "broken off"


def test_a_place_that_is_gone_says_so_and_its_list_stays(tmp_path):
    folder = tmp_path / "journals"
    folder.mkdir()
    write(folder, "a", journal_samples.word_count())
    index = Index(Folder(folder))
    index.lines()
    folder.rename(tmp_path / "elsewhere")
    assert set(index.lines()) == {"a.jsonl"} and index.problem
    catalog = Catalog([index])
    with pytest.raises(UnknownThing), catalog.reading(catalog.all()[0].summary.id):
        pass


def test_where_nothing_can_be_read_that_is_said(tmp_path, caplog):
    with served([tmp_path / "nothing"]) as running, running.client() as client:
        for _ in range(2):
            answer = client.get("/api/v1/jobs")
            assert answer.status_code == 502
            assert answer.json()["error"] == f"'{tmp_path / 'nothing'}' cannot be read: No such file or directory."
            assert client.get("/").status_code == 502
    assert len(caplog.records) == 1


# --- places ---


def test_places_of_all_kinds(tmp_path):
    path = write(tmp_path, "a", journal_samples.word_count())
    write(tmp_path, "b", journal_samples.word_count())
    assert set(place_of(str(tmp_path)).look()) == {"a.jsonl", "b.jsonl"}
    assert set(place_of(str(path)).look()) == {"a.jsonl"}
    assert set(place_of(f"file://{tmp_path}").look()) == {"a.jsonl", "b.jsonl"}
    for wrong in (str(tmp_path / "nothing"), "nonsense://bucket/x"):
        with pytest.raises(UsageError):
            place_of(wrong)


def test_a_file_is_shown_if_it_is_a_journal_whatever_it_is_called_and_refused_else(tmp_path):
    path = write(tmp_path, "a", journal_samples.word_count())
    renamed, link, new = tmp_path / "b.txt", tmp_path / "c.jsonl", tmp_path / "new.jsonl"
    renamed.write_bytes(path.read_bytes())
    link.symlink_to(path)
    new.touch()
    assert [set(place_of(str(each)).look()) for each in (renamed, link, new)] == [{"b.txt"}, {"a.jsonl"}, {"new.jsonl"}]
    (line,) = Index(place_of(str(renamed))).lines().values()
    assert line.summary.status == "finished"
    for name, content in {
        "notes.txt": b"Dear diary,\n",
        "notes.jsonl": b'{"type":"note"}\n',
        "short": b"x",
        "none": b"",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(
            UsageError, match=f"{name}' is not a journal. Give a journal, or a directory with journals."
        ):
            place_of(str(tmp_path / name))
    (tmp_path / "empty").mkdir()
    assert place_of(str(tmp_path / "empty")).look() == {}


def test_a_location_that_is_far_away_is_read_through_arrow(tmp_path):
    write(tmp_path, "a", journal_samples.word_count())
    write(tmp_path, "mirrors", journal_samples.mirrored())
    (tmp_path / "other.txt").write_text("x")
    catalog = Catalog([Index(Far(pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem()), "", "far://bucket/"))])
    assert {known.summary.id for known in catalog.all()} == {"a", "mirrors"}
    with catalog.reading("mirrors") as (summary, fold):
        assert isinstance(fold, JobFold)
        assert (summary.place, summary.journal, summary.status) == ("far://bucket/", "mirrors.jsonl", "unfinished")
        assert fold.vertices[0].effective == 1


@pytest.mark.parametrize("name", ["../a.jsonl", "a/b.jsonl", "", ".", "..", "a\0.jsonl"])
def test_no_name_leads_elsewhere(tmp_path, name):
    (tmp_path / "inside").mkdir()
    (tmp_path / "a.jsonl").write_text("x")
    with pytest.raises(OSError):
        Folder(tmp_path / "inside").open(name)


# --- folds that follow ---


def statuses(followed: Following) -> str:
    with followed.reading() as fold:
        assert isinstance(fold, JobFold)
        return fold.status


def test_a_journal_is_followed_as_it_grows(tmp_path):
    records = journal_samples.word_count()
    grown = ui_journals.growing(tmp_path, "a", records, 1)
    followed = Following(FileFeed(Folder(tmp_path), "a.jsonl"))
    assert statuses(followed) == "CREATED"
    grown.go_on(1)
    assert statuses(followed) == "RUNNING"
    grown.go_on()
    with followed.reading() as fold:
        assert isinstance(fold, JobFold)
        assert fold.status == "FINISHED" and fold.version == len(records)
    grown.close()


def test_half_a_line_is_taken_when_it_is_whole(tmp_path):
    path = write(tmp_path, "a", journal_samples.word_count())
    written = path.read_bytes()
    path.write_bytes(b"")
    followed = Following(FileFeed(Folder(tmp_path), "a.jsonl"))
    with path.open("ab", buffering=0) as file:
        for begin in range(0, len(written), 97):
            file.write(written[begin : begin + 97])
            statuses(followed)
    assert statuses(followed) == "FINISHED"


def test_a_journal_that_becomes_another_one_is_read_anew(tmp_path):
    write(tmp_path, "a", journal_samples.mirrored())
    followed = Following(FileFeed(Folder(tmp_path), "a.jsonl"))
    assert statuses(followed) == "RUNNING"
    (tmp_path / "a.jsonl").unlink()
    write(tmp_path, "a", journal_samples.word_count()[:1])
    assert statuses(followed) == "CREATED"


def test_time_goes_on_while_somebody_writes_and_stops_with_him(tmp_path):
    grown = ui_journals.growing(tmp_path, "a", journal_samples.word_count(), 5)
    followed = Following(FileFeed(Folder(tmp_path), "a.jsonl"))
    with followed.reading() as fold:
        one = fold.elapsed
        while fold.elapsed == one:  # the clock's next tick
            pass
    grown.close()
    with followed.reading() as fold:
        assert fold.elapsed == pytest.approx(0.3)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"StateChange","at":1,"vertex":0,"state":"RUNNING","subtasks":[0,1],"attempts":[0]}',
        b'{"type":"StateChange","at":1,"vertex":0,"state":"FINISHED","subtasks":[0],"attempts":[0],"times":[1,2]}',
        b'{"type":"StateChange","at":1,"vertex":0,"state":"FINISHED","subtasks":[0],"attempts":[0],"hosts":["a"],"nodes":[7]}',
        b'{"type":"StateChange","at":1,"vertex":0,"state":"RUNNING","subtasks":[2000000000],"attempts":[0]}',
        b'{"type":"StateChange","at":1,"vertex":0,"state":"RUNNING","subtasks":[9999999999999],"attempts":[0]}',
        b'{"type":"MetricsSnapshot","at":1,"vertices":{"0":{}}}',
        b'{"type":"Decision","at":1,"what":"blocklist","inputs":{"node":"a"}}',
    ],
)
def test_a_journal_that_makes_no_sense_is_refused_again_and_again(tmp_path, line):
    path = write(tmp_path, "a", journal_samples.word_count()[:3])
    with path.open("ab") as file:
        file.write(line + b"\n")
    followed = Following(FileFeed(Folder(tmp_path), "a.jsonl"))
    for _ in range(2):
        with pytest.raises(UsageError), followed.reading():
            pass


def test_a_line_that_cannot_be_read_is_a_decision_that_says_so(tmp_path):
    path = write(tmp_path, "a", journal_samples.word_count())
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], b"{}\n", *lines[4:]]))
    with Following(FileFeed(Folder(tmp_path), "a.jsonl")).reading() as fold:
        assert isinstance(fold, JobFold)
        said = [one.reason for one in fold.decisions if one.what == "journal"]
        assert said == ["Line 5 of 'a.jsonl' is not a journal record and was skipped."]
        assert fold.status == "FINISHED"


def test_folds_are_given_up_and_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr("firesteel.ui.catalog.jobs.MOST_FOLDS", 3)
    for number in range(6):
        write(tmp_path, f"job{number}", journal_samples.word_count())
    catalog = Catalog([Index(Folder(tmp_path))])
    for _ in range(2):
        for number in range(6):
            with catalog.reading(f"job{number}") as (summary, fold):
                assert summary.status == "finished" and fold.version > 0
    assert len(catalog._following) == 3
    monkeypatch.setattr("firesteel.ui.catalog.jobs.MOST_EXECUTIONS", 5)
    for number in range(6):
        with catalog.reading(f"job{number}"):
            pass
    assert len(catalog._following) == 2  # of four executions each; the one just looked at is not counted yet


# --- jobs of this process ---


def own(tmp_path: Path, records, **others) -> tuple[OwnRuns, Tap, Journal]:
    journal, tap, runs = Journal(tmp_path / "20240101-000000_wc_one.jsonl"), Tap(), OwnRuns()
    begun = Begun("3f2a91c0", "word count", journal.path, lambda: None, lambda: None, **others)
    runs.add(OwnRun(begun, tap, time.time()))
    for record in records:
        tell(record, journal, tap)
    return runs, tap, journal


def tell(record, *instruments) -> None:
    for instrument in instruments:
        instrument.record(record)


def test_a_job_of_this_process_is_seen_before_its_journal_is_written(tmp_path):
    records = journal_samples.word_count()
    runs, tap, journal = own(tmp_path, records[:5])
    catalog = Catalog(own=runs)
    with catalog.reading("3f2a91c0") as (summary, fold):
        assert isinstance(fold, JobFold)
        assert summary.is_live and fold.vertices[0].counts() == (0, 2, 0)
    assert catalog.handler("3f2a91c0") is not None
    for record in records[5:]:
        tell(record, journal, tap)
    journal.close()
    tap.close()
    for _ in range(2):  # told by the tap, then by the journal
        with catalog.reading("3f2a91c0") as (summary, fold):
            assert (summary.status, summary.failures, fold.version) == ("finished", 1, len(records))
        runs.sweep()
    assert catalog.handler("3f2a91c0") is None
    assert catalog.all()[0].summary.status == "finished"


def test_what_nobody_looked_at_for_long_is_told_as_what_was_followed(tmp_path):
    """All that waits is put together; an execution's records stay in their order, so all that is known of it is the same."""
    records = ui_journals.simulated(tmp_path / "sim.jsonl")
    runs, _, journal = own(tmp_path, records)
    assert any(record.cause for record in records if isinstance(record, StateChange)), "some fail"
    with Catalog(own=runs).reading("3f2a91c0") as (_, fold):
        assert isinstance(fold, JobFold) and fold.version < len(records)
        followed = JobFold(records)
        for number, vertex in followed.vertices.items():
            assert fold.vertices[number] == vertex
            assert attempts_of(fold.executions[number]) == attempts_of(followed.executions[number]) != {}
        assert fold.all_decisions == followed.all_decisions and fold.statuses == followed.statuses
    journal.close()


def attempts_of(executions: Executions) -> dict[tuple[int, int], Attempt]:
    """By subtask and number, with times as exact as they are written."""

    def exact(attempt: Attempt) -> Attempt:
        times = {name: getattr(attempt, name) for name in ("created", "deployed", "ended")}
        return replace(attempt, **{name: at if at is None else round(at, 4) for name, at in times.items()})

    rows = range(executions.count)
    return {
        (int(executions.subtask[row]), int(executions.attempt[row])): exact(executions.as_attempt(row)) for row in rows
    }


def test_a_job_is_as_old_as_it_is_however_late_one_looks(tmp_path, monkeypatch):
    clock = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    records = journal_samples.word_count()[:3]
    runs, _, journal = own(tmp_path, records)
    clock[0] += 3600.0 - (records[-1].at - records[0].at)
    with Catalog(own=runs).reading("3f2a91c0") as (_, fold):
        assert isinstance(fold, JobFold) and fold.elapsed >= 3600.0 - 1e-6
    journal.close()


def test_records_wait_for_somebody_to_look_until_they_are_many_or_the_job_is_over(tmp_path, monkeypatch):
    monkeypatch.setattr("firesteel.ui.catalog.runs.MOST_UNSEEN", 5)
    records = journal_samples.word_count()
    runs, tap, journal = own(tmp_path, records[:4])
    runs.sweep()
    assert not runs.are_due and tap.waiting == 4
    tap.record(records[4])
    assert runs.are_due
    runs.sweep()
    assert not runs.are_due and tap.waiting == 0
    tap.record(records[5])
    tap.close()
    assert runs.are_due
    runs.sweep()
    assert not runs.are_due and tap.waiting == 0
    journal.close()


def test_what_looks_secret_is_shown_no_more_than_written(tmp_path):
    from firesteel.scheduler.kernel.records import Decision

    told = Decision(at=101.0, what="warning", reason="the password=hunter22 was refused")
    runs, _, journal = own(tmp_path, [*journal_samples.word_count()[:3], told])
    with Catalog(own=runs).reading("3f2a91c0") as (_, fold):
        assert isinstance(fold, JobFold)
        assert "hunter22" not in fold.all_decisions[-1].reason
    journal.close()


def test_a_job_that_nobody_keeps_up_with_is_told_by_its_journal(tmp_path, monkeypatch):
    monkeypatch.setattr("firesteel.ui.catalog.following.MOST_WAITING", 5)
    assert MOST_WAITING > 5
    records = journal_samples.word_count()
    runs, tap, journal = own(tmp_path, records)
    journal.close()
    assert tap.overflowed and not list(tap.news())
    catalog = Catalog(own=runs)
    with catalog.reading("3f2a91c0") as (summary, fold):
        assert summary.status == "finished" and fold.version == len(records)
    assert catalog.all()[0].summary.status == "running"  # nobody has looked
    tap.close()
    runs.sweep()
    assert catalog.all()[0].summary.status == "finished"


def test_many_read_while_a_job_tells(tmp_path):
    """Nobody sees a fold that is being changed."""
    records = ui_journals.simulated(tmp_path / "sim.jsonl")
    runs, tap, journal = own(tmp_path, records[:1])
    catalog = Catalog(own=runs)
    wrong: list[BaseException] = []

    def read() -> None:
        try:
            while True:
                with catalog.reading("3f2a91c0") as (_, fold):
                    assert isinstance(fold, JobFold)
                    for vertex in fold.vertices.values():
                        assert sum(vertex.by_state.values()) == len(vertex.states)
                    if fold.is_over:
                        return
        except BaseException as error:
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for record in records[1:]:
        tell(record, tap)
    for reader in readers:
        reader.join(60.0)
    journal.close()
    assert not wrong and not any(reader.is_alive() for reader in readers)


def test_names_that_are_not_text_are_left_out(tmp_path):
    write(tmp_path, "a", journal_samples.word_count())
    (tmp_path / os.fsdecode(b"\xff\xfe.jsonl")).write_text("{}\n")
    assert set(Index(Folder(tmp_path)).lines()) == {"a.jsonl"}
