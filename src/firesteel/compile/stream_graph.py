"""The stream graph: the steps as the user wrote them, before anything is fused.

A :class:`StreamNode` is one step, a :class:`StreamEdge` one of its inputs, with the partitioner the user asked for
(None: nobody asked). Nodes point at their inputs only, so a pipeline is held by the streams that the user holds.
What a step *does* never changes once it is made; how it is run (:class:`StepConfig`) is set on the last step, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from firesteel.model.job_graph import FileSizes, ShipStrategy
from firesteel.model.order import Order
from firesteel.model.runner import Choice
from firesteel.model.slot_sharing_group import SlotSharingGroup
from firesteel.plan.rules import Applied
from firesteel.task.operators.fragments import INPUT, SqlFragment
from firesteel.task.program import Combiner, KeyedOperator, Operator


class Chaining(Enum):
    """May a step share a task with its neighbours? (Flink: ChainingStrategy)"""

    ALWAYS = "always"
    HEAD = "head"
    """Not with the step before it (``start_new_chain``)."""
    NEVER = "never"
    """With no other step (``disable_chaining``)."""


@dataclass(slots=True)
class StepConfig:
    """Settings of a step, made after it. None: not set."""

    name: str | None = None
    uid: str | None = None
    parallelism: int | None = None
    max_parallelism: int | None = None
    chaining: Chaining = Chaining.ALWAYS
    speculative: bool = True
    """False: its task is never mirrored."""
    side_effects: bool = False
    """It acts on the outside: two attempts of a subtask must never run at once."""
    deterministic: bool = True
    """False: its functions may give other rows when they run again."""
    slot_sharing_group: SlotSharingGroup | None = None
    """One without resources where only a name was given; None: as its inputs."""
    group_place: str = ""
    """``file.py:12`` where the group was set."""
    broadcast: str | None = None
    """Of a join: the side to be given whole to every task ("left", "right"), "never", or None: as is decided while the job runs."""
    files: FileSizes | None = None
    """Of what comes before a sink: the files that it should write."""
    cache: Any = None
    """The place where its rows are kept for later jobs (``api.caching.Cache``); None: they are not."""


# --- what a step does ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class SourceStep:
    """``source``: ``connectors.Source``."""

    source: Any


@dataclass(frozen=True, slots=True, eq=False)
class DataFrameStep:
    """``settle()``, called when the job is compiled, gives the Spark DataFrame to read (``dataframe``, never looked into
    here), how many partitions it has (``num_partitions``), and whether these come out the same when Spark computes them
    again (``deterministic``)."""

    settle: Callable[[], Any]


@dataclass(frozen=True, slots=True, eq=False)
class ChainedStep:
    """One operator on one input.

    ``passed``: output column to input column, for those that go through unchanged (what keeps a hash partitioning
    valid); None: nothing is known. ``projection``, ``filter``: what the operator does, where it is an expression, so
    that it can be pushed into a source. ``selection``: what a query of the engine does, in its place.
    """

    operator: Operator
    passed: dict[str, str] | None = None
    projection: tuple[tuple[str, pc.Expression], ...] | None = None
    filter: pc.Expression | None = None
    selection: Selection | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Columns and rows that the engine makes of a step's rows, ``before``, whose columns are ``c0``, ``c1``, ... by their places.

    ``items``: by name, the text of each column, and the columns that it reads. ``where``: the same of the condition. ``hints``: conditions that
    are true wherever that one is, by which rows may be left out before it is computed. ``raises``: as of ``SqlFragment``.
    """

    kind: str
    before: pa.Schema
    items: Mapping[str, tuple[str, frozenset[str]]]
    schema: pa.Schema
    where: tuple[str, frozenset[str]] | None = None
    hints: tuple[pc.Expression, ...] = ()
    raises: bool = False
    told: tuple[str, frozenset[str]] | None = None
    """What it does to a row, in words ("compute v as (a / b)"), and the columns that it does this with."""

    @property
    def passed(self) -> dict[str, str]:
        """Output column to input column, for those that go through unchanged."""
        places = {f"c{place}": name for place, name in enumerate(self.before.names)}
        return {name: places[text] for name, (text, _) in self.items.items() if text in places}

    def reads(self, wanted: set[str]) -> set[str]:
        """The columns that it reads for these of its own."""
        found = {one for name, (_, reads) in self.items.items() if name in wanted for one in reads}
        return found if self.where is None else found | self.where[1]

    def step(self, wanted: Collection[str] | None = None, narrowed: pa.Schema | None = None) -> ChainedStep:
        """``wanted``: the columns that are needed of it; ``narrowed``: those that are still there of ``before``. None: all."""
        fields = [field for field in self.schema if wanted is None or field.name in wanted]
        reads = self.reads({field.name for field in fields}) or {min(self.before, key=width).name}
        there = self.before if narrowed is None else narrowed
        before = pa.schema([field for field in there if field.name in reads])
        names = tuple(f"c{self.before.get_field_index(name)}" for name in before.names)
        texts = ", ".join(self.items[field.name][0] for field in fields)
        tail = f" WHERE {self.where[0]}" if self.where else ""
        items = {field.name: self.items[field.name] for field in fields}
        own = replace(self, items=items, schema=pa.schema(fields, self.schema.metadata))
        fragment = SqlFragment(
            self.kind, f"SELECT {texts} FROM {INPUT}{tail}", before, own.schema, passed=own.passed,
            selective=self.where is not None, names=names, raises=self.raises, told=self.told,
        )  # fmt: skip
        return ChainedStep(fragment, own.passed, selection=own)


def width(field: pa.Field) -> int:
    """Bits of a value; much for one without a fixed number."""
    try:
        return field.type.bit_width
    except ValueError:
        return 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class KeyedStep:
    """An operator that needs all rows of a key together.

    ``operator`` reads what travels along the edges (after their combiners); ``direct`` does the same work on the
    streams themselves, for inputs that already lie right and need no exchange. ``keys``: per input, of the streams
    themselves. ``kept``: the output columns that hold the key, in order, or None if the output need not have it.
    """

    operator: KeyedOperator
    direct: KeyedOperator
    keys: tuple[tuple[str, ...], ...]
    kept: tuple[str, ...] | None = None
    made: Mapping[str, tuple[str, ...]] | None = None
    """For groups and windows: the columns that each output column after the keys, or after those of the input, is made of; None: not known."""
    by_order: tuple[str, ...] = ()
    """Output columns that may be others where the same rows come in another order."""
    ordered_by: tuple[str, ...] | None = None
    """The columns of a window's order. None: another step than a window."""


@dataclass(frozen=True, slots=True, eq=False)
class SortStep:
    """Rows in order: its input comes by a RANGE edge, and ``operator`` puts each run of ranges in order.

    Subtask k holds what comes before all that subtask k + 1 holds.
    """

    operator: KeyedOperator


@dataclass(frozen=True, slots=True, eq=False)
class UnionStep:
    pass


@dataclass(frozen=True, slots=True, eq=False)
class SinkStep:
    """``sink``: ``connectors.Sink``."""

    sink: Any


@dataclass(frozen=True, slots=True, eq=False)
class CollectStep:
    """The rows are kept for the driver, or (``keep``) for later jobs, under the number ``handle``.

    ``runner``: why the query runs in stages, where there was a choice.
    """

    handle: int
    keep: bool = False
    runner: Choice | None = None


Work = SourceStep | DataFrameStep | ChainedStep | KeyedStep | SortStep | UnionStep | SinkStep | CollectStep


# --- the graph --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class StreamEdge:
    """``ship``: None when nobody asked for a partitioning. ``keys`` name the columns of what travels (``schema``)."""

    source: StreamNode
    ship: ShipStrategy | None = None
    keys: tuple[str, ...] = ()
    combiner: Combiner | None = None
    combined: pa.Schema | None = None
    """Schema behind the combiner, if there is one."""
    reads: tuple[str, ...] | None = None
    """The only columns of the source that this reader looks at; None: all."""
    order: Order | None = None
    """Of a RANGE edge: by what the rows are parted into ranges."""
    routed: bool = False
    """It carries not the step's rows but those that its function could not do."""

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema if self.combined is None else self.combined


@dataclass(frozen=True, slots=True, eq=False)
class StreamNode:
    kind: str
    """The step in the user's words: ``map_in_arrow(tokenize)``."""
    work: Work
    schema: pa.Schema
    inputs: tuple[StreamEdge, ...] = ()
    sides: tuple[tuple[str, StreamEdge], ...] = ()
    """Broadcast side inputs by name."""
    place: str = ""
    """``file.py:12`` where the user made the step."""
    config: StepConfig = field(default_factory=StepConfig)
    instead: StreamNode | None = None
    """Gives the same rows by Spark alone, where the engine in our tasks cannot."""
    left_to_spark: tuple[str, ...] = ()
    """Of a DataFrame: the parts that Spark computes, with the reasons."""
    rules: tuple[Applied, ...] = ()
    """Of a DataFrame: what rules did to its plan."""
    likely_bytes: int | None = None
    """Plain bytes that it gives, guessed from the rows of sources; None: nobody knows."""

    @property
    def name(self) -> str:
        return self.config.name or self.kind

    def __str__(self) -> str:
        """The step as it is called in messages: ``step 'map_in_arrow(tokenize)' at wordcount.py:12``."""
        label = self.kind if self.config.name is None else f"{self.config.name}: {self.kind}"
        return f"step '{label}'" + (f" at {self.place}" if self.place else "")


def reachable(
    ends: Iterable[StreamNode], needs_inputs: Callable[[StreamNode], bool] = lambda _node: True
) -> list[StreamNode]:
    """All steps that the ``ends`` need, every step behind its inputs. Without recursion: pipelines may be long.

    ``needs_inputs`` is asked once for each step; what lies before one that does not is left out.
    """
    order: list[StreamNode] = []
    seen: set[StreamNode] = set()
    stack: list[tuple[StreamNode, bool]] = [(end, False) for end in reversed(list(ends))]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if needs_inputs(node):
                needed = [e.source for e in node.inputs] + [e.source for _, e in node.sides]
                stack.extend((n, False) for n in reversed(needed) if n not in seen)
    return order
