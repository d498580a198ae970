"""Reports made of a journal: explain, history, tables. Same records, same text; nothing here asks Spark or the scheduler.

Begin with ``fold`` (all of a job, stream or script): everything else reads it.
"""
