"""Reports made of a journal: explain, history, tables. Same records, same text; nothing here asks Spark or the scheduler.

Begin with ``history`` (a job, as live views show it) and ``fold`` (all of a job, stream or script): everything else reads these.
"""
