"""Operator chaining: the steps that share a task. Every rule returns the reason why not, in words; None means yes.

Inside a chain records are handed over in one Python worker, batch by batch; between job vertices they travel through a
blocking result. A chain is linear: a step that several others read ends its chain.
"""

from __future__ import annotations

from firesteel.compile.plan import Feed, PlannedStep
from firesteel.compile.stream_graph import ChainedStep, Chaining, CollectStep, KeyedStep, SinkStep
from firesteel.model.job_graph import ShipStrategy
from firesteel.results.keys import hash_alike
from firesteel.task.passing import only_passes


def chain_obstacle(step: PlannedStep) -> str | None:
    """Why ``step`` (an operator or a sink) cannot run in the task of the step before it."""
    obstacle = output_obstacle(step)
    return obstacle if obstacle is not None else _reads_obstacle(step.feeds[0])


def output_obstacle(step: PlannedStep) -> str | None:
    """Why a sink or a collect cannot be one more output of the step before it. Other readers do not matter."""
    if len(step.feeds) != 1:
        return "it reads several streams"
    feed = step.feeds[0]
    if feed.routed:
        return "it reads what the step before it could not do"
    stays = feed.ship is ShipStrategy.GLOBAL and lies_together(feed.source)
    if feed.ship not in (None, ShipStrategy.FORWARD) and not stays:
        return f"{feed.ship.value} was asked for"
    return _settings_obstacle(step, feed)


def fusion_obstacle(step: PlannedStep, feed: Feed, wanted: tuple[str, ...], ordered: bool) -> str | None:
    """Why a keyed step cannot take this feed as it lies, without an exchange.

    ``wanted``: the key columns, of the feed's step. ``ordered``: the hash must be over just this order (several feeds
    that are walked together); else any order will do: equal keys are together either way.
    """
    if feed.routed:
        return "it reads what the step before it could not do"
    obstacle = _settings_obstacle(step, feed) or _reads_obstacle(feed)
    if obstacle is not None:
        return obstacle
    present = partitioned_by(feed.source)
    if present is None:
        return "its input is not hash partitioned"
    if present != wanted and (ordered or sorted(present) != sorted(wanted)):
        return f"its input is hash partitioned by {', '.join(present)}"
    return None


def lies_together(step: PlannedStep) -> bool:
    """True if one subtask holds all rows of ``step``: its chain begins behind a global partitioning."""
    while not step.is_global:
        if not isinstance(step.work, ChainedStep) or chain_obstacle(step) is not None:
            return False
        step = step.feeds[0].source
    return True


def partitioned_by(step: PlannedStep) -> tuple[str, ...] | None:
    """The columns by whose hash the rows of ``step`` lie in subpartitions, as they leave its chain; None: by none.

    Follows the chain back to its keyed head through stateless operators that hand the key columns through. The order
    is that of the hash: the same columns in another order lie elsewhere.
    """
    renames: list[ChainedStep] = []
    while isinstance(step.work, ChainedStep):
        if chain_obstacle(step) is not None or step.work.passed is None or not step.work.operator.unitwise:
            return None
        if step.route is not None:
            return None
        renames.append(step.work)
        step = step.feeds[0].source
    if step.hashed is None or step.route is not None:  # its vertex has another output, so no other may do its work
        return None
    keys = list(step.hashed)
    for work in reversed(renames):
        assert work.passed is not None
        outputs = {source: name for name, source in reversed(work.passed.items())}
        if not all(key in outputs for key in keys):
            return None
        keys = [outputs[key] for key in keys]
    return tuple(keys)


def hashed_by(step: PlannedStep, work: KeyedStep, lies_right: bool) -> tuple[str, ...] | None:
    """The output columns by whose hash the rows of a keyed step lie, in the hash's order.

    ``lies_right``: its input is not exchanged. None when it does not keep its keys, or gives them a type whose values
    have other hashes than those by which its rows came.
    """
    if not work.kept:
        return None
    for feeds, keys in zip(step.inputs, work.keys, strict=True):
        types = [
            (f.source.schema.field(k).type, step.schema.field(o).type)
            for f in feeds
            for k, o in zip(keys, work.kept, strict=True)
        ]
        if not all(hash_alike(one, other) for one, other in types):
            return None
    if not lies_right or len(step.feeds) > 1:  # several are never permuted
        return work.kept
    output = dict(zip(work.keys[0], work.kept, strict=True))
    present = partitioned_by(step.feeds[0].source)
    return None if present is None else tuple(output[name] for name in present)


def _settings_obstacle(step: PlannedStep, feed: Feed) -> str | None:
    mine, other = step.node.config, feed.source.node.config
    if mine.chaining is not Chaining.ALWAYS:
        return "its chaining is disabled" if mine.chaining is Chaining.NEVER else "it starts a new chain"
    if other.chaining is Chaining.NEVER:
        return "the chaining of the step before it is disabled"
    if step.group != feed.source.group:
        return f"it is in slot sharing group '{step.group}', the step before it in '{feed.source.group}'"
    if mine.parallelism != other.parallelism and not _may_differ(step, feed):
        return f"its parallelism is {_said(mine.parallelism)}, that of the step before it {_said(other.parallelism)}"
    return None


def _may_differ(step: PlannedStep, feed: Feed) -> bool:
    """A forward() asks for the same parallelism, so one that is not set follows the other, as it does behind a
    repartition(n), which is there for nothing else, and behind a sort, whose order it would lose; an output without one of
    its own is written where its rows are made."""
    mine, other = step.node.config.parallelism, feed.source.node.config.parallelism
    work = feed.source.work
    repartitioned = isinstance(work, ChainedStep | KeyedStep) and only_passes(work.operator)
    follows = repartitioned or feed.source.is_ranged or isinstance(step.work, SinkStep | CollectStep)
    if mine is None and follows:
        return True
    return feed.ship is ShipStrategy.FORWARD and (mine is None or other is None)


def _reads_obstacle(feed: Feed) -> str | None:
    return "the step before it is read by several" if feed.source.reads > 1 else None


def _said(parallelism: int | None) -> str:
    return "not set" if parallelism is None else str(parallelism)
