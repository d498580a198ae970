"""A real notebook: a kernel runs the cells, a client holds their outputs as Jupyter would, and interrupts them as its button does."""

from __future__ import annotations

import inspect
import json
import re
import shutil
import threading
from asyncio import run
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from firesteel.errors import OURS

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: no notebook can be run")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed: no notebook can be run")
pytest.importorskip("ipykernel", reason="ipykernel is not installed: no notebook can be run")

pytestmark = pytest.mark.spark
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "notebook.ipynb"
PREPARED = """
import threading, time
from pathlib import Path
import numpy as np, pyarrow as pa
from firesteel import ExecutionEnvironment, History, col

env = ExecutionEnvironment.get_or_create("local[2]")
rows = env.from_arrow(pa.table({"k": np.arange(2000) % 97, "n": np.arange(2000)}))
counts = rows.key_by("k").aggregate({"n": "sum"})

def slow(name):
    def waits(batches):
        Path(name).touch()
        while not Path("go on").exists():
            time.sleep(0.05)
        yield from batches

    return rows.map_in_arrow(waits, "k long, n long")
"""
SPARK_STARTS = """
def tell():
    while not any(thread.name == "firesteel-spark-start" for thread in threading.enumerate()):
        time.sleep(0.01)
    Path("starts").touch()

threading.Thread(target=tell, daemon=True).start()
"""
INTERRUPTED = """
import os, signal
told = []
for seconds in (0.05, 0.1, 0.2, 0.5, 1.0):
    slow("anywhere").write_parquet("out/d")
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        env.execute("anywhere")
    except KeyboardInterrupt as error:
        told.append(f"{type(error).__name__}: {error}")
told
"""


class Cell:
    """One that was run: its outputs as the notebook holds them."""

    def __init__(self, outputs: list[Any], messages: list[str]) -> None:
        self.outputs = outputs
        self.messages = messages
        """The kinds of messages that changed them, in order."""

    def html(self, kind: str = "execute_result") -> str:
        (found,) = (o["data"]["text/html"] for o in self.outputs if o["output_type"] == kind)
        return found

    def text(self, kind: str = "execute_result") -> str:
        (found,) = (o["data"]["text/plain"] for o in self.outputs if o["output_type"] == kind)
        return found

    def error(self) -> str:
        """Name, sentence and traceback, without colours."""
        (found,) = (o for o in self.outputs if o["output_type"] == "error")
        return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join([found["ename"], found["evalue"], *found["traceback"]]))

    def printed(self) -> str:
        return "".join(o["text"] for o in self.outputs if o["output_type"] == "stream")


class Client(nbclient.NotebookClient):
    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.messages: list[str] = []

    def process_message(self, msg: dict[str, Any], cell: Any, cell_index: int) -> Any:
        self.messages.append(msg["msg_type"])
        return super().process_message(msg, cell, cell_index)


class Notebook:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notebook = nbformat.v4.new_notebook()
        resources = {"metadata": {"path": str(folder)}}
        self.client = Client(self.notebook, timeout=600, allow_errors=True, kernel_name="python3", resources=resources)

    def run(self, source: str, interrupt_at: str = "") -> Cell:
        """``interrupt_at``: the file that appears when it is time to press the button."""
        self.notebook.cells.append(nbformat.v4.new_code_cell(source))
        self.client.messages.clear()
        over = threading.Event()
        if interrupt_at:
            threading.Thread(target=self._interrupt, args=(self.folder / interrupt_at, over), daemon=True).start()
        try:
            cell = self.client.execute_cell(self.notebook.cells[-1], len(self.notebook.cells) - 1)
        finally:
            over.set()
        return Cell(cell.outputs, list(self.client.messages))

    def _interrupt(self, path: Path, over: threading.Event) -> None:
        while not path.exists():
            if over.wait(0.05):
                return
        path.unlink()
        sent = self.client.km.interrupt_kernel()
        if inspect.isawaitable(sent):
            run(_awaited(sent))


async def _awaited(sent: Any) -> None:
    await sent


@pytest.fixture(scope="module")
def notebook(tmp_path_factory) -> Iterator[Notebook]:
    """One kernel for all tests; each cell finds what those before it have left."""
    made = Notebook(tmp_path_factory.mktemp("notebook"))
    with made.client.setup_kernel():
        prepared = made.run(PREPARED)
        assert prepared.outputs == []
        yield made


@pytest.fixture(scope="module")
def first(notebook) -> Cell:
    """The first job that finishes. It leaves its ``result`` and the folder out/a to the cells after it."""
    (notebook.folder / "go on").touch()
    cell = notebook.run(
        'slow("first").key_by("k").aggregate({"n": "sum"}).write_parquet("out/a")\nresult = env.execute("sums")'
    )
    (notebook.folder / "go on").unlink()
    return cell


def only_the_users_lines(error: str) -> bool:
    return OURS not in error and "threading.py" not in error and error.count("Cell In[") == 1


@pytest.mark.full
def test_interrupting_while_spark_starts(notebook):
    cell = notebook.run(SPARK_STARTS + 'counts.write_parquet("out/early")\nenv.execute("too early")', "starts")
    assert "KeyboardInterrupt" in cell.error()
    assert "The job 'too early' was interrupted before it began." in cell.error()
    assert only_the_users_lines(cell.error())
    assert cell.printed() == ""


@pytest.mark.full
def test_the_next_cell_runs_a_job_whose_progress_stays_in_its_place(first):
    assert [o["output_type"] for o in first.outputs] == ["display_data"], "and nothing of Spark's"
    assert first.messages.count("update_display_data") >= 2
    assert first.text("display_data").startswith("sums: finished after ")
    assert "<svg" in first.html("display_data")


@pytest.mark.full
def test_streams_results_and_tables_are_pictures(notebook, first):
    assert "hash by k" in notebook.run("counts").html()
    assert "KeyedStream[k]" in notebook.run('rows.key_by("k")').html()
    result = notebook.run("result")
    assert result.html().count("<svg") == 2, "the graph and the timeline"
    assert re.fullmatch(r"JobResult\('sums', \w+, [\d.]+ m?s\)", result.text())
    assert "pyarrow.Table: decisions" in notebook.run("result.decisions").html()
    assert "<svg" in notebook.run("result.attempts").html()
    assert notebook.run("type(result.attempts) is pa.Table").text() == "True"
    assert "text/html" not in notebook.run('pa.table({"k": [1]})').outputs[0]["data"]
    assert notebook.run('History("last")').html() == result.html()


@pytest.mark.full
def test_interrupting_a_cell_cancels_its_job_and_no_other(notebook, first):
    other = notebook.run('slow("beside").write_parquet("out/b")\nclient = env.execute_async("beside")\nclient')
    assert other.text().startswith("JobClient('beside'")
    cell = notebook.run('slow("for ever").write_parquet("out/c")\nenv.execute("for ever")', "for ever")
    assert "The job 'for ever' was interrupted and is being cancelled." in cell.error()
    assert only_the_users_lines(cell.error())
    assert "beside (job " in (running := notebook.run("client").html()) and "still running" in running
    (notebook.folder / "go on").touch()
    assert notebook.run("client.wait()").text().startswith("JobResult('beside'")
    (notebook.folder / "go on").unlink()
    assert notebook.run("counts.count()").text() == "97"
    assert sorted(path.name for path in (notebook.folder / "out").iterdir()) == ["a", "b"]


@pytest.mark.full
def test_an_interrupt_finds_the_job_wherever_it_is(notebook):
    """While it is compiled, prepared (Spark looks at its executors then) or runs."""
    cell = notebook.run(INTERRUPTED)
    assert (
        cell.text().count("KeyboardInterrupt: The job 'anywhere' was interrupted")
        == cell.text().count("'anywhere'")
        == 5
    )
    assert cell.printed() == "", "py4j says nothing of it"
    assert notebook.run("counts.count()").text() == "97"


@pytest.mark.full
def test_a_cell_can_be_run_again(notebook):
    source = 'counts.write_parquet("out/again", mode="overwrite")\nenv.execute("again").job_name'
    assert [notebook.run(source).text() for _ in range(2)] == ["'again'"] * 2
    once = 'counts.write_parquet("out/again")\nenv.execute("once")'
    for _ in range(2):  # what could not be executed is forgotten
        cell = notebook.run(once)
        assert "exists already" in cell.error() and "mode='overwrite'" in cell.error()
        assert re.search(r"at In\[\d+\]:1\)", cell.error())
        assert only_the_users_lines(cell.error())


@pytest.mark.full
def test_an_error_of_a_function_shows_its_lines(notebook):
    cell = notebook.run(
        "def broken(batches):\n    raise ValueError('no such word')\n    yield\n"
        "rows.map_in_arrow(broken, 'k long').collect()"
    )
    assert "ValueError: no such word" in cell.error()
    assert only_the_users_lines(cell.error())
    assert "collect: failed after" in cell.text("display_data")


@pytest.mark.full
def test_without_progress_nothing_is_shown(notebook):
    cell = notebook.run(
        'quiet = ExecutionEnvironment(options={"firesteel.progress": False})\n'
        'quiet.from_arrow(pa.table({"k": [1, 2]})).count()'
    )
    assert [(o["output_type"], o["data"]["text/plain"]) for o in cell.outputs] == [("execute_result", "2")]


@pytest.mark.full
def test_the_example_runs(tmp_path):
    shutil.copy(EXAMPLE, tmp_path)
    notebook = nbformat.read(tmp_path / EXAMPLE.name, 4)
    assert not any(cell.get("outputs") for cell in json.loads(EXAMPLE.read_text())["cells"])
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    shown = [o for cell in notebook.cells for o in cell.get("outputs", [])]
    assert not [o for o in shown if o["output_type"] in ("error", "stream")]
    assert sum("<svg" in o["data"].get("text/html", "") for o in shown) >= 5
    assert (tmp_path / "out" / "words").is_dir()
