"""An S3 server on loopback. Needs moto (PyPI: moto[server]) to import, or moto_server on the path."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import pyarrow.fs as pafs
import pytest

OWN = find_spec("moto") is not None
SERVER = [sys.executable, "-m", "moto.server"] if OWN else [shutil.which("moto_server")]


@contextmanager
def s3_server() -> Iterator[dict[str, str]]:
    """Variables of the environment, as users set them, for a server of its own."""
    if SERVER[0] is None:
        pytest.skip("there is no S3 server: moto is not installed (pip install 'moto[server]')")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    command = [*SERVER, "-H", "127.0.0.1", "-p", url.rpartition(":")[2]]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(f"{url}/moto-api/data.json", process)
        yield {
            "AWS_ACCESS_KEY_ID": "AKIAFIRESTEEL",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": url,
            "AWS_EC2_METADATA_DISABLED": "true",
        }
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="module")
def server():
    """Variables of the environment, as users set them, for a server of its own."""
    with s3_server() as variables:
        yield variables


@pytest.fixture
def s3(server, monkeypatch):
    """These variables, set for this process, too."""
    for name, value in server.items():
        monkeypatch.setenv(name, value)
    return server


def new_bucket():
    """Returns the name of a bucket of the test's own, and the file system that it is in."""
    name = f"b-{uuid.uuid4().hex[:12]}"
    return name, make_bucket(name)


def files_of(fs, path):
    """The paths of all that lies below."""
    infos = fs.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
    return [info.path for info in infos if info.type is pafs.FileType.File]


def make_bucket(name):
    """Returns the file system that it is in. The environment is that of the server."""
    fs, _ = pafs.FileSystem.from_uri(f"s3://{name}?allow_bucket_creation=true")
    fs.create_dir(name)
    return fs


def wait_for(url, process, seconds=600):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert process.poll() is None, "the S3 server ended at once"
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the S3 server does not answer")
