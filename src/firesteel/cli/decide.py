"""``firesteel decide``: what the decider would do with inputs of these sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from firesteel.cli.shared import Config, OptionPairs, given_options, show, split_pair
from firesteel.errors import UsageError

if TYPE_CHECKING:
    from firesteel.journal.file import AnyJournalRecord

WhatIf = Annotated[
    list[str] | None,
    typer.Option(
        "--what-if",
        metavar="KEY=VALUE",
        help="Decide again from the recorded bytes with this option of the decider or of joins, and show both: "
        "data-volume-per-task=256MiB, firesteel.memory.per-task=2GiB. Repeatable.",
    ),
]


def decide(
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Requests, one JSON object a line (or one over several); '-': piped in."),
    ],
    option: OptionPairs = None,
    config: Config = None,
) -> None:
    """Print how parallel a step with such inputs would be, and the ranges its subtasks would read, for each request.

    A request: {"options": {"min-parallelism": 1, "max-parallelism": 128, "data-volume-per-task": "64 MiB", "cut":
    "by-bytes", "parallelism": null}, "inputs": [{"pattern": "all-to-all", "broadcast": false, "keyed": true, "bytes":
    [[4096, "1 MiB"], [0, 512]]}]}. "bytes" has one list per producer, with one size per subpartition. "join": "inner", beside two
    keyed inputs, lets heavy subpartitions be divided, as that kind of join allows it. What is left out has its default. One answer a line; ranges are half-open; exit 1 if any request could not be met ("error" says why).
    """
    from firesteel.cli.answers import answer_file

    met = True
    for answer, is_met in answer_file(file, given_options(option, configs=config)):
        met = met and is_met
        if not show(answer.decode()):
            break
    raise typer.Exit(0 if met else 1)


def what_if_text(records: Sequence[AnyJournalRecord], pairs: Sequence[str], vertex: str | None) -> str:
    """For ``firesteel explain --what-if``. Raises UsageError."""
    from firesteel.report.fold import check_job
    from firesteel.simulation.what_if import what_if

    check_job(records, "This is a stream: nothing in it was decided from bytes.", "Leave out --what-if.")
    example = "data-volume-per-task=256MiB"
    values = dict(split_pair(pair, "--what-if", example) for pair in pairs)
    if empty := next((pair for pair in pairs if not pair.partition("=")[2].strip()), None):
        raise UsageError(f"'--what-if {empty}' is not an option.", hint=f"Write --what-if {example}.")
    return what_if(records, values, vertex)
