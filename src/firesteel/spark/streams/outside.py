"""The data sets that a streaming query reads and writes, as lineage names them: read from the writer and its logical plan, as far as these tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from firesteel.connectors.datasets import DatasetName, dataset_of_url
from firesteel.spark.streams.inspection import streaming_nodes, writer_field, writer_option


def reads_of(writer: Any) -> tuple[DatasetName, ...]:
    """Folders and topics; of other sources nothing."""
    found: list[DatasetName] = []
    with suppress(Exception):  # another Spark may name things differently: nothing else hangs on it
        for node in streaming_nodes(writer._df._jdf.queryExecution().analyzed()):
            kind = str(node.getClass().getSimpleName())
            if kind.startswith("StreamingRelation"):
                found += _datasets(str(node.sourceName()), _source_options(node, kind))
    return tuple(dict.fromkeys(found))


def writes_of(writer: Any) -> tuple[DatasetName, ...]:
    """Folders and topics; nothing of what ``foreachBatch`` does."""
    kind = str(writer_field(writer, "source") or "")
    wanted = ("path", "topic", "kafka.bootstrap.servers")
    with suppress(ValueError):  # a path that is no URL: Spark will say so
        return tuple(_datasets(kind, {name: writer_option(writer, name) for name in wanted}))
    return ()


def _source_options(node: Any, kind: str) -> Mapping[str, str]:
    if "V2" in kind:
        options = node.extraOptions()
        return {name: str(options.get(name) or "") for name in ("path", "subscribe", "kafka.bootstrap.servers")}
    options = node.dataSource().options()
    return {name: str(options.get(name).get()) for name in ("path",) if options.contains(name)}


def _datasets(kind: str, options: Mapping[str, str]) -> Iterator[DatasetName]:
    servers = options.get("kafka.bootstrap.servers", "").partition(",")[0].strip()
    topics = options.get("topic") or options.get("subscribe") or ""
    if kind.lower() == "kafka" and servers:
        for topic in filter(None, (name.strip() for name in topics.split(","))):
            yield (f"kafka://{servers}", topic)
    elif options.get("path"):
        yield dataset_of_url(options["path"])
