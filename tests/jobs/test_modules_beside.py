"""Modules beside the script go with each job, as they are when it begins; workers that live on import them anew."""

from __future__ import annotations

import sys
import time

import pytest

from firesteel.errors import JobExecutionError


@pytest.fixture
def beside(tmp_path, monkeypatch):
    """A script's folder, where the job is started. ``write`` makes a module there."""
    folder = tmp_path / "script"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)

    def write(name: str, text: str) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)

    yield write
    for name in [name for name in sys.modules if name.partition(".")[0] in ("prices", "rates")]:
        del sys.modules[name]


def test_a_module_that_changes_is_used_as_it_is_when_a_job_begins(env, beside):
    beside("prices.py", "def gross(row):\n    from rates.vat import rate\n    return {'gross': row.net * rate()}\n")
    beside("rates/__init__.py", "")
    beside("rates/vat.py", "def rate(): return 2\n")
    import prices

    stream = env.from_collection([{"net": n} for n in range(50)]).rebalance().map(prices.gross, "gross bigint")
    assert sum(row["gross"] for row in stream.collect()) == 2 * 1225
    beside("rates/vat.py", "def rate(): return 3\n")  # nobody has imported it here
    assert "rates.vat" not in sys.modules
    assert sum(row["gross"] for row in stream.collect()) == 3 * 1225
    beside("prices.py", "def gross(row):\n    return {'gross': row.net * 5}\n")
    assert sum(row["gross"] for row in stream.collect()) == 5 * 1225


def test_what_a_module_holds_stays_in_its_worker_until_it_changes(env, beside):
    text = "import os\ncalls = []\ndef count(row):\n    calls.append(1)\n    return (os.getpid(), len(calls))\n"
    beside("prices.py", text)
    import prices

    stream = env.from_collection(range(40)).rebalance().map(prices.count, "pid bigint, calls bigint")
    first, second = stream.collect(), stream.collect()
    both = {row["pid"] for row in first} & {row["pid"] for row in second}
    assert {row["calls"] for row in first if row["pid"] in both}.isdisjoint(
        row["calls"] for row in second if row["pid"] in both
    )
    beside("prices.py", f"{text}# changed at {time.time()}\n")
    assert min(row["calls"] for row in stream.collect()) == 1
    assert prices.calls == []


def test_an_error_names_the_line_of_the_module(env, beside):
    beside(
        "prices.py",
        "class Order:\n    def price(self):\n        return 1 / 0\n\ndef gross(row):\n    return (Order().price(),)\n",
    )
    import prices

    with pytest.raises(JobExecutionError) as caught:
        env.from_collection([1]).map(prices.gross, "gross double").collect()
    assert 'prices.py", line 3, in price\n    return 1 / 0' in caught.value.cause_trace
