"""The data plane: carries the control plane's commands out on Spark and turns what Spark reports into events.

Begin with ``driver.runtime`` (a job from submission to its end) and ``driver.loop``; ``session`` makes and checks sessions,
``placement`` knows nodes and executors, ``slots`` gives groups their resources, ``storage`` cleans up, ``streams`` runs streaming queries.
May import every other room but ``api`` and ``cli``.
"""
