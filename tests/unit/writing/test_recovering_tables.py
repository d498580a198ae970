"""Sinks of tables whose driver dies at any call to the file system, or about its transaction: the next one publishes the rows, once."""

from __future__ import annotations

import itertools
from contextlib import suppress

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from connectors_kit import run_sink
from dying_files import Died, dying
from firesteel.connectors.base import BEGUN, PUBLISHED, PUBLISHING
from firesteel.connectors.files.paths import Location
from firesteel.connectors.tables import iceberg
from firesteel.connectors.tables.delta import DeltaSink
from firesteel.connectors.tables.iceberg import IcebergSink
from firesteel.errors import OutputExistsError, UsageError

SCHEMA = pa.schema([("k", pa.string()), ("x", pa.int64())])
NAME = "shop.orders"
OLD = [("a", 1), ("b", 2)]
NEW = [[("b", 20), ("c", 30)], [("c", 31)], []]
FLAT = [pair for share in NEW for pair in share]
MODES = {
    "error": (None, FLAT),
    "append": (OLD, OLD + FLAT),
    "overwrite": (OLD, FLAT),
    "overwrite_partitions": (OLD, [("a", 1), *FLAT]),
}


class Delta:
    def __init__(self, folder):
        self.path = folder / "table"

    def sink(self, **options):
        return DeltaSink(self.path, partition_by="k", **options)

    def rows(self):
        found = DeltaTable(self.path).to_pyarrow_table()
        return sorted(zip(found["k"].to_pylist(), found["x"].to_pylist(), strict=True))

    def transactions(self):
        return DeltaTable(self.path).version()


class Iceberg:
    def __init__(self, folder):
        folder.mkdir(exist_ok=True)
        self.given = {
            "name": "here",
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": f"file://{folder}",
            "poolclass": "NullPool",
        }
        made = load_catalog(**self.given)
        made.create_namespace("shop")
        made.engine.dispose()

    def sink(self, **options):
        return IcebergSink(NAME, self.given, partition_by="k", **options)

    def rows(self):
        found = self._table().scan().to_arrow()
        return sorted(zip(found["k"].to_pylist(), found["x"].to_pylist(), strict=True))

    def transactions(self):
        jobs = [one.summary.additional_properties.get("firesteel.job") for one in self._table().snapshots()]
        return len({job for job in jobs if job})

    def _table(self):
        return iceberg.opened(self.given, "test").load_table(NAME)


@pytest.fixture(autouse=True)
def closed(monkeypatch):
    """Connections of SQLite, which would warn when they are collected."""
    real, made = iceberg.opened, []

    def opened(catalog, step):
        made.append(real(catalog, step))
        return made[-1]

    monkeypatch.setattr(iceberg, "opened", opened)
    yield
    for one in made:
        one.engine.dispose()


def batches(pairs):
    return [pa.record_batch([list(column) for column in zip(*pairs, strict=True)], schema=SCHEMA)] if pairs else []


class Driver:
    """Of a job with one sink. ``dies``: at this call of its own to the file system, "before" or "after" its transaction."""

    def __init__(self, table, mode, dies=None):
        self.sink, self._dies = table.sink(mode=mode), dies
        self._files = None
        if isinstance(dies, str):
            log = self.sink._log

            def dying_log(files):
                if dies == "after":
                    log(files)
                self._files.left = 0
                raise Died

            self.sink._log = dying_log

    def check(self):
        with suppress(OutputExistsError):  # a resumed job may have made it
            self.sink.check(SCHEMA)
        target = self.sink.target
        self._files = dying(target.filesystem)
        self.sink.target = Location(self._files, target.path)

    def starts(self, shares):
        self.check()
        self.sink.begin("job")
        messages = []
        for subtask, share in enumerate(shares):
            writer = self.sink.write(subtask, 0)
            for batch in batches(share):
                writer.write(batch)
            messages.append(writer.finish())
        self._files.left = self._dies if isinstance(self._dies, int) else None
        return messages, self.sink.state()

    def goes_on(self, messages, state, step=PUBLISHING):
        self.check()
        found = self.sink.recover("job", messages, state, step=step)
        if not found.published:
            assert found.missing == ()
            self.sink.commit(messages)
        return found


def write_old(table, old):
    if old is not None:
        sink = table.sink()
        sink.commit(run_sink(sink, [batches(old)], SCHEMA, "old"))


def left_over(folder):
    return [path.name for path in folder.rglob(".*.firesteel-*")]


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        (kind, mode)
        if (kind, mode) in {(Delta, "append"), (Iceberg, "append")}
        else pytest.param(kind, mode, marks=pytest.mark.full)
        for kind in (Delta, Iceberg)
        for mode in MODES
    ],
)
def test_killed_anywhere_and_published_once(tmp_path, kind, mode):
    old, expected = MODES[mode]
    for number, dies in enumerate(["before", "after", *range(1000)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        table = kind(folder)
        write_old(table, old)
        driver = Driver(table, mode, dies)
        messages, state = driver.starts(NEW)
        try:
            driver.sink.commit(messages)
            break
        except Died:
            pass
        again = Driver(table, mode).goes_on(messages, state)
        if isinstance(dies, str):
            assert again.published is (dies == "after")
        assert (table.rows(), left_over(folder)) == (sorted(expected), []), dies
        transactions = table.transactions()
        assert Driver(table, mode).goes_on(messages, state, PUBLISHED).published
        assert (table.rows(), table.transactions()) == (sorted(expected), transactions)
    assert number > 4


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_an_old_driver_that_was_only_frozen(tmp_path, kind):
    """As it was about to write its transaction."""
    table = kind(tmp_path / "t")
    write_old(table, OLD)
    frozen = Driver(table, "append")
    messages, state = frozen.starts(NEW)
    log, awake = frozen.sink._log, itertools.count()

    def wakes_up(files):
        if next(awake) == 0:
            Driver(table, "append").goes_on(messages, state)
        log(files)

    frozen.sink._log = wakes_up
    frozen.sink.commit(messages)
    assert table.rows() == sorted(OLD + FLAT)


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_killed_before_it_published(tmp_path, kind):
    table = kind(tmp_path / "t")
    messages, state = Driver(table, "append").starts(NEW)
    (file,) = messages[1].files
    (staging,) = [path for path in tmp_path.rglob("attempts") if path.is_dir()]
    driver = Driver(table, "append")
    driver.check()
    assert driver.sink.recover("job", messages[:1], state, step=BEGUN).missing == ()
    (staging,) = [path for path in tmp_path.rglob("attempts") if path.is_dir()]
    (staging / file.name).unlink()
    driver = Driver(table, "append")
    driver.check()
    assert driver.sink.recover("job", messages, state, step=BEGUN).missing == (1,)
    driver.sink.abort([])
    assert left_over(tmp_path) == []
    driver = Driver(table, "append")
    driver.check()
    assert driver.sink.recover("job", messages, state, step=BEGUN).missing == (0, 1, 2)
    driver.sink.abort([])


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_what_was_to_be_published_is_gone(tmp_path, kind):
    table = kind(tmp_path / "t")
    write_old(table, OLD)
    driver = Driver(table, "append")
    messages, state = driver.starts(NEW)
    driver.sink.abort([])
    with pytest.raises(UsageError, match="what it had written aside is gone"):
        Driver(table, "append").goes_on(messages, state)
    nothing = [message for message in messages if not message.files]
    assert not Driver(table, "append").goes_on(nothing, state).published
    assert (table.rows(), left_over(tmp_path)) == (sorted(OLD), [])


@pytest.mark.parametrize("kind", [Delta, Iceberg])
def test_all_rows_replaced_by_none(tmp_path, kind):
    table = kind(tmp_path / "t")
    write_old(table, OLD)
    driver = Driver(table, "overwrite", "after")
    messages, state = driver.starts([[]])
    with pytest.raises(Died):
        driver.sink.commit(messages)
    write_more = table.sink(mode="append")
    write_more.commit(run_sink(write_more, [batches([("z", 9)])], SCHEMA, "meanwhile"))
    assert Driver(table, "overwrite").goes_on(messages, state).published
    assert table.rows() == [("z", 9)]
