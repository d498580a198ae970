"""Random pipelines whose scripts fail, are corrected, and changed in passing: the answer is DuckDB's of the last script, however much was kept."""

from __future__ import annotations

import random
from dataclasses import dataclass

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corrected_kit import Runs
from firesteel.compile.identity import prints
from firesteel.errors import JobExecutionError, UsageError
from firesteel.journal.listing import listed
from oracle import assert_same_rows

ROWS, KEYS = 300, 12
KINDS = ("mapped", "mapped", "filtered", "summed", "joined", "united", "sorted")
"""Steps that may follow; each has a constant of its own, but for the last three."""


@dataclass(frozen=True)
class Step:
    """``reads``: numbers of steps before it. Rows are (k, v)."""

    kind: str
    reads: tuple[int, ...] = ()


def drawn(dice: random.Random) -> list[Step]:
    """Two sources, then steps; the last one depends on all others that nobody reads."""
    steps = [Step("source"), Step("source")]
    for _ in range(dice.randint(3, 6)):
        kind = dice.choice(KINDS)
        steps.append(Step(kind, tuple(dice.sample(range(len(steps)), 2 if kind in ("joined", "united") else 1))))
    read = {one for step in steps for one in step.reads}
    loose = [k for k in range(len(steps)) if k not in read]
    while len(loose) > 1:
        steps.append(Step("united", (loose.pop(0), loose.pop(0))))
        loose.append(len(steps) - 1)
    return [*steps, Step("mapped", (loose[0],))]


def script(steps: list[Step], constants: list[int], fails: int | None) -> str:
    """As the body of a module with ``rows``; the step ``fails`` raises, if it has a function."""
    text = "import pyarrow as pa\nimport pyarrow.compute as pc\n"
    body = "def rows():\n"
    for k, step in enumerate(steps):
        c, a = constants[k], f"s{step.reads[0]}" if step.reads else ""
        b = f"s{step.reads[1]}" if len(step.reads) > 1 else ""
        raises = "    raise ValueError('not written yet')\n" if k == fails else ""
        schema = "'k bigint, v bigint'"
        text += f"C{k} = {c}\n"
        if step.kind == "source":
            body += f"    s{k} = env.from_arrow(pa.table({{'k': [(i * {k + 5}) % {KEYS} for i in range({ROWS})], 'v': [i * C{k} % 97 for i in range({ROWS})]}}))\n"
        elif step.kind in ("mapped", "filtered"):
            made = f"yield pa.record_batch({{'k': b['k'], 'v': pc.add(b['v'], C{k})}})"
            if step.kind == "filtered":
                made = f"yield b.filter(pc.less(b['v'], 40 + C{k}))"
            text += f"def f{k}(batches):\n{raises}    for b in batches:\n        {made}\n"
            body += f"    s{k} = {a}.map_in_arrow(f{k}, {schema})\n"
        elif step.kind == "summed":
            made = f"pa.table({{'k': [key[0].as_py() // 2], 'v': [pc.sum(table.column('v')).as_py() % 1009 + C{k}]}})"
            text += f"def f{k}(key, table):\n{raises}    return {made}\n"
            body += f"    s{k} = {a}.key_by('k').apply_in_arrow(f{k}, {schema})\n"
        elif step.kind == "joined":
            text += f"def f{k}(batches):\n{raises}    for b in batches:\n        yield pa.record_batch({{'k': b['k'], 'v': pc.add(b['v'], b['w'])}})\n"
            text += f"def g{k}(batches):\n    for b in batches:\n        yield pa.record_batch({{'k': b['k'], 'w': b['v']}})\n"
            text += f"def h{k}(key, table):\n    return pa.table({{'k': [key[0].as_py()], 'v': [pc.max(table.column('v')).as_py()]}})\n"
            body += (
                f"    r{k} = {b}.key_by('k').apply_in_arrow(h{k}, {schema}).map_in_arrow(g{k}, 'k bigint, w bigint')\n"
            )
            body += f"    s{k} = {a}.key_by('k').join(r{k}.key_by('k')).map_in_arrow(f{k}, {schema})\n"
        elif step.kind == "united":
            body += f"    s{k} = {a}.union({b})\n"
        else:
            body += f"    s{k} = {a}.sort('v', 'k')\n"
    return f"{text}{body}    return s{len(steps) - 1}\n"


def answer(steps: list[Step], constants: list[int]) -> pa.Table:
    sql: list[str] = []
    for k, step in enumerate(steps):
        c, (a, b) = constants[k], (*(f"s{one}" for one in step.reads), "", "")[:2]
        query = {
            "source": f"SELECT (i * {k + 5}) % {KEYS} AS k, i * {c} % 97 AS v FROM range({ROWS}) t(i)",
            "mapped": f"SELECT k, v + {c} AS v FROM {a}",
            "filtered": f"SELECT k, v FROM {a} WHERE v < 40 + {c}",
            "summed": f"SELECT k // 2 AS k, sum(v) % 1009 + {c} AS v FROM {a} GROUP BY {a}.k",
            "joined": f"SELECT l.k, l.v + r.w AS v FROM {a} l JOIN (SELECT k, max(v) AS w FROM {b} GROUP BY k) r ON l.k = r.k",
            "united": f"SELECT k, v FROM {a} UNION ALL SELECT k, v FROM {b}",
            "sorted": f"SELECT k, v FROM {a}",
        }[step.kind]
        sql.append(f"s{k} AS MATERIALIZED ({query})")
    last = f"s{len(steps) - 1}"
    return duckdb.sql(f"WITH {', '.join(sql)} SELECT k::BIGINT AS k, v::BIGINT AS v FROM {last}").to_arrow_table()


def answered(runs: Runs, text: str, job: str | None) -> pa.Table:
    """What the script's job writes, which keeps what it can of the other."""
    env, rows = runs.rows(text)
    rows.write_parquet(runs.folder / "out", mode="overwrite")
    try:
        env.execute("a job", resume=job)
    except UsageError as error:
        assert "cannot go on" in error.message
        return answered(runs, text, None)
    return pq.read_table(runs.folder / "out", columns=["k", "v"])


@pytest.mark.full
@pytest.mark.parametrize("seed", range(40))
def test_a_random_pipeline(session, tmp_path, monkeypatch, seed):
    monkeypatch.setattr(prints, "_SETTLED", 0)
    dice = random.Random(seed)
    steps = drawn(dice)
    constants = [dice.randint(1, 9) for _ in steps]
    options = {
        "jobmanager.partition.release-during-job-execution": dice.random() < 0.5,
        "firesteel.merge.request-time": dice.choice(("0 s", "1 s")),
    }
    runs = Runs(session, tmp_path, **options)
    with_function = [k for k, step in enumerate(steps) if step.kind in ("mapped", "filtered", "summed", "joined")]
    job = None
    for _ in range(dice.randint(1, 3)):
        before = set(runs.jobs)
        with pytest.raises(JobExecutionError, match="not written yet"):
            answered(runs, script(steps, constants, dice.choice(with_function)), job)
        job = next(iter(set(runs.jobs) - before), job)
        for k in dice.sample(range(len(steps)), dice.choice((0, 0, 1, 2))):
            constants[k] = dice.randint(1, 9)
    assert_same_rows(answered(runs, script(steps, constants, None), job), answer(steps, constants))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(100, 130))
def test_a_random_pipeline_that_is_run_again_and_again(session, tmp_path, monkeypatch, seed):
    """Constants change to and fro, some jobs fail, and little room is left: each uses what others have left (``firesteel.results.reuse``)."""
    monkeypatch.setattr(prints, "_SETTLED", 0)
    dice = random.Random(seed)
    steps = drawn(dice)
    constants = [dice.randint(1, 3) for _ in steps]
    options = {
        "firesteel.results.reuse": True,
        "firesteel.results.retain-at-most": dice.choice(("1 gb", "300 kb")),
        "firesteel.merge.request-time": dice.choice(("0 s", "1 s")),
    }
    runs = Runs(session, tmp_path, **options)
    with_function = [k for k, step in enumerate(steps) if step.kind in ("mapped", "filtered", "summed", "joined")]
    used = 0
    for _ in range(6):
        if dice.random() < 0.2:
            with pytest.raises(JobExecutionError, match="not written yet"):
                answered(runs, script(steps, constants, dice.choice(with_function)), None)
        _, rows = runs.rows(script(steps, constants, None))
        found = rows.to_arrow() if dice.random() < 0.7 else None
        if found is None:
            found = answered(runs, script(steps, constants, None), None)
        assert_same_rows(found.select(["k", "v"]), answer(steps, constants))
        used += any(one.uses for one in listed((tmp_path / "journal").iterdir()))
        for k in dice.sample(range(len(steps)), dice.choice((0, 1, 1))):
            constants[k] = dice.randint(1, 3)
    assert used
