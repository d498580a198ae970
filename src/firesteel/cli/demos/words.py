"""The demo: which identifiers do the Python sources of this machine use, how often, and where most?

An ordinary pipeline by the public API on real input: every ``.py`` file of this Python and of its installed packages.
"""

from __future__ import annotations

import json
import keyword
import os
import shlex
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel import DataStream, ExecutionEnvironment, col
from firesteel.humanize import format_bytes, format_seconds, plural, printable
from firesteel.options import DATA_VOLUME_PER_TASK, JOURNAL_DIR, PROGRESS, UI_ENABLED, Options, lookup

PARTS = ("identifiers", "modules")


def run(out: Path, master: str | None, options: Mapping[str, Any]) -> None:
    """Writes ``out/identifiers`` and ``out/modules`` (over those of an earlier run) and prints what was found and decided."""
    env = ExecutionEnvironment(master=master, options=options)
    roots = source_roots()
    print(
        f"Reading the Python sources under {' and '.join(map(str, roots))}; comments and docstrings count too.",
        flush=True,
    )
    pipeline(env, roots, out)
    result = env.execute("identifiers of all Python sources")
    print(f"\nDone in {format_seconds(result.duration)}. The identifiers used most:\n")
    with tempfile.TemporaryDirectory(prefix="firesteel-demo-") as aside:  # 'explain last' is to mean the job above
        unseen = {PROGRESS.key: False, UI_ENABLED.key: False, JOURNAL_DIR.key: aside}
        quiet = ExecutionEnvironment(master=master, options=Options(options).with_values(unseen))
        quiet.read_parquet(str(out / "identifiers")).top_k(10, "total").show(10, truncate=40)
    print(printable(f"\nWhat was decided, and why:\n\n{result.explain()}"))
    print(printable(f"\n{_where_things_lie(out, result.journal)}\n\n{_what_next(out, result.job_id)}"))


def pipeline(env: ExecutionEnvironment, roots: list[Path], out: Path) -> None:
    """One row per identifier: uses in all, modules that use it, the module that uses it most; one row per module."""
    counts = identifier_counts(env, roots)
    totals = (
        counts.key_by("identifier")
        .aggregate({"total": ("n", "sum"), "modules": ("module", "count"), "most": ("n", "max")})
        .name("totals")
    )
    at_most = counts.key_by("identifier").join(totals.key_by("identifier")).filter(col("n") == col("most"))
    # several modules may use an identifier equally often: the first by name
    identifiers = at_most.key_by("identifier").aggregate(
        {
            "total": ("total", "max"),
            "modules": ("modules", "max"),
            "top_module": ("module", "min"),
            "top_uses": ("n", "max"),
        }
    )
    identifiers.write_parquet(str(out / "identifiers"), mode="overwrite")

    modules = (
        counts.key_by("module")
        .aggregate({"identifiers": ("identifier", "count"), "uses": ("n", "sum")})
        .name("modules")
    )
    modules.write_parquet(str(out / "modules"), mode="overwrite")


def identifier_counts(env: ExecutionEnvironment, roots: list[Path]) -> DataStream:
    """Columns identifier, module, n: how often each module uses it."""
    lines = env.read_text([f"{root}/**/*.py" for root in roots], path_column="path")
    uses = lines.map_in_arrow(_tokenizer(), "identifier string, module string").name("tokenize")
    return uses.key_by("identifier", "module").aggregate({"n": ("module", "count")}).name("count")


def source_roots() -> list[Path]:
    """Returns the directories of this Python's library and packages; none inside another."""
    paths = sysconfig.get_paths()
    found = sorted({Path(paths[name]).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")})
    return [p for p in found if p.is_dir() and not any(p != q and p.is_relative_to(q) for q in found)]


def with_volume(options: Mapping[str, Any], volume: str) -> dict[str, Any]:
    """Adds a volume per task that suits so little data, unless the options set one."""
    is_said = any(lookup(key).key == DATA_VOLUME_PER_TASK.key for key in options)
    return {**options, **({} if is_said else {DATA_VOLUME_PER_TASK.key: volume})}


def _tokenizer() -> Any:
    """The function is made in here, so that it travels to the workers by value: they need not know this module."""
    keywords = pa.array(keyword.kwlist)
    above = r"^.*/(?:site-packages|dist-packages|lib/python[0-9.]+)/"

    def module_names(paths: pa.StringArray) -> pa.StringArray:
        """``.../site-packages/pkg/sub/__init__.py`` to ``pkg.sub``; each of a batch's few paths once."""
        encoded = paths.dictionary_encode()
        names = pc.replace_substring_regex(encoded.dictionary, above, "")
        names = pc.replace_substring_regex(names, r"(?:/__init__)?\.py$", "")
        return pc.replace_substring(names, "/", ".").take(encoded.indices)

    def tokenize(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            words = pc.split_pattern_regex(batch.column("value"), r"[^A-Za-z0-9_]+")
            found = pc.list_flatten(words)
            wanted = pc.and_(pc.match_substring_regex(found, "^[A-Za-z_]"), pc.invert(pc.is_in(found, keywords)))
            rows = pc.list_parent_indices(words).filter(wanted)
            modules = module_names(batch.column("path")).take(rows)
            yield pa.RecordBatch.from_arrays([found.filter(wanted), modules], names=["identifier", "module"])

    return tokenize


def _where_things_lie(out: Path, journal: Path | None) -> str:
    lines = ["Where things lie:"]
    for part in PARTS:
        files = sorted((out / part).glob("*.parquet"))
        size = format_bytes(sum(file.stat().st_size for file in files))
        lines.append(f"  {out / part}  ({plural(len(files), 'Parquet file')}, {size})")
    if journal is not None:
        lines.append(f"  {journal}  (the journal: every decision and change of state)")
    return "\n".join(lines)


def _what_next(out: Path, job_id: str) -> str:
    dev = os.environ.get("FIRESTEEL_DEV")
    command, python = (f"{dev} firesteel", f"{dev} python") if dev else ("firesteel", Path(sys.executable).name)
    modules = json.dumps(str(out / "modules"), ensure_ascii=False)
    printed = shlex.quote(f'import pandas; print(pandas.read_parquet({modules}).nlargest(5, "uses"))')
    tries = {
        f"{command} demo -O data-volume-per-task=4m": "smaller shares, more subtasks",
        f"{command} demo -O cut=by-count": "FLIP-187's own formula",
        f"{command} explain {job_id} tokenize": "the story of one step",
        f"{command} options": "everything that can be set",
        f"{python} -c {printed}": "",
    }
    return what_next(tries)


def what_next(tries: Mapping[str, str]) -> str:
    """Lists commands to try next. ``tries``: by command, its purpose."""
    width = max(len(command) for command, why in tries.items() if why)
    return "\n".join(
        ["What to try next:", *(f"  {command:<{width}}  {why}".rstrip() for command, why in tries.items())]
    )
