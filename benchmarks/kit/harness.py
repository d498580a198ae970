"""Contenders as processes of their own, run in turn (A B C A B C ...), so that the machine's drift hits all alike.

A contender is a function ``setup(**arguments) -> run``; ``run()`` does the work once and returns an answer. Each lives
in a child process with its own Spark, does one cold run and then waits for its turns. All answers must agree.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Contender:
    name: str
    target: str
    """``module:function``."""
    arguments: dict[str, Any] = field(default_factory=dict)
    python: str = sys.executable
    cold: float = math.nan
    warm: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """CPU seconds of the warm runs."""
    answer: Any = None
    cold_answer: Any = None

    @property
    def median(self) -> float:
        return statistics.median(self.warm) if self.warm else math.nan


def cpu_seconds() -> float:
    """Of this process and all it has started, those that have ended too: on a cluster, the driver's Python and its JVM."""
    import psutil

    me = psutil.Process()
    return sum(sum(process.cpu_times()[:4]) for process in (me, *me.children(recursive=True)))


@contextmanager
def temporary_folder(name: str) -> Iterator[Path]:
    """A folder that is gone afterwards, with whatever can be removed by then: killed processes may still write there."""
    with tempfile.TemporaryDirectory(prefix=f"firesteel-{name}-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class Child:
    """A contender's process. ``log``: what it says besides its results."""

    def __init__(self, contender: Contender, log: Path) -> None:
        self._log = log.open("w")
        request = json.dumps({"target": contender.target, "arguments": contender.arguments})
        self._process = subprocess.Popen(
            [contender.python, "-m", "benchmarks.kit.child", request],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("RESULT "):
                return json.loads(line[7:])
        raise RuntimeError(f"the contender died; see {self._log.name}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._log.close()


def alternate(
    contenders: list[Contender],
    *,
    runs: int = 5,
    warmup: int = 1,
    before_counted: Callable[[], object] | None = None,
    both_orders: bool = False,
) -> dict[str, list[Any]]:
    """One cold run, ``warmup`` uncounted and ``runs`` counted warm runs of each, in turn. The counted runs' answers.

    ``before_counted`` is called when the uncounted runs are over. ``both_orders``: every other turn goes backwards.
    """
    logs = ROOT / ".benchdata" / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    children = [Child(c, logs / f"{i}-{re.sub(r'[^A-Za-z0-9]+', '-', c.name)}.log") for i, c in enumerate(contenders)]
    answers: dict[str, list[Any]] = {c.name: [] for c in contenders}
    try:
        for turn in range(1 + warmup + runs):
            if turn == 1 + warmup and before_counted is not None:
                before_counted()
            order = list(zip(contenders, children, strict=True))
            for contender, child in order[::-1] if both_orders and turn % 2 else order:
                result = child.run()
                contender.answer = result["answer"]
                if turn == 0:
                    contender.cold, contender.cold_answer = result["seconds"], result["answer"]
                elif turn > warmup:
                    contender.warm.append(result["seconds"])
                    contender.cpu.append(result["cpu"])
                    answers[contender.name].append(result["answer"])
    finally:
        for child in children:
            child.close()
    return answers


def compete(
    contenders: list[Contender],
    *,
    runs: int = 5,
    warmup: int = 1,
    before_counted: Callable[[], object] | None = None,
) -> list[Contender]:
    """:func:`alternate`, for contenders that must agree on the answer."""
    alternate(contenders, runs=runs, warmup=warmup, before_counted=before_counted)
    _check_answers(contenders)
    return contenders


def _check_answers(contenders: list[Contender]) -> None:
    known = [c for c in contenders if c.answer is not None]
    for contender in known[1:]:
        for mine, theirs in zip(contender.answer, known[0].answer, strict=True):
            if not math.isclose(mine, theirs, rel_tol=1e-9):
                raise AssertionError(f"{contender.name} answers {contender.answer}, {known[0].name} {known[0].answer}")


def table(title: str, contenders: list[Contender], base: Contender) -> str:
    """Markdown; ``ratio`` is how many times the base's median this contender takes (> 1: the base is faster)."""
    lines = [
        f"### {title}",
        "",
        "| contender | cold s | warm median s | min - max | ratio to " + base.name + " |",
        "|---|---|---|---|---|",
    ]
    for c in contenders:
        spread = f"{min(c.warm):.2f} - {max(c.warm):.2f}" if c.warm else ""
        cold = "" if math.isnan(c.cold) else f"{c.cold:.2f}"
        lines.append(f"| {c.name} | {cold} | {c.median:.2f} | {spread} | {c.median / base.median:.2f} |")
    return "\n".join(lines) + "\n"
