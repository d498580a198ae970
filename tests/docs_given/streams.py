"""Lines for the stream to count."""

from pathlib import Path

Path("in").mkdir()
Path("in/1.txt").write_text("one\ntwo\none\n")
