"""Dates, timestamps and intervals. ``zones`` holds the clocks of time zones; the rules are beside it, by kind."""
