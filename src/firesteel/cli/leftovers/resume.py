"""``firesteel resume``: goes on with a job that did not finish, by its script, or says what would be kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from firesteel.cli.shared import Config, Job, Master, OptionPairs, Quiet, given_options, no_script
from firesteel.errors import UsageError


def resume(
    *,
    job: Job,
    script: Annotated[
        str | None,
        typer.Option(
            "--script", metavar="FILE", help="The corrected script, if it lies elsewhere (default: the job's)."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only say what would be kept, what would run again, and why."),
    ] = False,
    option: OptionPairs = None,
    config: Config = None,
    master: Master = None,
    quiet: Quiet = False,
) -> None:
    """Go on with a job that did not finish: its script, called as it was, keeps what is as it was.

    The same as 'firesteel run --resume JOB SCRIPT ARGUMENTS' with the job's -O options. Exit codes are those of 'run'.
    """
    from firesteel.api.environment import set_defaults
    from firesteel.api.jobs.resumable import left_by
    from firesteel.cli.script import run_script
    from firesteel.options import RECOVERY_DRY_RUN, RECOVERY_RESUME, Layer, Options, Origin
    from firesteel.options.registry import ON_COMMAND_LINE

    given = given_options(option, quiet, config)
    left = left_by(job, given)
    path = Path(script or left.script)
    if not (script or left.script):
        raise UsageError(
            f"Job {left.job_id} was of no script, but typed in.",
            hint="Give the script by --script, or call execute(resume='JOB') where you type.",
        )
    if not path.is_file():
        raise no_script(str(path))
    had = {key: value for key, value in left.options.items() if given.origin(key).layer < Layer.COMMAND}
    own = {RECOVERY_RESUME.key: left.job_id, RECOVERY_DRY_RUN.key: dry_run}
    options = given.merged(Options(had, ON_COMMAND_LINE)).merged(Options(own, Origin(Layer.COMMAND, "resume")))
    set_defaults(master=master, options=options, local=None)
    raise typer.Exit(run_script(path, list(left.arguments)))
