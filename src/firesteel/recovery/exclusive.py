"""Objects that are put only where there is none: the one step of an object store that two drivers cannot both take.

pyarrow has no such put. On S3, and what speaks like it, ``boto3`` has (``If-None-Match: *``).
"""

from __future__ import annotations

import os
import threading
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from firesteel.errors import UsageError
from firesteel.extras import command

_THERE_ALREADY = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")


class ExclusivePut(Protocol):
    """``path``: as pyarrow names it, beginning with the bucket."""

    def create(self, path: str, data: bytes) -> bool:
        """False: there is an object already. Raises OSError."""
        ...


def refusal(url: str) -> str:
    """Why no log of jobs can lie there, in words; empty: it can."""
    scheme = url.partition("://")[0]
    if scheme != "s3":
        return f"on {scheme}:// it cannot be told which of two drivers was first"
    return "" if find_spec("boto3") else "boto3 is not installed, which tells on S3 which of two drivers was first"


@cache
def exclusive_put(url: str) -> ExclusivePut:
    """For the objects below ``url``, a place as ``pyarrow.fs`` takes it. Raises UsageError where there is no such put."""
    why = refusal(url)
    if why:
        hint = f"It can lie in a directory of a file system, or on S3 ({command('s3')})."
        raise UsageError(f"A log of jobs cannot lie at {url.rpartition('@')[2]}: {why}.", hint=hint)
    return _S3Put(url)


class _S3Put:
    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._made: Any = None

    def create(self, path: str, data: bytes) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        bucket, _, key = path.partition("/")
        try:
            self._client.put_object(Bucket=bucket, Key=key, Body=data, IfNoneMatch="*")
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in _THERE_ALREADY:
                return False
            raise OSError(str(error)) from error
        except BotoCoreError as error:
            raise OSError(str(error)) from error
        return True

    @property
    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = _client_of(self._url)
            return self._made


def _client_of(url: str) -> Any:
    """With the key, the endpoint and the region that the URL has, as pyarrow takes them from it; all else boto3 finds as other programs do."""
    import boto3

    parts = urlsplit(url)
    how = dict(parse_qsl(parts.query))
    given: dict[str, Any] = {}
    if parts.username and parts.password:
        given |= {"aws_access_key_id": unquote(parts.username), "aws_secret_access_key": unquote(parts.password)}
    if "endpoint_override" in how:
        endpoint = how["endpoint_override"]
        given["endpoint_url"] = endpoint if "://" in endpoint else f"{how.get('scheme', 'https')}://{endpoint}"
    region = how.get("region") or os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION")
    if region:  # boto3 itself does not look at the last one
        given["region_name"] = region
    return boto3.client("s3", **given)
