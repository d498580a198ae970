"""Fixtures for all tests. The Spark session is made once, and only if a test asks for it."""

from __future__ import annotations

import gc
import signal

import pytest
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)  # a busy machine is no failure
settings.load_profile("no deadline")
if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # as a shell starts what runs behind it; programs would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
    """Thousands of collected tests are no garbage; looking through them again and again took a tenth of the time."""
    gc.freeze()


@pytest.fixture(scope="session")
def spark():
    """An embedded Spark on two slots, as Firesteel makes it."""
    from firesteel.spark.session import create_session

    session = create_session("local[2]", app_name="firesteel tests")
    yield session
    session.stop()
