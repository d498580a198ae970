"""A cluster in the machine: nodes, slots and storage under a virtual clock, driven by the real scheduler's commands.

Begin with ``job`` and ``plane``; ``cluster`` is what is simulated, ``faults`` what goes wrong in it, ``streams`` the same for a stream.
"""
