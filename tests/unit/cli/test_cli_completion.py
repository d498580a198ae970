"""What a shell is offered, by the functions and by the real program."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from firesteel.cli.shared import complete_job, complete_option, complete_status
from firesteel.options import lookup


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    journals = tmp_path / ".firesteel" / "journal"
    journals.mkdir(parents=True)
    for number, (name, job_id) in enumerate([("word-count", "abc1"), ("daily", "abd2"), ("daily", "eee3")]):
        path = journals / f"2026010{number + 1}-000000_{name}_{job_id}.jsonl"
        path.touch()
        os.utime(path, (number, number))
    return tmp_path


def test_jobs_by_id_and_by_name_the_latest_first(folder):
    assert [word for word, _ in complete_job("")] == ["last", "eee3", "abd2", "abc1"]
    assert complete_job("ab") == [("abd2", "daily, 20260102-000000"), ("abc1", "word-count, 20260101-000000")]
    assert [word for word, _ in complete_job("dai")] == ["daily"]
    assert complete_job("nothing") == []


def test_jobs_where_the_environment_says_that_journals_lie(folder, monkeypatch, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "20260101-000000_nightly_f00d.jsonl").touch()
    monkeypatch.setenv("FIRESTEEL_JOURNAL_DIRECTORY", str(elsewhere))
    assert [word for word, _ in complete_job("")] == ["last", "f00d"]


def test_options_by_whole_and_short_keys_and_their_values():
    offered = [word for word, _ in complete_option("max-par")]
    assert "max-parallelism=" in offered
    assert all(lookup(word.rstrip("=")) for word in offered)
    assert [word for word, _ in complete_option("firesteel.results.c")] == ["firesteel.results.codec="]
    assert [word for word, _ in complete_option("codec=")] == ["codec=lz4", "codec=zstd", "codec=none"]
    assert [word for word, _ in complete_option("cut=by-c")] == ["cut=by-count"]
    assert [word for word, _ in complete_option("firesteel.progress=t")] == ["firesteel.progress=true"]
    assert complete_option("data-volume-per-task=1") == complete_option("no-such-option=") == []


def test_statuses():
    assert complete_status("f") == [("finished", ""), ("failed", "")]


def completed(folder, words: str, shell: str = "bash") -> list[str]:
    asked = {
        "bash": {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": words},
        "fish": {"_TYPER_COMPLETE_ARGS": words, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    code = (
        "import sys\nsys.argv = ['firesteel']\nfrom firesteel.cli.main import main\n"
        "try: main()\nfinally: sys.stderr.write(','.join(m for m in ('pydantic', 'numpy', 'pyspark') if m in sys.modules))"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **asked, "_FIRESTEEL_COMPLETE": f"complete_{shell}"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert shown.stderr == "", "nothing heavy is loaded while a shell waits"
    return shown.stdout.splitlines()


def test_the_program_completes_for_bash(folder):
    assert {"run", "explain", "history", "clean"} <= set(completed(folder, "firesteel "))
    assert completed(folder, "firesteel explain ab") == ["abd2", "abc1"]
    assert completed(folder, "firesteel run -O codec") == ["codec="]
    assert completed(folder, "firesteel history --status run") == ["running"]


def test_the_program_completes_for_zsh_and_fish(folder):
    assert '"last"' in completed(folder, "firesteel explain la", "zsh")[0]
    assert completed(folder, "firesteel explain la", "fish")[0].split("\t")[0] == "last"


def test_a_broken_environment_offers_nothing_and_says_nothing(folder, monkeypatch):
    monkeypatch.setattr("firesteel.journal.places.journals", None)
    assert complete_job("") == []


@pytest.mark.parametrize(
    "word", ["complition", *(pytest.param(w, marks=pytest.mark.full) for w in ("completion", "completions"))]
)
def test_completion_is_found_under_the_name_that_other_programs_give_it(word):
    ran = subprocess.run([sys.executable, "-m", "firesteel", word], capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    said = " ".join(ran.stderr.split())
    assert f"No such command '{word}'. Did you mean '--install-completion'" in said and "--show-completion" in said
