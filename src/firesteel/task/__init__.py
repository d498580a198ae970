"""All that runs inside a Spark task: programs, operators, functions of users, and the executor's half of a deployment.

Begin with ``program`` (what a task is given) and ``runner`` (how it is driven). Needs numpy and pyarrow; imports ``model``,
``results`` and ``errors``.
"""
