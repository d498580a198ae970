"""Benchmark 23: where the CPU of a job goes, by part, as a table that adds up to what the process tree has used; and a flame graph.

``./dev bench profile [exchange] [groupby] [tiny] [query]``; what can be set is in ``work``. The flame graphs, and the same as text that other
tools read, lie in ``.benchdata/profile``.

Each case runs in a process of its own: cold, once more uncounted, then ``--runs`` counted ones. CPU of what a job leaves to be done after its end (garbage, files to delete) counts for it.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.kit.cases import CODEC
from benchmarks.kit.harness import ROOT, Child, Contender
from benchmarks.profile import accounts, flame, parts, work
from benchmarks.profile.accounts import Account
from benchmarks.profile.processes import Watch

HOME = ROOT / ".benchdata" / "profile"
AFTER_SECONDS = 0.3
"""What a job leaves to be done is done in this time."""
_EXCHANGED_LEAST = 1 << 20
"""Below so many bytes a time per byte says nothing."""


@dataclass(frozen=True, slots=True)
class Profile:
    """``tasks`` and ``bytes`` of one run: subtasks, and plain bytes of results between steps. ``seconds``: wall time, the median."""

    account: Account
    tasks: int
    bytes: int
    seconds: float


def main(runs: int, names: list[str]) -> None:
    unknown = [name for name in names if name not in work.WORK]
    if unknown:
        raise SystemExit(f"There is no case '{unknown[0]}' to profile; there are {', '.join(work.WORK)}.")
    for name in names or work.WORK:
        profile = measured(name, CODEC, runs)
        print(table(name, profile), flush=True)
        if profile.account.stacks:
            title = f"{name}: CPU of {runs} runs, {profile.account.told / 1e9:.2f} s"
            (HOME / f"{name}.svg").write_text(flame.svg(profile.account.stacks, title))
            (HOME / f"{name}.collapsed").write_text(flame.collapsed(profile.account.stacks))


def measured(name: str, codec: str, runs: int) -> Profile:
    directory = HOME / f"{name}-{codec}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    arguments = {"case": name, "directory": str(directory), "codec": codec}
    child = Child(Contender(name, "benchmarks.profile.work:setup", arguments), HOME / f"{name}-{codec}.log")
    try:
        child.run()
        child.run()
        watched = [_watched(child) for _ in range(runs)]
    finally:
        child.close()
    account = accounts.account([watch for watch, _ in watched], accounts.read(directory))
    tasks, nbytes, _ = watched[-1][1]["answer"]
    return Profile(account, int(tasks), int(nbytes), statistics.median(result["seconds"] for _, result in watched))


def _watched(child: Child) -> tuple[Watch, dict[str, Any]]:
    with Watch(child.pid) as watch:
        result = child.run()
        time.sleep(AFTER_SECONDS)
    return watch, result


def table(name: str, profile: Profile) -> str:
    """Markdown: each part's CPU in a run, its share of the process tree's, and its cost per byte and per task."""
    account = profile.account
    whole = account.whole / account.runs
    lines = [
        f"### profile: {name}, {work.MASTER}, a mean of {account.runs} runs",
        "",
        f"{profile.tasks:,} tasks, {profile.bytes / (1 << 20):,.0f} MiB between steps, {profile.seconds:.2f} s",
        "",
        "| part | CPU ms | share | ns per byte | us per task |",
        "|---|---:|---:|---:|---:|",
        *(_line(part, account.per_run(part), whole, profile) for part in _shown(account, whole)),
        _line("**told in all**", account.told / account.runs, whole, profile),
        _line("**process tree**", whole, whole, profile),
    ]
    return "\n".join(lines) + "\n"


def _shown(account: Account, whole: float) -> Iterator[str]:
    for part in parts.ROWS:
        if account.per_run(part) >= whole / 2000:
            yield part


def _line(part: str, used: float, whole: float, profile: Profile) -> str:
    per_byte = f"{used / profile.bytes:.3f}" if profile.bytes >= _EXCHANGED_LEAST else ""
    return f"| {part} | {used / 1e6:,.1f} | {used / whole:.1%} | {per_byte} | {used / 1e3 / profile.tasks:,.1f} |"
