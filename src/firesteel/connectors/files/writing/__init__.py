"""Parts that all sinks of files share: one attempt's files, written aside and published all or nothing.

Begin with ``sinks``.
"""
