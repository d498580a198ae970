"""All that outlives a job's driver on storage: the log of its events, who may write it, and how long results are kept.

Begin with ``log``; ``frames`` says how it lies in a file, ``files`` where, ``takeover`` who goes on with a job whose driver died. The records
themselves, and the scheduler that is rebuilt by them, are in ``scheduler.recovery``.
"""
