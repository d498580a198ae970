"""Random jobs are cut off, some of their steps changed, and another job keeps what it can: just what is as it was, and it holds what it must.

The checks are those of ``tests.simulation.corrected``; what is kept is decided by the real code.
"""

from __future__ import annotations

from collections import Counter

import pytest
from tests.effort import examples
from tests.simulation.corrected import corrected_jobs

from firesteel.errors import UsageError
from firesteel.spark.recovery import deployments


def counts(seeds):
    found = Counter()
    for seed in seeds:
        try:
            found += corrected_jobs(seed)
        except UsageError:
            found["refused"] += 1
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return found


def test_what_is_kept_is_what_would_be_made():
    found = counts(range(max(6, examples(60))))
    assert found["kept"] > found["jobs"] // 2


@pytest.mark.full
@pytest.mark.parametrize("forgets", ["what it does", "what it reads"])
def test_an_execution_that_is_kept_for_another_one_is_seen(monkeypatch, forgets):
    """Guards the test above: of two executions that differ in one of these, either would be taken for the other."""
    real = deployments.execution_key

    def half(identity, inputs):
        return real(bytes(len(identity)), inputs) if forgets == "what it does" else real(identity, bytes(len(inputs)))

    monkeypatch.setattr(deployments, "execution_key", half)
    monkeypatch.setattr("firesteel.scheduler.recovery.earlier.execution_key", half)
    with pytest.raises(AssertionError, match=r"would have written something else|has changed"):
        counts(range(200))
