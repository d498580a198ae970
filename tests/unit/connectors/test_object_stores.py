"""What object stores say, as sentences. The texts are what the clients in pyarrow really said."""

from __future__ import annotations

import pytest

from firesteel.connectors.files.paths import refusal

DENIED = (
    "When getting information for key 'x' in bucket 'b': AWS Error ACCESS_DENIED during HeadObject operation: "
    "No response body."
)
UNREACHED = (
    "When getting information for key 'x' in bucket 'b': AWS Error NETWORK_CONNECTION during HeadObject operation: "
    "curlCode: 7, Could not connect to server"
)
GOOGLE = (
    "google::cloud::Status(UNAVAILABLE: Retry policy exhausted, with a last message of Could not create a OAuth2 access "
    "token to authenticate the request."
)
AZURE = (
    "Unknown error: Check for Hierarchical Namespace support on 'https://a.blob.core.windows.net/c' failed: "
    "AuthenticationExceptionE: Failed to get token from DefaultAzureCredential."
)


@pytest.mark.parametrize(
    ("label", "said", "sentence", "hint"),
    [
        ("s3://b/x", DENIED, "refuses these credentials", "AWS_ACCESS_KEY_ID"),
        ("s3://b/x", UNREACHED, "cannot be reached", "AWS_ENDPOINT_URL"),
        ("s3://b/x", "Bucket 'b' not found. To create buckets, enable", "no bucket 'b'", "make it first"),
        ("s3://b/x", "AWS Error UNKNOWN (HTTP status 301) during HeadBucket", "another region", "AWS_REGION"),
        ("gs://b/x", GOOGLE, "no credentials", "GOOGLE_APPLICATION_CREDENTIALS"),
        ("abfss://b/x", AZURE, "no credentials", "az login"),
    ],
)
def test_a_refusal_is_a_sentence_with_what_to_set(label, said, sentence, hint):
    wrong, todo = refusal(label, OSError(said))
    assert sentence in wrong
    assert hint in todo


def test_other_errors_and_other_places_are_left_alone():
    assert refusal("s3://b/x", OSError("the disk is on fire")) is None
    assert refusal("/data/x", OSError(DENIED)) is None
    assert refusal("hdfs://host/x", OSError("Connection refused")) is None
