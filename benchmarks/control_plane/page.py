"""The page: the list of very many journals, pages of a job of 10,000 subtasks, and what an open page costs the job beside it.

No Spark: journals of the simulation. The cost is told in CPU seconds of this process while a job's records come at the pace at which they came
in the simulation, without a page, with one that nobody looks at, with readers, and with all exporters beside; readers and receivers are other processes.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.jobs.monitoring import ON, one_by_one, receivers, sent
from firesteel.cli.simulate import simulate_text
from firesteel.journal.file import Instrument, Journal
from firesteel.monitoring import prometheus
from firesteel.monitoring.exporters import monitoring
from firesteel.options import PROMETHEUS_PORT, Options
from firesteel.scheduler.kernel.records import JobPlanned, JournalRecord
from firesteel.ui.begun import Begun
from firesteel.ui.catalog.index import Index
from firesteel.ui.catalog.jobs import Catalog
from firesteel.ui.catalog.places import Folder
from firesteel.ui.server.beside import Beside, History

JOURNALS = 10_000
CHANGED = 100
JOB = {
    "vertices": 2, "parallelism": 5000, "edge": "all-to-all", "nodes": 50, "slots": 10, "adaptive": False, "pipelined": False, "slow_nodes": 2,
    "slow_factor": 0.25, "frozen_nodes": 0, "fail_rate": 0.01, "seed": 7, "as_json": False,
}  # fmt: skip
SECONDS = 60.0
"""Of the job whose cost is measured: its records are spread over so long."""
SLOW_READERS = 1000
PAGES = (
    "",
    "/timeline",
    "/vertices/1",
    "/vertices/1/subtasks/7",
    "/decisions",
    "/failures",
    "/slots",
    "/options",
    "/what-if",
)


def main(runs: int, only: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        if only in ("", "list"):
            _list(runs, folder)
        if only in ("", "pages"):
            _pages(runs, folder)
        if only in ("", "cost", "together"):
            _cost(folder, COST if only != "together" else {name: way for name, way in COST.items() if way is _all})


# --- the list ---


def _list(runs: int, folder: Path) -> None:
    journals, cache = folder / "journals", folder / "cache"
    _many(journals, JOURNALS)
    print(f"### page: the list of {JOURNALS:,} journals, seconds (best)\n")
    print("| | seconds |")
    print("|---|---|")
    first = _best(1, lambda: _look(journals, cache))
    print(f"| first look, each journal is read | {first:.2f} |")
    print(f"| a new process, nothing has changed | {_best(runs, lambda: _look(journals, cache)):.2f} |")
    index = Index(Folder(journals), cache)
    Catalog([index]).jobs(limit=50)
    again = _best(runs, lambda: _again(index, lambda: None))
    print(f"| the same process, nothing has changed | {again:.2f} |")
    numbers = itertools.count()
    changed = _best(runs, lambda: _again(index, lambda: _change(journals, next(numbers))))
    print(f"| the same process, {CHANGED} have changed | {changed:.2f} |\n")
    shutil.rmtree(journals)


def _many(folder: Path, count: int) -> None:
    folder.mkdir()
    small = folder / "one"
    simulate_text(**{**JOB, "parallelism": 20, "nodes": 4, "slots": 5}, journal=str(small))
    lines = small.read_bytes()
    small.unlink()
    for number in range(count):
        name = time.strftime("%Y%m%d-%H%M%S", time.gmtime(1.7e9 + 60 * number))
        (folder / f"{name}_daily-revenue_{number:08x}.jsonl").write_bytes(lines.replace(b"simulated", b"%08x" % number))


def _change(folder: Path, number: int) -> None:
    for path in itertools.islice(sorted(folder.iterdir()), CHANGED * number % JOURNALS, None, JOURNALS // CHANGED):
        path.write_bytes(path.read_bytes() + b"\n")


def _look(folder: Path, cache: Path) -> float:
    """A server's first list."""
    began = time.perf_counter()
    index = Index(Folder(folder), cache)
    assert Catalog([index]).jobs(limit=50).total == JOURNALS
    took = time.perf_counter() - began
    index.close()
    return took


def _again(index: Index, change: Callable[[], None]) -> float:
    change()
    index._looked_at = -1e9  # as if a while had passed
    began = time.perf_counter()
    assert Catalog([index]).jobs(limit=50).total == JOURNALS
    return time.perf_counter() - began


def _best(runs: int, measure: Callable[[], float]) -> float:
    return min(measure() for _ in range(runs))


# --- pages ---


def _pages(runs: int, folder: Path) -> None:
    journal = folder / "job" / "job.jsonl"
    journal.parent.mkdir()
    simulate_text(**JOB, journal=str(journal))
    options = Options({"rest.bind-port": "0", "firesteel.ui.token-file": str(folder / "token")})
    history = History(options, [Folder(journal.parent)])
    with httpx.Client(base_url=history.url, timeout=60.0, trust_env=False) as client:
        (job,) = client.get("/api/v1/jobs").json()["items"]
        print(
            f"### page: pages of a job of {2 * JOB['parallelism']:,} subtasks (milliseconds from request to answer, best; KB)\n"
        )
        print("| page | ms | KB |")
        print("|---|---|---|")
        for page in PAGES:
            answers = [_timed(client, f"/jobs/{job['id']}{page}") for _ in range(runs + 1)]
            best = min(seconds for seconds, _ in answers)
            print(f"| `/jobs/ID{page}` | {1000 * best:.0f} | {answers[0][1] / 1000:.0f} |")
    history.close()
    print()


def _timed(client: httpx.Client, path: str) -> tuple[float, int]:
    began = time.perf_counter()
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return time.perf_counter() - began, len(answer.content)


# --- the cost to the job ---


@dataclass(frozen=True)
class Watched:
    """Those who are told of a job. ``end``: of its cost; returns when they have done all that is to be done."""

    instruments: Sequence[Instrument] = ()
    end: Callable[[], None] = lambda: None


Way = Callable[[Path, JournalRecord], AbstractContextManager[Watched]]
"""How a job is watched, of a folder for a token and the record of its plan."""


def _cost(folder: Path, ways: Mapping[str, Way]) -> None:
    records: Sequence[JournalRecord] = one_by_one()
    print(
        f"### page: what it costs a job of 10,000 subtasks that report one by one, in {SECONDS:g} s ({len(records):,} records; CPU seconds of the driver)\n"
    )
    print("| | CPU seconds | of them in the job's thread | more, of one core |")
    print("|---|---|---|---|")
    bare, own = _paced(folder, records, lambda place, plan: nullcontext(Watched()))
    print(f"| journal alone | {bare:.2f} | {own:.2f} | |", flush=True)
    for name, way in ways.items():
        seconds, own = _paced(folder, records, way)
        print(f"| {name} | {seconds:.2f} | {own:.2f} | {100 * (seconds - bare) / SECONDS:.2f} % |", flush=True)
    print()


def _paced(folder: Path, records: Sequence[JournalRecord], way: Way) -> tuple[float, float]:
    """CPU seconds of this process while the records come, and of the thread that they come from."""
    journal = Journal(folder / f"{time.monotonic_ns()}.jsonl")
    plan = next(record for record in records if isinstance(record, JobPlanned))
    last = max(record.at for record in records)
    with way(folder, plan) as watched:
        began, used, own = time.monotonic(), time.process_time(), time.thread_time()
        for record in records:
            time.sleep(max(0.0, began + SECONDS * record.at / last - time.monotonic()))
            journal.record(record)
            if record is not plan:
                for instrument in watched.instruments:
                    instrument.record(record)
        own = time.thread_time() - own
        watched.end()
        took = time.process_time() - used
    journal.close()
    return took, own


@contextmanager
def _page(folder: Path, plan: JournalRecord, *readers: Callable[[str], Any]) -> Iterator[Watched]:
    ui = Beside(_beside(folder))
    tap = ui.instrument()
    tap.record(plan)
    ui.began(tap, Begun("simulated", "simulated", folder / "simulated.jsonl", lambda: None, lambda: None))
    processes = [read(ui.url) for read in readers]
    try:
        yield Watched([tap])
    finally:
        for process in processes:
            process.terminate()
            process.join()
        ui.close()


@contextmanager
def _all(folder: Path, plan: JournalRecord) -> Iterator[Watched]:
    """The page with a reader, metrics that are asked for, traces, metrics by OTLP and lineage that are sent."""
    with receivers() as url:
        os.environ |= {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OPENLINEAGE_URL": url,
            "OTEL_METRIC_EXPORT_INTERVAL": "10000",
        }
        (instrument,) = monitoring(Options(ON | {PROMETHEUS_PORT.key: 0}))
        instrument.record(plan)
        port = prometheus.serve("127.0.0.1", 0)
        with _page(folder, plan, _reader, lambda _: _began(_scrape, f"http://127.0.0.1:{port}/metrics")) as page:
            yield Watched([*page.instruments, instrument], lambda: sent(instrument))


COST: dict[str, Way] = {
    "and a page that nobody looks at": _page,
    "and one reader": lambda folder, plan: _page(folder, plan, _reader),
    f"and {SLOW_READERS} readers of events that read nothing": lambda folder, plan: _page(folder, plan, _slow),
    "and one reader, Prometheus, traces, metrics by OTLP, lineage": _all,
}


def _beside(folder: Path) -> Options:
    return Options({"rest.bind-port": "0", "firesteel.ui.token-file": str(folder / "token")})


def _reader(url: str) -> multiprocessing.Process:
    return _began(_read, url, "/jobs/simulated")


def _slow(url: str) -> multiprocessing.Process:
    return _began(_read_nothing, url)


def _began(target: Callable[..., None], *arguments: Any) -> multiprocessing.Process:
    ready = multiprocessing.get_context("spawn").Event()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(*arguments, ready), daemon=True)
    process.start()
    ready.wait()
    return process


def _read(url: str, page: str, ready: Any) -> None:
    """As the page's script does: it asks for the page anew when an event comes, every two seconds at most."""
    with httpx.Client(base_url=url, timeout=60.0, trust_env=False) as client:
        client.get(page)
        with client.stream("GET", f"/api/v1{page}/events") as events:
            ready.set()
            for line in events.iter_lines():
                if line.startswith("data:"):
                    client.get(page)
                    time.sleep(2.0)


def _scrape(url: str, ready: Any) -> None:
    """As Prometheus does, and more often than most are told to."""
    ready.set()
    with httpx.Client(timeout=60.0, trust_env=False) as client:
        while True:
            assert client.get(url).status_code == 200
            time.sleep(5.0)


def _read_nothing(url: str, ready: Any) -> None:
    host, port = url.removeprefix("http://").rstrip("/").split(":")
    request = b"GET /api/v1/jobs/simulated/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    readers = [socket.create_connection((host, int(port))) for _ in range(SLOW_READERS)]
    for reader in readers:
        reader.sendall(request)
    for reader in readers:
        reader.recv(15)
    ready.set()
    threading.Event().wait()
