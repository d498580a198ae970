"""Errors of object stores as sentences, with the settings that users usually lack.

Clients give long texts, often without an error number, that end in the details of a request. The patterns are those of the
AWS, Google Cloud and Azure clients that pyarrow has, and of HTTP.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from firesteel.errors import UsageError

_WHERE = "the driver and every executor need them"
_CREDENTIALS = {
    "s3": (
        "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machines a role "
        f"({_WHERE}); s3://anonymous@bucket/... reads what is public."
    ),
    "gs": (
        "Set GOOGLE_APPLICATION_CREDENTIALS to a key file, or run 'gcloud auth application-default login' "
        f"({_WHERE}); gs://anonymous@bucket/... reads what is public."
    ),
    "abfs": f"Set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run 'az login' ({_WHERE}).",
}
_ENDPOINT = {
    "s3": (
        "Set AWS_REGION, and for a store that is not Amazon's AWS_ENDPOINT_URL, or write them into the URL: "
        "s3://bucket/path?region=...&endpoint_override=host:port&scheme=http."
    ),
    "gs": "For a store that is not Google's write gs://bucket/path?endpoint_override=host:port&scheme=http.",
    "abfs": "Is the account's name in the URL right? It is abfs://container@account.dfs.core.windows.net/path.",
}
_REFUSED = re.compile(
    r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY_ID|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch|"
    r"INVALID_CLIENT_TOKEN_ID|EXPIRED_TOKEN|ExpiredToken|UNRECOGNIZED_CLIENT|HTTP status 40[13]|PERMISSION_DENIED|"
    r"UNAUTHENTICATED|AuthorizationFailure|AuthenticationFailed"
)
_NO_TOKEN = re.compile(r"OAuth2 access token|Failed to get token|AuthenticationException|DefaultAzureCredential")
_UNREACHED = re.compile(
    r"NETWORK_CONNECTION|[Cc]ould(?: not|n't) (?:connect|resolve)|ENDPOINT_RESOLUTION_FAILURE|[Cc]onnection refused|UNAVAILABLE"
)
_ELSEWHERE = re.compile(r"PERMANENT_REDIRECT|HTTP status 301|wrong region|AuthorizationHeaderMalformed")
_NO_BUCKET = re.compile(r"Bucket '([^']+)' not found|NoSuchBucket|NO_SUCH_BUCKET|ContainerNotFound")
_SCHEMES = {"s3": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfs"}


def refusal(label: str, error: BaseException) -> tuple[str, str] | None:
    """The meaning of ``error``, from the store of ``label`` (a URL), as (what is wrong with it, hint); None where it is not known."""
    scheme = _SCHEMES.get(label.partition("://")[0])
    if scheme is None:
        return None
    bucket, text = bucket_of(label), str(error)
    meanings = (  # the first that is found is meant: a client that found no credentials says that nothing is available, too
        (_NO_BUCKET, f"there is no bucket '{bucket}'", "Check its name, or make it first."),
        (_NO_TOKEN, "no credentials were found", _CREDENTIALS[scheme]),
        (_REFUSED, "the store refuses these credentials, or there are none", _CREDENTIALS[scheme]),
        (_ELSEWHERE, f"the bucket '{bucket}' lies in another region", _ENDPOINT[scheme]),
        (_UNREACHED, "the store cannot be reached", _ENDPOINT[scheme]),
    )
    return next(((wrong, hint) for pattern, wrong, hint in meanings if pattern.search(text)), None)


def why(label: str, error: BaseException, hint: str) -> tuple[str, str]:
    """As :func:`refusal`; else the first line of what was said, with ``hint``."""
    return refusal(label, error) or (first_line(error), hint)


def first_line(error: BaseException) -> str:
    """The first line of an error's text, without a full stop: Arrow's messages go on with stacks and details."""
    text = str(error).strip()
    return (text.splitlines()[0].rstrip(". ") if text else "") or type(error).__name__


def bucket_of(label: str) -> str:
    return label.partition("://")[2].partition("/")[0]


def require_bucket(filesystem: Any, label: str) -> None:
    """Raises UsageError when the store says that there is no bucket as in ``label``; one that nobody may look at passes."""
    if _SCHEMES.get(label.partition("://")[0]) is None:
        return
    bucket = bucket_of(label)
    try:
        kind = filesystem.get_file_info(bucket).type
    except (OSError, pa.ArrowException):
        return
    if kind is pafs.FileType.NotFound:
        raise UsageError(
            f"{label} cannot be written: there is no bucket '{bucket}'.", hint="Check its name, or make it first."
        )
