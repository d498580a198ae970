"""Sinks of files whose driver dies at any call to the file system as it publishes: the next one makes the output whole, once."""

import itertools
import pickle

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from dying_files import Died, dying
from firesteel.connectors.base import BEGUN, PUBLISHED, PUBLISHING
from firesteel.connectors.files.paths import Location
from firesteel.connectors.files.writing.staging import remove_leftovers
from firesteel.connectors.formats.parquet import ParquetSink
from firesteel.errors import UsageError
from firesteel.results.storage import owner

SCHEMA = pa.schema([("k", pa.int64()), ("x", pa.int64())])
OLD = [(0, 1), (1, 2), (2, 3)]
NEW = [[(0, 10), (3, 11)], [(0, 12)], []]
NOTHING = [[], []]


@pytest.fixture(params=["local", "elsewhere"])
def target(request, tmp_path):
    if request.param == "local":
        return Location(pafs.LocalFileSystem(), str(tmp_path / "out"))
    files = pafs._MockFileSystem()
    files.create_dir("root")
    return Location(files, "root/out")


def sink_of(target, files=None, **options):
    sink = ParquetSink("/out", **options)
    sink.target = Location(files or target.filesystem, target.path)
    return sink


def rows(pairs):
    return [pa.record_batch([list(column) for column in zip(*pairs, strict=True)], schema=SCHEMA)] if pairs else []


def run_sink(sink, shares, job_id):
    """Until all has been staged. Returns the commit messages."""
    sink.check(SCHEMA)
    sink.begin(job_id)
    messages = []
    for subtask, share in enumerate(shares):
        writer = sink.write(subtask, 0)
        for batch in rows(share):
            writer.write(batch)
        messages.append(writer.finish())
    return messages


def found(target):
    """The rows that anybody would read there; None: there is nothing."""
    infos = target.filesystem.get_file_info(pafs.FileSelector(target.path, recursive=True, allow_not_found=True))
    if target.filesystem.get_file_info(target.path).type is pafs.FileType.NotFound:
        return None
    pairs = []
    for info in infos:
        if info.extension == "parquet":
            with target.filesystem.open_input_file(info.path) as file:
                table = pq.read_table(file)
            folder = info.path[len(target.path) + 1 :].rpartition("/")[0]
            keys = [int(folder.partition("=")[2])] * table.num_rows if folder else table["k"].to_pylist()
            pairs += zip(keys, table["x"].to_pylist(), strict=True)
    return sorted(pairs)


def is_marked(target):
    return target.filesystem.get_file_info(f"{target.path}/_SUCCESS").type is pafs.FileType.File


def beside(target):
    parent = target.path.rpartition("/")[0]
    return [i.base_name for i in target.filesystem.get_file_info(pafs.FileSelector(parent))]


def clear(target):
    for name in beside(target):
        target.filesystem.delete_dir(f"{target.path.rpartition('/')[0]}/{name}")


def write(target, *shares, **options):
    sink = sink_of(target, **options)
    sink.commit(run_sink(sink, shares, "old"))


def replaced(old, new):
    keys = {k for k, _ in new}
    return [pair for pair in old if pair[0] not in keys] + new


FLAT = [pair for share in NEW for pair in share]
CASES = {
    "error": ({"mode": "error"}, None, NEW, FLAT),
    "error, nothing": ({"mode": "error"}, None, NOTHING, []),
    "error, partitions of nothing": ({"mode": "error", "partition_by": "k"}, None, NOTHING, []),
    "overwrite": ({"mode": "overwrite"}, OLD, NEW, FLAT),
    "overwrite, nothing": ({"mode": "overwrite", "partition_by": "k"}, OLD, NOTHING, []),
    "append": ({"mode": "append"}, OLD, NEW, OLD + FLAT),
    "append to nothing": ({"mode": "append", "partition_by": "k"}, None, NEW, FLAT),
    "append nothing": ({"mode": "append"}, OLD, NOTHING, OLD),
    "partitions": ({"mode": "overwrite_partitions", "partition_by": "k"}, OLD, NEW, replaced(OLD, FLAT)),
}
QUICK = [
    pytest.param(case, marks=() if case in ("error", "overwrite", "append", "partitions") else pytest.mark.full)
    for case in CASES
]


class Driver:
    """Of a job with one sink. ``dies``: at this call of its own to the file system."""

    def __init__(self, target, options, dies=None):
        self.files = dying(target.filesystem)
        self.sink = sink_of(target, self.files, **options)
        self.dies = dies

    def commits(self, messages):
        self.sink.hold()
        self.sink.commit(messages)
        self.sink.release()

    def starts(self, job_id, shares):
        messages = run_sink(self.sink, shares, job_id)
        self.files.left = self.dies
        return messages, self.sink.state()

    def goes_on(self, messages, state, step):
        self.sink.check(SCHEMA)
        self.files.left = self.dies
        answer = self.sink.recover("job", messages, state, step=step)
        assert answer.missing == ()
        return answer


@pytest.mark.parametrize("case", CASES)
def test_killed_anywhere_and_published_once(target, case):
    options, old, new, expected = CASES[case]
    for last in itertools.count():
        if old is not None:
            write(target, old, mode="error", partition_by=options.get("partition_by", ()))
        driver = Driver(target, options, last)
        messages, state = driver.starts("job", new)
        try:
            driver.sink.hold()
            driver.sink.commit(messages)
            break
        except Died:
            pass
        driver = Driver(target, options)
        driver.goes_on(messages, state, PUBLISHING)
        driver.commits(messages)
        assert (found(target), is_marked(target), beside(target)) == (sorted(expected), True, ["out"]), last
        clear(target)
    assert last >= 2


@pytest.mark.parametrize("case", QUICK)
def test_killed_anywhere_and_taken_back(target, case):
    """By the driver that went on with it, whose other sink could not be published."""
    options, old, new, _ = CASES[case]
    for last in itertools.count():
        if old is not None:
            write(target, old, mode="error", partition_by=options.get("partition_by", ()))
        driver = Driver(target, options, last)
        messages, state = driver.starts("job", new)
        try:
            driver.sink.hold()
            driver.sink.commit(messages)
            break
        except Died:
            pass
        driver = Driver(target, options)
        driver.goes_on(messages, state, PUBLISHING)
        driver.sink.hold()
        driver.sink.commit(messages)
        driver.sink.rollback()
        driver.sink.abort([])
        there = [] if old is None else ["out"]
        assert (found(target), beside(target)) == (None if old is None else sorted(old), there), last
        clear(target)


@pytest.mark.parametrize("case", ["error", "overwrite", "append", "partitions"])
def test_drivers_die_one_after_another(target, case):
    """Each gets on by some calls, but for those that looking there takes."""
    options, old, new, expected = CASES[case]
    for step in (3, 7, 13):
        if old is not None:
            write(target, old, mode="error", partition_by=options.get("partition_by", ()))
        driver, told = Driver(target, options, step), PUBLISHING
        messages, state = driver.starts("job", new)
        answer = None
        for k in itertools.count(2):
            try:
                if answer is None or not answer.published:
                    driver.sink.hold()
                    driver.sink.commit(messages)
                    told = PUBLISHED
                driver.sink.release()
                break
            except Died:
                driver, answer = Driver(target, options, step * k), None
            while answer is None:
                try:
                    answer = driver.goes_on(messages, state, told)
                    state = driver.sink.state()
                except Died:
                    driver = Driver(target, options, step * k)
        assert (found(target), is_marked(target), beside(target)) == (sorted(expected), True, ["out"])
        clear(target)


@pytest.mark.parametrize("case", CASES)
def test_killed_before_it_published(target, case):
    options, old, new, expected = CASES[case]
    if old is not None:
        write(target, old, mode="error", partition_by=options.get("partition_by", ()))
    messages, state = Driver(target, options).starts("job", new)
    driver = Driver(target, options)
    assert driver.goes_on(messages[:1], state, BEGUN).published is False
    driver.commits(messages)
    assert (found(target), beside(target)) == (sorted(expected), ["out"])


@pytest.mark.parametrize("case", QUICK)
def test_killed_after_it_published(target, case):
    options, old, new, expected = CASES[case]
    if old is not None:
        write(target, old, mode="error", partition_by=options.get("partition_by", ()))
    driver = Driver(target, options)
    messages, state = driver.starts("job", new)
    driver.sink.hold()
    driver.sink.commit(messages)
    for last in itertools.count(1):  # it dies as it removes what it had put aside
        driver = Driver(target, options, last)
        try:
            answer = driver.goes_on(messages, state, PUBLISHED)
            if not answer.published:
                driver.sink.commit(messages)
            driver.sink.release()
            break
        except Died:
            pass
    assert (found(target), beside(target)) == (sorted(expected), ["out"])


def test_what_is_not_there_is_missing(target):
    messages, state = Driver(target, {}).starts("job", NEW)
    (file,) = messages[1].files
    target.filesystem.delete_file(f"{target.path.rpartition('/')[0]}/.out.firesteel-job/attempts/{file.name}")
    driver = Driver(target, {})
    driver.sink.check(SCHEMA)
    assert driver.sink.recover("job", messages, state, step=BEGUN).missing == (1,)


def test_nothing_of_it_is_there(target):
    messages, state = Driver(target, {}).starts("job", NEW)
    target.filesystem.delete_dir(f"{target.path.rpartition('/')[0]}/.out.firesteel-job")
    driver = Driver(target, {})
    driver.sink.check(SCHEMA)
    with pytest.raises(UsageError, match="not known what was published"):
        driver.sink.recover("job", messages, state, step=PUBLISHING)
    assert driver.sink.recover("job", messages, state, step=BEGUN).missing == (0, 1, 2)
    driver.commits(messages[2:])
    assert found(target) == []


def test_it_died_as_it_began(target):
    """Before anybody had written down that it had."""
    Driver(target, {}).starts("job", NEW)
    driver = Driver(target, {})
    driver.sink.check(SCHEMA)
    assert driver.sink.recover("job", (), {}, step=BEGUN).missing == ()
    assert beside(target) == [".out.firesteel-job"]
    driver.sink.abort([])
    assert beside(target) == []


def test_what_was_to_be_ignored_stays_so(target):
    write(target, OLD)
    messages, state = Driver(target, {"mode": "ignore"}).starts("job", NEW)
    driver = Driver(target, {"mode": "ignore"})
    driver.goes_on(messages, state, PUBLISHING)
    driver.commits(messages)
    assert (found(target), beside(target)) == (OLD, ["out"])


class Sleeper:
    """Before the call of this number something else happens."""

    def __init__(self, call, number, meanwhile):
        self._call, self._left, self._meanwhile = call, number, meanwhile

    def __call__(self, name, *args, **given):
        self._left -= 1
        if self._left == -1:
            self._meanwhile()
        return self._call(name, *args, **given)


def overtaken(target, options, messages, state):
    """A driver on another machine goes on with the job, to its end."""
    other = Driver(target, options)
    own, owner._host = owner._host, lambda: "elsewhere"
    try:
        other.goes_on(messages, state, PUBLISHING)
        other.commits(messages)
    finally:
        owner._host = own


@pytest.mark.parametrize("case", ["error", "overwrite", "append", "partitions"])
def test_an_old_driver_wakes_up(target, case):
    """It was frozen at a call, another one has finished its work, and it changes nothing of that."""
    options, old, new, expected = CASES[case]
    if not isinstance(target.filesystem, pafs.LocalFileSystem):
        pytest.skip("only a directory that can be renamed keeps others off")
    for last in itertools.count():
        if old is not None:
            write(target, old, mode="error", partition_by=options.get("partition_by", ()))
        frozen = Driver(target, options)
        messages, state = frozen.starts("job", new)
        frozen.files.call = Sleeper(
            frozen.files.call, last, lambda m=messages, s=state: overtaken(target, options, m, s)
        )
        try:
            frozen.sink.hold()
            frozen.sink.commit(messages)
            assert last > 5
            break
        except Exception:
            frozen.sink.abort([])
        assert (found(target), is_marked(target), beside(target)) == (sorted(expected), True, ["out"]), last
        clear(target)


@pytest.mark.parametrize("case", QUICK)
def test_another_job_takes_it_back(target, case, monkeypatch):
    """The one that comes next, where nobody goes on with it. What was complete, but for the job's other sinks, stays."""
    options, old, new, expected = CASES[case]
    for last in itertools.count():
        if old is not None:
            write(target, old, mode="error", partition_by=options.get("partition_by", ()))
        driver = Driver(target, options, last)
        messages, _ = driver.starts("job", new)
        try:
            driver.sink.hold()
            driver.sink.commit(messages)
            break
        except Died:
            pass
        with monkeypatch.context() as gone:
            gone.setattr(owner, "process_start", lambda pid: None)
            remove_leftovers(target, keeps=True)
        before = None if old is None else sorted(old)
        assert found(target) in (before, sorted(expected) if is_marked(target) else before), last
        assert beside(target) == ([] if found(target) is None else ["out"])
        clear(target)


def test_its_state_is_plain():
    sink = ParquetSink("/nowhere/out")
    sink._staging = None
    assert sink.state() == {"ignored": "yes"}
    assert pickle.loads(pickle.dumps(sink)).state() == sink.state()
