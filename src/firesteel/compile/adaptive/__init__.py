"""All that the compiler finds out beforehand about what is decided while the job runs, and the changes to a compiled job that follow.

May import what ``compile`` may. Begin with ``joins``: the ways in which a join may be done; ``runtime_filters`` finds the sources that
a join can narrow, ``narrowing`` narrows them. ``two_steps`` and ``keyed_chains`` make two vertices of steps that may be one, ``one_step`` the program of both in one.
"""
