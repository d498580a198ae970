"""Who fills a cache, when it is dropped while jobs start."""

import threading
from types import SimpleNamespace

from firesteel.api.steps.caching import Cache


class Run:
    has_ended = False

    def __init__(self):
        self.released = threading.Event()

    def result(self):
        return SimpleNamespace(release=lambda dataset: self.released.set())


def test_a_cache_that_is_dropped_while_its_job_starts_is_not_filled_by_it():
    cache, compiled = Cache("step"), SimpleNamespace(collects={1: 7})
    first, second = Run(), Run()
    assert cache.claim()
    cache.drop()
    cache.started(first, compiled, 1)
    assert first.released.wait(600)
    assert cache.claim()  # another job may
    cache.started(second, compiled, 1)
    assert not cache.claim()
    assert not second.released.is_set()
