"""The demo of streams: payments flow in, each is checked at some cost, and the stream is rescaled twice meanwhile.

An ordinary stream by the public API: a folder that files are put into, a function with state per customer, a sink that takes
each batch. Its answer is compared with a sum over the same files that knows nothing of Spark.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from firesteel.cli.demos.words import what_next
from firesteel.errors import FiresteelError
from firesteel.humanize import format_count, format_seconds, plural, printable
from firesteel.options import Options
from firesteel.report.stream_report import stream_history

NAME = "payments"
FIRST, GROWN, SHRUNK = 2, 8, 3
"""Partitions that the state has in turn."""
CUSTOMERS = 100
ROWS_PER_FILE = 300
FILE_SECONDS = 0.4
BATCHES = 3
"""With rows, between one rescale and the next."""
LOOK_SECONDS = 0.1
PATIENCE = 120.0
"""Seconds without news after which the demo gives up: far longer than anything in it takes."""
OPTIONS = {
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "1 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "1 s",
}
"""So that nobody has to wait; those of -O go over them."""


def run(out: Path, master: str | None, options: Mapping[str, Any]) -> None:
    """Runs the stream in ``out`` (what an earlier run left there goes) and prints what happens. Raises FiresteelError if its
    answer is wrong."""
    from firesteel.api.environment import ExecutionEnvironment
    from firesteel.journal.file import read
    from firesteel.streaming import AdaptiveStream, ResourceRequirements

    chosen = Options(OPTIONS).with_values(options)
    inbox, checkpoint = out / "in", out / "checkpoint"
    for folder in (inbox, checkpoint):
        shutil.rmtree(folder, ignore_errors=True)
    inbox.mkdir(parents=True)
    sink, watcher = Sink(), Watcher()
    _say(f"Files with payments of {CUSTOMERS} customers arrive in {inbox}, {plural(ROWS_PER_FILE, 'payment')} each.")
    with ExecutionEnvironment(master=master, app_name=NAME) as env:
        stream = AdaptiveStream.start(
            partial(query, inbox=inbox, take=sink.take),
            checkpoint,
            ResourceRequirements(FIRST, FIRST),
            options=chosen,
            spark=env.spark,
            name=NAME,
            instruments=[watcher],
        )
        with stream, Feeder(inbox) as feeder:
            watcher.wait(lambda: watcher.batches_with(FIRST) >= BATCHES, stream)
            _say(f"\nMore is wanted: {GROWN} partitions from now on. The running batch is finished first.")
            stream.update_requirements(lower=GROWN, upper=GROWN)
            watcher.wait(lambda: watcher.batches_with(GROWN) >= BATCHES, stream)
            _say(f"\nLess will do: {SHRUNK} partitions.")
            stream.update_requirements(lower=SHRUNK, upper=SHRUNK)
            watcher.wait(lambda: watcher.batches_with(SHRUNK) >= BATCHES, stream)
            _say("\nNo more files; what has arrived is finished.")
            feeder.stop()
            expected = independent_sums(inbox)
            rows = sum(count for _, count in expected.values())
            watcher.wait(lambda: sink.payments >= rows, stream)
    print(printable(f"\n{stream_history(read(stream.journal))}"))
    _compare(sink.totals, expected)
    print(printable(f"\n{_what_next(checkpoint)}"))


def query(spark: Any, inbox: Path, take: Callable[[Any, int], None]) -> Any:
    """Sum and number of payments per customer, kept in state of our own."""
    payments = spark.readStream.schema("customer string, cents long").json(str(inbox))
    accounts = payments.groupBy("customer").applyInPandasWithState(
        _account(),
        outputStructType="customer string, cents long, payments long",
        stateStructType="cents long, payments long",
        outputMode="update",
        timeoutConf="NoTimeout",
    )
    return accounts.writeStream.outputMode("update").foreachBatch(take)


def _account() -> Any:
    """The function is made in here, so that it travels to the workers by value: they need not know this module."""

    def account(key: tuple[str], frames: Iterator[Any], state: Any) -> Iterator[Any]:
        import hashlib

        import pandas as pd

        cents, payments = state.get if state.exists else (0, 0)
        for frame in frames:
            for amount in frame["cents"]:
                hashlib.pbkdf2_hmac(
                    "sha256", key[0].encode(), str(amount).encode(), 300
                )  # the costly check of a payment
                cents, payments = cents + int(amount), payments + 1
        state.update((cents, payments))
        yield pd.DataFrame({"customer": [key[0]], "cents": [cents], "payments": [payments]})

    return account


class Sink:
    """Keeps each customer's last word. A batch that comes twice changes nothing: this is what makes it exactly-once."""

    def __init__(self) -> None:
        self.totals: dict[str, tuple[int, int]] = {}

    def take(self, frame: Any, _batch: int) -> None:
        self.totals = self.totals | {row.customer: (row.cents, row.payments) for row in frame.collect()}

    @property
    def payments(self) -> int:
        return sum(payments for _, payments in self.totals.values())


class Feeder:
    """Puts a new file into the folder every now and then, until it is stopped."""

    def __init__(self, inbox: Path) -> None:
        self._inbox = inbox
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="firesteel-demo-feeder", daemon=True)

    def _feed(self) -> None:
        number = 0
        while not self._over.wait(FILE_SECONDS):
            write_file(self._inbox, number)
            number += 1

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def write_file(inbox: Path, number: int) -> None:
    """File ``number`` has the same payments in every run; it appears as a whole."""
    rows = range(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE)
    lines = [json.dumps({"customer": f"customer {row * 7919 % CUSTOMERS}", "cents": row * 31 % 9973}) for row in rows]
    draft = inbox / f".{number:06}"
    draft.write_text("\n".join(lines))
    draft.rename(inbox / f"{number:06}.json")


def independent_sums(inbox: Path) -> dict[str, tuple[int, int]]:
    """Cents and number of payments per customer, by reading all files once."""
    cents: Counter[str] = Counter()
    payments: Counter[str] = Counter()
    for path in sorted(inbox.glob("*.json")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            cents[row["customer"]] += row["cents"]
            payments[row["customer"]] += 1
    return {customer: (cents[customer], payments[customer]) for customer in payments}


class Watcher:
    """An instrument that tells the demo how far the stream has come."""

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._batches: Counter[int] = Counter()

    def record(self, record: Any) -> None:
        from firesteel.report.fold import committed_batch

        batch = committed_batch(record)
        with self._news:
            if batch is not None and batch.rows:
                self._batches[batch.parallelism] += batch.batches
                size = f"{plural(batch.rows, 'payment')} in {format_seconds(batch.duration)}"
                several = f"batches {batch.batch - batch.batches + 1} to" if batch.batches > 1 else "batch"
                _say(f"  {several} {batch.batch}: {size}, state in {plural(batch.parallelism, 'partition')}")
            self._news.notify_all()

    def close(self) -> None:
        with self._news:
            self._news.notify_all()

    def batches_with(self, parallelism: int) -> int:
        return self._batches[parallelism]

    def wait(self, reached: Callable[[], bool], stream: Any) -> None:
        """Looks often: batches are told of a second later. Raises FiresteelError if the stream ends, or is silent for long."""
        heard = time.monotonic()
        with self._news:
            while not reached() and stream.is_active:
                if self._news.wait(LOOK_SECONDS):
                    heard = time.monotonic()
                elif time.monotonic() - heard > PATIENCE:
                    raise FiresteelError(f"Nothing has happened for {PATIENCE:g} s.", hint=stream.status().waits_for)
        if not reached():
            stream.await_termination()
            raise FiresteelError("The stream has ended before the demo was over.")


def _compare(found: Mapping[str, tuple[int, int]], expected: Mapping[str, tuple[int, int]]) -> None:
    wrong = sorted(customer for customer in {*found, *expected} if found.get(customer) != expected.get(customer))
    if wrong:
        first = wrong[0]
        raise FiresteelError(
            f"The stream's answer is wrong for {plural(len(wrong), 'customer')}: '{first}' has (cents, payments) "
            f"{found.get(first)}, and should have {expected.get(first)}."
        )
    cents, payments = (sum(column) for column in zip(*expected.values(), strict=True))
    print(
        f"\nThe answer is right: {format_count(payments)} payments of {len(expected)} customers, {format_count(cents)} cents, "
        "none lost and none counted twice,\nas a sum over the same files says that knows nothing of Spark."
    )


def _what_next(checkpoint: Path) -> str:
    dev = os.environ.get("FIRESTEEL_DEV")
    command = f"{dev} firesteel" if dev else "firesteel"
    place = shlex.quote(str(checkpoint))
    tries = {
        f"{command} stream explain {place}": "every decision, in order",
        f"{command} stream history {place}": "the table above, at any time",
        f"{command} stream run --help": "a stream of your own",
    }
    return what_next(tries)


def _say(text: str) -> None:
    print(printable(text), flush=True)
