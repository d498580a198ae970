"""What tasks tell the driver, as bytes: any number of messages come out as they went in."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from driver_loop import END, Loop, decode, deploy, failed, finished
from firesteel.model.reports import CALLS, ERRORS, SET_UPS, Opening, StepReport
from firesteel.model.reports import encode as encode_reports
from firesteel.scheduler.kernel import events as e
from firesteel.spark.driver.messages import MessageDeduplication, reports_of
from firesteel.task.executor.messages import (
    FailedMessage,
    FinishedMessage,
    Where,
    Written,
    decode_many,
    decode_other,
    encode,
    is_finished,
)

COUNT = st.integers(0, 1 << 62)
TIME = st.floats(0, 1e12)
STEPS = st.lists(
    st.builds(
        StepReport,
        st.text(max_size=8),
        st.dictionaries(st.sampled_from([CALLS, ERRORS, SET_UPS]), COUNT),
        st.none() | COUNT,
        st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=2),
        st.none() | st.builds(Opening, st.text(max_size=5), st.text(max_size=5)),
    ),
    max_size=2,
)


@st.composite
def where(draw):
    small = st.integers(0, (1 << 31) - 1)
    node = draw(st.sampled_from(["", "host", "10.0.0.7", "größer", "n" * 300]))
    return Where(draw(small), draw(small), draw(small), draw(COUNT), node, draw(TIME), draw(TIME), draw(TIME))


@st.composite
def vertex_messages(draw):
    """Messages of executions of one vertex: the same data sets, as many commits each."""
    datasets = draw(st.lists(st.integers(0, 1000), max_size=3, unique=True))
    measured = draw(st.tuples(*[st.booleans() for _ in datasets]))
    sketches, packed = draw(st.tuples(*[st.booleans() for _ in datasets])), st.binary(max_size=40)
    heavy = draw(st.tuples(*[st.sampled_from([st.just(b""), st.binary(max_size=1_024)]) for _ in datasets]))
    commits = draw(st.integers(0, 2))
    messages = []
    for _ in range(draw(st.integers(1, 6))):
        partitions = tuple(
            Written(
                dataset,
                draw(COUNT),
                draw(packed) if known else None,
                draw(COUNT),
                draw(COUNT),
                known and sketched,
                draw(keys),
            )
            for dataset, known, sketched, keys in zip(datasets, measured, sketches, heavy, strict=True)
        )
        own = tuple(draw(st.binary(max_size=20)) for _ in range(commits))
        counts = draw(COUNT), draw(COUNT), draw(COUNT), draw(st.just(-1) | COUNT)
        messages.append(FinishedMessage(draw(where()), partitions, own, *counts, encode_reports(draw(STEPS))))
    return messages


@given(vertex_messages(), vertex_messages())
def test_messages_come_out_as_they_went_in(first, second):
    """Two vertices' in one drain; each is then looked at by itself."""
    records = list(map(encode, first + second))
    assert all(map(is_finished, records))
    both = decode_many(records)
    assert both.commits() in ([], [message.commits for message in first + second])
    for messages, places in ((first, range(len(first))), (second, range(len(first), len(records)))):
        many = both.select(list(places))
        at = [message.where for message in messages]
        for name in ("batch", "subtask", "attempt", "token"):
            assert many.column(name).tolist() == [getattr(w, name) for w in at]
        reports = reports_of(many, lambda times: times / 2, str.upper)
        assert reports.tokens.tolist() == [w.token for w in at]
        assert reports.finished_at.tolist() == [w.ended_at / 2 for w in at]
        assert [reports.nodes[k] for k in range(len(at))] == [w.node.upper() for w in at]
        for name in ("rows_in", "bytes_in", "rows_out"):
            assert getattr(reports, name).tolist() == [getattr(message, name) for message in messages]
        peaks = [message.peak_memory for message in messages]
        assert (peaks if max(peaks) >= 0 else None) == (None if (p := reports.peak_memory) is None else p.tolist())
        assert list(map(encode_reports, reports.steps or [()] * len(messages))) == [one.reports for one in messages]
        assert [tuple(c) for c in reports.commits] in ([], [message.commits for message in messages])
        for place, columns in enumerate(reports.partitions):
            told = [message.partitions[place] for message in messages]
            sketched = columns.sketches is not None
            packed = (columns.sketches if sketched else columns.sizes) or [None] * len(told)
            heavy = columns.heavy_keys or [b""] * len(told)
            rows = zip(columns.bytes, packed, columns.rows, columns.stored_bytes, strict=True)
            written = [Written(columns.dataset, *row, sketched, k) for row, k in zip(rows, heavy, strict=True)]
            assert written == told


def test_a_vertex_may_write_hundreds_of_results():
    partitions = tuple(Written(dataset, dataset, None, 1, 2) for dataset in range(300))
    message = FinishedMessage(Where(1, 2, 3, 4, "n", 1.0, 2.0, 3.0), partitions, (b"commit",), 0, 0, 0)
    many = decode_many([encode(message)])
    assert [int(part.bytes[0]) for part in many.partitions()] == list(range(300))
    assert many.commits() == [(b"commit",)]


def record(batch, subtask, token):
    return encode(FinishedMessage(Where(batch, subtask, 0, token, "n", 1.0, 2.0, 3.0), (), (), 0, 0, 0))


def fresh(messages, *keys):
    many = messages.fresh(decode_many([record(*key) for key in keys]))
    return list(zip(*(many.column(name).tolist() for name in ("batch", "subtask", "token")), strict=True))


def test_each_message_is_new_once_until_its_batch_is_over():
    messages = MessageDeduplication()
    assert fresh(messages, (0, 1, 7), (0, 1, 7), (3, 1, 7), (0, 1, 8)) == [(0, 1, 7), (3, 1, 7), (0, 1, 8)]
    assert fresh(messages, (0, 1, 7), (0, 2, 7), (3, 1, 7)) == [(0, 2, 7)]
    assert not messages.is_fresh(Where(0, 2, 0, 7, "n", 0, 0, 0))
    assert messages.is_fresh(Where(0, 2, 0, 9, "n", 0, 0, 0))
    assert fresh(messages, (0, 2, 9)) == []
    messages.forget(range(1))
    assert fresh(messages, (0, 2, 9), (3, 1, 7)) == [(0, 2, 9)]


def test_a_drain_is_told_in_one_event_per_vertex_and_failures_keep_their_place():
    def answer(event):
        if isinstance(event, e.JobStarted):
            return [deploy(0, 1, 2), deploy(0, vertex=0), deploy(3, 4)]
        return [END] if isinstance(event, e.ExecutionsFinished) and 4 in event.subtasks else None

    loop = Loop(answer)
    loop.put(finished(0, 7), finished(0, 8, batch=1), finished(3, 9, batch=2), failed(1, 1), finished(4, 10, batch=2))
    loop.run()
    told = [(type(t).__name__[10:], t.vertex, t.subtasks.tolist()) for t in loop.scheduler.told[1:]]
    assert told == [
        ("Finished", 1, [0, 3]),
        ("Finished", 0, [0]),
        ("Deploying", 1, [1]),
        ("Failed", 1, [1]),
        ("Finished", 1, [4]),
    ]


def test_a_failure_is_told_apart_and_comes_out_as_it_went_in():
    failed = FailedMessage(Where(1, 2, 3, 4, "n", 0.5, 0.6, 0.7), "USER", "bad", "hint", "frames", (1, 2, 3, 4))
    data = encode(failed)
    assert not is_finished(data)
    assert decode_other(data) == failed


def test_a_message_is_small():
    at = Where(0, 9_999, 0, 123_456, "10.0.0.7", 1e9, 1e9, 1e9)
    message = FinishedMessage(at, (Written(0, 1 << 30, b"x" * 100, 10, 10),), (), 1, 2, 3)
    assert len(encode(message)) <= 100 + 144 < len(pickle.dumps(message, protocol=5))
    assert np.frombuffer(encode(message)[:1], np.uint8)[0] == 1


@given(vertex_messages())
def test_one_alone_comes_out_whole(messages):
    assert [decode(encode(message)) for message in messages] == messages


def test_what_steps_counted_comes_with_those_that_counted_anything():
    at = Where(0, 1, 0, 7, "n", 1.0, 2.0, 3.0)
    plain = FinishedMessage(at, (Written(0, 5, b"sizes", 1, 2),), (b"commit",), 1, 2, 3)
    counted = replace(plain, reports=b"x" * 70_000)
    many = decode_many([encode(plain), encode(counted)])
    assert many.reports() == [b"", counted.reports]
    assert many.commits() == [(b"commit",)] * 2
    assert decode_many([encode(plain)]).reports() == []
    assert is_finished(encode(counted))
