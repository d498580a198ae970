"""The compiler's output: the job graph for the scheduler, and beside it what only the runtime looks at."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from firesteel.compile.adaptive.one_step import InOneStep
from firesteel.errors import OutputExistsError
from firesteel.model.external import External
from firesteel.model.job_graph import JobGraph
from firesteel.model.runner import Choice
from firesteel.plan.rules import Applied


@dataclass(slots=True)
class CompiledJob:
    """``Sink.check`` has been called for every sink, and ``Source.list_splits`` for every source."""

    job_graph: JobGraph
    splits: dict[int, list[Any]] = field(default_factory=dict)
    """Source vertex to its ``connectors.Split``s; ``JobVertex.source.split_bytes`` runs parallel."""
    sinks: dict[int, list[Any]] = field(default_factory=dict)
    """Vertex to its ``connectors.Sink``s, in the order of its ``SinkOutput``s."""
    dataframes: dict[int, Any] = field(default_factory=dict)
    """Vertex with a ``SparkHead`` to its Spark DataFrame."""
    schemas: dict[int, pa.Schema] = field(default_factory=dict)
    """Data set to its schema."""
    collects: dict[int, int] = field(default_factory=dict)
    """Number of a collect to its data set (persistent, one subpartition)."""
    kept: set[int] = field(default_factory=set)
    """The collected data sets that later jobs may read; they outlive the job's own result."""
    stored: dict[int, str] = field(default_factory=dict)
    """Pipelined jobs: data set that is stored all the same, and why, in words."""
    in_ranges: set[int] = field(default_factory=set)
    """Data sets that go forward though nobody asked for it, so that ranges of keys, and a sort's order, stay whole."""
    places: dict[int, str] = field(default_factory=dict)
    """Vertex to the user's lines that made its steps, in words, for messages."""
    external: External = field(default_factory=External)
    """The data sets outside of the job that it reads and writes."""
    in_one_step: dict[int, InOneStep] = field(default_factory=dict)
    """Vertex with a first step before it (``JobVertex.first_step``) to what it does where it does the work of both."""

    runner: Choice | None = None
    """Why it runs in stages, where there was a choice."""
    rules: list[Applied] = field(default_factory=list[Applied])
    """What rules did to the plans of DataFrames in it."""
    taken: list[OutputExistsError] = field(default_factory=list[OutputExistsError])
    """Outputs that exist already: such a job must not run, but may have done so."""

    def copy(self) -> CompiledJob:
        """One whose graph can change while the job runs; vertices and data sets are shared until they are replaced."""
        copied = replace(self, job_graph=self.job_graph.copy())
        copied.splits, copied.places = dict(self.splits), dict(self.places)
        return copied
