"""Doors of standing tasks: one of ours comes in, and nobody else does."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import replace
from multiprocessing import ProcessError
from types import SimpleNamespace

import pytest

from firesteel.spark.standing import crew
from firesteel.spark.standing.crew import TcpDoor, UnixDoor, encrypts
from firesteel.task.executor import standing


@pytest.fixture(params=["unix", "tcp"])
def door(request):
    door = UnixDoor() if request.param == "unix" else TcpDoor("127.0.0.1", "127.0.0.1")
    yield door
    door.close()


def answering(door, said):
    """Lets one in and hears it; ``said`` gets what it says, or why it was not heard."""

    def serve():
        with door.accept() as connection:
            try:
                door.check(connection)
                said.append(connection.recv())
            except (EOFError, OSError, ProcessError, ValueError) as error:
                said.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_one_of_ours_comes_in(door):
    said = []
    thread = answering(door, said)
    with door.address.connect() as connection:
        connection.send("hello")
        thread.join()
    assert said == ["hello"]


def test_nobody_listens_behind_a_closed_door(door):
    door.close()
    with pytest.raises(OSError):
        door.address.connect()


def test_a_closing_door_wakes_who_waits_behind_it(door):
    def wait():
        with suppress(OSError):  # it was closed before
            door.accept().close()

    waiting = threading.Thread(target=wait)
    waiting.start()
    door.close()
    waiting.join(60)
    assert not waiting.is_alive()


def test_a_stranger_is_not_heard():
    door, said = TcpDoor("127.0.0.1", "127.0.0.1"), []
    thread = answering(door, said)
    with pytest.raises(ConnectionRefusedError, match="is not the driver"):
        replace(door.address, secret=b"guessed").connect()
    thread.join()
    assert isinstance(said[0], ProcessError)
    thread = answering(door, said)
    with socket.create_connection((door.address.host, door.address.port)) as connection:
        connection.sendall(b"\x00\x00\x00\x05hello")
    thread.join()
    assert isinstance(said[1], (EOFError, OSError, ProcessError))
    door.close()


def test_a_stranger_who_says_nothing_is_sent_away(monkeypatch):
    monkeypatch.setattr(crew, "UNCHECKED_SECONDS", 0.05)
    door, said = TcpDoor("127.0.0.1", "127.0.0.1"), []
    thread = answering(door, said)
    with socket.create_connection((door.address.host, door.address.port)):
        thread.join(60)
        assert isinstance(said[0], OSError)
    door.close()


def test_one_of_ours_may_be_silent_afterwards(monkeypatch):
    monkeypatch.setattr(crew, "UNCHECKED_SECONDS", 0.05)
    door, said = TcpDoor("127.0.0.1", "127.0.0.1"), []
    thread = answering(door, said)
    with door.address.connect() as connection:
        thread.join(0.2)
        connection.send("hello")
        thread.join(60)
    door.close()
    assert said == ["hello"]


def test_its_secret_is_not_printed():
    door = TcpDoor("127.0.0.1", "127.0.0.1")
    door.close()
    assert "secret" not in repr(door.address)


def test_another_who_listens_at_its_port_is_not_the_driver():
    """It does not know the secret, whatever it says."""
    real = TcpDoor("127.0.0.1", "127.0.0.1")
    false = TcpDoor("127.0.0.1", "127.0.0.1")
    thread = answering(false, [])
    with pytest.raises(ConnectionRefusedError):
        replace(real.address, port=false.address.port).connect()
    thread.join()
    real.close()
    false.close()


def test_a_machine_that_does_not_answer_is_given_up(monkeypatch):
    monkeypatch.setattr(standing, "CONNECT_SECONDS", 0.05)
    with socket.socket() as full:  # of those who wait to be let in
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = standing.TcpAddress("127.0.0.1", full.getsockname()[1], b"secret")
        waiting = []
        for _ in range(3):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(full.getsockname())
            waiting.append(one)
        with pytest.raises(OSError):
            address.connect()
        for one in waiting:
            one.close()


def test_whoever_listens_and_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(standing, "CONNECT_SECONDS", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(ConnectionRefusedError):
        standing.TcpAddress("127.0.0.1", silent.getsockname()[1], b"secret").connect()


def test_ipv6_in_spark_s_brackets():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        door = TcpDoor("[::1]", "[::1]")
    except OSError:
        pytest.skip("no IPv6 here")
    said = []
    thread = answering(door, said)
    with door.address.connect() as connection:
        connection.send("hello")
        thread.join()
    door.close()
    assert said == ["hello"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("spark.network.crypto.enabled", "true", True),
        ("spark.ssl.enabled", "TRUE", True),
        ("spark.ssl.enabled", "false", False),
    ],
)
def test_where_the_session_encrypts(key, value, expected):
    assert encrypts(SimpleNamespace(_conf={key: value})) is expected
