"""Broadcast or hash: decided from the real bytes of a join's build side, before anything of the probe side was made.

A broadcast join saves the exchange of the probe side; it costs memory for the build side, and time until each executor has read it.
"""

from __future__ import annotations

from firesteel.scheduler.kernel.decisions import JoinSizes

HASH = "hash"
"""Both sides are exchanged by the hash of their keys."""
UNKNOWN_MEMORY = 256 << 20
"""A task's memory budget where nobody told it."""


def decide_join(sizes: JoinSizes) -> tuple[str, str]:
    """Returns the result ("broadcast left", "broadcast right" or "hash") and its rule.

    ``hint``: the user asked for it. ``next step``: a broadcast saves no exchange. ``memory``: a task cannot hold the build side.
    ``bytes``: what tasks wait for was compared with the exchange that a broadcast saves.
    """
    broadcast = f"broadcast {sizes.build}"
    if sizes.hint:
        return broadcast, "hint"
    if sizes.exchanged_again:
        return HASH, "next step"
    if sizes.build_memory > sizes.limit:
        return HASH, "memory"
    is_dear = sizes.readers * sizes.build_bytes > (sizes.probe_bytes or sizes.limit)
    return (HASH if is_dear else broadcast), "bytes"
