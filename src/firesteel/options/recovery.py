"""Options of recovery: what of a job outlives its driver."""

from __future__ import annotations

from firesteel.options.registry import register
from firesteel.options.values import Option, at_least, one_of, parse_seconds

RECOVERY_MODE = register(
    Option[str | None](
        "firesteel.recovery.mode",
        one_of("off", "on-request", "auto"),
        None,
        "Whether a job whose driver died can go on where it was. off: it cannot. on-request: its events are written to a log beside its results, and firesteel run --resume, or execute(resume=True), goes on with it. auto: the next run of the same script does so by itself. Unset: on-request where firesteel.storage.directory is a directory of this machine's file systems, else off.",
    )
)
RECOVERY_RESUME = register(
    Option[str | None](
        "firesteel.recovery.resume",
        str,
        None,
        "The job to go on with, as firesteel run --resume says it: last, for the last one at the same place of the same script, or a job's id. Unset: none, unless firesteel.recovery.mode is auto.",
    )
)
RETAIN_ON_FAILURE = register(
    Option(
        "firesteel.results.retain-on-failure",
        parse_seconds,
        86400.0,
        "How long the results of a job whose driver died are kept for a resume, since their last change. Later jobs and firesteel clean leave them alone until then.",
        check=at_least(0),
    )
)
