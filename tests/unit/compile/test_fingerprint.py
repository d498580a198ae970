"""The identity of a step: of its code and parameters, the same in every process."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

import pyarrow as pa
import pytest

PROGRAM = """
import sys
import pyarrow as pa
import pyarrow.compute as pc
from firesteel import ExecutionEnvironment

FACTOR = 3
TABLE = {"one": 1, "two": {"a", "b", "c", "d"}}

def helper(x):
    return x * FACTOR

class Model:
    def __init__(self, size):
        self.size, self.words = size, {"x", "y", "z"}

    def __call__(self, batches):
        for batch in batches:
            if batch.num_rows in {1, 2, "many"}:
                helper(self.size)
            yield batch

def plain(batches):
    return (b for b in batches if helper(b.num_rows))

env = ExecutionEnvironment(options={"firesteel.progress": "false"})
rows = env.from_arrow(pa.table({"k": [1, 2], "v": [1, 2]}))
steps = rows.map_in_arrow(Model(5), "k bigint, v bigint").rebalance().map_in_arrow(plain, "k bigint, v bigint")
kept = steps.filter(pc.field("v") > 1).key_by("k").aggregate(s=("v", "sum"))
kept.key_by("k").join(rows.key_by("k"), how="left").write_parquet(sys.argv[1], mode="overwrite")
print(*[vertex.step for vertex in env.compile("a job").job_graph.vertices])
"""


def identities(tmp_path, code=PROGRAM, seed="0", name="script.py", out="out"):
    script = tmp_path / name
    script.write_text(code)
    environment = os.environ | {"PYTHONHASHSEED": seed}
    run = subprocess.run(
        [sys.executable, str(script), str(tmp_path / out)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=environment,
    )
    return run.stdout.split()


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    return identities(tmp_path_factory.mktemp("known"))


def test_another_process_another_folder_and_other_lines_change_nothing(tmp_path, known):
    moved = PROGRAM.replace("FACTOR = 3", "# a remark\n\n\nFACTOR = 3")
    assert all(known)
    assert len(set(known)) == len(known) > 3
    assert identities(tmp_path, moved, seed="7", name="other.py", out="elsewhere") == known


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("Model(5)", "Model(6)", {1}),
        pytest.param("batch.num_rows in", "not batch.num_rows in", {1}, marks=pytest.mark.full),
        pytest.param("x * FACTOR", "x + FACTOR", {1, 2}, marks=pytest.mark.full),
        pytest.param("FACTOR = 3", "FACTOR = 4", {1, 2}, marks=pytest.mark.full),
    ],
)
def test_code_and_parameters_do(tmp_path, known, old, new, changed):
    now = identities(tmp_path, PROGRAM.replace(old, new))
    assert {n for n, (a, b) in enumerate(zip(known, now, strict=True)) if a != b} == changed


def test_whatever_an_object_does_when_it_is_looked_at():
    from firesteel.compile.fingerprint import step_identity
    from firesteel.task.functions.batch_functions import MapInArrow
    from firesteel.task.program import GateHead, VertexProgram

    class Odd:
        def __init__(self):
            self.me = self

        @property
        def __dict__(self):
            raise RuntimeError("do not look")

    def program(fn):
        return VertexProgram(GateHead((0,)), (MapInArrow("f", fn, pa.schema([("v", pa.int64())])),), ())

    circle = []
    circle.append(circle)
    assert step_identity("uid", program(functools.partial(print, Odd()))) == ""
    assert step_identity("uid", program(functools.partial(print, circle)))
    assert step_identity("uid", program(print)) != step_identity("uid", program(len))
    assert step_identity("a", program(print)) != step_identity("b", program(print))
    many = functools.partial(print, *[[number] * 200 for number in range(1_000)])
    assert step_identity("uid", program(many))
