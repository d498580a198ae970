"""The server: an ASGI application on a thread of its own, REST and pages over journals, which costs the jobs beside it nothing.

Begin with ``routes`` (what there is to ask for) and ``catalog`` (whence it comes). ``guard`` is the security, ``serving`` the thread.
"""
