"""Options of recovery: what of a job outlives its driver."""

from __future__ import annotations

from firesteel.options.jobs import RELEASE_DURING_JOB_EXECUTION
from firesteel.options.registry import GIB, Layer, Options, Origin, at_least, names, one_of, seconds, size, switch, text

RECOVERY_MODE = one_of("off", "on-request", "auto")(
    "firesteel.recovery.mode",
    None,
    "Whether a job that did not finish can go on where it was. off: it cannot. on-request: its events are written to a log beside its results, and firesteel run --resume, or execute(resume=True), goes on with it. auto: the next run of the same script does so by itself. Unset: on-request where firesteel.storage.directory is a directory of this machine's file systems, else off. On S3 it must be set, unless firesteel.results.reuse is true, and needs boto3.",
)
RECOVERY_RESUME = text(
    "firesteel.recovery.resume",
    None,
    "The job to go on with, as firesteel run --resume says it: last, for the last one at the same place of the same script, or a job's id. Unset: none, unless firesteel.recovery.mode is auto.",
)
RECOVERY_DRY_RUN = switch(
    "firesteel.recovery.dry-run",
    False,
    "Say what of the job to go on with would be kept, what would run again, and why, and end the script there, as firesteel resume --dry-run does. Nothing is run or changed.",
)
RETAIN_ON_FAILURE = seconds(
    "firesteel.results.retain-on-failure",
    86400.0,
    "How long the results of a job that failed, was cancelled, or whose driver died are kept for a resume, since the last change of its log. Later jobs and firesteel clean leave them alone until then. 0: not at all.",
    check=at_least(0),
)
RESULTS_REUSE = switch(
    "firesteel.results.reuse",
    False,
    "Keep what the steps of a job have written when it has ended, and take what earlier jobs of the same storage directory have kept in the place of steps that would do just the same to the same, as in a script or a notebook's cell that is run again after a change of its last step. What writes outputs runs in every job. Needs a directory of a file system or a place on S3, and a log (firesteel.recovery.mode), which is then written unless that option says off.",
)
RESULTS_PURE = names(
    "firesteel.results.pure",
    None,
    "Names of modules and functions of libraries that give the same answer to the same arguments, in every process and at any time, as in mylib,otherlib.parse. A step that uses a library which neither this option nor Firesteel knows to be pure runs in every job, whatever firesteel.results.reuse says. Unset: none.",
)
RETAIN_ON_SUCCESS = seconds(
    "firesteel.results.retain-on-success",
    604800.0,
    "How long the results of a job that has finished are kept for later jobs, since they were last of use, where firesteel.results.reuse is true. 0: not at all.",
    check=at_least(0),
)
RETAIN_AT_MOST = size(
    "firesteel.results.retain-at-most",
    10 * GIB,
    "Most bytes of results of one user's finished jobs that are kept in a storage directory for firesteel.results.reuse; on S3 those of all users count together. Beyond that those that were not of use for the longest time are removed when a job ends; never those that a running job uses.",
    check=at_least(0),
)


def retaining(options: Options) -> Options:
    """Returns the options of a job; where its results are for other jobs nothing of them is released before its end, whatever they say."""
    if not options[RESULTS_REUSE]:
        return options
    return options.merged(
        Options({RELEASE_DURING_JOB_EXECUTION.key: False}, Origin(Layer.PROGRAM, f"{RESULTS_REUSE.key} = true"))
    )


def asks_to_resume(options: Options, resume: bool | str | None = None) -> bool:
    """Returns whether a job is to go on where another one was, if it can. ``resume``: as ``execute`` takes it."""
    if resume is not None:
        return resume is not False
    return options[RECOVERY_RESUME] is not None or options[RECOVERY_MODE] == "auto"
