"""The rows that sources need not read, by the joins behind them: found before the job runs, for ``scheduler.joins.runtime_filters``.

From each side of a join whose rows come out only where they match, a key column is followed back to the source that it comes from:
through projections, filters, unions, and joins that hand it on. Whatever else looks at rows on the way, or reads them beside the join, ends
the search. A query of Spark's that may raise an error ends it, too. A column expression of the user's own steps may not: it raises nothing for a
row that is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from firesteel.model.job_graph import JobGraph, JobVertex, RuntimeFilter
from firesteel.task.expressions import passed_columns
from firesteel.task.functions.row_functions import MapRows
from firesteel.task.operators.composed import FromGate, FromOperator, tree_of
from firesteel.task.operators.fragments import SqlFragment, SqlOfKeys
from firesteel.task.operators.join import HashJoin
from firesteel.task.operators.relational import Filter, Project
from firesteel.task.program import KeyedHead, Operator, ResultOutput, SourceHead, VertexProgram

_MATCHED = {"inner": (0, 1), "left": (1,), "right": (0,), "semi": (0, 1), "anti": (1,), "full": ()}
"""By kind of join the inputs whose rows without a match do not come out, nor change anything."""
_HANDED_ON = {"inner": (0, 1), "left": (0,), "right": (1,), "semi": (0,), "anti": (0,), "full": ()}
"""By kind of join the inputs of which each row's columns come out with that row, and with it alone, if at all."""
_KEEP_ROWS = (Project, MapRows)

Found = Iterator[tuple[int, str]]
"""Source vertices and their columns."""


def runtime_filters(graph: JobGraph) -> dict[int, tuple[RuntimeFilter, ...]]:
    """By source vertex. ``graph``: complete."""
    search = _Search(graph)
    found: dict[int, list[RuntimeFilter]] = {}
    for vertex in graph.vertices:
        for join in _joins(_tree(vertex.program)):
            for side in _MATCHED[join.operator.how]:
                for source, made in search.filters(vertex, join, side):
                    found.setdefault(source, []).append(made)
    return {vertex: tuple(filters) for vertex, filters in found.items()}


@dataclass(frozen=True, slots=True)
class _Join:
    """A join of two inputs, each of which is gates of the vertex, or what other operators of it give: several are a union."""

    operator: HashJoin
    inputs: tuple[tuple[FromGate | FromOperator, ...], ...]


def _tree(program: VertexProgram) -> FromOperator | None:
    """The keyed operators of a vertex, as one tree."""
    head = program.head
    return tree_of(head.operator, program.gate_schemas) if isinstance(head, KeyedHead) else None


def _joins(node: FromOperator | None) -> Iterator[_Join]:
    if node is None:
        return
    join = _as_join(node)
    if join is not None:
        yield join
    for members in node.inputs:
        for member in members:
            if isinstance(member, FromOperator):
                yield from _joins(member)


def _as_join(node: FromOperator) -> _Join | None:
    return _Join(node.operator, node.inputs) if isinstance(node.operator, HashJoin) else None


class _Search:
    def __init__(self, graph: JobGraph) -> None:
        self._graph = graph

    def filters(self, vertex: JobVertex, join: _Join, side: int) -> Iterator[tuple[int, RuntimeFilter]]:
        """Filters of the sources of one side of a join, by the keys of the other one."""
        build, *others = join.inputs[1 - side]
        if others or not isinstance(build, FromGate):  # nobody has it, whole, before the join itself runs
            return
        dataset = vertex.inputs[build.gate].dataset
        if self._graph.datasets[dataset].order is not None:  # its ranges are not decided yet
            return
        if self._graph.datasets[dataset].producer == vertex.first_step:  # it may never be made
            return
        own, other = join.operator.keys[side], join.operator.keys[1 - side]
        found: dict[int, list[tuple[str, str]]] = {}
        for column, key in zip(own, other, strict=True):
            for source, origin in self._of_side(vertex, join.inputs[side], column):
                found.setdefault(source, []).append((key, origin))
        for source, pairs in found.items():
            keys, columns = zip(*pairs, strict=True)
            yield source, RuntimeFilter(vertex.id, 1 - side, dataset, keys, columns, self._drops_rows(dataset, set()))

    def _of_side(self, vertex: JobVertex, members: Sequence[FromGate | FromOperator], column: str) -> Found:
        for member in members:
            yield from self._of_input(vertex, member, column)

    def _of_input(self, vertex: JobVertex, node: FromGate | FromOperator, column: str) -> Found:
        """The sources of a column of an operator's input."""
        if isinstance(node, FromGate):
            yield from self._of_dataset(vertex.inputs[node.gate].dataset, column)
            return
        operator = node.operator
        schema = operator.schema if isinstance(operator, HashJoin | SqlOfKeys) else None
        origin = _before(node.behind, column, schema)
        if origin is not None:
            yield from self._of_operator(vertex, node, origin)

    def _of_operator(self, vertex: JobVertex, node: FromOperator, column: str) -> Found:
        if isinstance(node.operator, SqlOfKeys):
            for members, passed in zip(node.inputs, node.operator.passed, strict=False):
                if column in passed and len(members) == 1:
                    yield from self._of_input(vertex, members[0], passed[column])
        join = _as_join(node)
        if join is None:
            return
        side, origin = _handed_on(join.operator, column)
        if side in _HANDED_ON[join.operator.divided_as]:
            yield from self._of_side(vertex, join.inputs[side], origin)

    def _of_dataset(self, dataset: int, column: str) -> Found:
        """The sources of a column of a data set that nobody else reads."""
        vertex = self._graph.vertices[self._graph.datasets[dataset].producer]
        program: VertexProgram = vertex.program
        if not self._is_read_once(vertex, dataset):
            return
        head, tree = program.head, _tree(program)
        if isinstance(head, SourceHead):
            origin = _before(program.operators, column, getattr(head.source, "schema", None))
            if origin is not None and hasattr(head.source, "push_down"):
                yield vertex.id, origin
        elif tree is not None and isinstance(tree.operator, HashJoin | SqlOfKeys):
            origin = _before(program.operators, column, tree.operator.schema)
            if origin is not None:
                yield from self._of_operator(vertex, tree, origin)

    def _is_read_once(self, vertex: JobVertex, dataset: int) -> bool:
        """Returns whether the rows of the vertex go into this data set alone, as they are, and it has one reader."""
        if vertex.has_sink or vertex.outputs != [dataset] or self._graph.datasets[dataset].persistent:
            return False
        outputs = [output for output in vertex.program.outputs if isinstance(output, ResultOutput)]
        readers = sum(edge.dataset == dataset for reader in self._graph.vertices for edge in reader.inputs)
        return readers == 1 and all(output.combiner is None for output in outputs)

    def _drops_rows(self, dataset: int, seen: set[int]) -> bool:
        """Returns whether some step on the way to the data set may drop rows."""
        vertex = self._graph.vertices[self._graph.datasets[dataset].producer]
        if vertex.id in seen:
            return False
        seen.add(vertex.id)
        program: VertexProgram = vertex.program
        head, tree = program.head, _tree(program)
        if isinstance(head, SourceHead) and getattr(head.source, "is_filtered", False):
            return True
        inner = (join.operator.how in ("inner", "semi", "anti") for join in _joins(tree))
        if any(inner) or any(map(_may_drop, program.operators)):
            return True
        return any(self._drops_rows(edge.dataset, seen) for edge in vertex.inputs)


def _may_drop(operator: Operator) -> bool:
    """Returns whether the operator may drop rows."""
    return operator.selective if isinstance(operator, SqlFragment) else not isinstance(operator, _KEEP_ROWS)


def _before(operators: tuple[Operator, ...], column: str, schema: object) -> str | None:
    """The column in front of these operators that comes out of them as ``column``; None: one of them may change it, or see other
    rows. ``schema``: that of their input."""
    for place in reversed(range(len(operators))):
        operator = operators[place]
        if isinstance(operator, Filter):
            continue
        if isinstance(operator, SqlFragment):
            if column not in operator.passed:
                return None
            column = operator.passed[column]
            continue
        if not isinstance(operator, Project):
            return None
        before = next((o.schema for o in reversed(operators[:place]) if isinstance(o, Project | SqlFragment)), schema)
        passed = {} if before is None else passed_columns(operator.columns, before)
        if column not in passed:
            return None
        column = passed[column]
    return column


def _handed_on(join: HashJoin, column: str) -> tuple[int, str]:
    """The input that a column of a join comes from, and its name there: the left columns, then the right ones without the keys."""
    place = join.schema.names.index(column)
    left = join.left_schema.names
    if place < len(left):
        return 0, left[place]
    return 1, join.payload[place - len(left)].name
