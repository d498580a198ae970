"""Running a user's script: its arguments, its exit code, and what is shown when it fails."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from firesteel.cli import script as script_module
from firesteel.cli.script import report, run_script
from firesteel.errors import FiresteelError, JobCancelledError, JobExecutionError, UsageError


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    monkeypatch.setattr(sys, "path", list(sys.path))

    def start(text: str, *arguments: str) -> tuple[int, str, str]:
        path = tmp_path / "script.py"
        path.write_text(text)
        code = run_script(path, list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return start


def test_a_script_is_main_with_its_arguments_and_its_neighbours(run, tmp_path):
    (tmp_path / "neighbour_of_script.py").write_text("x = 7")
    text = "import sys, neighbour_of_script as n\nif __name__ == '__main__': print(sys.argv[1:], n.x)"
    assert run(text, "a", "--b") == (0, "['a', '--b'] 7\n", "")


def test_a_script_that_goes_to_another_directory_finds_itself(run, tmp_path, monkeypatch, capsys):
    (tmp_path / "script.py").write_text(
        "import os, sys; os.chdir('/'); print(*sys.argv, __file__, sys.modules['__main__'].__file__)"
    )
    monkeypatch.chdir(tmp_path)
    assert run_script(Path("script.py"), []) == 0
    assert capsys.readouterr().out == f"script.py {tmp_path / 'script.py'} {tmp_path / 'script.py'}\n"


def test_a_script_finds_the_python_of_its_environment_though_that_is_not_activated(run, monkeypatch):
    monkeypatch.setenv("PATH", os.defpath)
    code, out, _ = run("import os, shutil; print(os.path.dirname(shutil.which('python3')))")
    assert (code, out) == (0, f"{Path(sys.executable).parent}\n")


def test_a_sentence_of_ours_and_the_line_of_the_script(run, tmp_path):
    text = "from firesteel.errors import UsageError\ndef f():\n    raise UsageError('The path is wrong.', hint='Mend it.')\nf()"
    code, out, err = run(text)
    assert (code, out) == (2, "")
    assert err == f"firesteel: The path is wrong. Mend it.\n  at {tmp_path / 'script.py'}, line 3\n"


def test_a_place_that_the_sentence_has_is_not_said_again(run):
    text = "from firesteel.errors import UsageError\nraise UsageError('In step \"filter\" at script.py:2: no column.')"
    assert run(text)[2] == 'firesteel: In step "filter" at script.py:2: no column.\n'


def test_a_failed_job_shows_the_users_frames_and_no_trace_of_ours(run):
    text = (
        "from firesteel.errors import JobExecutionError\n"
        "raise JobExecutionError('Vertex 1 failed.', cause_trace='  File \"f.py\", line 3, in f\\nZeroDivisionError: x')"
    )
    code, _, err = run(text)
    assert code == 1
    assert err.splitlines()[:3] == [
        '  File "f.py", line 3, in f',
        "ZeroDivisionError: x",
        "firesteel: Vertex 1 failed.",
    ]
    assert "Traceback" not in err


def test_an_exception_of_the_script_shows_the_scripts_frames_only(run, tmp_path):
    code, _, err = run("def f():\n    return 1 / 0\nf()")
    assert code == 1
    assert err.startswith(f'Traceback (most recent call last):\n  File "{tmp_path / "script.py"}", line 3')
    assert "ZeroDivisionError" in err
    assert "runpy" not in err
    assert "firesteel" not in err.replace(str(tmp_path), "")


def test_a_syntax_error_is_shown_as_python_shows_it(run, tmp_path):
    code, _, err = run("def f(:\n")
    assert code == 1
    assert "SyntaxError" in err
    assert "runpy" not in err
    assert str(tmp_path / "script.py") in err


@pytest.mark.parametrize(
    ("text", "code", "err"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('enough')", 1, "enough\n"),
        ("raise KeyboardInterrupt", 130, "Cancelled.\n"),
        ("raise KeyboardInterrupt('The job was interrupted.')", 130, "firesteel: The job was interrupted.\n"),
    ],
)
def test_exit_codes(run, text, code, err):
    assert run(text) == (code, "", err)


@pytest.mark.parametrize(
    ("error", "code"),
    [(FiresteelError("a"), 1), (UsageError("a"), 2), (JobExecutionError("a"), 1), (JobCancelledError("a"), 130)],
)
def test_exit_codes_of_our_errors(error, code, capsys):
    assert report(error) == code
    assert capsys.readouterr().err == "firesteel: a\n"


def test_where_is_the_innermost_line_of_the_users_own_code(tmp_path):
    import traceback

    users = tmp_path / "mine.py"
    users.write_text("import textwrap\ndef f():\n    textwrap.indent(None, '')\n")
    scope: dict = {}
    exec(compile(users.read_text(), str(users), "exec"), scope)
    with pytest.raises(AttributeError) as caught:
        scope["f"]()
    assert traceback.extract_tb(caught.tb)[-1].filename.endswith("textwrap.py")
    frame = script_module.user_frame(caught.tb)
    assert (frame.filename, frame.lineno) == (str(users), 3)
    assert not script_module._is_users(str(Path(script_module.__file__)))


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_script_is_ended_as_by_ctrl_c_with_the_signals_own_code(tmp_path, name, code):
    number = getattr(signal, name)
    script = tmp_path / "terminated.py"
    script.write_text(f"import signal\nsignal.raise_signal(signal.{name})\n")
    before = signal.getsignal(number)
    assert run_script(script, []) == code
    assert signal.getsignal(number) is before


def test_what_nohup_ignores_stays_ignored(tmp_path, monkeypatch):
    script = tmp_path / "left_alone.py"
    script.write_text("import signal\nsignal.raise_signal(signal.SIGHUP)\n")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run_script(script, []) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_what_a_users_error_says_does_not_steer_the_terminal(capsys):
    script_module.report(UsageError("bad \x1b[31mred"))
    assert capsys.readouterr().err == "firesteel: bad \\x1b[31mred\n"
