"""Lines: messages both ways over one thread, whatever the other ends do."""

from __future__ import annotations

import math
import queue
import socket
import time
from multiprocessing.connection import Connection

import pytest

from firesteel.spark.standing.lines import Lines

LONG = 60.0


class Ends:
    """Lines with what was heard on them, and their other ends. Each line is known by its number."""

    def __init__(self):
        self.happened = queue.SimpleQueue()
        self.due_at = math.inf
        self.lines = Lines("lines", self.due)
        self.made = []
        self.others = []

    def due(self):
        self.happened.put(("due", time.monotonic() >= self.due_at))

    def add(self):
        """Returns the line and its other end."""
        ours, theirs = socket.socketpair()
        number = len(self.made)
        other = Connection(theirs.detach())
        line = self.lines.add(
            Connection(ours.detach()),
            lambda line, message: self.happened.put((number, message)),
            lambda line: self.happened.put((number, "ended")),
        )
        self.made.append(line)
        self.others.append(other)
        return line, other

    def next(self):
        return self.happened.get(timeout=LONG)


@pytest.fixture
def ends():
    made = Ends()
    yield made
    for line in made.made:
        line.close()
    made.lines.close()
    made.lines._thread.join(LONG)
    assert not made.lines._thread.is_alive()
    for other in made.others:
        other.close()


def test_messages_go_both_ways_on_many_lines(ends):
    pairs = [ends.add() for _ in range(20)]
    for number, (line, _) in enumerate(pairs):
        line.send(b"order %d" % number)
    for number, (_, other) in enumerate(pairs):
        assert other.recv_bytes() == b"order %d" % number
        other.send_bytes(b"answer %d" % number)
    assert {ends.next() for _ in pairs} == {(number, b"answer %d" % number) for number in range(20)}


def test_messages_that_come_together_or_in_pieces_are_told_apart(ends):
    _, other = ends.add()
    with socket.socket(fileno=socket.dup(other.fileno())) as raw:
        raw.sendall(b"\0\0\0\3one\0\0\0\0\0\0\0\5th")
        assert [ends.next(), ends.next()] == [(0, b"one"), (0, b"")]
        raw.sendall(b"ree")
        assert ends.next() == (0, b"three")


def test_who_does_not_read_gets_all_of_it_later_and_holds_nobody_up(ends):
    slow, slow_end = ends.add()
    quick, quick_end = ends.add()
    large = bytes(range(256)) * 4096
    messages = [b"first", *(large + bytes((number,)) for number in range(8)), b"last"]
    for message in messages:
        slow.send(message)
    quick.send(b"now")
    assert quick_end.recv_bytes() == b"now"
    quick_end.send_bytes(b"done")
    assert ends.next() == (1, b"done")
    assert [slow_end.recv_bytes() for _ in messages] == messages
    slow.send(b"after")
    assert slow_end.recv_bytes() == b"after"


def test_an_end_that_goes_is_told_once_after_what_it_said(ends):
    line, other = ends.add()
    other.send_bytes(b"bye")
    other.close()
    assert [ends.next(), ends.next()] == [(0, b"bye"), (0, "ended")]
    line.send(b"nobody hears this")
    line.close()
    _, second = ends.add()
    second.send_bytes(b"here")
    assert ends.next() == (1, b"here"), "nothing more was told of the first one"


def test_of_a_line_that_was_closed_nothing_is_told(ends):
    line, other = ends.add()
    line.close()
    with pytest.raises(EOFError):
        other.recv_bytes()
    _, second = ends.add()
    second.send_bytes(b"here")
    assert ends.next() == (1, b"here")


def test_who_cannot_be_understood_is_sent_away_alone(ends, caplog):
    ours, theirs = socket.socketpair()

    def heard(line, message):
        raise ValueError(message)

    ends.lines.add(Connection(ours.detach()), heard, lambda line: ends.happened.put("gone"))
    _, other = ends.add()
    with theirs:
        theirs.sendall(b"\0\0\0\1x")
        assert ends.next() == "gone" and theirs.recv(1) == b""
    other.send_bytes(b"here")
    assert ends.next() == (0, b"here") and "cannot be understood" in caplog.text


def test_the_first_of_several_times_is_kept(ends):
    now = time.monotonic()
    ends.lines.call_at(now + 1000)
    ends.due_at = now + 0.01
    ends.lines.call_at(ends.due_at)
    ends.lines.call_at(now + 500)
    assert ends.next() == ("due", True)


def test_a_line_that_is_closed_when_its_time_has_come_ends_at_once(ends):
    line, other = ends.add()
    ends.lines._due = line.close
    ends.lines.call_at(time.monotonic() + 0.01)
    with pytest.raises(EOFError):
        other.recv_bytes()
