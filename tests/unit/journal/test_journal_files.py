"""The journal file and the fan-out to instruments."""

from __future__ import annotations

import json
import logging
import os
from enum import Enum
from pathlib import Path

import numpy as np
import pytest
from tests import stream_samples
from tests.journal_samples import planned, word_count
from typer.testing import CliRunner

from firesteel.cli.main import app
from firesteel.errors import UsageError
from firesteel.journal.file import Instruments, Journal, read, skipped
from firesteel.journal.lookup import find
from firesteel.journal.places import journals
from firesteel.journal.scripts import QueryRecord, ScriptEnded, ScriptPlanned
from firesteel.options import Options
from firesteel.scheduler.kernel.records import Decision, JobStatusRecord, StateChange


def options(directory: Path) -> Options:
    return Options({"firesteel.journal.directory": str(directory)})


def test_what_is_written_is_read_back(tmp_path):
    journal = Journal.create(options(tmp_path / "new" / "place"), "Word count: 1/2", "3f2a91c0")
    for record in word_count():
        journal.record(record)
    journal.close()
    journal.close()
    assert read(journal.path) == word_count()
    assert journal.path.name.endswith("_word-count-1-2_3f2a91c0.jsonl")
    assert journals(options(tmp_path / "new" / "place")) == [journal.path]


def test_one_json_record_a_line(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    journal.record(Decision(at=1.0, what="x", reason="two\nlines"))
    journal.record(JobStatusRecord(at=2.0, status="RUNNING"))
    lines = (tmp_path / "j.jsonl").read_text().splitlines()
    assert [json.loads(line)["type"] for line in lines] == ["JournalHeader", "Decision", "JobStatusRecord"]
    journal.close()


def test_decisions_are_on_file_at_once_and_state_changes_in_bulk(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    change = StateChange(at=1.0, vertex=0, state="RUNNING", subtasks=[0], attempts=[0])
    journal.record(change)
    assert read(journal.path) == []
    journal.record(Decision(at=1.0, what="parallelism"))
    assert len(read(journal.path)) == 2
    for _ in range(2000):
        journal.record(change)
    assert len(read(journal.path)) > 500, "a full buffer is written"
    journal.close()
    assert len(read(journal.path)) == 2002


def test_a_cut_last_line_is_left_out_and_a_bad_first_one_is_an_error(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    for record in word_count():
        journal.record(record)
    journal.close()
    whole = journal.path.read_bytes()
    last = whole.rstrip(b"\n").rfind(b"\n") + 1
    for cut in range(last + 1, len(whole) - 1):
        journal.path.write_bytes(whole[:cut])
        assert read(journal.path) == word_count()[:-1]
    journal.path.write_bytes(whole[:-1])
    assert read(journal.path) == word_count(), "a last line that only lacks its end is whole"
    journal.path.write_bytes(b'{"type":"nonsense"}\n' + whole)
    with pytest.raises(UsageError, match="Line 1 of"):
        read(journal.path)
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "missing.jsonl")


def script():
    query = QueryRecord(at=2.0, number=1, action="count", place="a.py:1", left=["it reads 1 KiB"], seconds=0.5)
    return [ScriptPlanned(at=0.0, script_id="b1", name="a.py"), query, ScriptEnded(at=3.0, status="FINISHED")]


@pytest.mark.parametrize("sample", [word_count, stream_samples.words, script], ids=["job", "stream", "script"])
def test_a_line_that_cannot_be_read_is_skipped_and_named(tmp_path, monkeypatch, sample):
    journal = Journal(tmp_path / "20260102-030405_a_b1.jsonl")
    records = sample()
    for record in records:
        journal.record(record)
    journal.close()
    first, plan, *lines = journal.path.read_bytes().splitlines(keepends=True)
    monkeypatch.setenv("FIRESTEEL_JOURNAL_DIRECTORY", str(tmp_path))
    for place in range(len(lines)):
        bad = b"\xff" + lines[place][: len(lines[place]) // 2].replace(b"\n", b"") + b"\n"
        journal.path.write_bytes(first + plan + b"".join([*lines[:place], bad, *lines[place + 1 :]]))
        said = f"Line {place + 3} of '{journal.path}' is not a journal record and was skipped."
        found = read(journal.path)
        assert skipped(found) == [said]
        assert [one for one in found if not skipped([one])] == read_but(records, place + 1)
        for command in ("explain", "history") if place in (0, len(lines) - 1) else ():
            shown = CliRunner().invoke(app, [command, "b1"], catch_exceptions=False)
            assert shown.exit_code == 0 and said in " ".join(shown.output.split()), shown.output
    journal.path.write_bytes(first + plan + b"x\n" * 100 + b"".join(lines))
    assert skipped(read(journal.path))[4:] == [
        f"Line 7 of '{journal.path}' is not a journal record and was skipped, nor are some of those after it."
    ]


def read_but(records, place):
    return records[:place] + records[place + 1 :]


def test_numpy_and_other_values_become_plain_data(tmp_path):
    class Colour(Enum):
        RED = "red"

    journal = Journal(tmp_path / "j.jsonl")
    inputs = {"n": np.int64(3), "a": np.arange(3), "e": Colour.RED, "p": Path("x"), "f": np.float64(0.5)}
    journal.record(Decision(at=np.float64(1.5), what="ranges", inputs=inputs, result=np.array([1, 2])))
    journal.close()
    (decision,) = read(journal.path)
    assert decision == Decision(
        at=1.5, what="ranges", inputs={"n": 3, "a": [0, 1, 2], "e": "red", "p": "x", "f": 0.5}, result=[1, 2]
    )


def test_a_directory_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"journal cannot be written.*firesteel\.journal\.directory"):
        Journal.create(options(tmp_path / "file"), "j", "1")


def test_the_default_directory_gives_way_to_a_temporary_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    Path(".firesteel").write_text("in the way")
    journal = Journal.create(Options(), "j", "1")
    journal.record(planned())
    journal.close()
    assert journal.path.is_relative_to(tmp_path / "temporary")
    assert journals(Options()) == [journal.path]


def test_journals_are_listed_oldest_first(tmp_path):
    for name, age in (("b", 30), ("a", 10), ("c", 20)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("")
        os.utime(path, (1000 - age, 1000 - age))
    (tmp_path / "other.txt").write_text("")
    assert [p.stem for p in journals(options(tmp_path))] == ["b", "c", "a"]


def test_a_job_is_found_by_path_id_beginning_and_as_the_last(tmp_path):
    made = [Journal.create(options(tmp_path), "word count", job_id) for job_id in ("aa11", "aa22", "b-3_3")]
    for age, journal in enumerate(made):
        journal.close()
        os.utime(journal.path, (1000 + age, 1000 + age))
    paths = [journal.path for journal in made]
    assert find("last", options(tmp_path)) == paths[2]
    assert find("aa11", options(tmp_path)) == paths[0]
    assert find("aa2", options(tmp_path)) == paths[1]
    assert find("b-3_3", options(tmp_path)) == paths[2]
    assert find(paths[1].stem, options(tmp_path)) == paths[1]
    assert find(str(paths[0]), options(tmp_path / "elsewhere")) == paths[0]
    with pytest.raises(UsageError, match=r"begin with 'aa': aa22 \(word-count\), aa11 \(word-count\)\. Write more"):
        find("aa", options(tmp_path))
    with pytest.raises(
        UsageError, match=r"no job 'zz'.*The latest ones: b-3_3 \(word-count\), aa22 \(word-count\), aa11"
    ):
        find("zz", options(tmp_path))
    with pytest.raises(UsageError, match=r"no job 'nofile\.jsonl', and no such file\. The latest ones"):
        find("nofile.jsonl", options(tmp_path))
    with pytest.raises(UsageError, match=r"no job 'nofile\.jsonl', and no such file\. Give the path"):
        find("nofile.jsonl", options(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match=r"no journal in .*Run a job"):
        find("last", options(tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match=r"journal directory .* is a file"):
        find("last", options(paths[0]))


def test_the_journal_among_the_instruments_is_known_by_its_path(tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    instruments = Instruments([Collecting(), journal])
    instruments.close()
    assert instruments.journal_path() == tmp_path / "j.jsonl"
    assert Instruments().journal_path() is None


class Collecting:
    def __init__(self) -> None:
        self.records = []
        self.closed = 0

    def record(self, record):
        self.records.append(record)

    def close(self):
        self.closed += 1


class Failing(Collecting):
    def record(self, record):
        super().record(record)
        raise ValueError("a record like that")


def test_an_instrument_that_fails_is_logged_once_and_removed(caplog):
    good, bad, also_good = Collecting(), Failing(), Collecting()
    instruments = Instruments([good, bad, also_good])
    with caplog.at_level(logging.ERROR, "firesteel.journal"):
        for record in word_count():
            instruments.record(record)
        instruments.close()
        instruments.close()
    assert good.records == also_good.records == word_count()
    assert len(bad.records) == 1
    assert [r.getMessage() for r in caplog.records] == ["Failing failed and takes no further part in this job."]
    assert (good.closed, bad.closed, also_good.closed) == (1, 0, 1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_ends_a_journal_with_a_sentence(caplog):
    good, full = Collecting(), Path("/dev/full")
    instruments = Instruments([Journal(full), good])
    for record in word_count():
        instruments.record(record)
    instruments.close()
    assert good.records == word_count()
    said = f"The journal {full} failed and takes no further part in this job: No space left on device."
    assert [(r.getMessage(), r.exc_info) for r in caplog.records] == [(said, None)]
