"""Where the CPU of a job goes: ``./dev bench profile CASE``, a table of parts that adds up to the process tree, and a flame graph.

Begin with ``main``. A session is started with ``daemon`` in the place of our own daemon of Python workers: each worker, and the driver,
then has a ``sampler``, which knows nothing of Firesteel. ``processes`` reads what all processes have used, ``parts`` is the one table of
what belongs to which part, ``accounts`` adds up, ``flame`` draws. Nothing in ``src`` knows of any of this. Linux only.
"""
