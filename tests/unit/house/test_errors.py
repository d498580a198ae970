"""Errors as a script, a pickle and a notebook see them."""

import pickle
import subprocess
import sys
import textwrap

from firesteel.errors import JobExecutionError, interruption

FRAMES = '  File "job.py", line 3, in f\nZeroDivisionError: division by zero\n'


def test_python_prints_the_frames_of_the_users_function(tmp_path):
    (tmp_path / "s.py").write_text(
        f"from firesteel.errors import JobExecutionError\nraise JobExecutionError('It failed.', cause_trace={FRAMES!r})\n"
    )
    shown = subprocess.run([sys.executable, "s.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == 1
    assert shown.stderr.endswith("JobExecutionError: It failed.\n" + FRAMES)
    again = pickle.loads(pickle.dumps(JobExecutionError("It failed.", cause_trace=FRAMES)))
    assert again.__notes__ == [FRAMES.rstrip()]
    assert JobExecutionError("It failed.").__dict__.get("__notes__") is None


def test_ctrl_c_is_no_error_that_a_script_catches_and_ends_it_by_the_signal(tmp_path):
    (tmp_path / "s.py").write_text(
        textwrap.dedent(
            """
            from firesteel.errors import interruption
            try:
                raise interruption("The job 'x' was interrupted.")
            except Exception:
                print("goes on")
            """
        )
    )
    shown = subprocess.run([sys.executable, "s.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert shown.returncode == -2, "SIGINT: a shell's loop ends with it"
    assert shown.stdout == ""
    assert shown.stderr.endswith("KeyboardInterrupt: The job 'x' was interrupted.\n")
    assert type(interruption("x")) is KeyboardInterrupt
