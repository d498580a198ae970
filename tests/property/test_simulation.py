"""Random jobs on simulated clusters where everything goes wrong. Each command is checked as it is carried out: nothing is
read that is deleted or absent, nothing deleted twice, nothing left at the end. ``python -m benchmarks.soak`` runs more."""

from __future__ import annotations

import collections
from dataclasses import replace

import pytest
from tests.effort import examples
from tests.simulation.job import SimulatedJob
from tests.simulation.random_jobs import random_job, run_random_job

from firesteel.errors import UsageError
from firesteel.journal.file import Journal, read
from firesteel.model.job_graph import ResultPartitionType
from firesteel.scheduler.exchange import merging
from firesteel.scheduler.kernel.commands import JobStatus
from firesteel.simulation.violation import ViolationError


def run(seed, **options):
    """None where the job asks for what cannot be."""
    faults = options.pop("faults", True)
    try:
        return run_random_job(random_job(seed, faults), **options)
    except UsageError:
        return None
    except AssertionError as error:
        raise AssertionError(f"seed {seed}: {error}") from error


def test_every_job_ends_and_leaves_nothing_behind():
    """They finish, whatever happens, unless their restarts are few."""
    tried = examples(210)
    ended = [run(seed, validate_every=100) for seed in range(tried)]
    assert sum(found is not None for found in ended) > tried // 2


def test_every_event_leaves_the_scheduler_valid():
    for seed in range(5002, 5002 + examples(30)):
        run(seed, validate_every=1)


def test_what_is_merged_is_released_too(monkeypatch):
    """Merging is made to seem worth it always; some groups fail, and some merged objects are lost with their nodes."""
    monkeypatch.setattr(merging, "WORTH", -1e9)
    merges = 0
    for seed in range(6000, 6000 + max(8, examples(100))):
        found = run(seed, validate_every=20)
        merges += 0 if found is None else found[0].decisions.get("merge", 0)
    assert merges > 1


def test_the_same_seed_tells_the_same_story():
    """Journals are compared byte by byte, by their digests."""
    stories = {}
    for seed in range(7000, 7000 + examples(30)):
        first = run(seed, validate_every=0)
        assert first == run(seed, validate_every=0)
        if first is not None:
            stories[first[1]] = seed
    assert len(stories) > examples(30) // 2, "different seeds tell different stories"


def test_where_nothing_goes_wrong_nothing_is_restarted():
    for seed in range(8002, 8002 + max(8, examples(40))):
        found = run(seed, faults=False, validate_every=10)
        if found is not None:
            assert found[0].status is JobStatus.FINISHED
            assert "failover" not in found[0].decisions


@pytest.mark.full
def test_the_jobs_are_as_wild_as_they_are_meant_to_be(tmp_path):
    """Guards the tests above against dice that have gone quiet. All that was recorded can be read, too."""
    wanted = """ExecutionsDeploying ExecutionsFinished ExecutionsFailed ExecutionsCancelled PartitionsLost TimerFired
        ExecutorChanged SinksCommitted Deploy DeployRegions Cancel ReleasePartitions DiscardExecutions VerifyPartitions
        ExecutionsRejected BlockNodes CommitSinks SinksFailed CancelRequested StoreSizes LoadSizes SizesLoaded DropSizes StoreBlob DropBlobs
        USER WORKER LOST PARTITION FINISHED FAILED CANCELED pipelined"""
    seen = collections.Counter()

    def missing():
        return [kind for kind in wanted.split() if not seen[kind]] + ["several edges"] * (seen["several edges"] <= 12)

    for seed in range(139, 300):  # the first of these have it all
        if not missing():
            break
        job = random_job(seed)
        seen["pipelined"] += any(d.type is ResultPartitionType.PIPELINED for d in job.graph.datasets)
        seen["several edges"] += any(len(vertex.inputs) > 1 for vertex in job.graph.vertices)
        try:
            scheduler = job.scheduler()
        except UsageError:
            continue
        journal = Journal(tmp_path / f"{seed}.jsonl")
        simulated = SimulatedJob(scheduler, job.world, journal)
        handle = scheduler.handle

        def counted(event, handle=handle):
            commands = handle(event)
            seen.update(type(thing).__name__ for thing in (event, *commands))
            seen.update([event.cause.kind.name] if type(event).__name__ == "ExecutionsFailed" else [])
            return commands

        scheduler.handle = counted
        seen[simulated.run().status.name] += 1
        journal.close()
        assert read(journal.path)
    assert not missing()


def test_what_waits_in_a_job_that_is_cancelled_sets_no_timers_any_more():
    """Vertices are put off, and a node stands still with what was cancelled there: there is little to be told."""
    job = random_job(80000)
    simulated = SimulatedJob(job.scheduler(), job.world)
    simulated.start()
    while simulated.plane.ended is None and simulated.events < 1000:
        simulated.step()
    assert simulated.plane.ended is not None and simulated.plane.ended.status is JobStatus.CANCELED


@pytest.mark.full
def test_a_release_that_comes_too_early_is_seen():
    """The plane is no use if it lets faults pass: here the scheduler forgets its readers."""
    with pytest.raises(ViolationError):
        for seed in range(200):
            job = replace(random_job(seed, faults=False))
            try:
                scheduler = job.scheduler()
            except UsageError:
                continue
            simulated = SimulatedJob(scheduler, job.world, validate_every=0)
            _release_with_the_producers(scheduler)
            simulated.run()


def _release_with_the_producers(scheduler):
    from firesteel.scheduler.kernel.commands import ReleasePartitions
    from firesteel.scheduler.kernel.events import ExecutionsFinished

    handle = scheduler.handle

    def hasty(event):
        commands = handle(event)
        if isinstance(event, ExecutionsFinished):
            tokens = event.reports.tokens
            early = [
                ReleasePartitions(p.dataset, event.subtasks, event.attempts, tokens) for p in event.reports.partitions
            ]
            commands = early + commands
        return commands

    scheduler.handle = hasty
