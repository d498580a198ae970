"""The firesteel command, as a user calls it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.journal_samples import word_count

from firesteel.cli import main
from firesteel.journal.file import Journal
from firesteel.options import Options


@pytest.fixture
def in_process(tmp_path, monkeypatch, capsys):
    """The command called in this process, where the process itself is not what is tested."""

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["firesteel", *arguments])
        filters = logging.getLogger().filters[:]
        with pytest.raises(SystemExit) as end:
            main.main()
        logging.getLogger().filters[:] = filters
        said = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, end.value.code or 0, said.out, said.err)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")
    return call


@pytest.fixture
def firesteel(tmp_path):
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "firesteel", *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "100", "TERM": "dumb"},
            check=False,
            timeout=600,
        )

    return call


def test_version_and_help(in_process):
    assert in_process("--version").stdout.startswith("firesteel 0.")
    shown = in_process("--help")
    assert shown.returncode == 0
    for command in ("run", "explain", "options", "demo"):
        assert f"\n  {command} " in shown.stdout


def test_help_is_quick_and_imports_nothing_heavy(tmp_path):
    code = (
        "import sys\nfrom firesteel.cli.main import app\n"
        "try: app(['--help'], prog_name='firesteel')\n"
        "except SystemExit: pass\n"
        "print([m for m in ('pyspark', 'pyarrow', 'numpy', 'pandas', 'rich', 'msgspec') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_explain_prints_a_journal(in_process, tmp_path):
    journal = Journal.create(
        Options({"journal.directory": str(tmp_path / ".firesteel/journal")}), "word count", "3f2a91c0"
    )
    for record in word_count():
        journal.record(record)
    journal.close()
    for job in ("3f2a", str(journal.path)):
        shown = in_process("explain", job)
        assert shown.returncode == 0, shown.stderr
        assert shown.stdout.startswith("word count (job 3f2a91c0): FINISHED")
    assert in_process("explain", "last", "1").stdout.startswith("[1] aggregate by word")
    unknown = in_process("explain", "last", "agregate by word")
    assert unknown.returncode == 2
    assert "Did you mean 1 (aggregate by word" in unknown.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("explain", "last"), "firesteel: There is no journal in '.firesteel/journal' or "),
        (("run", "missing.py"), "firesteel: There is no script 'missing.py'."),
        (("run", "missing.py", "--config", "missing.yaml"), "firesteel: There is no file 'missing.yaml'."),
        (("run", "missing.py", "-O", "nonsense"), "firesteel: '-O nonsense' is not an option. Write -O key=value."),
        (("run", "missing.py", "-O", "max-paralelism=3"), "Did you mean 'max-parallelism'?"),
        (
            ("run", "missing.py", "-O", "max-parallelism=many"),
            "Option 'max-parallelism' = 'many' is not a whole number.",
        ),
        (("options", "nothing-like-this"), "No option is about 'nothing-like-this'."),
        (("demo", "-O", "x=1"), "There is no option 'x'."),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_2(in_process, arguments, sentence, monkeypatch, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    shown = in_process(*arguments)
    assert shown.returncode == 2
    assert shown.stdout == ""
    assert sentence in shown.stderr
    assert "Traceback" not in shown.stderr


def test_options_are_listed_with_values_defaults_and_meaning(in_process):
    shown = in_process("options", "-O", "max-parallelism=12", "-O", "slot-sharing-group.gpu.cpu-cores=4").stdout
    assert "slot-sharing-group.<name>.cpu-cores: default unset\n" in shown
    assert "\nslot-sharing-group.gpu.cpu-cores: 4.0 (from -O; default unset)\n" in shown
    assert "jobmanager.adaptive-batch-scheduler.max-parallelism: 12 (from -O; default 128)\n    Upper bound" in shown
    assert "firesteel.decider.cut: default by-bytes\n" in shown
    assert in_process("options", "codec").stdout.count("default") == 1


def test_a_script_finds_the_options_of_file_and_command_line(firesteel, tmp_path):
    (tmp_path / "c.yaml").write_text("slot-sharing-group.gpu:\n  cpu-cores: 2\n  task-heap-memory: 1 GiB\n")
    (tmp_path / "s.py").write_text(
        "from firesteel import ExecutionEnvironment, SlotSharingGroup\n"
        "rows = ExecutionEnvironment().from_collection([1]).slot_sharing_group(SlotSharingGroup('gpu', 1, '2 GiB'))\n"
        "print(rows.explain())"
    )
    shown = firesteel("run", "--config", "c.yaml", "-O", "slot-sharing-group.gpu.cpu-cores=4", "s.py")
    assert "slot sharing group gpu (4 cores, 1 GiB heap)" in shown.stdout, shown.stderr


def test_ctrl_c_at_any_moment_exits_with_130(monkeypatch, capsys):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "given_options", interrupt)
    monkeypatch.setattr(sys, "argv", ["firesteel", "run", "x.py"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.full
def test_ctrl_c_within_a_text_that_is_executed_exits_with_130_too(tmp_path):
    (tmp_path / "s.py").write_text("exec('import signal; signal.raise_signal(signal.SIGINT)')")
    command = [sys.executable, "-m", "firesteel", "run", "s.py"]
    shown = subprocess.run(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    assert (shown.returncode, shown.stderr) == (130, "Cancelled.\n")


def test_ctrl_c_before_typer_is_ready_exits_with_130(monkeypatch):
    def interrupt(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "app", interrupt)
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 130


def test_a_reader_that_goes_away_is_no_error(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "firesteel", "options"]
    shown = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    os.close(writing)
    assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.parametrize(
    "said", ["options", *(pytest.param(s, marks=pytest.mark.full) for s in ("--version", "--help"))]
)
def test_an_output_that_is_full_is_a_sentence(tmp_path, said):
    command = [sys.executable, "-m", "firesteel", said]
    with Path("/dev/full").open("w") as full:
        shown = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    assert shown.returncode == 1
    assert shown.stderr == "firesteel: The output cannot be written: No space left on device.\n"


@pytest.mark.parametrize(
    ("given", "handed_over"),
    [
        (("s.py", "--verify"), ["--verify"]),
        (("--quiet", "s.py", "in", "--verify", "0.5", "--master", "local[1]"), ["in", "--verify", "0.5"]),
        (("-O", "max-parallelism=3", "s.py", "--verify=all", "--", "--quiet"), ["--verify=all", "--quiet"]),
    ],
)
def test_verify_after_the_script_belongs_to_the_script(in_process, tmp_path, given, handed_over):
    (tmp_path / "s.py").write_text("import sys\nprint(sys.argv[1:])")
    shown = in_process("run", *given)
    assert (shown.returncode, shown.stdout) == (0, f"{handed_over}\n"), shown.stderr


@pytest.mark.parametrize("share", [(), ("0.5",)])
def test_verify_before_the_script_is_an_option(in_process, tmp_path, share):
    (tmp_path / "s.py").write_text("")
    shown = in_process("run", "--verify", *share, "s.py", "--verify")
    assert (shown.returncode, "Write --accelerate --verify." in shown.stderr) == (2, True)


def test_wrong_use_is_told_with_a_closed_output(tmp_path):
    (tmp_path / "s.py").write_text("from firesteel import ExecutionEnvironment\nExecutionEnvironment(options={'x': 1})")
    command = f"exec '{sys.executable}' -m firesteel run s.py >&-"
    shown = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    assert shown.returncode == 2
    assert "There is no option 'x'" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_run_hands_over_arguments_and_options(firesteel, tmp_path):
    (tmp_path / "s.py").write_text("import sys\nprint(sys.argv)\nsys.exit(5)")
    shown = firesteel("run", "s.py", "in", "--deep", "-x", "-O", "max-parallelism=3", "--quiet", "--master", "local[1]")
    assert shown.returncode == 5, shown.stderr
    assert shown.stdout == "['s.py', 'in', '--deep', '-x']\n"


@pytest.mark.full
def test_run_hands_over_options_that_stand_behind_two_dashes(firesteel, tmp_path):
    (tmp_path / "s.py").write_text("import sys\nprint(sys.argv)")
    assert firesteel("run", "s.py", "--", "--quiet").stdout == "['s.py', '--quiet']\n"


def test_ctrl_c_while_py4j_talks_to_spark_leaves_no_trace(tmp_path):
    """py4j logs it by the root logger, which prints what nobody handles."""
    script = tmp_path / "script.py"
    script.write_text(
        "import logging\n"
        "try:\n    raise KeyboardInterrupt\n"
        "except KeyboardInterrupt:\n"
        "    logging.exception('KeyboardInterrupt while sending command.')\n"
        "    logging.error('other news')\n"
        "    raise\n"
    )
    command = [sys.executable, "-m", "firesteel", "run", str(script)]
    shown = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert shown.returncode == 130
    assert "while sending command" not in shown.stderr and "Traceback" not in shown.stderr
    assert "other news" in shown.stderr and "Cancelled." in shown.stderr
