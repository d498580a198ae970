import pytest

from firesteel.humanize import format_bytes, format_count, format_seconds, plural, printable


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.50 KiB"),
        (1024**2 - 1, "1.00 MiB"),
        (round(63.1 * 2**20), "63.1 MiB"),
        (round(58.03 * 2**20), "58.0 MiB"),
        (741 * 2**20 + 5, "741 MiB"),
        (round(9.996 * 2**30), "10.0 GiB"),
        (2**63, "8 EiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_bytes(count, text):
    assert format_bytes(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.0123, "12.3 ms"),
        (0.9996, "1 s"),
        (3.44, "3.4 s"),
        (45.0, "45 s"),
        (75, "1 min 15 s"),
        (59.96, "1 min"),
        (3720, "1 h 2 min"),
        (7200, "2 h"),
    ],
)
def test_seconds(seconds, text):
    assert format_seconds(seconds) == text


def test_counts():
    assert format_count(1234567) == "1,234,567"
    assert (plural(1, "subtask"), plural(12, "subtask"), plural(0, "split")) == ("1 subtask", "12 subtasks", "0 splits")


def test_what_would_steer_a_terminal_is_escaped():
    assert printable("a\x1b[31mred\x07\u202eb\x9b2J\r\n\tc") == "a\\x1b[31mred\\x07\\u202eb\\x9b2J\\r\n\tc"
    assert printable("größe 日本") == "größe 日本"
