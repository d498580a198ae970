"""What importing costs, what a bundle holds, and what is said where something is lacking."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from firesteel import package_files
from firesteel.cli.bundle import write_bundle
from firesteel.errors import UsageError
from firesteel.spark.driver.serialise import dumps
from firesteel.spark.session.preflight import modules_of
from firesteel.task.functions.batch_functions import MapInArrow, MapInPandas
from firesteel.task.functions.group_functions import ApplyInPandas

HEAVY = {"pyspark", "py4j", "pandas", "pyarrow", "numpy", "duckdb"}


def imported(*arguments: str) -> list[str]:
    """The modules that ``python ARGUMENTS`` imports, as Python itself tells, less those of an empty program."""
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return [line.rpartition("|")[2].strip() for line in lines]


@pytest.mark.parametrize(
    ("arguments", "most"),
    [(["-c", "import firesteel"], 40), (["-m", "firesteel", "--version"], 420)],
)
def test_importing_loads_little_and_nothing_heavy(arguments, most):
    """Under 0.3 s on a quiet machine is some 500 modules of the size of the standard library's; counts do not depend on load."""
    empty = set(imported("-c", ""))
    loaded = [name for name in imported(*arguments) if name not in empty]
    assert not {name.partition(".")[0] for name in loaded} & HEAVY
    assert 0 < len(loaded) <= most, len(loaded)


def test_a_bundle_holds_the_package_and_is_the_same_each_time(tmp_path):
    sizes = [write_bundle(tmp_path / name) for name in ("a.zip", "b.zip")]
    assert sizes[0] == sizes[1]
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()
    names = zipfile.ZipFile(tmp_path / "a.zip").namelist()
    assert {"firesteel/__init__.py", "firesteel/py.typed", "firesteel/spark/session/fairscheduler.xml"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or "test" in name]
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".zip"] == []


def test_a_package_in_a_zip_lists_the_same_files(tmp_path):
    write_bundle(tmp_path / "a.zip")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'a.zip')!r})\n"
        "from firesteel import package_files\n"
        "import hashlib; print(hashlib.sha256(repr(package_files.contents()).encode()).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hashlib.sha256(repr(package_files.contents()).encode()).hexdigest()


def test_a_bundle_that_cannot_lie_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"does not end in \.zip"):
        write_bundle(tmp_path / "firesteel.tar")
    with pytest.raises(UsageError, match="cannot be written"):
        write_bundle(tmp_path / "none" / "firesteel.zip")
    assert list(Path(tmp_path).iterdir()) == []


def test_steps_with_frames_say_that_pandas_is_missing_and_others_do_without(tmp_path):
    """On an interpreter whose packages are pyarrow and numpy: what the driver needs for a pipeline that has not started."""
    links = tmp_path / "packages"
    links.mkdir()
    for found in Path(sysconfig.get_paths()["purelib"]).iterdir():
        if found.name.removesuffix(".libs") in ("pyarrow", "numpy", "msgspec"):
            (links / found.name).symlink_to(found)
    code = (
        "import sys; sys.path[:0] = sys.argv[1:]\n"
        "from firesteel import ExecutionEnvironment\n"
        "from firesteel.errors import UsageError\n"
        "stream = ExecutionEnvironment().from_collection([(1, 2)], 'k int, v int')\n"
        "stream.map_in_arrow(lambda batches: batches, 'k int, v int')\n"
        "def refused(step):\n"
        "    try: step()\n"
        "    except UsageError as error: print(error)\n"
        "refused(lambda: stream.map_in_pandas(lambda frames: frames, 'k int, v int'))\n"
        "refused(lambda: stream.key_by('k').apply_in_pandas(lambda frame: frame, 'k int, v int'))\n"
        "refused(stream.to_pandas)\n"
    )
    source = str(Path(package_files.__file__).parents[1])
    command = [sys.executable, "-S", "-I", "-c", code, source, str(links)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    for step in ("map_in_pandas", "apply_in_pandas", "to_pandas"):
        assert any(f"{step} needs pandas, which is not installed." in line for line in said), said
    assert "pip install 'pandas>=2.2,<3'" in done.stdout


def test_executors_are_asked_for_pandas_where_a_step_needs_it():
    schema = pa.schema([("v", pa.int64())])
    assert "pandas" in modules_of(dumps(MapInPandas("step", len, schema)))
    assert "pandas" in modules_of(dumps(ApplyInPandas("step", len, ("v",), schema)))
    assert modules_of(dumps(MapInArrow("step", len, schema))) == set()
