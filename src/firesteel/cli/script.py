"""Runs a user's script as ``__main__`` and says what went wrong in its terms."""

from __future__ import annotations

import builtins
import contextlib
import os
import runpy
import shlex
import signal
import site
import sys
import sysconfig
import threading
import traceback
import zipfile
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from firesteel.cli import CANCELLED
from firesteel.errors import OURS, FiresteelError, JobCancelledError, UsageError
from firesteel.humanize import unsteering

if TYPE_CHECKING:
    from firesteel.api.acceleration.handle import Acceleration

_ENDINGS = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals after which the job is cancelled and cleaned up, as after Ctrl-C."""

Then = Callable[[Mapping[str, Any]], int]
"""Takes the names that a script has defined; returns the exit code."""


def run_script(script: Path, arguments: list[str], *, name: str = "__main__", then: Then | None = None) -> int:
    """Exit code of the script: its own, 1 after an exception of its own, an error's of ours, 130 after Ctrl-C, 143 after SIGTERM,
    129 after SIGHUP (the terminal is gone), unless that is ignored (``nohup``).

    ``name``: what ``__name__`` is in it. ``then``: called with its names where it ended well, with errors told in the same way.
    """
    terminated: list[int] = []

    def interrupt(number: int, _frame: Any) -> None:
        terminated.append(number)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        return _run(script, arguments, name, then)
    heard = [number for number in _ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        code = _run(script, arguments, name, then)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 + terminated[0] if terminated else code


def _run(script: Path, arguments: list[str], name: str, then: Then | None) -> int:
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    _activate()
    try:
        names = _names_of(script, name)
        return 0 if then is None else then(names)
    except FiresteelError as error:
        return report(error)
    except KeyboardInterrupt as error:
        if error.args:  # ours, which says what was cancelled
            return report(JobCancelledError(str(error)))
        _say("Cancelled.")
        return CANCELLED
    except SystemExit as end:
        return _exit_code(end)
    except BaseException as error:
        _print_own_trace(error, script)
        return 1


def _names_of(script: Path, name: str) -> dict[str, Any]:
    """Runs it as Python does: its ``__file__`` is absolute, for it may go to another directory, and it stays the module of that name, for threads may go
    on. Archives and compiled modules are runpy's."""
    if script.suffix == ".pyc" or zipfile.is_zipfile(script):
        return runpy.run_path(str(script), run_name=name)
    path = str(script.absolute())
    module = ModuleType(name)
    vars(module).update(__file__=path, __builtins__=builtins, __cached__=None, __annotations__={})
    sys.modules[name] = module
    exec(compile(script.read_bytes(), path, "exec", dont_inherit=True), vars(module))
    return vars(module)


def _activate() -> None:
    """Puts the programs of this virtual environment first on the PATH: for the sessions that a script makes, PySpark looks there for python3."""
    here = os.path.dirname(sys.executable)  # noqa: PTH120 - a link is not followed
    path = os.environ.get("PATH", "")
    if sys.prefix != sys.base_prefix and here not in path.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([here, path]) if path else here


def master_for_pyspark(master: str) -> None:
    """Gives the master to the sessions that a script makes without naming one."""
    given = os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell")
    options = given.removesuffix("pyspark-shell")
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{options.strip()} --master {shlex.quote(master)} pyspark-shell".strip()


@contextlib.contextmanager
def accelerated(name: str, dry_run: bool) -> Generator[Acceleration]:
    """Meanwhile the DataFrames of every session are accelerated; at the end stderr hears of each query."""
    from firesteel.api.acceleration.handle import Acceleration

    with Acceleration(dry_run=dry_run, name=name) as acceleration:
        try:
            yield acceleration
        finally:
            _say(acceleration.explain())


_told: list[tuple[Callable[[FiresteelError], None], bool]] = []


@contextlib.contextmanager
def errors_told(tell: Callable[[FiresteelError], None], *, alone: bool) -> Generator[None]:
    """Meanwhile ``tell`` hears of each error that ends something; ``alone``: instead of the sentence on stderr."""
    _told.append((tell, alone))
    try:
        yield
    finally:
        _told.pop()


def report(error: FiresteelError) -> int:
    """The user's frames if there are any, then the sentence, then the line that wrong use is in. The exit code."""
    for tell, _ in _told:
        tell(error)
    if any(alone for _, alone in _told):
        return error.exit_code
    if error.cause_trace:
        _say(error.cause_trace.rstrip())
    _say(f"firesteel: {error}")
    frame = user_frame(error.__traceback__)
    if frame and isinstance(error, UsageError) and f"{Path(frame.filename).name}:{frame.lineno}" not in str(error):
        _say(f"  at {frame.filename}, line {frame.lineno}")
    return error.exit_code


def user_frame(trace: TracebackType | None) -> traceback.FrameSummary | None:
    """The innermost line of the user's own code on the way to an error."""
    return next((f for f in reversed(traceback.extract_tb(trace)) if _is_users(f.filename)), None)


def _is_users(file: str) -> bool:
    foreign = [OURS, sysconfig.get_path("stdlib"), *site.getsitepackages()]
    return not file.startswith("<") and not any(Path(file).is_relative_to(folder) for folder in foreign)


def _print_own_trace(error: BaseException, script: Path) -> None:
    """As Python would, from the script's first line on: neither our frames before it nor runpy's."""
    trace, own = error.__traceback__, (str(script), str(script.absolute()))
    while trace is not None and trace.tb_frame.f_code.co_filename not in own:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)


def _exit_code(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    _say(str(end.code))
    return 1


def _say(text: str) -> None:
    if sys.stdout is not None:  # None: started with a closed output
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):  # the terminal may be gone
        print(unsteering(text), file=sys.stderr, flush=True)
