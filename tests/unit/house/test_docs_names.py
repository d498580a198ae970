"""The names and option keys that pages have between backticks exist: code blocks run in tests, sentences do not."""

from __future__ import annotations

import functools
import inspect
import re
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pyarrow.compute as pc
import pyspark.sql.functions as F
import pytest
from tests.tracked_files import tracked_files

import firesteel
import firesteel.streaming
from firesteel.options.registry import all_options, lookup
from firesteel.task.runner import TaskContext

ROOT = Path(__file__).resolve().parents[3]
PAGES = [
    page
    for page in (ROOT / "README.md", *(path for path in tracked_files("docs") if path.suffix == ".md"))
    if page.name not in ("api.md", "options.md")  # generated
]
BLOCK = re.compile(r"^```.*?^```$", re.S | re.M)
ROOTS: dict[str, tuple[Any, ...]] = {
    "env": (firesteel.ExecutionEnvironment,),
    "stream": (firesteel.DataStream, firesteel.streaming.AdaptiveStream),
    "result": (firesteel.JobResult,),
    "client": (firesteel.JobClient,),
    "ctx": (TaskContext,),
    "writer": (firesteel.SinkWriter,),
    "agg": (firesteel.agg,),
    "window": (firesteel.window,),
    "pc": (pc,),
    "F": (F,),
    **{name: (getattr(firesteel, name),) for name in firesteel.__all__ if inspect.isclass(getattr(firesteel, name))},
    "AdaptiveStream": (firesteel.streaming.AdaptiveStream,),
    "ResourceRequirements": (firesteel.streaming.ResourceRequirements,),
}
"""What stands before a dot, and what it is."""
ATTRIBUTE = re.compile(rf"(?<![\w./]){'(' + '|'.join(ROOTS) + ')'}\.([a-z]\w*)(?=\W|$)(?!\.\w|[./]\w)")
SNAKE = re.compile(r"(?:\.|^)([a-z][a-z0-9]*(?:_[a-z0-9]+)+)(?=\(|$)")
KEY = re.compile(
    r"^(?:(?:firesteel|jobmanager|execution|slot|parallelism|restart-strategy|cluster|fine-grained|speculative|pipeline"
    r"|slow-task-detector|slot-sharing-group)(?:\.[a-z<>-]+)+|[a-z]+(?:-[a-z]+)+(?:\.[a-z-]+)*)$"
)
FILES_AND_MODULES = {"stream.json", "firesteel.streaming"}
NOT_OURS = {
    "tea_total": "a column of an example",
    "n_max": "a number that the text defines",
    "n_min": "a number that the text defines",
    "cluster.fine-grained-resource-management.enabled": "Flink's, which the page says is not needed",
    "jobmanager.execution.failover-strategy": "Flink's, which the page says there is none of",
    "auto-parallelism.enabled": "Flink's, which the page says there is none of",
    "slot.idle.timeout": "Flink's, which the page says there is none of",
    "execution.checkpointing.interval": "Flink's, which the page says is the trigger's interval here",
    "rate-micro-batch": "a source of Spark's",
    "all-to-all": "a word",
    "bytes-per-second": "of a request, no option of a job",
    "spark_catalog": "a catalog of Spark's",
    "local-cluster": "a master of Spark's",
    "pandas_api": "a name of PySpark's",
    "try_cast": "a name of PySpark's",
}
NAMED = {name for option in all_options() for name in re.findall(r"[a-z]+(?:-[a-z]+)+", option.kind + option.doc)}
"""Values of options, as their kinds and texts have them."""


def spans(page: Path) -> list[str]:
    """What lies between backticks, outside blocks."""
    return re.findall(r"`([^`\n]+)`", BLOCK.sub("", page.read_text()))


@functools.cache
def vocabulary() -> frozenset[str]:
    """All names of the source: of functions, parameters, fields, and those that are written as text (JSON, columns)."""
    words: set[str] = set()
    todo: list[Any] = [SourceFileLoader("", str(file)).get_code("") for file in (ROOT / "src").rglob("*.py")]
    while todo:
        match todo.pop():
            case CodeType() as code:
                words.update((code.co_name, *code.co_names, *code.co_varnames))
                todo += code.co_consts
            case str(text) if " " not in text:
                words.update(re.findall(r"\w+", text))
            case tuple() | frozenset() as several:
                todo += several
            case _:
                pass
    return frozenset(words)


def unknown_names(page: Path) -> list[str]:
    own = set(re.findall(r"\w+", "".join(BLOCK.findall(page.read_text()))))
    wrong: list[str] = []
    for span in (span for span in spans(page) if not KEY.match(span.partition("=")[0])):
        for root, name in ATTRIBUTE.findall(span):
            if f"{root}.{name}" not in FILES_AND_MODULES and not any(hasattr(kind, name) for kind in ROOTS[root]):
                wrong.append(f"{root}.{name}")
        for name in SNAKE.findall(span):
            known = name in vocabulary() or name in own or name in NOT_OURS
            if not known and not hasattr(pc, name) and not hasattr(F, name):
                wrong.append(name)
    return wrong


def unknown_keys(page: Path) -> list[str]:
    keys = [span.partition("=")[0] for span in spans(page)]
    return [key for key in keys if KEY.match(key) and not is_key(key)]


def is_key(text: str) -> bool:
    if (
        text in NAMED
        or text in NOT_OURS
        or text in FILES_AND_MODULES
        or text.removeprefix("firesteel.") in firesteel.__all__
    ):
        return True
    try:
        lookup(text.replace("<name>", "group").replace("<resource>", "gpu"))
    except firesteel.errors.UsageError:
        return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_of_the_api_exist(page):
    assert unknown_names(page) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_keys_of_options_exist(page):
    assert unknown_keys(page) == []


def test_names_and_keys_that_do_not_exist_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "`to_spark`, `env.read_exel(path)`, `stream.explain`, `map_in_arrow(f, schema)`, `pc.utf8_uper(s)`, `env.spark`\n"
        "`max-paralelism`, `max-parallelism`, `firesteel.results.codex=lz4`, `slot-sharing-group.<name>.cpu-cores`\n"
    )
    assert unknown_names(page) == ["to_spark", "env.read_exel", "read_exel", "pc.utf8_uper", "utf8_uper"]
    assert unknown_keys(page) == ["max-paralelism", "firesteel.results.codex"]
