"""The ``firesteel`` command: runs scripts, reads journals. Imports the rest of Firesteel only where it is needed."""

CANCELLED = 130
"""Exit code after Ctrl-C."""
