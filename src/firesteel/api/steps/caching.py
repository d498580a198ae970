"""``cache()``: rows that the first job which needs them keeps on storage, and later jobs of the session read.

A cache belongs to a step. It is filled by the first job that has to compute the step and finishes; jobs that are started
meanwhile compute it for themselves. The rows lie where that job's results lay, in objects of its own, until
``uncache()``, the end of the environment or of the process, or until nobody holds the stream any more. What a process
that died leaves behind goes as its jobs' results do. Objects that were lost are noticed before the next job begins, by
listing them, or when a subtask cannot read them: the rows are then computed again, with a warning.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from firesteel.api.steps.pipeline import Pipeline
from firesteel.compile.caching import Kept, with_caches
from firesteel.compile.compiled import CompiledJob
from firesteel.compile.stream_graph import StreamNode
from firesteel.connectors.stored import StoredRows, StoredSource
from firesteel.errors import FiresteelError, PartitionException, UsageError
from firesteel.users_line import caller_level

if TYPE_CHECKING:
    from firesteel.spark.driver.outcome import JobOutcome
    from firesteel.spark.driver.runtime import SubmittedJob


@dataclass(frozen=True, slots=True)
class _Filled:
    """``outcome`` is held: the rows stay with it."""

    outcome: JobOutcome
    rows: StoredRows
    source: StoredSource

    def release(self) -> None:
        self.outcome.release(self.rows.dataset)


@dataclass(frozen=True, slots=True)
class _Filling:
    run: SubmittedJob
    compiled: CompiledJob
    handle: int


class Cache:
    """The rows of one step. All methods may be called by several threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._filled: _Filled | None = None
        self._filling: _Filling | None = None
        self._claimed = False
        """A job that will fill it is being started or runs."""
        self._readers: weakref.WeakSet[SubmittedJob] = weakref.WeakSet()

    @property
    def is_filled(self) -> bool:
        with self._lock:
            self._settle()
            return self._filled is not None

    def source(self) -> StoredSource | None:
        """Of its rows; None if there are none yet, or no more (which is warned about)."""
        with self._lock:
            self._settle()
            filled = self._filled
        if filled is None:
            return None
        missing = filled.rows.missing()
        if missing:
            self.lost(f"{missing} of {len(filled.rows.attempts)} objects are missing in {filled.rows.store.url}")
            return None
        return filled.source

    def claim(self) -> bool:
        """True if the job that is about to start should fill it: no job has filled it, or is about to."""
        with self._lock:
            self._settle()
            mine = self._filled is None and not self._claimed
            self._claimed = self._claimed or mine
            return mine

    def started(self, run: SubmittedJob, compiled: CompiledJob, handle: int) -> None:
        """The job that claimed it runs. What it keeps goes when it ends, if it was dropped between."""
        filling = _Filling(run, compiled, handle)
        with self._lock:
            wanted = self._claimed and self._filling is None
            if wanted:
                self._filling = filling
        if not wanted:
            threading.Thread(target=_release_unused, args=(filling,), daemon=True).start()

    def not_started(self) -> None:
        with self._lock:
            self._claimed = False

    def read_by(self, run: SubmittedJob) -> None:
        self._readers.add(run)

    def lost(self, why: str) -> None:
        """Forgets rows that cannot be read any more."""
        warnings.warn(
            f"The cached rows of {self._name} cannot be read any more ({why}). They are computed again.",
            UserWarning,
            stacklevel=caller_level(),
        )
        self.drop()

    def drop(self) -> None:
        """Removes the rows: at once, or when the jobs that fill or read it have ended. It can be filled again."""
        with self._lock:
            self._settle()
            filled, self._filled = self._filled, None
            filling, self._filling = self._filling, None
            self._claimed = False
            readers = [run for run in self._readers if not run.has_ended]
        if filled is not None and not readers:
            filled.release()
        elif filled is not None:
            threading.Thread(target=_release_behind, args=(filled, readers), daemon=True).start()
        if filling is not None:
            threading.Thread(target=_release_unused, args=(filling,), daemon=True).start()

    def settle(self) -> None:
        """Looks whether the job that fills it has ended."""
        with self._lock:
            self._settle()

    def _settle(self) -> None:
        filling = self._filling
        if filling is None or not filling.run.has_ended:
            return
        self._filling, self._claimed = None, False
        outcome = filling.run.result()
        dataset = filling.compiled.collects[filling.handle]
        gate = outcome.persistent.get(dataset)
        if gate is None:  # it failed
            return
        schema = filling.compiled.schemas[dataset]
        rows = StoredRows(outcome.store, dataset, gate.num_subpartitions, gate.attempts, gate.tokens, schema)
        try:
            source = StoredSource.of(rows, self._name, rows.sizes())
        except PartitionException:  # gone already: it is filled another time
            outcome.release(dataset)
            return
        self._filled = _Filled(outcome, rows, source)


def _release_behind(filled: _Filled, readers: Sequence[SubmittedJob]) -> None:
    for run in readers:
        run.result()
    filled.release()


def _release_unused(filling: _Filling) -> None:
    filling.run.result().release(filling.compiled.collects[filling.handle])


@dataclass
class CacheUse:
    """The caches of one job: which it reads, which it fills."""

    ends: list[StreamNode]
    reads: list[tuple[Cache, StoredSource]] = field(default_factory=list)
    fills: dict[int, Cache] = field(default_factory=dict)

    @classmethod
    def of(cls, ends: Sequence[StreamNode], *, claim: bool) -> CacheUse:
        """``claim``: the job is about to be started; else it is only looked at. Raises StorageError."""
        use = cls(list(ends))

        def source_of(node: StreamNode) -> StoredSource | None:
            cache: Cache = node.config.cache
            source = cache.source()
            if source is not None:
                use.reads.append((cache, source))
            return source

        def fill(node: StreamNode) -> bool:
            cache: Cache = node.config.cache
            if claim and not cache.claim():
                return False
            if claim:
                claimed.append(cache)
            return True

        claimed: list[Cache] = []
        try:
            kept: Kept = with_caches(ends, source_of, fill)
        except BaseException:
            for cache in claimed:
                cache.not_started()
            raise
        use.ends, use.fills = kept.ends, kept.fills
        return use

    def started(self, run: SubmittedJob, compiled: CompiledJob) -> None:
        for cache, _ in self.reads:
            cache.read_by(run)
        for handle, cache in self.fills.items():
            cache.started(run, compiled, handle)

    def not_started(self) -> None:
        for cache in self.fills.values():
            cache.not_started()

    def settle(self) -> None:
        """The job has ended."""
        for cache in self.fills.values():
            cache.settle()

    def lost_by(self, error: FiresteelError) -> bool:
        """True if the job failed because cached rows were lost; they are forgotten then, so a second call returns False."""
        gone = [(cache, source) for cache, source in self.reads if f"{source.store.url} " in error.message]
        for read in gone:
            self.reads.remove(read)
            read[0].lost("a subtask met a missing or damaged object")
        return bool(gone)


def keep(pipeline: Pipeline) -> None:
    """Marks the last step: its rows are kept when a job first computes them."""
    pipeline.refuse_sides("cache")
    config = pipeline.node.config
    if config.cache is None:
        config.cache = Cache(str(pipeline.node))
        pipeline.env._remember(config.cache)  # pyright: ignore[reportPrivateUsage]


def keep_at(pipeline: Pipeline, level: Sequence[Any]) -> None:
    """PySpark's ``persist``. Raises UsageError for a storage level."""
    if level:
        raise UsageError(
            f"persist() takes no storage level ({level[0]}): rows are kept on storage.", hint="Write cache()."
        )
    keep(pipeline)


def remove(pipeline: Pipeline) -> None:
    cache: Cache | None = pipeline.node.config.cache
    pipeline.node.config.cache = None
    if cache is not None:
        cache.drop()


def is_kept(pipeline: Pipeline) -> bool:
    """True once a job has computed the rows of the last step and they are kept."""
    cache: Cache | None = pipeline.node.config.cache
    return cache is not None and cache.is_filled
