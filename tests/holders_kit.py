"""The function that a holder runs in tests in the place of a batch's executions. Stdlib only: each holder imports it."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

done = []
"""Executions of this process."""


@dataclass
class Function:
    """Answers its process, and how many have run there. ``meets``: waits until so many files are in the folder. ``forks``: a process
    that stays, by "python" or by a library in "c", and whose number is in the folder. ``exits``: seconds that the process takes to end.
    ``tells``: a variable of the environment, answered too. ``takes``: seconds."""

    folder: str = ""
    meets: int = 0
    fails: bool = False
    is_last: bool = False
    forks: str = ""
    exits: float = 0.0
    tells: str = ""
    takes: float = 0.0

    def take_in_modules(self):
        pass

    def run_here(self, descriptors, spark_batches, place):
        done.append(1)
        if self.forks:
            self.fork()
        time.sleep(self.takes)
        if self.exits:
            atexit.register(time.sleep, self.exits)
        if self.fails:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.meets:
            Path(self.folder, str(os.getpid())).touch()
            while len(list(Path(self.folder).iterdir())) < self.meets:
                time.sleep(0.01)
        return [(os.getpid(), os.environ.get(self.tells) if self.tells else len(done))], self.is_last

    def fork(self):
        child = os.fork() if self.forks == "python" else ctypes.PyDLL(None).fork()
        if child == 0:
            signal.pause()
        Path(self.folder, "child").write_text(str(child))
