"""A job with steps of all kinds: the same fingerprints in every process, and no object that counts by where it lies in memory."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pickle
import pkgutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle

import firesteel.connectors
import firesteel.sql
import firesteel.task
from firesteel import ExecutionEnvironment, Split
from firesteel.compile.identity.prints import JobPrints, input_prints
from firesteel.compile.identity.walk import Known, Walk
from identity_kit import QUIET, SETTLED, everything, odd_steps, value_print, write_files

KIT = Path(inspect.getfile(everything))
BASES = {"FileSink", "TableSink", "_Apply", "_OnRows"}
WITHIN_TASKS = {"PassingByKey", "Chain", "KeyedChain"}
ELSEWHERE = {
    "IcebergSink",  # a TableSink that needs a catalog
    "StoredSource",  # below
    "NoRows",  # of a merge that only removes
    "DropNulls",  # of very many columns
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("everything") / "data"
    write_files(made)
    return made


@pytest.fixture(scope="module")
def job(folder):
    return everything(ExecutionEnvironment(options=QUIET), folder).compile("a job")


def in_a_process(folder, seed, cwd):
    environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = subprocess.run(
        [sys.executable, str(KIT), str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        env=environment,
        cwd=cwd,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("seeds", [(0, 1), pytest.param((2, 3, 4), marks=pytest.mark.full)])
def test_every_process_finds_the_same(folder, tmp_path, seeds):
    places = [folder, tmp_path, folder]
    found = [in_a_process(folder, seed, place) for seed, place in zip(seeds, places, strict=False)]
    for other in found[1:]:
        assert [one for one in zip(found[0], other, strict=True) if one[0] != one[1]] == []
    assert len({program for program, *_ in found[0][:-1]}) > 60


def test_nothing_is_made_of_ids(job, folder):
    prints = JobPrints(job, time.time_ns() + SETTLED)
    for vertex, found in zip(job.job_graph.vertices, prints.vertices, strict=True):
        assert not [why for why in found.unprovable if "cannot be pickled" in why], vertex.name
        again = pickle.loads(cloudpickle.dumps(vertex.program))
        assert prints.of_program(again).program == found.program, vertex.name
    for step in odd_steps(job, folder):
        found, unprovable = value_print(step)
        assert value_print(pickle.loads(cloudpickle.dumps(step)))[0] == found, step
        assert not [why for why in unprovable if "cannot be pickled" in why], step


def test_rows_that_an_earlier_job_kept_are_not_known():
    from firesteel.connectors.stored import StoredSource

    schema = pa.schema([("v", pa.int64())])
    source = StoredSource("kept", schema, object(), 3, 4, (Split((0, 0, 1), 8, "part 0"),))
    found = input_prints(source, source.splits, time.time_ns(), Known())
    assert found.whole is None
    assert found.why == "reads rows that an earlier job of the same process has kept"


def classes_in_programs() -> dict[str, type]:
    """All classes of these rooms whose instances a program may hold, by name."""
    found: dict[str, type] = {}
    for room in (firesteel.task, firesteel.connectors, firesteel.sql):
        for module in pkgutil.walk_packages(room.__path__, f"{room.__name__}."):
            for name, one in vars(importlib.import_module(module.name)).items():
                if isinstance(one, type) and one.__module__ == module.name and may_be_in_a_program(one):
                    found[name] = one
    return found


def may_be_in_a_program(one: type) -> bool:
    if getattr(one, "_is_protocol", False) or inspect.isabstract(one):
        return False
    says = {name for name in dir(one) if not name.startswith("_")}
    kinds = (
        {"apply"},
        {"apply_unit"},
        {"read", "list_splits"},
        {"write", "commit", "begin"},
        {"new"},
        {"state", "finished"},
    )
    return any(kind <= says for kind in kinds)


def test_all_classes_that_may_be_in_a_program_are(job, folder, monkeypatch):
    met: set[type] = set()
    look = Walk._looked_into

    def looked_into(walk, value):
        met.add(type(value))
        return look(walk, value)

    monkeypatch.setattr(Walk, "_looked_into", looked_into)
    JobPrints(job)
    for step in odd_steps(job, folder):
        value_print(step)
    missing = {name for name, one in classes_in_programs().items() if one not in met}
    assert sorted(missing) == sorted(BASES | WITHIN_TASKS | ELSEWHERE)
