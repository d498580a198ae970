"""A log is read to its last whole group, wherever writing was cut off; damage before that is an error."""

from __future__ import annotations

import pytest

from firesteel.recovery.frames import MAGIC, DamagedLogError, frame, read
from firesteel.scheduler.recovery.records import Alive, encode_records


def entry(k):
    return encode_records([Alive(float(k)), Alive(k + 0.5)])


GROUPS = ([0], [1, 2], [3])
DATA = MAGIC + b"".join(frame([entry(k) for k in group]) for group in GROUPS)
ENDS = [len(MAGIC + b"".join(frame([entry(k) for k in group]) for group in GROUPS[:n])) for n in range(4)]


def told(log):
    return [records[0].at for records in log.entries]


def test_all_of_it_is_read_in_order():
    log = read(DATA, "log")
    assert told(log) == [0, 1, 2, 3]
    assert [len(records) for records in log.entries] == [2] * 4
    assert log.end == len(DATA)


@pytest.mark.parametrize("cut", range(len(DATA)))
def test_cut_anywhere_the_groups_before_are_there(cut):
    log = read(DATA[:cut], "log")
    whole = sum(end <= cut for end in ENDS[1:])
    assert told(log) == [0, 1, 2, 3][: [0, 1, 3, 4][whole]]
    assert log.end == (ENDS[whole] if cut >= ENDS[0] else 0)


@pytest.mark.parametrize("place", range(ENDS[0], len(DATA)))
def test_a_flipped_bit_is_a_cut_in_the_last_group_and_damage_before(place):
    bad = bytearray(DATA)
    bad[place] ^= 4
    if place >= ENDS[2]:
        assert told(read(bytes(bad), "log")) == [0, 1, 2]
        return
    with pytest.raises(DamagedLogError, match="the log is damaged: at byte"):
        read(bytes(bad), "the log")


def test_what_the_disk_never_wrote_is_zeros():
    assert told(read(DATA[: ENDS[1]] + bytes(1000), "log")) == [0]
    assert read(bytes(100), "log").entries == []


def test_another_format_is_refused():
    with pytest.raises(DamagedLogError, match="a format that this version does not read"):
        read(b"firesteel log 2\n" + DATA, "log")
