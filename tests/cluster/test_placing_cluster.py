"""Where executions run on three nodes of one slot each, one of which is very slow."""

from __future__ import annotations

import pytest

from firesteel.spark.placement.pools import ALL, BOUNDED
from mirrors_kit import check_that_the_mirror_did_not_queue

pytestmark = pytest.mark.cluster

SLOW = "127.0.0.4"


@pytest.mark.full
@pytest.mark.parametrize(("mode", "queue"), [("FAIR", ALL), ("FIFO", BOUNDED)])
def test_mirrors_and_what_is_queued_go_to_nodes_that_are_not_blocked(cluster, tmp_path, mode, queue):
    told = cluster.driver("placing", tmp_path, FIRESTEEL_TEST_MODE=mode, FIRESTEEL_TEST_SLOW=SLOW).answer()
    assert told["queue"] == queue
    (_, node), *_ = told["blocked"]
    assert node == SLOW
    check_that_the_mirror_did_not_queue(told)
    assert SLOW not in [node for _, _, _, node in told["launches"]], "it ran where it should not"
    if mode == "FAIR":  # Spark starts what it has queued when the slow execution has left its slot
        assert len(told["returned"]) <= 6, "the queue drained through the blocked node"
        if told["returned"]:  # else nothing was queued any more when the slot became free: a busy machine
            assert told["kept"] >= 1
    else:
        assert len(told["returned"]) <= 2
    assert told["left"] == []
