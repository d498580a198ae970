"""Random jobs and random streams on which everything that can go wrong does, for property tests and for soaking.

Jobs run on the simulated cluster of ``firesteel.simulation``, which is shipped (``firesteel simulate``). ``job`` extends that cluster: it checks
each command, has many more kinds of faults, and drivers that die. Streams have a simulation of their own here. Begin reading at ``random_jobs`` and ``streams.random_streams``. ``benchmarks.soak`` and ``benchmarks.soak.streams`` run
them without end.
"""
