"""A cluster in the machine: nodes, slots and storage under a virtual clock, driven by the real scheduler's commands.

What ``firesteel simulate`` needs. Begin with ``job`` and ``plane``; ``cluster`` simulates the nodes, ``injection`` makes them fail.
``what_if`` decides a recorded job again, under other options.
"""
