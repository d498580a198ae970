"""Why a stream failed, in its user's words, where no JVM answers any more."""

from __future__ import annotations

import socket

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from py4j.protocol import Py4JError

from firesteel.spark.streams.protocol import describe


def refused_by_the_jvm():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return JavaGateway(gateway_parameters=GatewayParameters(address="127.0.0.1", port=port)).jvm.System.nanoTime()


def test_a_jvm_that_is_gone_is_a_sentence_and_final():
    with pytest.raises(Exception, match="connect to the Java server") as gone:
        refused_by_the_jvm()
    told = describe(gone.value)
    assert (told.cause, told.final) == ("Spark's JVM has ended: it crashed or was killed.", True)


def test_a_jvm_that_dies_in_a_call():
    assert describe(Py4JError("An error occurred while calling o378.count")).final
    answered = Py4JError("An error occurred while calling o1.nothing. Trace:\npy4j.Py4JException: Method nothing")
    assert "JVM" not in describe(answered).cause


def test_a_connection_that_the_users_own_code_is_refused_is_their_error():
    with pytest.raises(ConnectionRefusedError) as refused, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        socket.create_connection(free.getsockname())
    told = describe(refused.value)
    assert told.cause.startswith("It raised ConnectionRefusedError")
    assert not told.final
