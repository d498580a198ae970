"""URLs of object stores that say how the store is reached: for results and for the log of jobs; and stores that do not answer."""

from __future__ import annotations

import errno
import socket
from types import SimpleNamespace

import pyarrow.fs as pafs
import pytest

from firesteel.errors import UsageError
from firesteel.options import Options
from firesteel.recovery.exclusive import _client_of, exclusive_put
from firesteel.recovery.objects import ObjectPath
from firesteel.recovery.takeover import find_job
from firesteel.results.storage import filesystem
from firesteel.results.storage.filesystem import inside, open_location
from firesteel.results.storage.store import StorageError, storage_error
from firesteel.spark.driver import runtime
from firesteel.spark.recovery import resuming
from firesteel.spark.recovery.header import NO_PRINTS
from firesteel.spark.storage import directories
from firesteel.spark.storage.directories import JobStorage, open_root, reached_root
from s3_server import new_bucket, s3_server


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3://b/r", "s3://b/r/x"),
        ("s3://b/r/", "s3://b/r/x"),
        ("s3://k:s@b/r?scheme=http&endpoint_override=h:1", "s3://k:s@b/r/x?scheme=http&endpoint_override=h:1"),
        ("/a/what?/r", "/a/what?/r/x"),
    ],
)
def test_places_inside_a_place(url, found):
    assert inside(url, "x") == found


@pytest.mark.parametrize(
    ("query", "endpoint", "region"),
    [
        ("endpoint_override=127.0.0.1:9&scheme=http&region=eu-west-1", "http://127.0.0.1:9", "eu-west-1"),
        ("endpoint_override=127.0.0.1:9", "https://127.0.0.1:9", "us-west-2"),
        ("endpoint_override=http://127.0.0.1:9", "http://127.0.0.1:9", "us-west-2"),
    ],
)
def test_the_log_is_put_where_the_results_are(monkeypatch, query, endpoint, region):
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    made = _client_of(f"s3://key:secret@bucket/r?{query}")
    assert (made.meta.endpoint_url, made.meta.region_name) == (endpoint, region)


@pytest.mark.parametrize(
    ("query", "verify"),
    [
        ("tls_ca_file_path=/etc/own.pem", "/etc/own.pem"),
        ("tls_ca_file_path=/etc/own.pem&tls_verify_certificates=false", False),
        ("tls_verify_certificates=0", False),
        ("tls_verify_certificates=true", None),
        ("", None),
    ],
)
def test_the_log_is_put_with_the_certificates_of_the_url(monkeypatch, query, verify):
    given = {}
    monkeypatch.setattr("boto3.client", lambda service, **options: given.update(options))
    _client_of(f"s3://key:secret@bucket/r?endpoint_override=h:1&{query}")
    assert given.get("verify") == verify


def test_a_host_that_boto3_takes_for_no_host_is_an_error_of_the_store():
    """pyarrow takes it, and containers have such names."""
    put = exclusive_put("s3://key:secret@bucket/r?endpoint_override=minio_1:9000&scheme=http")
    for ask in (lambda: put.tag("bucket/r/x"), lambda: put.create("bucket/r/x", b""), lambda: put.tag("bucket/r/x")):
        with pytest.raises(OSError, match="boto3 does not reach the store: Invalid endpoint: http://minio_1:9000"):
            ask()


class Empty:
    """A store that has these buckets, and nothing in them."""

    def __init__(self, *buckets):
        self.buckets, self.asked = buckets, []

    def get_file_info(self, path):
        self.asked.append(path)
        return pafs.FileInfo(path, pafs.FileType.Directory if path in self.buckets else pafs.FileType.NotFound)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("s3://k:s@b/users/jane@corp.com/r?scheme=http", "b/users/jane@corp.com/r"),
        ("gs://b/users/jane@corp.com/r", "b/users/jane@corp.com/r"),
        ("abfs://b@account.dfs.core.windows.net/jane@corp.com/r", "b/jane@corp.com/r"),
        ("abfs://account.blob.core.windows.net/b/r", "b/r"),
    ],
)
def test_the_bucket_of_a_place_is_where_pyarrow_finds_it(monkeypatch, url, path):
    monkeypatch.setattr(directories, "_reached", set())
    with pytest.raises(UsageError, match="there is no bucket 'b'"):
        directories.require_store(Empty("corp.com", "account"), path, url)
    there = Empty("b")
    directories.require_store(there, path, url)
    assert there.asked == [path, "b"]


@pytest.mark.parametrize(
    ("error", "said", "times"),
    [
        ("HTTP status 500", "HTTP status 500", 4),
        ("AccessDenied", "the store refuses these credentials", 1),
        ("Connection refused", "the store cannot be reached", 1),
    ],
)
def test_what_may_pass_is_asked_again_before_the_place_is_refused(monkeypatch, error, said, times):
    monkeypatch.setattr(directories, "_reached", set())
    monkeypatch.setattr(filesystem, "rest", lambda pause: None)

    class Failing(Empty):
        def get_file_info(self, path):
            self.asked.append(path)
            if len(self.asked) <= fails:
                raise OSError(error)
            return pafs.FileInfo(path, pafs.FileType.Directory)

    fails, store = 100, Failing()
    with pytest.raises(UsageError, match=f"cannot lie at s3://b/r: {said}"):
        directories.require_store(store, "b/r", "s3://b/r")
    assert store.asked == ["b/r"] * times
    if times > 1:
        fails, store = 1, Failing()
        directories.require_store(store, "b/r", "s3://b/r")


def test_no_error_shows_the_keys_that_a_place_has_in_it(tmp_path):
    url = "s3://AKIAFIRESTEEL:hush@b/r"
    nothing = ObjectPath(pafs.LocalFileSystem(), str(tmp_path), url, None)
    with pytest.raises(UsageError) as of_job:
        find_job(nothing, "j")
    with pytest.raises(UsageError) as of_root:
        open_root(f"{url}?no-such-setting=1")
    with pytest.raises(UsageError) as of_place:
        open_location(f"{url}?no-such-setting=1")
    not_marked = JobStorage("s3://AKIAFIRESTEEL:hush@b/r?region=us-east-1", "j", "")._not_marked(OSError("no"))
    errors = [
        of_job.value,
        of_root.value,
        of_place.value,
        not_marked,
        storage_error(OSError("no"), url, "cannot be read"),
    ]
    said = [f"{error} {error.hint}" for error in errors]
    assert not any("hush" in text or "AKIA" in text for text in said)
    assert all("s3://***@b/r" in text for text in said)


@pytest.mark.parametrize(
    ("url", "bucket"),
    [
        ("s3://k:s@b/users/jane@corp.com/r?endpoint_override=h:1", "b"),
        ("s3://b/users/jane@corp.com/r", "b"),
        ("abfs://b:key@account.dfs.core.windows.net/jane@corp.com/r", "b"),
    ],
)
def test_errors_of_a_place_name_its_bucket(url, bucket):
    with (
        pytest.raises(StorageError, match=f"cannot be read: there is no bucket '{bucket}'"),
        directories.told_of(url),
    ):
        raise OSError("NoSuchBucket")


@pytest.mark.parametrize("root", ["/results", "file:///results"])
def test_errors_of_a_file_system_stay_as_they_are(root):
    with pytest.raises(OSError, match=r"^NoSuchBucket$"), directories.told_of(root):
        raise OSError("NoSuchBucket")


@pytest.fixture
def resumed(monkeypatch):
    """Looks for the job to go on with, where it is found out what the job does, and where the store does not answer, in the given ways."""

    def ask(prints_of):
        class Silent:
            def get_file_info(self, what):
                raise PermissionError(errno.EACCES, "AccessDenied")

        silent = ObjectPath(Silent(), "b/r", "s3://b/r", None)
        monkeypatch.setattr(resuming, "prints_of", prints_of)
        monkeypatch.setattr(resuming, "kept_folder", lambda root: silent)
        monkeypatch.setattr(runtime, "check_session", lambda session: None)
        monkeypatch.setattr(runtime, "is_local", lambda context: True)
        options = Options({"firesteel.storage.directory": "s3://b/r", "firesteel.recovery.mode": "on-request"})
        runtime.launch(None, SimpleNamespace(sparkContext=None), options, True)

    return ask


def test_errors_of_other_places_are_not_told_as_those_of_the_results(resumed):
    def gone(compiled, options):
        raise FileNotFoundError(errno.ENOENT, "No such file", "job.py")

    with pytest.raises(FileNotFoundError, match=r"job\.py"):
        resumed(gone)
    with pytest.raises(StorageError, match=r"intermediate results at s3://b/r cannot be read: the store refuses"):
        resumed(lambda compiled, options: NO_PRINTS)


@pytest.mark.full
def test_a_store_that_does_not_answer_and_one_without_the_bucket(monkeypatch):
    with s3_server() as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        reached_root(f"s3://{new_bucket()[0]}/r")
        with pytest.raises(
            UsageError, match=r"cannot lie at s3://no-such-bucket/r: there is no bucket 'no-such-bucket'"
        ):
            reached_root("s3://no-such-bucket/r")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(UsageError, match=r"the store cannot be reached. Set AWS_REGION"):
            reached_root("s3://some-bucket/r")
