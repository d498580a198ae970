"""Pages of what really runs: a job of the page's own process, one whose executor is killed, and a stream that is rescaled from its page."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tools.standalone import MARK, StandaloneCluster

pytestmark = [pytest.mark.browser, pytest.mark.full]
ROOT = Path(__file__).parents[2]
PATIENCE = 300.0
"""Seconds; nothing takes so long."""

JOB = """
import os, sys, time
from pathlib import Path
from plane.session import Session
from firesteel import ExecutionEnvironment
from firesteel.errors import JobCancelledError

def main(folder):
    def slow(batches, gate=str(folder / "gate")):
        for batch in batches:
            while not os.path.exists(gate):
                time.sleep(0.05)
            yield batch

    options = {
        "firesteel.progress": False, "firesteel.ui.enabled": True, "rest.bind-port": "0",
        "firesteel.journal.directory": str(folder / "journal"), "firesteel.storage.directory": str(folder / "storage"),
    }
    session = Session(slots=2)
    env = ExecutionEnvironment(spark=session, options=options)
    rows = env.from_collection([{"n": n, "k": n % 7} for n in range(1000)])
    rows.map_in_arrow(slow, "n bigint, k bigint").key_by("k").aggregate(total=("n", "sum")).write_parquet(str(folder / "out"))
    client = env.execute_async("waits for a gate")
    page = f"{env.ui_url}jobs/{client.job_id}"
    print(page, flush=True)
    try:
        result = client.wait()
    except JobCancelledError:
        print("cancelled", flush=True)
        sys.stdin.read()
    told = (result.explain().endswith(f"Its page: {page}"), result.explain(0).endswith(f"Its page: {page}/vertices/0"))
    print(*told, f'href="{page}"' in result._repr_html_(), flush=True)
    sys.stdin.read()
    session.stop()

if __name__ == "__main__":  # the plane's workers are forked from a server
    main(Path(sys.argv[1]))
"""
"""A user's: a real job with real tasks, on the plane without a JVM, and its page beside it."""

CLUSTER_JOB = """
import sys, time
from pathlib import Path
from firesteel import ExecutionEnvironment
from firesteel.spark.session.preflight import executors
from firesteel.spark.session.sessions import create_session

def main(master, folder):
    def hold(batches, where=str(folder)):
        import os, time, uuid
        open(f"{where}/at-{os.environ['SPARK_LOCAL_IP']}-{uuid.uuid4().hex}", "w").close()
        while not os.path.exists(f"{where}/go"):
            time.sleep(0.02)
        yield from batches

    conf = {"spark.executor.memory": "512m", "spark.driver.host": "127.0.0.1", "spark.cores.max": "3", "spark.ui.port": "0"}
    spark = create_session(master, "its executor dies", conf)
    while len(executors(spark.sparkContext)) < 3:
        time.sleep(0.05)
    options = {
        "firesteel.progress": False, "firesteel.ui.enabled": True, "rest.bind-port": "0", "restart-strategy.fixed-delay.delay": "100 ms",
        "firesteel.journal.directory": str(folder / "journal"), "firesteel.storage.directory": str(folder / "storage"),
    }
    env = ExecutionEnvironment(spark=spark, options=options)
    rows = env.from_collection([{"n": n, "k": n % 7} for n in range(1000)]).rebalance()
    held = rows.map_in_arrow(hold, "n bigint, k bigint").set_parallelism(3)
    held.key_by("k").aggregate(total=("n", "sum")).write_parquet(str(folder / "out"))
    client = env.execute_async("its executor dies")
    print(f"{env.ui_url}jobs/{client.job_id}", flush=True)
    client.wait()
    sys.stdin.read()

main(sys.argv[1], Path(sys.argv[2]))
"""

STREAM = """
import sys
from pathlib import Path

checkpoint = "chk"

def build(spark):
    words = spark.readStream.schema("word string").json("in")
    return words.groupBy("word").count().writeStream.outputMode("update").foreachBatch(lambda frame, batch: frame.collect())
"""


@contextmanager
def running(*command: str, cwd: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process of its own, killed at the end; what it says on stderr goes into the file ``log``."""
    env = {**os.environ, **environment}
    with (
        (cwd / "log").open("w") as log,
        subprocess.Popen(
            command, cwd=cwd, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
        ) as process,
    ):  # fmt: skip
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def line_of(script: subprocess.Popen[str], log: Path) -> str:
    """The next line that it prints."""
    readable, _, _ = select.select([script.stdout], [], [], PATIENCE)
    line = script.stdout.readline().strip() if readable else ""
    assert line, log.read_text()[-3000:]
    return line


def until(found, process: subprocess.Popen[str], log: Path):
    end = time.monotonic() + PATIENCE
    while not (answer := found()):
        assert process.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
        time.sleep(0.05)
    return answer


def test_a_page_follows_a_job_of_its_own_process(tmp_path, opened):
    (tmp_path / "script.py").write_text(JOB)
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    with running(sys.executable, "script.py", str(tmp_path), cwd=tmp_path, PYTHONPATH=paths) as script:
        address = line_of(script, tmp_path / "log")
        page = opened(viewport={"width": 1280, "height": 900})
        page.goto(address)
        page.locator(".pill >> text=running").wait_for()
        page.evaluate("window.same = true")
        (tmp_path / "gate").touch()
        page.locator(".pill >> text=finished").wait_for()
        assert page.evaluate("window.same"), "it was never loaded anew"
        told = line_of(script, tmp_path / "log")
        assert set(told.split()) == {"True"}, "explain and the notebook lead to the page"
        page.goto("about:blank")


def test_a_job_is_cancelled_from_its_page(tmp_path, opened):
    (tmp_path / "script.py").write_text(JOB)
    paths = os.pathsep.join([str(ROOT / "tests"), str(ROOT)])
    with running(sys.executable, "script.py", str(tmp_path), cwd=tmp_path, PYTHONPATH=paths) as script:
        address = line_of(script, tmp_path / "log")
        token = (tmp_path / "journal" / "ui-token").read_text().strip()
        page = opened(http_credentials={"username": "me", "password": token})
        page.goto(address)
        page.click("summary >> text=Cancel")
        page.click("text=Cancel this job")
        page.locator(".pill >> text=cancelled").wait_for()
        assert line_of(script, tmp_path / "log") == "cancelled"
        page.goto("about:blank")


def test_a_killed_executor_is_seen_as_such_while_the_job_goes_on(tmp_path, opened):
    (tmp_path / "script.py").write_text(CLUSTER_JOB)
    log = tmp_path / "log"
    (tmp_path / "cluster").mkdir()
    with StandaloneCluster(tmp_path / "cluster") as cluster:
        around = {"PYSPARK_PYTHON": sys.executable, MARK: cluster.mark}
        with running(sys.executable, "script.py", cluster.url, str(tmp_path), cwd=tmp_path, **around) as script:
            address = line_of(script, log)
            page = opened(viewport={"width": 1280, "height": 900})
            page.goto(address)
            page.locator(".pill >> text=running").wait_for()
            page.evaluate("window.same = true")
            until(lambda: len(list(tmp_path.glob("at-*"))) == 3, script, log)
            until(lambda: launched(address) == 3, script, log)  # Firesteel asks for launches every few seconds
            cluster.kill_executor("127.0.0.3")
            failure = page.locator("#body li >> text=/[Ee]xecutor/").first
            failure.wait_for()
            assert page.locator(".pill").first.inner_text().strip().endswith("running"), (
                "one attempt is lost, not the job"
            )
            until(lambda: len(list(tmp_path.glob("at-*"))) == 4, script, log)
            (tmp_path / "go").touch()
            page.locator(".pill >> text=finished").wait_for()
            assert page.evaluate("window.same"), "it was never loaded anew"
            the_attempt_that_was_lost_is_told(page, address)
            the_stage_is_sparks(page, f"{address}/vertices/1")
            page.goto("about:blank")


def launched(address: str) -> int:
    """The number of attempts of vertex 1 whose launch the job knows."""
    answer = httpx.get(f"{address.replace('/jobs/', '/api/v1/jobs/')}/attempts", trust_env=False, timeout=60.0)
    return sum(row["vertex"] == 1 and row["began"] is not None for row in answer.json()["items"])


def the_attempt_that_was_lost_is_told(page, address: str) -> None:
    page.goto(f"{address}/timeline")
    assert page.locator("svg#timeline rect.attempt.failed").count() == 1
    page.goto(f"{address}/vertices/1")
    again = page.locator("tr", has=page.locator("td.number >> text=/^2$/")).first
    again.locator("th a").click()
    page.wait_for_url("**/subtasks/*")
    lost, winner = page.locator("tbody tr").all()
    assert "failed" in lost.inner_text() and re.search("executor", lost.inner_text(), re.IGNORECASE)
    assert "finished" in winner.inner_text()


def the_stage_is_sparks(page, address: str) -> None:
    page.goto(address)
    stage = page.locator("text=Spark's page of the stage").get_attribute("href")
    answer = httpx.get(stage, follow_redirects=True, trust_env=False, timeout=60.0)
    assert answer.status_code == 200 and re.search(r"Details for Stage \d+ \(Attempt 0\)", answer.text)


def test_a_stream_is_followed_rescaled_and_stopped_from_its_page(tmp_path, opened):
    """Run by the command line, as users do; the token is given as a browser gives it."""
    (tmp_path / "words.py").write_text(STREAM)
    (tmp_path / "in").mkdir()
    command = (sys.executable, "-m", "firesteel", "stream", "run", "words.py", "--ui", "--master", "local[2]", "--lower", "2", "--upper", "2",
               "-O", "rest.bind-port=0", "-O", "cooldown-after-rescaling=0s")  # fmt: skip
    log = tmp_path / "log"
    with running(*command, cwd=tmp_path, XDG_RUNTIME_DIR=str(tmp_path)) as stream:
        feed(tmp_path, 0)
        said = until(lambda: re.search(r"see (http://\S+) \(.* token in (\S+)\)", log.read_text()), stream, log)
        token = (tmp_path / said[2]).read_text().strip()
        page = opened(viewport={"width": 1280, "height": 900}, http_credentials={"username": "me", "password": token})
        page.goto(said[1])
        page.locator("tbody a >> text=chk").click()
        page.locator("#head >> text=/[1-9]\\d* batch/").wait_for()
        page.evaluate("window.same = true")
        feed(tmp_path, 1)
        page.locator("#head >> text=400 rows").wait_for()
        assert page.evaluate("window.same"), "it was never loaded anew"
        page.click("summary >> text=Rescale, bounds, stop")
        page.fill("#parallelism-wanted", "5")
        page.click("text=Rescale now")
        feed(tmp_path, 2)
        page.locator("table td >> text=2 → 5").wait_for()
        page.locator("#head >> text=5 partitions").wait_for()
        page.locator("svg#parallelism >> text=2→5").wait_for()
        page.click("summary >> text=Rescale, bounds, stop")
        page.click("text=Stop after this batch")
        assert stream.wait(PATIENCE) == 0, log.read_text()[-3000:]
        page.goto("about:blank")


def feed(folder: Path, number: int) -> None:
    draft = folder / "in" / f".{number}"
    draft.write_text("\n".join(json.dumps({"word": f"w{at % 17}"}) for at in range(200)))
    draft.rename(folder / "in" / f"{number}.json")
