"""``spark.sql`` with a command that runs a query: ``CREATE TABLE ... AS SELECT``, ``INSERT``. Spark runs the command, over staged rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from firesteel.api.acceleration.hooks import SPARKS, Action
from firesteel.api.acceleration.targets import OVERWRITE, check_overlap
from firesteel.errors import UsageError, failure
from firesteel.plan.expr import Unsupported
from firesteel.sql.plans.commands import Command, class_of, read_command

if TYPE_CHECKING:
    from firesteel.api.acceleration.takeover import Takeover

_MAY_BE_ONE = re.compile(r"\b(insert|create)\b", re.IGNORECASE)
"""All other texts are not parsed twice."""


def _sql(
    active: Takeover,
    _original: Action,
    session: Any,
    sqlQuery: Any,  # noqa: N803 - PySpark's name
    args: Any = None,
    **kwargs: Any,
) -> Any:
    if not isinstance(sqlQuery, str) or not _MAY_BE_ONE.search(sqlQuery):
        return SPARKS
    try:
        command = read_command(session, sqlQuery)
        plan = None if command is None else command.analysed()
    except Unsupported:  # a Spark of another kind, whose commands are its own
        return SPARKS
    except Exception as error:
        active.leave("sql", f"the command could not be read here: {failure(error)}")
        return SPARKS
    if command is None:
        return SPARKS
    name = _said(command)
    if plan is None or args or kwargs:
        active.leave(
            name, "commands with parameters are Spark's" if args or kwargs else "Spark says what is wrong with it"
        )
        return SPARKS

    def check(read: Sequence[str]) -> None:
        _check(session, plan, read)

    with active.staged(command.frame, name, check) as rows:
        return SPARKS if rows is None else command.run_over(rows)


def _said(command: Command) -> str:
    return "create table as select" if class_of(command.plan) == "CreateTableAsSelect" else "insert"


def _check(session: Any, plan: Any, read: Sequence[str]) -> None:
    """Raises UsageError with the reason where Spark has to look at what the command writes to first."""
    kind = class_of(plan)
    if kind == "CreateDataSourceTableAsSelectCommand":
        if session._jsparkSession.sessionState().catalog().tableExists(plan.table().identifier()):
            raise UsageError("the table exists already: Spark looks at that first")
    elif kind == "InsertIntoHadoopFsRelationCommand":
        if str(plan.mode().toString()) == OVERWRITE:
            check_overlap(str(plan.outputPath().toString()), read)
    elif kind == "InsertIntoDataSourceDirCommand":
        place = plan.storage().locationUri()
        if not place.isDefined():
            raise UsageError("it says no path")
        check_overlap(str(place.get().toString()), read)
    else:
        raise UsageError(f"the command {kind} is not known")


COMMANDS: dict[str, Action] = {"sql": _sql}
