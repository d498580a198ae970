"""What must not lie about in a journal."""

from __future__ import annotations

import time

import pytest

from firesteel.masking import Masker, looks_secret, mask_text, mask_value

HOME = "/home/ada"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("postgresql://bob:hunter2@db:5432/x", "postgresql://***@db:5432/x"),
        ("https://ghp_abc@github.com/a/b", "https://***@github.com/a/b"),
        ("s3://AKIDEXAMPLE:wJalr/XUtnFEMI@bucket/a", "s3://***@bucket/a"),
        ("abfss://data@account.dfs.core.windows.net/x", "abfss://data@account.dfs.core.windows.net/x"),
        ("jdbc:oracle:thin:bob/hunter2@//db:1521/x", "jdbc:oracle:thin:***@//db:1521/x"),
        ("jdbc:postgresql://db/x?user=bob&password=hunter2&ssl=true", "jdbc:postgresql://db/x?user=bob&password=***&ssl=true"),
        ("jdbc:sqlserver://db;user=bob;password=hunter2;encrypt=true", "jdbc:sqlserver://db;user=bob;password=***;encrypt=true"),
        ("s3://b/p?access_key=AAAA&secret_key=BBBB&region=eu", "s3://b/p?access_key=***&secret_key=***&region=eu"),
        ("https://x/y?X-Amz-Signature=0af1&X-Amz-Date=2026", "https://x/y?X-Amz-Signature=***&X-Amz-Date=2026"),
        ("https://acc.blob/c?sv=2022&sig=abc%3D&se=2026", "https://acc.blob/c?sv=2022&sig=***&se=2026"),
        ("postgresql://bob:hunt@er2@db/x", "postgresql://***@db/x"),
        ("user=bob pass=hunter2 auth=hunter2", "user=bob pass=*** auth=***"),
        ('{"password": "hun\\"ter2", "n": 1}', '{"password": ***, "n": 1}'),
        ('cut off: password="hunter2 and', "cut off: password=***"),
        ("{'passwords': ['hunter2']}", "{'passwords': [***]}"),
        ("ALTER USER bob PASSWORD 'hunter2'", "ALTER USER bob PASSWORD ***"),
        ("client_key=hunter2 glpat-abcdefghij0123456789", "client_key=*** ***"),
        ("login failed: password=hunter2, user=bob", "login failed: password=***, user=bob"),
        ("{'api_key': 'k-1', 'n': 3}", "{'api_key': ***, 'n': 3}"),
        ("DB_PASSWORD: \"hunter 2\" is wrong", "DB_PASSWORD: *** is wrong"),
        ("psql --password hunter2 -h db", "psql --password *** -h db"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("key AKIAIOSFODNN7EXAMPLE is unknown", "key *** is unknown"),
        ("/home/ada/data/x.parquet and '/home/ada'", "~/data/x.parquet and '~'"),
        ("/home/adam/x", "/home/adam/x"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY----- end", "*** end"),
    ],
)  # fmt: skip
def test_what_looks_secret_goes(text, masked):
    assert mask_text(text, HOME) == masked


@pytest.mark.parametrize(
    "text",
    [
        "12 subtasks: 741 MiB over 64 MiB each, bounded by nothing; largest range 63.1 MiB, smallest 58.0",
        "wordcount.py:12: KeyError: 'word'",
        "hash by key word: 3 of 4 keys",
        "https://host/path?page=3&sort=asc",
        "basic operations took 3 s, the author agreed",
        "",
    ],
)
def test_what_does_not_stays(text):
    assert mask_text(text, HOME) == text


def test_names():
    for name in (
        "password",
        "fs.s3a.secret.key",
        "DB_PASSWORD",
        "accessToken",
        "sas_token",
        "aws.access_key",
        "apiKey",
    ):
        assert looks_secret(name), name
    for name in ("key", "keys", "keyed", "max-parallelism", "author", "bytes", "firesteel.results.codec", "monkey"):
        assert not looks_secret(name), name


def test_a_secret_that_was_seen_is_found_in_any_words():
    masker = Masker({"DB_PASSWORD": "correct horse", "PATH": "/usr/bin", "TOKEN_FILE": "/run/token"})
    planned = masker.value(
        {"options": {"url": "s3://me:sesame%2Bopen@b/x", "note": "fine"}, "keys": ["a"], "n": [1, 2]}
    )
    assert planned == {"options": {"url": "s3://***@b/x", "note": "fine"}, "keys": ["a"], "n": [1, 2]}
    assert (
        masker.text("it said sesame+open, then sesame%2Bopen, then correct horse") == "it said ***, then ***, then ***"
    )
    assert masker.value({"jdbc": {"password": "hunter2"}}) == {"jdbc": {"password": "***"}}
    assert masker.text("no such login (hunter2)") == "no such login (***)"
    assert masker.text("/usr/bin and /run/token stay") == "/usr/bin and /run/token stay"


def test_names_of_fields_stay_whatever_somebodys_password_is():
    masker = Masker({"DB_PASSWORD": "parallelism"}, home="")
    assert masker.value({"parallelism": 3, "note": "parallelism 3", "x/parallelism": 1}) == {
        "parallelism": 3,
        "note": "*** 3",
        "x/***": 1,
    }


def test_values_under_a_name():
    assert mask_value("x.password", "hunter2") == "***"
    assert mask_value("x.password", "") == ""
    assert mask_value("max-parallelism", 3) == 3


@pytest.mark.parametrize(
    "piece", ["a.", "a-", "a+", "--a", "-", "password", "&a.", "jdbc:oracle:", "password='", "x://"]
)
def test_a_long_text_takes_time_in_proportion_to_its_length(piece):
    text = f"{piece * 5_000}=:// @"
    began = time.process_time()
    mask_text(text, HOME)
    assert time.process_time() - began < 1  # squared, it were many seconds
