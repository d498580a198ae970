"""The command line. What goes wrong is one sentence on stderr: exit 2 for wrong use, 1 for a failed job, 130 cancelled."""

from __future__ import annotations

import errno
import logging
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from firesteel.cli import CANCELLED
from firesteel.cli.bundle import bundle
from firesteel.cli.decide import WhatIf, decide, what_if_text
from firesteel.cli.group import Group, Resumable
from firesteel.cli.leftovers import clean, recover, results
from firesteel.cli.leftovers import resume as resume_command
from firesteel.cli.options import options
from firesteel.cli.run_events import events
from firesteel.cli.shared import (
    Config,
    Job,
    Master,
    OptionPairs,
    Quiet,
    Ui,
    Vertex,
    complete_demo,
    complete_job,
    complete_status,
    given_options,
    no_script,
    not_written,
    number,
    show,
    wait_for_a_key,
    whole,
)
from firesteel.cli.streams.commands import stream_app
from firesteel.cli.ui import ui
from firesteel.errors import FiresteelError, UsageError

if TYPE_CHECKING:
    from firesteel.journal.file import AnyJournalRecord
    from firesteel.local.runs import LocalMode

app = typer.Typer(
    name="firesteel",
    cls=Group,
    help="Runs PySpark pipelines whose every step's parallelism is decided from the bytes its inputs really produced.",
    rich_markup_mode=None,  # plain help: quick to start, the same in a pipe
    pretty_exceptions_enable=False,
)
app.add_typer(stream_app, name="stream")
app.command()(decide)
app.command()(options)
app.command()(bundle)
app.command("resume")(resume_command)


@app.callback(invoke_without_command=True)
def start(
    ctx: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False
) -> None:
    if version:
        from importlib.metadata import version as version_of

        show(f"firesteel {version_of('firesteel')}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        show(ctx.get_help())


_FIRST_ROWS = 1000
_ALL_ROWS = -1


def rows_or_all(text: str | int) -> int:
    """The parser of --rows."""
    return _ALL_ROWS if text == "all" else whole("--rows")(text)


def local_mode(local: bool, rows: int | None, *, accelerate: bool) -> LocalMode | None:
    """Raises UsageError for options that do not go together."""
    if not local:
        if rows is not None:
            raise UsageError("--rows says on how many rows --local computes.", hint="Write --local --rows N.")
        return None
    from firesteel.local.runs import LocalMode

    if accelerate:
        raise UsageError("--accelerate is for scripts of Spark, and --local does without it.", hint="Leave out one.")
    return LocalMode(None if rows == _ALL_ROWS else _FIRST_ROWS if rows is None else rows)


@app.command(cls=Resumable, context_settings={"ignore_unknown_options": True})
def run(
    *,
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="A Python file.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGUMENTS]", help="The arguments in sys.argv.")
    ] = None,
    option: OptionPairs = None,
    config: Config = None,
    master: Master = None,
    quiet: Quiet = False,
    with_ui: Ui = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write events as JSON lines to stderr.")] = False,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json-file", metavar="FILE", help="The same into a file; '-': stdout. Progress is shown as usual."
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="[JOB]",
            help="Go on with the script's job that did not finish: with JOB, by its id, or the last one.",
        ),
    ] = None,
    accelerate: Annotated[
        bool,
        typer.Option(
            "--accelerate", help="Take over what a PySpark script asks of its DataFrames, and say so at its end."
        ),
    ] = False,
    verify: Annotated[
        str | None,
        typer.Option(
            "--verify",
            metavar="[SHARE]",
            help="Before SCRIPT, with --accelerate: Spark computes this share of the queries, too (default: all, 1), and an answer that differs is an error.",
        ),
    ] = None,
    local: Annotated[
        bool,
        typer.Option("--local", help="Compute in this process, without Spark, on the first rows; write nothing."),
    ] = False,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows",
            parser=rows_or_all,
            metavar="N",
            help="With --local: rows of each source, or 'all' (default: 1000).",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="With --accelerate: Spark computes everything; say what would be taken over."),
    ] = False,
) -> None:
    """Run a script, with a live view.

    What it leaves open (master, options) comes from here. Arguments after '--' are all the script's. Exit codes: the script's own;
    1 a job failed, 2 wrong use, 130 cancelled.
    """
    from firesteel.cli.script import accelerated, master_for_pyspark, run_script
    from firesteel.options import RECOVERY_RESUME, SQL_VERIFY, Layer, Options, Origin

    with events(as_json, json_file) as told:
        options = given_options(option, quiet, config, with_ui=with_ui)
        if resume is not None:
            options = options.merged(Options({RECOVERY_RESUME.key: resume}, Origin(Layer.COMMAND, "--resume")))
        if verify is not None:
            if not accelerate or dry_run:
                raise UsageError(
                    "--verify checks the queries that --accelerate takes over.", hint="Write --accelerate --verify."
                )
            options = options.merged(Options({SQL_VERIFY.key: verify}, Origin(Layer.COMMAND, "--verify")))
        if not Path(script).is_file():
            raise no_script(script)
        from firesteel.api import unexecuted
        from firesteel.api.environment import set_defaults

        if dry_run and not accelerate:
            raise UsageError("--dry-run says what --accelerate would take over.", hint="Write --accelerate --dry-run.")
        set_defaults(master=master, options=options, local=local_mode(local, rows, accelerate=accelerate))
        path = Path(script)
        if accelerate and master is not None:
            master_for_pyspark(master)
        with accelerated(path.name, dry_run) if accelerate else nullcontext() as acceleration:
            code = run_script(path, arguments or [])
            if acceleration is not None:
                acceleration.release(code)
        if code:
            unexecuted.script_failed()
        if code and "firesteel.spark.driver.runtime" in sys.modules:  # jobs may have run
            from firesteel.api.leftovers import script_failed

            script_failed()
        raise typer.Exit(told.ended(code))


@app.command()
def explain(
    job: Job,
    vertex: Vertex = None,
    what_if: WhatIf = None,
    option: OptionPairs = None,
) -> None:
    """Say what a job decided, and why; or what it would have decided with other options."""
    from firesteel.report.explain import explain as explain_records
    from firesteel.report.explain import explain_script
    from firesteel.report.stream_report import explain_stream

    records, kind, broken_off = _opened(job, option)
    if what_if:
        show(what_if_text(records, what_if, vertex))
        return
    _check_vertex(kind, vertex)
    if kind == "script":
        show(explain_script(records, broken_off=broken_off))
    elif kind == "stream":
        show(explain_stream(records))
    else:
        show(explain_records(records, vertex, broken_off=broken_off))


@app.command()
def history(
    *,
    job: Annotated[
        str | None,
        typer.Argument(
            help="A job's id, its beginning, or its name, the path of a journal, or 'last'; without: a list of all jobs.",
            autocompletion=complete_job,
        ),
    ] = None,
    vertex: Vertex = None,
    every: Annotated[bool, typer.Option("--all", help="Include subtasks with one attempt.")] = False,
    limit: Annotated[
        int,
        typer.Option("--limit", "-n", parser=whole("--limit"), metavar="N", help="Most jobs that are listed; 0: all."),
    ] = 20,
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="List only these: finished, failed, running, ... Repeatable.",
            autocompletion=complete_status,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="List them as JSON, one object a line.")] = False,
    option: OptionPairs = None,
) -> None:
    """List all jobs, or one job's attempts.

    All jobs, newest first. Of one job: the subtasks that had several attempts, with node, state, cause and which one won. Of a stream: its rescales; of an accelerated script: its queries.
    """
    if job is None:
        from firesteel.cli.history_list import list_jobs

        list_jobs(given_options(option), limit, status or [], as_json=as_json)
        return
    if status or as_json:
        raise UsageError("--status and --json are for the list of all jobs.", hint=f"Leave out '{job}', or them.")
    from firesteel.journal.file import skipped
    from firesteel.report.explain import attempts_report, explain_script
    from firesteel.report.stream_report import stream_history

    records, kind, broken_off = _opened(job, option)
    _check_vertex(kind, vertex)
    if kind == "script":
        show(explain_script(records, broken_off=broken_off))
        return
    text = stream_history(records) if kind == "stream" else attempts_report(records, vertex, all_of_them=every)
    show("\n".join([text, *skipped(records)]))


def _opened(job: str, option: list[str] | None) -> tuple[list[AnyJournalRecord], str, bool]:
    """Returns a journal's records, its kind, and whether the process that wrote it is known to be gone."""
    from firesteel.journal.file import read
    from firesteel.journal.locks import is_held
    from firesteel.journal.lookup import find
    from firesteel.report.fold import kind_of

    path = find(job, given_options(option))
    records = read(path)
    return records, kind_of(records), is_held(path) is False


def _check_vertex(kind: str, vertex: str | None) -> None:
    if kind != "job" and vertex is not None:
        raise UsageError(f"This is no job: it has no vertex '{vertex}'.", hint="Leave it out.")


app.command()(ui)
app.command()(results)
app.command()(clean)
app.command()(recover)


@app.command()
def demo(
    *,
    name: Annotated[
        str | None, typer.Argument(help="The demo (default: word-count).", autocompletion=complete_demo)
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where results go (default: out/demo...).")
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where the tables of the demo 'tpch' are.")
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the demos.")] = False,
    option: OptionPairs = None,
    master: Master = None,
    quiet: Quiet = False,
    with_ui: Ui = False,
) -> None:
    """Run a demo on real input.

    It ends with what was decided and why; --list names all demos.
    """
    from firesteel.cli.demos.catalog import DEFAULT, list_text, run_named

    if listed:
        show(list_text())
        return
    given = given_options(option, quiet, with_ui=with_ui)
    run_named(name or DEFAULT, out, master, given, data)
    if with_ui:
        wait_for_a_key(given)


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
        typer.Option("--adaptive/--static", help="Decide parallelism from bytes (the default), or set it beforehand."),
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
            help="Nodes that freeze soon after the start, and are reported lost after two minutes.",
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
        int,
        typer.Option(
            "--seed", parser=whole("--seed"), metavar="S", help="Seed of the simulation: the same seed, the same run."
        ),
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
            help="The kind of resource profile for such slots: task (on the executors there are), executor (it makes them), none (only the slot pool enforces them).",
        ),
    ] = "task",
    option: OptionPairs = None,
) -> None:
    """Schedule a job on a made-up cluster.

    Prints what a job of some shape costs to schedule: the real scheduler, without Spark.
    """
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
    except OSError as error:  # typer, printing help
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        from firesteel.cli.script import report

        raise SystemExit(report(not_written(error))) from None
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
