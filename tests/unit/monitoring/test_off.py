"""What nobody asked for costs nothing: no library is loaded, no thread begun; what is asked for and not installed is said in a sentence."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from tests.bare_python import bare_python

import firesteel
from firesteel.extras import command
from firesteel.monitoring.exporters import monitoring
from firesteel.options import Options

SOURCES = str(Path(firesteel.__file__).parents[1])
LIBRARIES = ("prometheus_client", "opentelemetry", "openlineage")
ASKED = {
    "firesteel.metrics.prometheus.enabled": "prometheus",
    "firesteel.metrics.prometheus.port": "prometheus",
    "firesteel.traces.opentelemetry.enabled": "otel",
    "firesteel.metrics.opentelemetry.enabled": "otel",
    "firesteel.lineage.openlineage.enabled": "lineage",
}


def test_nothing_is_loaded_and_begun_unless_it_is_asked_for():
    code = f"""
import sys
from firesteel.spark.driver import runtime
from firesteel.api import adaptive_stream
from firesteel.extras import command
from firesteel.monitoring.exporters import monitoring
from firesteel.options import Options
assert monitoring(Options()) == ()
print(sorted({{name.partition('.')[0] for name in sys.modules}} & {set(LIBRARIES)!r}))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert run.stdout == "[]\n"
    before = threading.active_count()
    assert monitoring(Options()) == ()
    assert threading.active_count() == before


def test_a_missing_extra_is_a_sentence(tmp_path):
    code = f"""
import sys
sys.path[:0] = [{SOURCES!r}]
from firesteel.errors import UsageError
from firesteel.extras import command
from firesteel.monitoring.exporters import monitoring
from firesteel.options import Options
for option in {list(ASKED)!r}:
    try:
        monitoring(Options({{option: "0" if option.endswith("port") else "true"}}))
    except UsageError as error:
        print(option, error.hint)
"""
    python = bare_python(tmp_path, "numpy", "msgspec")
    run = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert run.stdout.splitlines() == [f"{o} Run {command(extra)}." for o, extra in ASKED.items()]
