"""The session's option for Unix sockets is on only while the first batch of an environment runs."""

from __future__ import annotations

from firesteel.spark.session.own_workers import OWN_WORKERS, UNIX_SOCKETS, UnixSockets


class Conf(dict):
    """A SparkConf's two methods."""

    def set(self, key, value):
        self[key] = value

    def remove(self, key):
        self.pop(key, None)


def test_the_option_is_what_it_was_as_soon_as_the_first_batch_has_ended():
    conf = Conf()
    own = UnixSockets(conf, {})
    with own.workers({"A": "1"}) as variables:
        assert variables == {"A": "1", **OWN_WORKERS} and conf == {UNIX_SOCKETS: "true"}
    assert not conf
    with own.workers({"A": "1"}):
        assert not conf, "its workers are there already"
    with own.workers({"A": "2"}):
        assert conf, "others are not"


def test_of_two_first_batches_the_last_one_takes_it_back():
    conf = Conf()
    own = UnixSockets(conf, {})
    with own.workers({}):
        with own.workers({"A": "1"}):
            pass
        assert conf
    assert not conf


def test_a_batch_that_failed_may_have_started_no_worker():
    conf = Conf()
    own = UnixSockets(conf, {})
    try:
        with own.workers({}):
            raise RuntimeError("no task ran")
    except RuntimeError:
        assert not conf
    with own.workers({}):
        assert conf
