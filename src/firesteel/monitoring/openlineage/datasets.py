"""The data sets of an event: what the plan says of them, and the rows that were counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    InputDatasetFacet,
    OutputDatasetFacet,
    column_lineage_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
)

Planned = Mapping[str, Any]
"""One of ``JobPlanned.inputs`` or ``outputs``."""
Name = tuple[str, str]
_DIRECT = ("IDENTITY", "TRANSFORMATION", "AGGREGATION")


def name_of(planned: Planned) -> Name:
    return str(planned["namespace"]), str(planned["name"])


def inputs(planned: Sequence[Planned], rows: Mapping[int, int]) -> list[InputDataset]:
    """Each data set once. ``rows``: read by vertices, where they are known; of a vertex that reads several data sets nobody knows of which."""
    by_name = _by_name(planned)
    alone = [one["vertex"] for one in planned]
    found: list[InputDataset] = []
    for (namespace, name), parts in by_name.items():
        counts = [rows.get(part["vertex"]) if alone.count(part["vertex"]) == 1 else None for part in parts]
        known = [count for count in counts if count is not None]
        told: dict[str, InputDatasetFacet] = {}
        if known and len(known) == len(counts):
            told["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(sum(known))
        found.append(InputDataset(namespace, name, inputFacets=told, facets=_schema(parts[0])))
    return found


def outputs(planned: Sequence[Planned], sources: Sequence[Planned], rows: Mapping[int, int]) -> list[OutputDataset]:
    """``rows``: written by vertices; empty: not told."""
    found: list[OutputDataset] = []
    for (namespace, name), parts in _by_name(planned).items():
        counts = [rows.get(part["vertex"]) if part.get("counted", True) else None for part in parts]
        known = [count for count in counts if count is not None]
        told: dict[str, OutputDatasetFacet] = {}
        if known and len(known) == len(counts):
            told["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(sum(known))
        lineage = _lineage(parts[0], sources)
        facets = {**_schema(parts[0]), **({} if lineage is None else {"columnLineage": lineage})}
        found.append(OutputDataset(namespace, name, outputFacets=told, facets=facets))
    return found


def _by_name(planned: Iterable[Planned]) -> dict[Name, list[Planned]]:
    found: dict[Name, list[Planned]] = {}
    for one in planned:
        found.setdefault(name_of(one), []).append(one)
    return found


def _schema(planned: Planned) -> dict[str, DatasetFacet]:
    columns = planned.get("columns") or []
    if not columns:
        return {}
    fields = [schema_dataset.SchemaDatasetFacetFields(str(name), str(kind)) for name, kind in columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields)}


def _lineage(planned: Planned, sources: Sequence[Planned]) -> DatasetFacet | None:
    names: dict[int, list[Name]] = {}
    for source in sources:
        names.setdefault(int(source["vertex"]), []).append(name_of(source))
    fields = {
        column: column_lineage_dataset.Fields(_fields(origins, names))
        for column, origins in (planned.get("origins") or {}).items()
    }
    decided_by = _fields(planned.get("decided_by") or (), names)
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields, decided_by) if fields or decided_by else None


def _fields(
    origins: Iterable[Sequence[Any]], names: Mapping[int, list[Name]]
) -> list[column_lineage_dataset.InputField]:
    """A column of each data set that the source reads, once, with all that is done to it."""
    done: dict[tuple[str, str, str], list[str]] = {}
    for source, column, how in origins:
        for namespace, name in names.get(int(source), ()):
            done.setdefault((namespace, name, str(column)), []).append(str(how))
    return [
        column_lineage_dataset.InputField(
            *where,
            transformations=[
                column_lineage_dataset.Transformation("DIRECT" if how in _DIRECT else "INDIRECT", how)
                for how in dict.fromkeys(ways)
            ],
        )
        for where, ways in done.items()
    ]
