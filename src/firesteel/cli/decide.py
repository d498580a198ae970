"""``firesteel decide``: what the decider would do with inputs of these sizes."""

from __future__ import annotations

from typing import Annotated

import typer

from firesteel.cli.shared import Config, OptionPairs, given_options, show


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
    [[4096, "1 MiB"], [0, 512]]}]}. "bytes" has one list per producer, with one size per subpartition. What is left out
    has its default. One answer a line; ranges are half-open; exit 1 if any request could not be met ("error" says why).
    """
    from firesteel.cli.decide_answers import answer_file
    from firesteel.options import Options

    met = True
    for answer, is_met in answer_file(file, Options(given_options(option, configs=config))):
        met = met and is_met
        if not show(answer.decode()):
            break
    raise typer.Exit(0 if met else 1)
