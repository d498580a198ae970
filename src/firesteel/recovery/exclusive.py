"""Objects that are put only where there is none, or still the one that was looked at: the steps of an object store that two drivers cannot both take.

pyarrow has no such put. On S3, and what speaks like it, ``boto3`` has (``If-None-Match: *``, ``If-Match``).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection
from functools import cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from firesteel.errors import UsageError
from firesteel.extras import command
from firesteel.masking import mask_text

_REFUSED = ("PreconditionFailed", "ConditionalRequestConflict", "412", "409")
_GONE = ("NoSuchKey", "NotFound", "404")


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
        raise UsageError(f"A log of jobs cannot lie at {mask_text(url)}: {why}.", hint=hint)
    return ExclusivePut(url)


class ExclusivePut:
    """On S3. ``path``: as pyarrow names it, beginning with the bucket."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._made: Any = None

    def create(self, path: str, data: bytes) -> bool:
        """False: there is an object already. Raises OSError."""
        return self._asked("put_object", path, _REFUSED, Body=data, IfNoneMatch="*") is not None

    def tag(self, path: str) -> str:
        """Of the object's content as it is now; empty: there is none. Raises OSError."""
        found = self._asked("head_object", path, _GONE)
        return "" if found is None else found["ETag"]

    def replace(self, path: str, data: bytes, tag: str) -> bool:
        """False: the object has another tag by now, or is gone; or a try that seemed to fail has put ``data``; or the store refuses for a reason of
        its own. Raises OSError."""
        try:
            return self._asked("put_object", path, (*_REFUSED, *_GONE), Body=data, IfMatch=tag) is not None
        except OSError as error:
            if "NotImplemented" not in str(error):
                raise
            self._asked("put_object", path, (), Body=data)  # this store knows the other condition alone
            return True

    def _asked(self, what: str, path: str, refused: Collection[str], **given: Any) -> Any:
        """None: refused by one of these codes. Raises OSError."""
        from botocore.exceptions import BotoCoreError, ClientError

        bucket, _, key = path.partition("/")
        try:
            return getattr(self._client, what)(Bucket=bucket, Key=key, **given)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in refused:
                return None
            raise OSError(str(error)) from error
        except (BotoCoreError, ValueError) as error:
            raise OSError(str(error)) from error

    @property
    def _client(self) -> Any:
        """Raises OSError, also for a URL that boto3 cannot make a client of though pyarrow can."""
        with self._lock:
            if self._made is None:
                try:
                    self._made = _client_of(self._url)
                except Exception as error:  # a ValueError, for example
                    raise OSError(f"boto3 does not reach the store: {error}") from error
            return self._made


def _client_of(url: str) -> Any:
    """With the key, the endpoint, the region and the certificates that the URL has, as pyarrow takes them from it; all else boto3 finds as other programs do."""
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
    if how.get("tls_verify_certificates", "").lower() in ("false", "0"):
        given["verify"] = False
    elif "tls_ca_file_path" in how:
        given["verify"] = how["tls_ca_file_path"]
    return boto3.client("s3", **given)
