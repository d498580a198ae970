"""A source tree; and what the README's stream reads and calls."""

import sys
from pathlib import Path

Path("src/words").mkdir(parents=True)
Path("src/words/one.py").write_text("def count(words):\n    return len(words)\n")
Path("examples").symlink_to(Path(__file__).resolve().parents[2] / "examples")
Path("in").mkdir()
Path("in/1.json").write_text('{"k": 1}\n{"k": 2}\n')
sys.argv = ["word_count.py"]


def sink(frame, batch):
    frame.collect()
