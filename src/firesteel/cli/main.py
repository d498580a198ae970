"""The command line. What goes wrong is one sentence on stderr: exit 2 for wrong use, 1 for a failed job, 130 cancelled."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from firesteel.cli import CANCELLED
from firesteel.cli.decide import decide
from firesteel.cli.shared import Config, Master, OptionPairs, Quiet, given_options, number, show, whole
from firesteel.cli.stream import stream_app
from firesteel.errors import FiresteelError, UsageError

app = typer.Typer(
    name="firesteel",
    help="Runs PySpark pipelines whose every step's parallelism is decided from the bytes its inputs really produced.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,  # plain help: quick to start, the same in a pipe
    pretty_exceptions_enable=False,
)
app.add_typer(stream_app, name="stream")
app.command()(decide)


@app.callback(invoke_without_command=True)
def start(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from importlib.metadata import version as version_of

        print(f"firesteel {version_of('firesteel')}")
        raise typer.Exit


@app.command(context_settings={"ignore_unknown_options": True})
def run(
    *,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]", help="What the script finds in sys.argv.")
    ] = None,
    option: OptionPairs = None,
    config: Config = None,
    master: Master = None,
    quiet: Quiet = False,
) -> None:
    """Run a script; what it leaves open (master, options) comes from here. Arguments after '--' are all the script's."""
    from firesteel.cli.script import run_script

    options = given_options(option, quiet, config)
    if not Path(script).is_file():
        raise UsageError(f"There is no script '{script}'.", hint="Give the path of a Python file.")
    from firesteel.api.environment import set_defaults

    set_defaults(master=master, options=options)
    raise typer.Exit(run_script(Path(script), arguments or []))


@app.command()
def explain(
    job: Annotated[str, typer.Argument(help="A job's id or its beginning, the path of a journal, or 'last'.")],
    vertex: Annotated[str | None, typer.Argument(help="Only this vertex: its id or name.")] = None,
    option: OptionPairs = None,
) -> None:
    """Print what a job or a stream decided and why."""
    from firesteel.journal.explain import explain as explain_records
    from firesteel.journal.journal import find, read
    from firesteel.journal.stream_report import explain_stream
    from firesteel.journal.streams import is_stream
    from firesteel.options import Options

    records = read(find(job, Options(given_options(option))))
    if is_stream(records):
        no_vertices(vertex)
    show(explain_stream(records) if is_stream(records) else explain_records(records, vertex))


@app.command()
def history(
    job: Annotated[str, typer.Argument(help="A job's id or its beginning, the path of a journal, or 'last'.")],
    vertex: Annotated[str | None, typer.Argument(help="Only this vertex: its id or name.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Of the subtasks with one attempt, too.")] = False,
    option: OptionPairs = None,
) -> None:
    """Print the life of every attempt, of the subtasks that had several: node, state, cause, which one won. Of a stream: its
    rescales."""
    from firesteel.journal.attempts_report import report
    from firesteel.journal.journal import find, read
    from firesteel.journal.stream_report import stream_history
    from firesteel.journal.streams import is_stream
    from firesteel.options import Options

    records = read(find(job, Options(given_options(option))))
    if is_stream(records):
        no_vertices(vertex)
    show(stream_history(records) if is_stream(records) else report(records, vertex, all_of_them=every))


def no_vertices(vertex: str | None) -> None:
    if vertex is not None:
        raise UsageError(f"This is a stream, which has no vertex '{vertex}'.", hint="Leave it out.")


@app.command()
def options(
    words: Annotated[str | None, typer.Argument(metavar="[WORD]", help="Only options with this word.")] = None,
    option: OptionPairs = None,
) -> None:
    """List the options: value (where -O sets one), default, meaning."""
    from firesteel.cli.options_list import options_text
    from firesteel.options import Options

    show(options_text(Options(given_options(option)), words))


@app.command()
def demo(
    which: Annotated[
        str | None, typer.Argument(metavar="[stream]", help="A stream that is rescaled while it runs.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where results go (default: out/demo).")
    ] = None,
    option: OptionPairs = None,
    master: Master = None,
    quiet: Quiet = False,
) -> None:
    """Count the identifiers of all Python sources of this machine: the main job on real input. 'demo stream': a rescale."""
    given = given_options(option, quiet)
    if which not in (None, "stream"):
        raise UsageError(f"There is no demo '{which}'.", hint="There are 'firesteel demo' and 'firesteel demo stream'.")
    if which == "stream":
        from firesteel.cli.demo_stream import run_stream_demo

        run_stream_demo(out or Path("out/demo-stream"), master, given)
        return
    from firesteel.cli.demo import run_demo

    run_demo(out or Path("out/demo"), master, given)


@app.command()
def simulate(
    *,
    vertices: Annotated[
        int,
        typer.Option(
            "--vertices", parser=whole("--vertices"), metavar="N", help="Steps of the job, one after another."
        ),
    ] = 2,
    parallelism: Annotated[
        int,
        typer.Option(
            "--parallelism",
            parser=whole("--parallelism"),
            metavar="N",
            help="Subtasks of each step; at most so many where it is decided.",
        ),
    ] = 10_000,
    edge: Annotated[
        str, typer.Option("--edge", metavar="KIND", help="all-to-all, pointwise or forward.")
    ] = "all-to-all",
    nodes: Annotated[
        int, typer.Option("--nodes", parser=whole("--nodes"), metavar="N", help="Nodes of the cluster.")
    ] = 1000,
    slots: Annotated[
        int, typer.Option("--slots", parser=whole("--slots"), metavar="N", help="Slots of each node.")
    ] = 10,
    adaptive: Annotated[
        bool | None,
        typer.Option("--adaptive/--static", help="Decide parallelism from bytes (the default), or know it beforehand."),
    ] = None,
    pipelined: Annotated[
        bool, typer.Option("--pipelined", help="Steps that read from each other run at the same time.")
    ] = False,
    slow_nodes: Annotated[
        int,
        typer.Option(
            "--slow-nodes", parser=whole("--slow-nodes"), metavar="N", help="Nodes that are slower than the others."
        ),
    ] = 0,
    slow_factor: Annotated[
        float,
        typer.Option(
            "--slow-factor",
            parser=number("--slow-factor", float, "number"),
            metavar="F",
            help="Speed of slow nodes, 1 being that of the others.",
        ),
    ] = 0.25,
    frozen_nodes: Annotated[
        int,
        typer.Option(
            "--frozen-nodes",
            parser=whole("--frozen-nodes"),
            metavar="N",
            help="Nodes that stand still soon after the start, and are told as gone after two minutes.",
        ),
    ] = 0,
    fail_rate: Annotated[
        float,
        typer.Option(
            "--fail-rate",
            parser=number("--fail-rate", float, "number"),
            metavar="F",
            help="Share of executions that fail.",
        ),
    ] = 0.0,
    seed: Annotated[
        int, typer.Option("--seed", parser=whole("--seed"), metavar="S", help="The same seed, the same story.")
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    journal: Annotated[str | None, typer.Option("--journal", metavar="FILE", help="Write the journal here.")] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="NAME",
            help="Slot sharing group of the steps, in turn; -O slot-sharing-group.NAME.cpu-cores=2 and others give it resources. Repeatable.",
        ),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Memory of each node for slots of groups that have resources; its cores are its --slots.",
        ),
    ] = None,
    external: Annotated[
        list[str] | None,
        typer.Option("--external", metavar="NAME=N", help="An external resource of each node: gpu=2. Repeatable."),
    ] = None,
    profiles: Annotated[
        str,
        typer.Option(
            "--profiles",
            metavar="KIND",
            help="What Spark is told of such slots: task (on the executors there are), executor (it makes them), none (the slot pool alone sees to it).",
        ),
    ] = "task",
    option: OptionPairs = None,
) -> None:
    """Print what a job of some shape costs to schedule: the real scheduler on a made-up cluster, without Spark."""
    if sys.stdout is None:  # closed by who started us
        raise FiresteelError("There is no output to print the report to.")
    given = given_options(option)
    try:
        from firesteel.cli.simulate import simulate_text

        text, finished = simulate_text(
            vertices=vertices,
            parallelism=parallelism,
            edge=edge,
            nodes=nodes,
            slots=slots,
            adaptive=adaptive,
            pipelined=pipelined,
            slow_nodes=slow_nodes,
            slow_factor=slow_factor,
            frozen_nodes=frozen_nodes,
            fail_rate=fail_rate,
            seed=seed,
            as_json=as_json,
            journal=journal,
            options=given,
            groups=group or (),
            memory=memory,
            external=external or (),
            profiles=profiles,
        )
    except KeyboardInterrupt:
        print("Cancelled.", file=sys.stderr, flush=True)
        raise typer.Exit(CANCELLED) from None
    show(text)
    if not finished:
        raise typer.Exit(1)


def main() -> NoReturn:
    """The entry point of the ``firesteel`` command."""
    logging.getLogger().addFilter(_is_news)
    try:
        app(prog_name="firesteel")
    except FiresteelError as error:
        from firesteel.cli.script import report

        raise SystemExit(report(error)) from None
    except SystemExit as end:  # typer ends with 1 after Ctrl-C
        raise SystemExit(CANCELLED if _interrupted(end) else end.code) from None
    except KeyboardInterrupt:  # before typer was ready
        raise SystemExit(CANCELLED) from None
    finally:
        # Ctrl-C inside an exec'd string (dataclasses have such) makes Python end by the signal, whatever SystemExit
        # says, until the next string is exec'd.
        exec("")
    raise SystemExit(0)


def _is_news(record: logging.LogRecord) -> bool:
    """Not so what py4j logs, with a trace, when Ctrl-C finds it talking to Spark: "Cancelled." says it all."""
    return not str(record.msg).startswith("KeyboardInterrupt while sending command")


def _interrupted(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None
